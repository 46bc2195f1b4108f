//! Load: GPM where there is GPM, memory everywhere.

use std::time::{Duration, Instant};

use nvidia_ml::control::Setup;
use nvidia_ml::utilisation::Curve;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::gpm::{GpmSample, gpm_metrics_get};

use crate::node::Node;

/// Metrics between two samples that are not taken in the same millisecond.
fn metrics<'n>(node: &'n Node, sample: impl Fn() -> Result<GpmSample<'n>, NvmlError>) -> Vec<f64> {
    let ids = [
        GpmMetricId::GraphicsUtil,
        GpmMetricId::SmUtil,
        GpmMetricId::DramBwUtil,
    ];
    let first = sample().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let second = sample().unwrap();
        let answer = gpm_metrics_get(&node.nvml, &first, &second, &ids).unwrap();
        if answer.iter().all(Result::is_ok) {
            return answer.into_iter().map(|metric| metric.unwrap().value).collect();
        }
        assert!(Instant::now() < deadline, "{answer:?}");
    }
}

#[test]
fn a_slice_is_as_busy_as_its_curve_says_and_its_gpu_by_its_share() {
    let node = Node::new("H100-80GB", 1);
    let busy = node.world.foreign_create(0, "3g.40gb", Some(4), false).unwrap();
    let idle = node.world.foreign_create(0, "1g.10gb", Some(0), false).unwrap();
    node.world
        .utilisation(0, Some(busy), Some(Curve::constant(0.5)), 1000)
        .unwrap();
    let gpu = node.gpu(0);
    assert_eq!(metrics(&node, || gpu.gpm_mig_sample(busy)), [50.0, 50.0, 20.0]);
    assert_eq!(metrics(&node, || gpu.gpm_mig_sample(idle)), [0.0; 3]);
    let whole = metrics(&node, || gpu.gpm_sample())[0];
    assert!((whole - 50.0 * 3.0 / 7.0).abs() < 1e-9, "{whole}");
    let mig = (0..2).map(|index| gpu.mig_device_by_index(index).unwrap());
    let used: Vec<u64> = mig.map(|mig| mig.memory_info().unwrap().used >> 20).collect();
    assert_eq!(used, [1013, 13]);
}

#[test]
fn activity_beyond_a_whole_is_told_as_it_is() {
    let node = Node::new("H100-80GB", 1);
    let id = node.world.foreign_create(0, "7g.80gb", None, false).unwrap();
    node.world
        .utilisation(0, Some(id), Some(Curve::constant(1.5)), 0)
        .unwrap();
    assert_eq!(metrics(&node, || node.gpu(0).gpm_mig_sample(id))[0], 150.0);
}

#[test]
fn ampere_has_no_gpm_and_a_gpu_outside_mig_mode_has_rates() {
    let ampere = Node::new("A100-80GB", 1);
    assert!(!ampere.gpu(0).gpm_support().unwrap());
    assert!(matches!(
        ampere.gpu(0).gpm_sample().map(|_| ()),
        Err(NvmlError::NotSupported)
    ));

    let whole = Node::set_up(&Setup {
        mig: false,
        ..Setup::new("H100-80GB", 1, 1)
    });
    whole
        .world
        .utilisation(0, None, Some(Curve::constant(0.8)), 2048)
        .unwrap();
    let gpu = whole.gpu(0);
    assert!(gpu.gpm_support().unwrap());
    assert_eq!(gpu.utilization_rates().unwrap().gpu, 80);
    assert_eq!(gpu.memory_info().unwrap().used >> 20, 2048);
    assert!(gpu.power_usage().unwrap() > 400_000);
}
