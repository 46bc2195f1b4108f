//! GPUs in memory, for tests of what stands above the driver. It keeps the rules of placement and fails on demand.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use shared::mig::{Board, Layout, Place, Slice, Use};

use super::{DriverInfo, Events, GpuError, GpuInfo, Gpus, Instance, Memory, Process, Recovery, Usage};

/// A node of GPUs; clones see the same one.
#[derive(Clone, Default)]
pub(crate) struct Fake(pub(crate) Arc<Mutex<World>>);

/// What the driver knows.
#[derive(Default)]
pub(crate) struct World {
    pub(crate) gpus: Vec<GpuInfo>,
    pub(crate) instances: BTreeMap<(String, u32), Instance>,
    pub(crate) processes: BTreeMap<String, Vec<Process>>,
    /// Activity by UUID of the MIG device or the GPU.
    pub(crate) activity: BTreeMap<String, f64>,
    pub(crate) recovery: Option<Recovery>,
    /// Calls that change something, counted down; the one that reaches zero fails.
    pub(crate) fail_after: Option<u32>,
    made: u32,
}

impl Fake {
    /// `count` GPUs of a board in MIG mode.
    pub(crate) fn node(board: &str, count: u32) -> Self {
        let board = Arc::new(Board::named(board).unwrap().clone());
        let gpus = (0..count).map(|index| GpuInfo {
            uuid: format!("GPU-{index:08}-0000-0000-0000-000000000000"),
            index,
            minor: index,
            model: "NVIDIA H100 80GB HBM3".to_owned(),
            memory_mib: 81559,
            pci_bus: format!("00000000:{index:02X}:00.0"),
            numa: Some(index % 2),
            capability: (9, 0),
            mig: true,
            board: Some(Arc::clone(&board)),
            unlike_catalogue: false,
        });
        let world = World {
            gpus: gpus.collect(),
            ..World::default()
        };
        Self(Arc::new(Mutex::new(world)))
    }

    fn change(&self, call: &'static str) -> Result<std::sync::MutexGuard<'_, World>, GpuError> {
        let mut world = self.0.lock().unwrap();
        match world.fail_after.as_mut() {
            Some(1) => {
                world.fail_after = None;
                return Err(GpuError::Other {
                    call,
                    text: "told to fail".to_owned(),
                });
            }
            Some(left) => *left -= 1,
            None => {}
        }
        Ok(world)
    }
}

impl Gpus for Fake {
    fn driver(&self) -> Result<DriverInfo, GpuError> {
        Ok(DriverInfo::default())
    }

    fn list(&mut self) -> Result<Vec<GpuInfo>, GpuError> {
        Ok(self.0.lock().unwrap().gpus.clone())
    }

    fn instances(&mut self, gpu: &GpuInfo) -> Result<Vec<Instance>, GpuError> {
        let world = self.0.lock().unwrap();
        let of_gpu = world.instances.iter().filter(|((uuid, _), _)| *uuid == gpu.uuid);
        Ok(of_gpu.map(|(_, instance)| instance.clone()).collect())
    }

    fn create_instance(&mut self, gpu: &GpuInfo, place: Place) -> Result<u32, GpuError> {
        let there = self.instances(gpu)?;
        let mut world = self.change("create instance")?;
        let board = gpu.board.as_ref().unwrap();
        let mut layout = Layout::default();
        for instance in there {
            layout.insert(Slice {
                place: instance.place,
                used: Use::Allocated,
            });
        }
        if !layout.fits(board, place) {
            return Err(GpuError::NoRoom {
                call: "create instance",
            });
        }
        world.made += 1;
        let gi = world.made;
        let instance = Instance {
            place,
            gi,
            ci: None,
            uuid: String::new(),
            partial: 0,
        };
        world.instances.insert((gpu.uuid.clone(), gi), instance);
        Ok(gi)
    }

    fn create_compute(&mut self, gpu: &GpuInfo, _: Place, gi: u32) -> Result<Instance, GpuError> {
        let mut world = self.change("create compute")?;
        world.made += 1;
        let uuid = format!("MIG-{:08}-0000-0000-0000-000000000000", world.made);
        let instance = world.instances.get_mut(&(gpu.uuid.clone(), gi)).unwrap();
        (instance.ci, instance.uuid) = (Some(0), uuid);
        Ok(instance.clone())
    }

    fn destroy_compute(&mut self, gpu: &GpuInfo, gi: u32) -> Result<(), GpuError> {
        let mut world = self.change("destroy compute")?;
        if world
            .processes
            .get(&gpu.uuid)
            .is_some_and(|all| all.iter().any(|one| one.gi == Some(gi)))
        {
            return Err(GpuError::InUse {
                call: "destroy compute",
            });
        }
        let instance = world.instances.get_mut(&(gpu.uuid.clone(), gi)).unwrap();
        (instance.ci, instance.uuid, instance.partial) = (None, String::new(), 0);
        Ok(())
    }

    fn destroy_instance(&mut self, gpu: &GpuInfo, gi: u32) -> Result<(), GpuError> {
        let mut world = self.change("destroy instance")?;
        let removed = world.instances.remove(&(gpu.uuid.clone(), gi));
        removed.map(|_| ()).ok_or(GpuError::NotFound {
            call: "destroy instance",
        })
    }

    fn processes(&mut self, gpu: &GpuInfo) -> Result<Vec<Process>, GpuError> {
        Ok(self
            .0
            .lock()
            .unwrap()
            .processes
            .get(&gpu.uuid)
            .cloned()
            .unwrap_or_default())
    }

    fn usage(&mut self, gpu: &GpuInfo) -> Result<Vec<Usage>, GpuError> {
        let there = self.instances(gpu)?;
        let slices = there.into_iter().filter(|instance| instance.ci.is_some());
        let uuids = if gpu.mig {
            slices.map(|instance| instance.uuid).collect()
        } else {
            vec![gpu.uuid.clone()]
        };
        let world = self.0.lock().unwrap();
        let usage = |uuid: String| Usage {
            activity: world.activity.get(&uuid).copied(),
            memory: Some(Memory {
                used: 1 << 20,
                total: 10 << 30,
            }),
            uuid,
        };
        Ok(uuids.into_iter().map(usage).collect())
    }

    fn recovery(&mut self, _: &GpuInfo) -> Result<Recovery, GpuError> {
        Ok(self.0.lock().unwrap().recovery.unwrap_or(Recovery::None))
    }

    fn events(&mut self) -> Result<Box<dyn Events>, GpuError> {
        Err(GpuError::NotSupported { call: "events" })
    }
}
