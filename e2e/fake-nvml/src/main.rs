//! `fake-nvml`: sets up a node with fake GPUs, shows it, and breaks it. Every verb is one method of
//! `nvidia_ml::control::World`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::{Parser, Subcommand, ValueEnum};
use nvidia_ml::code::Code;
use nvidia_ml::control::{self, Leftover, Setup, World};
use nvidia_ml::utilisation::Curve;
use nvidia_ml::{DEFAULT_STATE, STATE_ENV, model, state};

/// A node with GPUs that are not there: sets it up, shows it, breaks it.
#[derive(Parser)]
#[command(name = "fake-nvml", version)]
struct Args {
    /// The state file, which the library reads too.
    #[arg(long, env = STATE_ENV, default_value = DEFAULT_STATE, global = true)]
    state: PathBuf,
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Clone, Copy, ValueEnum)]
enum Switch {
    On,
    Off,
}

#[derive(Clone, Copy, ValueEnum)]
enum Action {
    None,
    GpuReset,
    NodeReboot,
    DrainP2p,
    DrainAndReset,
}

#[derive(Subcommand)]
enum Verb {
    /// Make a node, or make an existing one anew.
    Init {
        /// Board of every GPU; `fake-nvml boards` lists them.
        #[arg(long)]
        board: String,
        /// How many GPUs.
        #[arg(long)]
        gpus: u32,
        /// Every uuid follows from it; give each node of a cluster its own.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// MIG mode of every GPU.
        #[arg(long, value_enum, default_value = "on")]
        mig: Switch,
        /// MIG mode after a reboot, for Hopper and later [default: as --mig].
        #[arg(long, value_enum)]
        mig_at_boot: Option<Switch>,
        /// Driver version.
        #[arg(long, default_value = state::DRIVER_VERSION)]
        driver_version: String,
        /// NUMA nodes that the GPUs are spread over.
        #[arg(long, default_value_t = 1)]
        numa_nodes: u32,
    },
    /// List the boards there are.
    Boards,
    /// List the functions that can be made to fail or to take long.
    Functions,
    /// Draw the node.
    Show {
        /// Print the state as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Make a slice behind the plugin's back; prints the GPU instance id.
    ForeignCreate {
        #[arg(long)]
        gpu: u32,
        /// Like 2g.20gb.
        #[arg(long)]
        profile: String,
        /// First memory slice [default: the first that fits].
        #[arg(long)]
        start: Option<u32>,
        /// Without a compute instance.
        #[arg(long)]
        bare: bool,
    },
    /// Destroy a slice behind the plugin's back.
    ForeignDestroy {
        #[arg(long)]
        gpu: u32,
        #[arg(long)]
        gi: u32,
    },
    /// Raise an XID.
    Xid {
        #[arg(long)]
        gpu: u32,
        #[arg(long)]
        code: u64,
        /// About this GPU instance only.
        #[arg(long)]
        gi: Option<u32>,
        /// About this compute instance only.
        #[arg(long, requires = "gi")]
        ci: Option<u32>,
    },
    /// A GPU falls off the bus, with XID 79.
    Lose {
        #[arg(long)]
        gpu: u32,
        /// Without the XID.
        #[arg(long)]
        silent: bool,
    },
    /// A lost GPU is back, as it was.
    Restore {
        #[arg(long)]
        gpu: u32,
    },
    /// Set what a GPU says it needs to recover.
    RecoveryAction {
        #[arg(long)]
        gpu: u32,
        #[arg(long, value_enum)]
        action: Action,
    },
    /// Make calls of a function fail.
    Fail {
        /// Like nvmlDeviceCreateGpuInstanceWithPlacement; `nvml` may be left out.
        function: String,
        /// The first call that fails, counted over all processes from now.
        #[arg(long, default_value_t = 1)]
        on_call: u64,
        /// What it answers, by number or name: 19 or IN_USE.
        #[arg(long)]
        code: Code,
        /// How many calls fail.
        #[arg(long, default_value_t = 1)]
        times: u64,
    },
    /// Make every call of a function take a while.
    Delay {
        /// Like nvmlGpuInstanceDestroy; `nvml` may be left out.
        function: String,
        /// Milliseconds; 0 takes the delay away.
        #[arg(long)]
        ms: u64,
    },
    /// A process stays on a slice, or on a GPU outside MIG mode.
    Leftover {
        #[arg(long)]
        gpu: u32,
        #[arg(long)]
        gi: Option<u32>,
        #[arg(long)]
        pid: u32,
        #[arg(long, default_value_t = 256)]
        memory_mib: u64,
    },
    /// That process ends.
    RemoveLeftover {
        #[arg(long)]
        gpu: u32,
        #[arg(long)]
        pid: u32,
    },
    /// Set the load of a slice, or of a GPU outside MIG mode.
    Utilisation {
        #[arg(long)]
        gpu: u32,
        #[arg(long)]
        gi: Option<u32>,
        /// Activity from now on: one number (0.7), or seconds and activity (0:0.2,60:0.9) [default: idle].
        #[arg(long)]
        curve: Option<Curve>,
        /// Start the curve again after its last point.
        #[arg(long)]
        repeat: bool,
        /// Memory in use.
        #[arg(long, default_value_t = 0)]
        memory_mib: u64,
    },
    /// Turn MIG mode on or off at once, as an operator with a reset at hand does.
    Mig {
        #[arg(long)]
        gpu: u32,
        #[arg(long, value_enum)]
        mode: Switch,
    },
    /// Reset a GPU: slices, processes and errors are gone, a pending MIG mode holds.
    Reset {
        #[arg(long)]
        gpu: u32,
    },
    /// Reboot the node: slices are gone, and so are their uuids.
    Reboot {
        /// MIG mode that Hopper and later come back with [default: what init said].
        #[arg(long, value_enum)]
        mig: Option<Switch>,
    },
    /// Take away failures, delays, lost GPUs, recovery actions and leftover processes.
    Clear,
    /// Make the driver's files (dev/nvidia*, proc/devices, proc/driver/nvidia-caps/mig-minors) in a folder.
    DeviceNodes {
        #[arg(long)]
        root: PathBuf,
    },
}

impl Switch {
    fn is_on(self) -> bool {
        matches!(self, Self::On)
    }
}

fn main() -> ExitCode {
    match run(Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fake-nvml: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: Args) -> Result<()> {
    let path = args.state.as_path();
    let world = || World::open(path);
    match args.verb {
        Verb::Init {
            board,
            gpus,
            seed,
            mig,
            mig_at_boot,
            driver_version,
            numa_nodes,
        } => {
            let mig_at_boot = mig_at_boot.unwrap_or(mig).is_on();
            let mig = mig.is_on();
            World::set_up(
                path,
                &Setup {
                    board,
                    gpus,
                    seed,
                    mig,
                    mig_at_boot,
                    driver_version,
                    numa_nodes,
                },
            )?;
        }
        Verb::Boards => {
            for model in model::all() {
                let profiles: Vec<&str> = model
                    .profiles
                    .iter()
                    .map(|profile| profile.name.as_str())
                    .collect();
                println!("{:32} {:26} {}", model.board, model.product, profiles.join(" "));
            }
        }
        Verb::Functions => control::functions()
            .iter()
            .for_each(|function| println!("{function}")),
        Verb::Show { json: true } => {
            let state = world()?.state()?;
            println!(
                "{}",
                serde_json::to_string_pretty(&*state).context("print the state")?
            );
        }
        Verb::Show { json: false } => print!("{}", control::drawing(&*world()?.state()?)),
        Verb::ForeignCreate {
            gpu,
            profile,
            start,
            bare,
        } => {
            println!("{}", world()?.foreign_create(gpu, &profile, start, bare)?);
        }
        Verb::ForeignDestroy { gpu, gi } => world()?.foreign_destroy(gpu, gi)?,
        Verb::Xid { gpu, code, gi, ci } => world()?.xid(gpu, code, gi, ci)?,
        Verb::Lose { gpu, silent } => world()?.lose(gpu, silent)?,
        Verb::Restore { gpu } => world()?.restore(gpu)?,
        // NVML numbers the actions in this order
        Verb::RecoveryAction { gpu, action } => world()?.recovery_action(gpu, action as u32)?,
        Verb::Fail {
            function,
            on_call,
            code,
            times,
        } => world()?.fail(&function, on_call, code, times)?,
        Verb::Delay { function, ms } => world()?.delay(&function, Duration::from_millis(ms))?,
        Verb::Leftover {
            gpu,
            gi,
            pid,
            memory_mib,
        } => {
            world()?.leftover(&Leftover {
                gpu,
                gpu_instance: gi,
                pid,
                memory_mib,
            })?;
        }
        Verb::RemoveLeftover { gpu, pid } => world()?.remove_leftover(gpu, pid)?,
        Verb::Utilisation {
            gpu,
            gi,
            curve,
            repeat,
            memory_mib,
        } => {
            let curve = curve.map(|curve| Curve { repeat, ..curve });
            world()?.utilisation(gpu, gi, curve, memory_mib)?;
        }
        Verb::Mig { gpu, mode } => world()?.mig(gpu, mode.is_on())?,
        Verb::Reset { gpu } => world()?.reset(gpu)?,
        Verb::Reboot { mig } => world()?.reboot(mig.map(Switch::is_on))?,
        Verb::Clear => world()?.clear()?,
        Verb::DeviceNodes { root } => world()?.device_nodes(&root)?,
    }
    Ok(())
}
