//! Many programs at once on one node: nothing is placed twice, nothing is lost.

use std::process::{Child, Command, Stdio};

use nvidia_ml::control::World;
use nvidia_ml::model::Model;

/// Starts the command on a node.
fn start(world: &World, arguments: &[&str]) -> Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fake-nvml"));
    command.arg("--state").arg(world.path()).args(arguments);
    command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn programs_that_cut_at_once_never_get_one_place_twice() {
    let folder = tempfile::tempdir().unwrap();
    let world = World::create(&folder.path().join("state.json"), "H100-80GB", 2, 7).unwrap();
    let profiles = ["1g.10gb", "2g.20gb", "3g.40gb", "1g.20gb", "1g.10gb+me"];
    let wants = (0..24).map(|n| (if n % 2 == 0 { "0" } else { "1" }, profiles[n % profiles.len()]));
    let programs: Vec<Child> = wants
        .map(|(gpu, profile)| start(&world, &["foreign-create", "--gpu", gpu, "--profile", profile]))
        .collect();
    let (mut made, mut refused) = (0, 0);
    for program in programs {
        let output = program.wait_with_output().unwrap();
        if output.status.success() {
            made += 1;
        } else {
            let message = String::from_utf8(output.stderr).unwrap();
            assert!(message.contains("INSUFFICIENT_RESOURCES (23)"), "{message}");
            refused += 1;
        }
    }
    let state = world.state().unwrap();
    let there: usize = state.gpus.iter().map(|gpu| gpu.instances.len()).sum();
    assert_eq!((made, made + refused), (there, 24));
    let model = Model::named("H100-80GB").unwrap();
    for gpu in &state.gpus {
        let mut slices = [0; 8];
        for instance in &gpu.instances {
            (instance.start..instance.start + instance.size).for_each(|slice| slices[slice as usize] += 1);
        }
        assert!(slices.iter().all(|count| *count <= 1), "{slices:?}");
        let compute: u32 = gpu
            .instances
            .iter()
            .map(|held| model.profile(held.profile).unwrap().compute)
            .sum();
        assert!(compute <= 7);
    }
}

#[test]
fn no_write_is_lost_between_programs_and_threads() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("state.json");
    let world = World::create(&path, "A100-40GB", 1, 7).unwrap();
    let programs: Vec<Child> = (0..8)
        .map(|_| start(&world, &["xid", "--gpu", "0", "--code", "13"]))
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let own = World::open(&path).unwrap();
                (0..10).for_each(|_| own.xid(0, 31, None, None).unwrap());
            });
        }
    });
    for program in programs {
        assert!(program.wait_with_output().unwrap().status.success());
    }
    assert_eq!(world.state().unwrap().next_event, 1 + 8 + 40);
}
