//! Packing: the fragment by hand, and what each term is there for.

use super::*;

const SHARE: Ask = Ask {
    cpu_milli: 4_000,
    memory_mib: 0,
    gpus: 1,
    share_milli: 500,
    models: 0,
};
const WHOLE_GPU: Ask = Ask {
    cpu_milli: 8_000,
    share_milli: 1_000,
    ..SHARE
};

fn room(cpu: u64, free: &[u32]) -> Room {
    Room {
        cpu_milli: cpu,
        memory_mib: 1_000,
        model: 0,
        free_milli: free.to_vec(),
    }
}

fn place(workload: &Workload, room: &Room, ask: &Ask) -> Option<(Cost, Gpus)> {
    workload.place(room, workload.fragment(room), ask, &Weights::default())
}

#[test]
fn the_fragment_is_the_papers_definition_worked_by_hand() {
    let workload = Workload::of([&SHARE, &SHARE, &WHOLE_GPU, &WHOLE_GPU], &[10_000]);
    // a share leaves 300 behind on the second GPU, a whole GPU does not fit there either
    assert_eq!(workload.fragment(&room(64_000, &[1_000, 300])), 300.0);
    // no GPU is whole: half of the pods lose all 900, the other half the 300
    assert_eq!(
        workload.fragment(&room(64_000, &[600, 300])),
        0.5 * 900.0 + 0.5 * 300.0
    );
    // CPU for a share and not for a whole GPU
    assert_eq!(workload.fragment(&room(4_000, &[1_000])), 500.0);
}

#[test]
fn a_share_goes_to_the_gap_it_fills() {
    let workload = Workload::of([&SHARE, &WHOLE_GPU], &[10_000]);
    let (_, gpus) = place(&workload, &room(64_000, &[1_000, 700, 500]), &SHARE).unwrap();
    assert_eq!(gpus, [2]);
}

#[test]
fn whole_gpus_are_spared_where_cpu_would_be_left_without_them() {
    let workload = Workload::of([&WHOLE_GPU], &[10_000]);
    let heavy = Ask {
        cpu_milli: 24_000,
        ..SHARE
    };
    // the same GPUs: one node has CPU to spare, the other would strand a GPU
    let rich = place(&workload, &room(96_000, &[1_000, 1_000, 500]), &heavy).unwrap();
    let poor = place(&workload, &room(26_000, &[1_000, 1_000, 500]), &heavy).unwrap();
    assert!(rich.0 < poor.0);
}

#[test]
fn a_model_others_cannot_do_without_is_dear() {
    let pinned = Ask {
        models: 0b10,
        ..WHOLE_GPU
    };
    let workload = Workload::of([&pinned, &WHOLE_GPU], &[10_000, 2_000]);
    assert_eq!(workload.pressure(1), 0.5);
    assert_eq!(workload.pressure(0), 0.0);
    let common = room(64_000, &[1_000, 1_000]);
    let scarce = Room {
        model: 1,
        ..common.clone()
    };
    assert!(
        place(&workload, &common, &WHOLE_GPU).unwrap().0 < place(&workload, &scarce, &WHOLE_GPU).unwrap().0
    );
    assert_eq!(place(&workload, &common, &pinned), None);
}

#[test]
fn what_does_not_fit_is_placed_nowhere() {
    let workload = Workload::of([&SHARE], &[10_000]);
    assert_eq!(place(&workload, &room(1_000, &[1_000]), &SHARE), None);
    assert_eq!(place(&workload, &room(64_000, &[400]), &SHARE), None);
    let large = Ask {
        memory_mib: 2_000,
        ..SHARE
    };
    assert_eq!(place(&workload, &room(64_000, &[1_000]), &large), None);
}

#[test]
fn a_pod_without_gpus_has_one_way_and_takes_none() {
    let cpu = Ask {
        cpu_milli: 1_000,
        ..Ask::default()
    };
    let workload = Workload::of([&cpu, &SHARE], &[10_000]);
    let (_, gpus) = place(&workload, &room(64_000, &[1_000]), &cpu).unwrap();
    assert!(gpus.is_empty());
}

#[test]
fn a_share_spares_the_gap_that_others_need() {
    let sized = |share_milli| Ask {
        cpu_milli: 0,
        share_milli,
        ..SHARE
    };
    let (large, small) = (sized(650), sized(320));
    // a gap of 350 will be filled by a 320, one of 310 by nothing that is expected: a 300 goes there
    let workload = Workload::of([&large, &small, &small, &small], &[10_000]);
    let (_, gpus) = place(&workload, &room(64_000, &[350, 310]), &sized(300)).unwrap();
    assert_eq!(gpus, [1]);
}
