use super::*;
use shared::snapshot::Phase;

fn request(wants: &[(&str, u32)]) -> Request {
    let want = |(name, count): &(&str, u32)| Want {
        container: "main".to_owned(),
        phase: Phase::Main,
        profile: (*name != "gpu").then(|| name.parse().unwrap()),
        count: *count,
    };
    Request {
        wants: wants.iter().map(want).collect(),
        ..Request::default()
    }
}

fn fleet(gpus: usize, repairs: bool) -> Fleet {
    let make = Make {
        board: Arc::new(Board::named("H100-80GB").unwrap().clone()),
        gpus_per_node: 2,
        policy: Policy::default(),
        repairs,
    };
    Fleet::new(make, gpus)
}

#[test]
fn several_slices_and_whole_gpus_come_and_go_on_one_node() {
    let mut fleet = fleet(4, false);
    assert!(fleet.arrive(0.0, 0, &request(&[("gpu", 2)])).is_some());
    assert!(fleet.arrive(0.0, 1, &request(&[("1g.10gb", 9)])).is_some());
    assert_eq!(fleet.active(), 4);
    // five slices are free, but no GPU is empty
    assert!(fleet.arrive(1.0, 2, &request(&[("gpu", 1)])).is_none());
    fleet.depart(2);
    fleet.depart(0);
    assert!(fleet.arrive(2.0, 3, &request(&[("gpu", 1)])).is_some());
    assert_eq!(fleet.active(), 3);
    fleet.depart(1);
    fleet.depart(3);
    assert_eq!(fleet.active(), 0);
}

#[test]
fn a_pod_is_moved_for_a_larger_one_that_fits_nowhere_else() {
    // both 3g on one GPU, 1g and 4g on the other: once the upper 3g has gone, the lower one is in the way of a 4g
    let fill = |fleet: &mut Fleet| {
        for (pod, name) in ["3g.40gb", "3g.40gb", "1g.10gb", "4g.40gb"].iter().enumerate() {
            assert!(fleet.arrive(0.0, pod, &request(&[(name, 1)])).is_some(), "{pod}");
        }
        fleet.depart(0);
        let as_large = fleet.arrive(1.0, 8, &request(&[("4g.40gb", 1)]));
        // now each GPU has one slice left
        fleet.depart(3);
        (as_large, fleet.arrive(2.0, 9, &request(&[("7g.80gb", 1)])))
    };
    let (mut without, mut with) = (fleet(2, false), fleet(2, true));
    assert_eq!(fill(&mut without), (None, None));
    assert_eq!(fill(&mut with), (None, Some(Arrived { moved: Some(2) })));
    assert_eq!((without.moves(), with.moves()), (0, 1));
}
