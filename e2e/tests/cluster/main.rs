//! The product on a real cluster: etcd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelets and
//! containerd as they are; only the GPUs are faked, at `libnvidia-ml.so.1`. One cluster serves all cases, which
//! run one after another in the order written here; `cargo test -p e2e --test cluster -- NAME` runs those whose
//! name contains NAME. `MIGPOOL_KEEP=1` leaves the cluster up.

mod breakage;
mod deaths;
mod evidence;
mod load;
mod look;
mod placement;
mod process;
mod replay;
mod restarts;

use std::future::Future;
use std::pin::Pin;
use std::time::Instant;

use anyhow::{Context as _, Result};
use cluster::{Cluster, Options};
use e2e::world::World;

/// The cluster under test.
pub(crate) struct Stage {
    /// The machines.
    pub(crate) cluster: Cluster,
    /// The API server, as a user sees it.
    pub(crate) world: World,
}

/// One case: borrows the stage for as long as it runs.
type Run = for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = Result<()>> + 'a>>;
type Case = (&'static str, Run);

macro_rules! cases {
    ($($module:ident::$name:ident),* $(,)?) => {
        vec![$((concat!(stringify!($module), "::", stringify!($name)), (|stage| Box::pin($module::$name(stage))) as Run)),*]
    };
}

fn main() {
    let cases: Vec<Case> = cases![
        placement::a_pod_from_the_readme_gets_a_slice_that_comes_and_goes,
        placement::seven_small_pods_run_at_seven_starts_and_see_only_their_own_slice,
        placement::a_pod_that_cannot_fit_says_why_by_gpu_count,
        placement::a_pod_that_asks_for_several_slices_gets_them_on_one_gpu,
        placement::forty_pods_at_once_are_placed_legally,
        placement::sixty_random_steps_keep_the_counts_true_and_run_what_fits,
        replay::sixty_arrivals_of_the_simulator_get_the_same_places,
        breakage::the_extender_stops_and_pods_wait,
        breakage::the_scheduler_dies_between_binding_and_status,
        restarts::a_kubelet_restart_leaves_pods_alone_and_brings_resources_back,
        deaths::an_agent_killed_at_any_step_loses_nothing,
        restarts::an_agent_rollout_disturbs_nothing,
        restarts::a_node_reboot_returns_pods_to_their_places,
        deaths::a_refused_pod_leaves_its_place_to_its_replacement_and_does_not_linger,
        load::a_pod_keeps_away_from_the_node_that_will_be_busy,
    ];
    let filter: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wanted = |name: &str| filter.is_empty() || filter.iter().any(|part| name.contains(part.as_str()));
    let cases: Vec<Case> = cases.into_iter().filter(|(name, _)| wanted(name)).collect();

    if let Err(why) = cluster::preflight() {
        println!("skipped: the real-cluster tier cannot run here: {why}");
        println!(
            "test result: ok. 0 passed; 0 failed; {} ignored; 0 measured; 0 filtered out",
            cases.len()
        );
        std::process::exit(i32::from(std::env::var_os("CI").is_some()));
    }
    match run(&cases) {
        Ok(0) => {}
        Ok(_) => std::process::exit(1),
        Err(error) => {
            println!("FAILED: {error:#}");
            println!(
                "test result: FAILED. 0 passed; {} failed; 0 ignored; 0 measured; 0 filtered out",
                cases.len()
            );
            std::process::exit(1);
        }
    }
}

/// Runs the cases; returns how many failed.
fn run(cases: &[Case]) -> Result<usize> {
    println!("running {} tests", cases.len());
    let cluster = Cluster::up(&Options::default()).context("bring the cluster up")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let (mut passed, mut failed) = (0, 0);
    let stage = runtime.block_on(async {
        let world = World::connect(&cluster.kubeconfig()).await?;
        world
            .counts_are_true(120)
            .await
            .context("the agents publish what they have")?;
        anyhow::Ok(Stage { cluster, world })
    })?;
    for (name, case) in cases {
        let start = Instant::now();
        let result = runtime.block_on(async {
            stage
                .world
                .clear()
                .await
                .context("clear what the case before left")?;
            case(&stage).await
        });
        let seconds = start.elapsed().as_secs_f32();
        match result {
            Ok(()) => {
                passed += 1;
                println!("test {name} ... ok ({seconds:.1} s)");
            }
            Err(error) => {
                failed += 1;
                println!("test {name} ... FAILED ({seconds:.1} s)\n    {error:#}");
                match evidence::keep(&stage.cluster, name) {
                    Ok(None) => {}
                    Ok(Some(folder)) => println!("    logs as they were then: {}", folder.display()),
                    Err(error) => println!("    {error:#}"),
                }
            }
        }
    }
    if std::env::var_os("MIGPOOL_KEEP").is_none() {
        stage.cluster.down().context("take the cluster down")?;
    }
    let word = if failed == 0 { "ok" } else { "FAILED" };
    println!("test result: {word}. {passed} passed; {failed} failed; 0 ignored; 0 measured; 0 filtered out");
    Ok(failed)
}
