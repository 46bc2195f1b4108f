//! What is broken on purpose: XIDs, lost GPUs, calls that fail or take long, processes that stay, load.

use std::time::Duration;

use super::{Refusal, World, index, instance};
use crate::abi;
use crate::clock::now_ms;
use crate::code::Code;
use crate::state::{Failure, GPU_RECOVERY_ACTION, Gpu, Process, XID_CRITICAL_ERROR};
use crate::utilisation::Curve;

/// The XID of a GPU that has fallen off the bus.
const XID_FALLEN_OFF_THE_BUS: u64 = 79;

/// A process on a slice, or on a whole GPU outside MIG mode.
#[derive(Clone, Copy, Debug)]
pub struct Leftover {
    /// GPU index.
    pub gpu: u32,
    /// GPU instance id, in MIG mode.
    pub gpu_instance: Option<u32>,
    /// Its pid.
    pub pid: u32,
    /// Memory it holds, in MiB.
    pub memory_mib: u64,
}

impl World {
    /// Raises an XID, about a GPU, a GPU instance or a compute instance.
    ///
    /// # Errors
    /// When there is no such GPU or instance.
    pub fn xid(
        &self,
        gpu: u32,
        code: u64,
        gpu_instance: Option<u32>,
        compute_instance: Option<u32>,
    ) -> Result<(), Refusal> {
        self.store.change(|state| {
            index(state, gpu)?;
            if let Some(id) = gpu_instance {
                instance(state, gpu, id)?;
            }
            state.tell(gpu, XID_CRITICAL_ERROR, code, gpu_instance, compute_instance);
            Ok(())
        })
    }

    /// A GPU falls off the bus; unless `silent`, with XID 79.
    ///
    /// # Errors
    /// When there is no such GPU.
    pub fn lose(&self, gpu: u32, silent: bool) -> Result<(), Refusal> {
        self.store.change(|state| {
            let index = index(state, gpu)?;
            state.gpus[index].lost = true;
            if !silent {
                state.tell(gpu, XID_CRITICAL_ERROR, XID_FALLEN_OFF_THE_BUS, None, None);
            }
            Ok(())
        })
    }

    /// A lost GPU is back, as it was.
    ///
    /// # Errors
    /// When there is no such GPU.
    pub fn restore(&self, gpu: u32) -> Result<(), Refusal> {
        self.on_gpu(gpu, |gpu| gpu.lost = false)
    }

    /// Sets what `NVML_FI_DEV_GET_GPU_RECOVERY_ACTION` says, and tells the event of its change.
    ///
    /// # Errors
    /// When there is no such GPU.
    pub fn recovery_action(&self, gpu: u32, action: u32) -> Result<(), Refusal> {
        self.store.change(|state| {
            let index = index(state, gpu)?;
            state.gpus[index].recovery_action = action;
            state.tell(gpu, GPU_RECOVERY_ACTION, action.into(), None, None);
            Ok(())
        })
    }

    /// Calls of a function fail: the `on_call`-th from now (from 1) and the `times - 1` after it.
    ///
    /// # Errors
    /// When the library has no such function.
    pub fn fail(&self, function: &str, on_call: u64, code: Code, times: u64) -> Result<(), Refusal> {
        let function = exported(function)?;
        if on_call == 0 || times == 0 {
            return Err(Refusal::FromOne);
        }
        self.change(|state| {
            state.failures.push(Failure {
                function,
                on_call,
                times,
                code: code as u32,
                seen: 0,
            });
        })
    }

    /// Every call of a function takes this long; zero takes the delay away.
    ///
    /// # Errors
    /// When the library has no such function.
    pub fn delay(&self, function: &str, delay: Duration) -> Result<(), Refusal> {
        let function = exported(function)?;
        self.change(|state| {
            let milliseconds = u64::try_from(delay.as_millis()).unwrap_or(u64::MAX);
            if milliseconds == 0 {
                state.delays.remove(&function);
            } else {
                state.delays.insert(function, milliseconds);
            }
        })
    }

    /// A process stays on a slice, or on a GPU.
    ///
    /// # Errors
    /// When there is no such GPU or instance.
    pub fn leftover(&self, process: &Leftover) -> Result<(), Refusal> {
        self.store.change(|state| {
            let index = index(state, process.gpu)?;
            let compute_instance = match process.gpu_instance {
                Some(id) => instance(state, process.gpu, id)?
                    .compute_instances
                    .first()
                    .map(|compute| compute.id),
                None => None,
            };
            state.gpus[index].processes.push(Process {
                pid: process.pid,
                gpu_instance: process.gpu_instance,
                compute_instance,
                memory_mib: process.memory_mib,
            });
            Ok(())
        })
    }

    /// A process ends.
    ///
    /// # Errors
    /// When there is no such GPU, or no such process on it.
    pub fn remove_leftover(&self, gpu: u32, pid: u32) -> Result<(), Refusal> {
        self.store.change(|state| {
            let index = index(state, gpu)?;
            let processes = &mut state.gpus[index].processes;
            let before = processes.len();
            processes.retain(|process| process.pid != pid);
            if processes.len() < before {
                Ok(())
            } else {
                Err(Refusal::NoProcess { gpu, pid })
            }
        })
    }

    /// Sets the load of a slice, or of a GPU outside MIG mode. The curve's second 0 is now.
    ///
    /// # Errors
    /// When there is no such GPU or instance.
    pub fn utilisation(
        &self,
        gpu: u32,
        gpu_instance: Option<u32>,
        curve: Option<Curve>,
        memory_mib: u64,
    ) -> Result<(), Refusal> {
        self.store.change(|state| {
            let index = index(state, gpu)?;
            let load = match gpu_instance {
                None => &mut state.gpus[index].load,
                Some(id) => {
                    instance(state, gpu, id)?;
                    let mut instances = state.gpus[index].instances.iter_mut();
                    let found = instances.find(|instance| instance.id == id);
                    &mut found
                        .ok_or(Refusal::NoInstance {
                            gpu,
                            gpu_instance: id,
                            known: String::new(),
                        })?
                        .load
                }
            };
            load.curve = curve.map(|curve| Curve {
                since_ms: now_ms(),
                ..curve
            });
            load.memory_mib = memory_mib;
            Ok(())
        })
    }

    fn on_gpu(&self, gpu: u32, change: impl FnOnce(&mut Gpu)) -> Result<(), Refusal> {
        self.store.change(|state| {
            let index = index(state, gpu)?;
            change(&mut state.gpus[index]);
            Ok(())
        })
    }
}

/// The full name of an exported function, given with or without `nvml`.
fn exported(function: &str) -> Result<String, Refusal> {
    let full = if function.starts_with("nvml") {
        function.to_owned()
    } else {
        format!("nvml{function}")
    };
    let known: Vec<&str> = abi::functions().collect();
    if known.contains(&full.as_str()) {
        Ok(full)
    } else {
        Err(Refusal::unknown_function(function, &known))
    }
}
