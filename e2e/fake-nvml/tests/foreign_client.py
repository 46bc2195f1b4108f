"""Runs a create, list and destroy cycle through NVIDIA's own binding. Called by tests/library/foreign_client.rs."""

import sys
from ctypes import byref, c_uint

import pynvml as n


def refused(code, call, *arguments):
    """Asserts that a call is refused with this code."""
    try:
        call(*arguments)
    except n.NVMLError as error:
        assert error.value == code, (call.__name__, error.value, code)
    else:
        raise AssertionError(f"{call.__name__} was not refused")


def profiles(gpu):
    """Every profile of a GPU."""
    for enum in range(18):
        try:
            yield n.nvmlDeviceGetGpuInstanceProfileInfo(gpu, enum)
        except n.NVMLError as error:
            assert error.value == n.NVML_ERROR_NOT_SUPPORTED, error


def placements(gpu, profile):
    """Every place of a profile."""
    count = c_uint(0)
    n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile.id, None, byref(count))
    array = (n.c_nvmlGpuInstancePlacement_t * count.value)()
    n.nvmlDeviceGetGpuInstancePossiblePlacements(gpu, profile.id, array, byref(count))
    return list(array)[: count.value]


def listed(gpu, profile):
    """The GPU instances of a profile."""
    count = c_uint(0)
    array = (n.c_nvmlGpuInstance_t * profile.instanceCount)()
    n.nvmlDeviceGetGpuInstances(gpu, profile.id, array, byref(count))
    return count.value


def whole_compute(instance, slices):
    """The compute instance profile that fills a GPU instance."""
    for enum in range(n.NVML_COMPUTE_INSTANCE_PROFILE_COUNT):
        try:
            info = n.nvmlGpuInstanceGetComputeInstanceProfileInfo(instance, enum, 0)
        except n.NVMLError as error:
            assert error.value == n.NVML_ERROR_NOT_SUPPORTED, error
            continue
        if info.sliceCount == slices:
            return info
    raise AssertionError("no compute instance fills the GPU instance")


def main():
    n.nvmlInit()
    assert n.nvmlDeviceGetCount() == 2
    print(n.nvmlSystemGetDriverVersion(), n.nvmlSystemGetNVMLVersion())
    gpu = n.nvmlDeviceGetHandleByIndex(1)
    uuid = n.nvmlDeviceGetUUID(gpu)
    assert n.nvmlDeviceGetIndex(n.nvmlDeviceGetHandleByUUID(uuid)) == 1
    assert n.nvmlDeviceGetMigMode(gpu) == [1, 1]
    total = n.nvmlDeviceGetMemoryInfo(gpu, n.nvmlMemory_v2).total
    seen = set()
    for profile in profiles(gpu):
        assert n.nvmlDeviceGetGpuInstanceProfileInfoById(gpu, profile.id).name == profile.name
        for placement in placements(gpu, profile):
            instance = n.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, profile.id, byref(placement))
            refused(n.NVML_ERROR_INSUFFICIENT_RESOURCES, n.nvmlDeviceCreateGpuInstanceWithPlacement,
                    gpu, profile.id, byref(placement))
            info = n.nvmlGpuInstanceGetInfo(instance)
            assert (info.profileId, info.placement.start) == (profile.id, placement.start)
            assert listed(gpu, profile) == 1
            filling = whole_compute(instance, profile.sliceCount)
            assert filling.instanceCount == 1 and filling.multiprocessorCount == profile.multiprocessorCount
            compute = n.nvmlGpuInstanceCreateComputeInstance(instance, filling.id)
            mig = n.nvmlDeviceGetMigDeviceHandleByIndex(gpu, 0)
            seen.add(n.nvmlDeviceGetUUID(mig))
            assert n.nvmlDeviceIsMigDeviceHandle(mig)
            assert n.nvmlDeviceGetGpuInstanceId(mig) == info.id
            assert n.nvmlDeviceGetComputeInstanceId(mig) == n.nvmlComputeInstanceGetInfo(compute).id
            attributes = n.nvmlDeviceGetAttributes(mig)
            assert attributes.memorySizeMB == profile.memorySizeMB
            assert attributes.gpuInstanceSliceCount == profile.sliceCount
            memory = n.nvmlDeviceGetMemoryInfo(mig, n.nvmlMemory_v2)
            assert memory.total == profile.memorySizeMB << 20 and memory.total <= total
            assert n.nvmlDeviceGetComputeRunningProcesses(mig) == []
            assert n.nvmlDeviceGetName(mig).endswith(profile.name)
            parent = n.nvmlDeviceGetDeviceHandleFromMigDeviceHandle(mig)
            assert n.nvmlDeviceGetUUID(parent) == uuid
            refused(n.NVML_ERROR_NOT_SUPPORTED, n.nvmlDeviceGetUtilizationRates, mig)
            refused(n.NVML_ERROR_IN_USE, n.nvmlGpuInstanceDestroy, instance)
            n.nvmlComputeInstanceDestroy(compute)
            n.nvmlGpuInstanceDestroy(instance)
            assert listed(gpu, profile) == 0
    refused(n.NVML_ERROR_NOT_FOUND, n.nvmlDeviceGetMigDeviceHandleByIndex, gpu, 0)
    assert len(seen) > 8 and all(uuid.startswith("MIG-") for uuid in seen)
    if sys.argv[1].startswith(("H", "B")):
        support = n.nvmlGpmQueryDeviceSupport(gpu)
        assert support.isSupportedDevice
        get = n.c_nvmlGpmMetricsGet_t()
        get.version, get.numMetrics = n.NVML_GPM_METRICS_GET_VERSION, 1
        get.metrics[0].metricId = n.NVML_GPM_METRIC_SM_UTIL
        get.sample1, get.sample2 = n.nvmlGpmSampleAlloc(), n.nvmlGpmSampleAlloc()
        n.nvmlGpmSampleGet(gpu, get.sample1)
        while True:
            n.nvmlGpmSampleGet(gpu, get.sample2)
            n.nvmlGpmMetricsGet(get)
            if get.metrics[0].nvmlReturn != n.NVML_ERROR_NO_DATA:
                break
        assert (get.metrics[0].nvmlReturn, get.metrics[0].value) == (0, 0.0)
        n.nvmlGpmSampleFree(get.sample1)
        n.nvmlGpmSampleFree(get.sample2)
    n.nvmlShutdown()
    print(f"cycle: ok, {len(seen)} slices")


main()
