//! Repair: what is moved, what never is, and an oracle that tries every move.

use proptest::prelude::*;

use super::*;
use crate::decide::testing::{cluster, gpu_uuid, node, owner, tables};
use crate::mig::layout::enumerate;

const BOARD: &str = "H100-80GB";

fn place(text: &str) -> Place {
    text.parse().unwrap()
}

/// A node of one GPU for each list of places; every slice has a pod of its own, named by GPU and place.
fn used(gpus: &[&[&str]]) -> Snapshot {
    let mut node = node("a", BOARD, gpus.len() as u32);
    for (at, places) in gpus.iter().enumerate() {
        for text in *places {
            node.gpus[at].hold(place(text), owner(&format!("{at}/{text}")));
        }
    }
    cluster([node])
}

fn repair(snapshot: &Snapshot, profile: &str) -> Option<Repair> {
    one_move(snapshot, profile.parse().unwrap(), &tables(snapshot), &Anywhere)
}

fn seat(gpu: u32, text: &str) -> Seat {
    Seat {
        node: "a".to_owned(),
        device: DeviceId::new(gpu_uuid("a", gpu), place(text)),
    }
}

#[test]
fn a_lone_small_slice_moves_to_the_other_gpu_and_a_whole_gpu_is_free() {
    let snapshot = used(&[&["4g.40gb:0", "1g.10gb:5"], &["1g.10gb:6"]]);
    let repair = repair(&snapshot, "7g.80gb").unwrap();
    assert_eq!(repair.owner, owner("1/1g.10gb:6"));
    assert_eq!(repair.from, seat(1, "1g.10gb:6"));
    assert_eq!(repair.to, seat(0, "1g.10gb:4"));
    assert_eq!(repair.opens, seat(1, "7g.80gb:0"));
    assert_eq!(repair.price.size, 1);
}

#[test]
fn a_slice_moves_within_its_gpu_where_that_opens_the_window() {
    let snapshot = used(&[&["2g.20gb:2"]]);
    let repair = repair(&snapshot, "4g.40gb").unwrap();
    assert_eq!(repair.to, seat(0, "2g.20gb:4"));
    assert_eq!(repair.opens, seat(0, "4g.40gb:0"));
}

#[test]
fn the_smallest_slice_moves_even_where_a_larger_one_would_leave_a_better_shape() {
    let snapshot = used(&[&["2g.20gb:0"], &["1g.10gb:0"], &["4g.40gb:0", "1g.10gb:6"]]);
    assert_eq!(repair(&snapshot, "7g.80gb").unwrap().price.size, 1);
}

#[test]
fn nothing_moves_where_two_would_have_to_or_where_there_is_no_way_out() {
    assert_eq!(repair(&used(&[&["1g.10gb:0", "1g.10gb:6"]]), "7g.80gb"), None);
    assert_eq!(
        repair(&used(&[&["4g.40gb:0"], &["4g.40gb:0", "3g.40gb:4"]]), "7g.80gb"),
        None
    );
}

#[test]
fn a_pod_with_two_slices_and_a_slice_without_an_owner_stay() {
    let mut two = node("a", BOARD, 2);
    two.gpus[0].hold(place("1g.10gb:6"), owner("both"));
    two.gpus[1].hold(place("1g.10gb:6"), owner("both"));
    assert_eq!(repair(&cluster([two.clone()]), "7g.80gb"), None);
    two.gpus[1].put(
        Slice {
            place: place("1g.10gb:6"),
            used: Use::Blocked,
        },
        None,
    );
    // the pod has one slice now, and the blocked one still blocks
    let repair = repair(&cluster([two]), "7g.80gb").unwrap();
    assert_eq!(repair.opens, seat(0, "7g.80gb:0"));
}

