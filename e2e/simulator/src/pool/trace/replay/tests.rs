use std::sync::Arc;

use super::*;
use shared::mig::Board;

fn pod(from: f64, until: Option<f64>, name: &str, count: u32) -> Pod {
    Pod {
        name: String::new(),
        from,
        until,
        request: Request::of_one("main", (name != "gpu").then(|| name.parse().unwrap()), count),
    }
}

const ARMS: [Arm; 4] = [Arm::Whole, Arm::Still, Arm::Heap, Arm::Dynamic { repairs: true }];

fn make() -> Make {
    Make {
        board: Arc::new(Board::named("H100-80GB").unwrap().clone()),
        gpus_per_node: 8,
        policy: shared::policy::Policy::default(),
        repairs: true,
    }
}

fn gpus(pods: &[Pod]) -> Vec<usize> {
    let replay = Replay::new(pods, make());
    replay
        .needs(&ARMS, 0.99, 1)
        .into_iter()
        .map(|found| found.unwrap().gpus)
        .collect()
}

#[test]
fn seven_small_pods_share_a_gpu_and_what_left_counts_no_more() {
    let small = |at: u32| pod(f64::from(at), None, "1g.10gb", 1);
    let pods: Vec<Pod> = (0..7).map(small).collect();
    assert_eq!(gpus(&pods), [7, 1, 1, 1]);
    let turns = [
        pod(0.0, Some(5.0), "gpu", 1),
        pod(5.0, None, "gpu", 1),
        pod(9.0, Some(9.0), "gpu", 1),
    ];
    assert_eq!(gpus(&turns), [2, 2, 2, 2]);
}

#[test]
fn a_layout_that_stays_needs_more_where_the_mix_changes() {
    // seven small, then two halves
    let mut pods: Vec<Pod> = (0..7).map(|_| pod(0.0, Some(10.0), "1g.10gb", 1)).collect();
    pods.extend([pod(10.0, None, "3g.40gb", 1), pod(11.0, None, "3g.40gb", 1)]);
    assert_eq!(gpus(&pods), [7, 2, 1, 1]);
    let replay = Replay::new(&pods, make());
    assert_eq!(
        replay.running(),
        Demand {
            mean: (70.0 + 1.0) / 11.0,
            peak: 7.0
        }
    );
    assert_eq!(replay.used().peak, 1.0);
}

#[test]
fn several_slices_count_as_the_gpus_they_fill() {
    let of = |name: &str, count| wholes(&pod(0.0, None, name, count).request, &make());
    assert_eq!(
        [
            of("1g.10gb", 7),
            of("1g.10gb", 8),
            of("3g.40gb", 2),
            of("3g.40gb", 3),
            of("gpu", 4)
        ],
        [1, 2, 1, 2, 4]
    );
}
