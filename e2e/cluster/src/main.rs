//! `migpool-cluster`: a real local Kubernetes cluster in private namespaces of this machine.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, ExitCode};

use anyhow::{Context as _, Result, bail};
use clap::{ArgAction, Parser, Subcommand};
use cluster::binaries::{self, Binaries, FAMILIES};
use cluster::plan::root_from_environment;
use cluster::process::Processes;
use cluster::status::Status;
use cluster::{Cluster, Options, Progress, images, preflight, programs};

/// Exit status of a machine that cannot hold the cluster.
const CANNOT_RUN: u8 = 3;

/// A real local Kubernetes cluster with fake GPUs, in private namespaces of this machine.
#[derive(Parser)]
#[command(version, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Subcommand)]
enum Verb {
    /// Bring a cluster up; does nothing where one with the same options runs
    Up {
        /// Number of nodes, each with a real kubelet and containerd
        #[arg(long, default_value_t = 2)]
        nodes: u8,
        /// Fake GPUs on each node
        #[arg(long, default_value_t = 4)]
        gpus_per_node: u8,
        /// Board, as `fake-nvml` knows it
        #[arg(long, default_value = "H100-80GB")]
        board: String,
        /// Seed of the GPUs' uuids
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Install our chart
        #[arg(long, default_value_t = true, action = ArgAction::Set, num_args = 0..=1, default_missing_value = "true")]
        chart: bool,
    },
    /// Show processes and nodes; exit status 1 when something is missing
    Status,
    /// Print the path of the administrator's kubeconfig
    Kubeconfig,
    /// End everything and remove everything
    Down {
        /// Leave the log files
        #[arg(long)]
        keep_logs: bool,
    },
    /// Say whether this machine can hold a cluster; exit status 3 and one line when not
    Preflight,
    /// Find Kubernetes, containerd and helm, build what is missing, print where they are
    Binaries,
    /// Build the image archives and print where they are
    Images,
    /// Build changed images and import them on every node
    Load,
    /// Install or upgrade our chart
    Chart,
    /// Run a command in a node's namespaces
    Exec {
        /// The node, e.g. gpu-1
        node: String,
        /// The command
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Restart kubelet or containerd of a node, or a component of the control plane
    Restart {
        /// kubelet, containerd, kube-apiserver, kube-controller-manager or kube-scheduler
        component: String,
        /// The node, for kubelet and containerd
        node: Option<String>,
    },
    /// Pull a node's plug and leave it off
    Kill {
        /// The node
        node: String,
    },
    /// Reboot a node, or start one that was killed
    Reboot {
        /// The node
        node: String,
    },
    /// Control a node's fake GPUs, e.g. `gpu gpu-1 -- show`
    Gpu {
        /// The node
        node: String,
        /// Verb and arguments of `fake-nvml`
        #[arg(last = true, required = true)]
        arguments: Vec<String>,
    },
    /// Print a component's log: etcd, kube-apiserver, …, gpu-1.kubelet; without a name, the list
    Logs {
        /// The component
        component: Option<String>,
        /// Go on as it grows
        #[arg(long, short)]
        follow: bool,
    },
}

fn main() -> ExitCode {
    match act(Arguments::parse().verb) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("migpool-cluster: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn act(verb: Verb) -> Result<ExitCode> {
    let root = root_from_environment();
    match verb {
        Verb::Up {
            nodes,
            gpus_per_node,
            board,
            seed,
            chart,
        } => {
            let options = Options {
                nodes,
                gpus_per_node,
                board,
                seed,
                chart,
            };
            return up(&root, &options);
        }
        Verb::Status => {
            let cluster = Cluster::attach()?;
            let status = Status::of(cluster.plan());
            print(&status.table(cluster.plan()))?;
            return Ok(if status.is_healthy() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            });
        }
        Verb::Kubeconfig => print(&format!("{}\n", Cluster::attach()?.kubeconfig().display()))?,
        Verb::Down { keep_logs } => cluster::cluster::down(&root, keep_logs, &Progress::shown())?,
        Verb::Preflight => return Ok(refused().unwrap_or(ExitCode::SUCCESS)),
        Verb::Binaries => print(&table_of_binaries(&Binaries::locate(&Progress::shown())?))?,
        Verb::Images => {
            let progress = Progress::shown();
            for archive in images::build(&Binaries::locate(&progress)?, false, &progress)? {
                print(&format!("{:<40} {}\n", archive.reference, archive.file.display()))?;
            }
        }
        Verb::Load => {
            for line in Cluster::attach()?.load_images()? {
                print(&format!("{line}\n"))?;
            }
        }
        Verb::Chart => Cluster::attach()?.install_chart()?,
        Verb::Exec { node, command } => return exec(&node, &command),
        Verb::Restart { component, node } => restart(&component, node.as_deref())?,
        Verb::Kill { node } => Cluster::attach()?.node(&node)?.power_off()?,
        Verb::Reboot { node } => {
            let progress = Progress::shown();
            progress.step(format_args!("{node} is back"), || {
                Cluster::attach()?.reboot(&node)
            })?;
        }
        Verb::Gpu { node, arguments } => {
            let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
            print(&Cluster::attach()?.node(&node)?.fake_nvml(&arguments)?)?;
        }
        Verb::Logs { component, follow } => logs(&root, component.as_deref(), follow)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn up(root: &Path, options: &Options) -> Result<ExitCode> {
    if let Some(code) = refused() {
        return Ok(code);
    }
    let cluster = Cluster::up_with(root, options, Progress::shown())?;
    print(&format!("export KUBECONFIG={}\n", cluster.kubeconfig().display()))?;
    Ok(ExitCode::SUCCESS)
}

/// The exit status for a machine that cannot hold the cluster, after saying why.
fn refused() -> Option<ExitCode> {
    let why = preflight().err()?;
    eprintln!("migpool-cluster: cannot run here: {why}");
    Some(ExitCode::from(CANNOT_RUN))
}

fn exec(node: &str, argv: &[String]) -> Result<ExitCode> {
    let (program, arguments) = argv.split_first().context("exec: give a command after --")?;
    let cluster = Cluster::attach()?;
    let mut command = cluster.node(node)?.command(program)?;
    if let Some(terminal) = std::env::var_os("TERM") {
        command.env("TERM", terminal);
    }
    let status = command
        .args(arguments)
        .status()
        .with_context(|| format!("run {program} on {node}"))?;
    Ok(status
        .code()
        .and_then(|code| u8::try_from(code).ok())
        .map_or(ExitCode::FAILURE, ExitCode::from))
}

fn restart(component: &str, node: Option<&str>) -> Result<()> {
    let cluster = Cluster::attach()?;
    match (component, node) {
        ("kubelet", Some(node)) => cluster.restart_kubelet(node),
        ("containerd", Some(node)) => cluster.node(node)?.restart_containerd(),
        ("kubelet" | "containerd", None) => bail!("restart {component}: give a node, e.g. gpu-1"),
        (component, None) => cluster.restart_component(component),
        (component, Some(_)) => bail!("{component} does not run on a node: leave the node out"),
    }
}

fn logs(root: &Path, component: Option<&str>, follow: bool) -> Result<()> {
    let processes = Processes::under(root);
    let Some(component) = component else {
        return print(
            &processes
                .names()
                .iter()
                .map(|name| format!("{name}\n"))
                .collect::<String>(),
        );
    };
    let file = processes.log(component);
    if !file.is_file() {
        bail!(
            "no log of {component}: there are {}",
            processes.names().join(", ")
        );
    }
    let mut command = Command::new(if follow { "tail" } else { "cat" });
    if follow {
        command.args(["-n", "100", "-f"]);
    }
    let status = command
        .arg(&file)
        .status()
        .with_context(|| format!("print {}", file.display()))?;
    if !status.success() && !follow {
        bail!("cannot print {}", file.display());
    }
    Ok(())
}

fn table_of_binaries(found: &Binaries) -> String {
    let mut text = format!("{:<26}{:<10}PATH\n", "PROGRAM", "VERSION");
    for (family, folder) in FAMILIES
        .iter()
        .zip([&found.kubernetes, &found.containerd, &found.helm])
    {
        for program in family.programs {
            let given = *folder != binaries::cached_folder(family);
            let version = if given { "given" } else { family.version };
            text += &format!("{program:<26}{version:<10}{}\n", folder.join(program).display());
        }
    }
    for needed in &programs::NEEDED {
        let path = programs::find(needed.program).map_or_else(
            || format!("missing: apt-get install {}", needed.package),
            |path| path.display().to_string(),
        );
        text += &format!("{:<26}{:<10}{path}\n", needed.program, "machine");
    }
    text
}

/// A closed pipe (`… | head`) is the reader's choice, not an error.
fn print(text: &str) -> Result<()> {
    match std::io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error).context("print"),
        _ => Ok(()),
    }
}