#[test]
fn rules_are_heard_and_the_next_way_is_taken() {
    struct Stays(&'static str);
    impl Rules for Stays {
        fn offered(&self, _: &Node) -> bool {
            true
        }
        fn may_move(&self, owner: &Owner, _: &Node, _: &Node) -> bool {
            owner.pod != self.0
        }
        fn worth(&self, gained: u8, moved: u8) -> bool {
            gained >= 4 * moved
        }
    }
    let snapshot = used(&[&["1g.10gb:6"], &["2g.20gb:4"]]);
    let profile = "7g.80gb".parse().unwrap();
    let asked = |who| {
        one_move(&snapshot, profile, &tables(&snapshot), &Stays(who))
            .unwrap()
            .owner
            .pod
    };
    assert_eq!(asked("nobody"), "0/1g.10gb:6");
    assert_eq!(asked("0/1g.10gb:6"), "1/2g.20gb:4");
    // by these rules half a GPU is not worth a quarter, though there is a way out
    let snapshot = used(&[&["2g.20gb:2"]]);
    let half = "4g.40gb".parse().unwrap();
    assert_eq!(
        one_move(&snapshot, half, &tables(&snapshot), &Stays("nobody")),
        None
    );
}

#[test]
fn nobody_is_restarted_for_as_much_as_it_has_or_for_less_than_half_a_gpu() {
    struct AsUsual;
    impl Rules for AsUsual {
        fn offered(&self, _: &Node) -> bool {
            true
        }
        fn may_move(&self, _: &Owner, _: &Node, _: &Node) -> bool {
            true
        }
    }
    let moved = |gpus: &[&[&str]], profile: &str| {
        let snapshot = used(gpus);
        let found = one_move(&snapshot, profile.parse().unwrap(), &tables(&snapshot), &AsUsual);
        assert!(
            repair(&snapshot, profile).is_some(),
            "there is a way: {gpus:?} {profile}"
        );
        found.map(|repair| repair.owner.pod)
    };
    // a 4g may begin at 0 alone, and the upper half is free for the 3g
    assert_eq!(moved(&[&["3g.40gb:0"]], "4g.40gb"), None);
    assert_eq!(
        moved(&[&["2g.20gb:2"], &["7g.80gb:0"]], "4g.40gb"),
        Some("0/2g.20gb:2".into())
    );
    assert_eq!(
        moved(&[&["3g.40gb:0"], &["3g.40gb:0"]], "7g.80gb"),
        Some("0/3g.40gb:0".into())
    );
    // one of two slices in the way of a quarter: 2g may begin at 0, 2 and 4
    let full: &[&[&str]] = &[&["1g.10gb:1", "2g.20gb:2", "1g.10gb:4", "1g.20gb:6"]];
    assert_eq!(moved(full, "2g.20gb"), None);
}

#[test]
fn nothing_that_runs_is_touched_on_nodes_that_only_observe() {
    for mode in [Mode::Observe, Mode::Static] {
        let mut watched = node("a", BOARD, 2);
        watched.mode = mode;
        watched.gpus[0].hold(place("1g.10gb:6"), owner("small"));
        watched.gpus[1].hold(place("4g.40gb:0"), owner("large"));
        assert_eq!(repair(&cluster([watched]), "7g.80gb"), None, "{mode:?}");
    }
}

/// Sizes of all slices whose move, anywhere, makes room for `profile`.
fn sizes_by_trying(snapshot: &Snapshot, profile: Profile) -> Vec<u8> {
    let node = &snapshot.nodes["a"];
    let mut sizes = Vec::new();
    for (at, gpu) in node.gpus.iter().enumerate() {
        let board = gpu.board.as_deref().unwrap();
        for slice in gpu.layout().slices() {
            let mut left = gpu.layout().clone();
            left.remove(slice.place);
            for opens in left.free_places(board, profile) {
                let mut after = left.clone();
                after.insert(Slice {
                    place: opens,
                    used: Use::Allocated,
                });
                let mut others = node.gpus.iter().enumerate().filter(|(other, _)| *other != at);
                let goes = |layout: &Layout| !layout.free_places(board, slice.place.profile).is_empty();
                if goes(&after) || others.any(|(_, gpu)| goes(gpu.layout())) {
                    sizes.push(board.row(slice.place.profile).unwrap().size);
                }
            }
        }
    }
    sizes
}

fn any_cluster() -> impl Strategy<Value = (Snapshot, Profile)> {
    let board = Board::named(BOARD).unwrap();
    let layouts = enumerate(board, |_| true);
    let count = layouts.len();
    (proptest::collection::vec(0..count, 3), 0..board.profiles.len()).prop_map(move |(picks, wanted)| {
        let mut node = node("a", BOARD, 3);
        for (at, pick) in picks.into_iter().enumerate() {
            for slice in layouts[pick].slices() {
                node.gpus[at].hold(slice.place, owner(&format!("{at}/{}", slice.place)));
            }
        }
        (cluster([node]), board.profiles[wanted].profile)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn a_repair_is_legal_moves_the_smallest_and_is_found_where_one_exists((snapshot, profile) in any_cluster()) {
        let node = &snapshot.nodes["a"];
        let board = node.gpus[0].board.clone().unwrap();
        if node.gpus.iter().any(|gpu| !gpu.layout().free_places(&board, profile).is_empty()) {
            return Ok(());
        }
        let sizes = sizes_by_trying(&snapshot, profile);
        let Some(repair) = one_move(&snapshot, profile, &tables(&snapshot), &Anywhere) else {
            prop_assert!(sizes.is_empty(), "missed a move of {sizes:?}");
            return Ok(());
        };
        prop_assert_eq!(Some(&repair.price.size), sizes.iter().min());
        let mut after = Node::clone(node);
        let gpu = |seat: &Seat| after.gpus.iter().position(|gpu| gpu.uuid == seat.device.gpu).unwrap();
        let (from, to, opens) = (gpu(&repair.from), gpu(&repair.to), gpu(&repair.opens));
        let (_, moved) = after.gpus[from].take(repair.from.device.place).unwrap();
        prop_assert_eq!(moved.as_ref(), Some(&repair.owner));
        for (at, place) in [(opens, repair.opens.device.place), (to, repair.to.device.place)] {
            prop_assert!(after.gpus[at].layout().fits(&board, place), "{place} does not fit");
            after.gpus[at].hold(place, repair.owner.clone());
        }
        prop_assert_eq!(repair.to.device.place.profile, repair.from.device.place.profile);
        prop_assert_eq!(repair.opens.device.place.profile, profile);
    }
}
