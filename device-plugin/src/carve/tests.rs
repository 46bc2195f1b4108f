//! Changes against GPUs in memory, where every single call can be made to fail.

use prometheus_client::registry::Registry;
use shared::mig::{Place, Use};
use tempfile::TempDir;

use super::*;
use crate::args::Strategy;
use crate::gpus::fake::Fake;
use crate::inventory::Seen;
use crate::usage::Load;

/// A node with one GPU and an agent's hands on it; no kubelet and no API server.
pub(crate) struct Bench {
    pub(crate) fake: Fake,
    pub(crate) carver: Carver,
    pub(crate) registry: Arc<Registry>,
    pub(crate) folder: TempDir,
}

pub(crate) fn bench() -> Bench {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path();
    std::fs::create_dir_all(root.join("dev")).unwrap();
    std::fs::write(root.join("devices"), "120 nvidia-caps\n").unwrap();
    let fake = Fake::node("H100-80GB", 1);
    let gpus = fake.clone();
    let connect = move || Ok(Box::new(gpus.clone()) as Box<dyn Gpus>);
    let inventory = Inventory::new(Strategy::Dynamic);
    let (metrics, registry) = Metrics::new(&inventory, &Load::default());
    let carver = Carver::new(
        inventory,
        Pods::new(None, "n"),
        Account::new(&root.join("nobody.sock")),
        metrics,
        Driver::start(Box::new(connect), std::time::Duration::from_secs(5)),
        Journal::open(&root.join("state")).unwrap(),
        DeviceNodes::new(root, root),
        Cdi::new(&root.join("cdi"), None).unwrap(),
    );
    Bench {
        fake,
        carver,
        registry,
        folder,
    }
}

impl Bench {
    fn id(&self, place: &str) -> String {
        format!("{}:{place}", self.fake.0.lock().unwrap().gpus[0].uuid)
    }

    /// Places by NVML, and by the inventory with their use.
    fn layout(&self) -> (Vec<Place>, Vec<(Place, Use)>) {
        let mut there: Vec<Place> = self
            .fake
            .0
            .lock()
            .unwrap()
            .instances
            .values()
            .map(|one| one.place)
            .collect();
        there.sort();
        let view = self.carver.inventory.view();
        let layout = view.state.layout(&view.state.gpus[0]);
        let mut known: Vec<_> = layout
            .slices()
            .iter()
            .map(|slice| (slice.place, slice.used))
            .collect();
        known.sort();
        (there, known)
    }

    pub(crate) async fn give(&self, place: &str) -> Result<Vec<Granted>, CarveError> {
        self.carver.allocate("r", &[self.id(place)]).await
    }

    /// As if the pod of a place had gone long ago.
    fn free(&self, place: &str) {
        let id = self.id(place);
        self.carver.inventory.change(|state| state.held.remove(&id));
    }
}

#[tokio::test]
async fn a_failure_at_any_call_leaves_every_slice_as_it_was() {
    for call in 1.. {
        let bench = bench();
        bench.carver.adopt().await.unwrap();
        bench.give("1g.10gb:0").await.unwrap();
        for place in ["1g.10gb:4", "2g.20gb:2"] {
            bench.give(place).await.unwrap();
            bench.free(place);
        }
        let before = bench.layout();
        bench.fake.0.lock().unwrap().fail_after = Some(call);
        let ids = [bench.id("1g.20gb:2"), bench.id("3g.40gb:4")];
        let result = bench.carver.allocate("r", &ids).await;
        if bench.fake.0.lock().unwrap().fail_after.take().is_some() {
            // fewer calls than that are made
            assert!(result.is_ok() && call > 8, "{call}");
            assert!(bench.carver.journal.record().under_way.is_empty());
            return;
        }
        assert!(result.is_err(), "call {call}");
        let (there, known) = bench.layout();
        assert_eq!(there, before.0, "call {call}");
        let used = |known: &[(Place, Use)]| known.iter().filter(|(_, used)| *used == Use::Allocated).count();
        assert_eq!(used(&known), used(&before.1), "call {call}");
        assert!(bench.carver.journal.record().under_way.is_empty(), "call {call}");
        // what is blocked after a failure is free again after a look, and the same allocation works
        bench.carver.rescan().await.unwrap();
        bench.carver.tidy(std::time::Duration::from_secs(600)).await;
        assert!(bench.carver.allocate("r", &ids).await.is_ok(), "call {call}");
    }
}

#[tokio::test]
async fn many_at_once_never_share_a_memory_slice() {
    let bench = bench();
    bench.carver.adopt().await.unwrap();
    let places = [
        "1g.10gb:0",
        "2g.20gb:0",
        "3g.40gb:0",
        "4g.40gb:0",
        "7g.80gb:0",
        "1g.20gb:2",
        "1g.10gb:3",
        "3g.40gb:4",
    ];
    let given = futures::future::join_all(places.map(|place| bench.give(place))).await;
    assert!(given.iter().any(Result::is_ok) && given.iter().any(Result::is_err));
    let board = shared::mig::Board::named("H100-80GB").unwrap();
    let mut layout = shared::mig::Layout::default();
    for (place, given) in places.iter().zip(&given) {
        if given.is_ok() {
            layout
                .add(
                    board,
                    shared::mig::Slice {
                        place: place.parse().unwrap(),
                        used: Use::Allocated,
                    },
                )
                .unwrap();
        }
    }
}

#[tokio::test]
async fn a_held_place_whose_kubelet_cannot_be_asked_is_not_given_twice() {
    let bench = bench();
    bench.carver.adopt().await.unwrap();
    bench.give("1g.10gb:0").await.unwrap();
    let refused = bench.give("1g.10gb:0").await.unwrap_err();
    assert!(matches!(refused, CarveError::Held { .. }), "{refused}");
    let id = bench.id("1g.10gb:0");
    assert_eq!(bench.carver.inventory.view().state.held[&id].seen, Seen::Never);
}
