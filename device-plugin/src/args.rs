//! What a person can set, by flag, environment variable or config file, and what holds when several say something:
//! the command line before the environment, the environment before the file, the file before the default.

mod file;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::{Parser, ValueEnum};
use serde::Deserialize;
use shared::names::{ACCOUNT_SCHEDULER, NAMESPACE};

pub use file::File;

use crate::health::xid::Table;

/// How GPUs and slices become resources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Strategy {
    /// Whole GPUs, whatever their MIG mode (as NVIDIA's plugin).
    None,
    /// Every slice is nvidia.com/gpu; all must have one profile (as NVIDIA's plugin).
    Single,
    /// Slices that exist, by profile, and whole GPUs (as NVIDIA's plugin).
    Mixed,
    /// Slices that could be cut, by profile, cut when a pod lands; and whole GPUs.
    #[default]
    Dynamic,
}

impl Strategy {
    /// The word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Single => "single",
            Self::Mixed => "mixed",
            Self::Dynamic => "dynamic",
        }
    }
}

/// How a container is told which devices it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ListStrategy {
    /// CDI device names in the kubelet's answer (Kubernetes 1.28 and newer, containerd 1.7 and newer).
    CdiCri,
    /// CDI device names in an annotation, for runtimes without the field.
    CdiAnnotations,
    /// `NVIDIA_VISIBLE_DEVICES`, for NVIDIA's own runtime.
    Envvar,
}

/// Cuts, keeps and removes MIG slices on one node and serves them to the kubelet.
///
/// Every setting can be given by flag, by environment variable or in the config file. Where several say something,
/// the command line wins over the environment, the environment over the file, and the file over the default.
#[derive(Clone, Debug, Default, Parser)]
#[command(name = "migpool-device-plugin", version)]
pub struct Flags {
    /// How GPUs and slices become resources [default: dynamic]
    #[arg(long, env = "MIG_STRATEGY", value_enum)]
    pub mig_strategy: Option<Strategy>,
    /// Name of this node in Kubernetes [default: the host name]
    #[arg(long, env = "NODE_NAME")]
    pub node_name: Option<String>,
    /// Where the driver is installed, as this program sees it; libnvidia-ml.so.1 is looked for beneath [default: /]
    #[arg(long, env = "DRIVER_ROOT")]
    pub driver_root: Option<PathBuf>,
    /// Folder whose dev/ has the GPU device nodes, by the same path on the host and here [default: /]
    #[arg(long, env = "DEV_ROOT")]
    pub dev_root: Option<PathBuf>,
    /// Where the kernel's proc files are, for the minors of MIG capabilities [default: /proc]
    #[arg(long, env = "PROC_ROOT")]
    pub proc_root: Option<PathBuf>,
    /// The kubelet's folder for device plugins [default: /var/lib/kubelet/device-plugins]
    #[arg(long, env = "KUBELET_DIR")]
    pub kubelet_dir: Option<PathBuf>,
    /// The kubelet's socket that tells who has which device
    /// [default: /var/lib/kubelet/pod-resources/kubelet.sock]
    #[arg(long, env = "POD_RESOURCES_SOCKET")]
    pub pod_resources_socket: Option<PathBuf>,
    /// Where CDI files are written [default: /var/run/cdi]
    #[arg(long, env = "CDI_DIR")]
    pub cdi_dir: Option<PathBuf>,
    /// A CDI file (JSON or YAML) whose common container edits, such as the driver's libraries, every container of
    /// ours gets too; made for example by `nvidia-ctk cdi generate`
    #[arg(long, env = "CDI_COMMON_SPEC")]
    pub cdi_common_spec: Option<PathBuf>,
    /// Where the journal and the load of a day are kept, on a disk that survives a reboot [default: /var/lib/migpool]
    #[arg(long, env = "STATE_DIR")]
    pub state_dir: Option<PathBuf>,
    /// How a container is told its devices [default: cdi-cri]
    #[arg(long, env = "DEVICE_LIST_STRATEGY", value_enum)]
    pub device_list_strategy: Option<ListStrategy>,
    /// Give the kubelet device nodes too, as the static CPU manager needs it [default: false]
    #[arg(long, env = "PASS_DEVICE_SPECS", num_args = 0..=1, default_missing_value = "true")]
    pub pass_device_specs: Option<bool>,
    /// Address of /metrics, /livez and /readyz [default: 0.0.0.0:9402]
    #[arg(long, env = "ADMIN_ADDRESS")]
    pub admin_address: Option<SocketAddr>,
    /// Address at which the load of the GPUs is told to the scheduler, where --usage-advertise is given
    /// [default: 0.0.0.0:9404]
    #[arg(long, env = "USAGE_ADDRESS")]
    pub usage_address: Option<SocketAddr>,
    /// IP address by which the scheduler reaches --usage-address; without it the load is not told
    #[arg(long, env = "POD_IP")]
    pub usage_advertise: Option<IpAddr>,
    /// User name of whoever may hear the load, as the API server tells it
    /// [default: system:serviceaccount:migpool-system:migpool-scheduler]
    #[arg(long, env = "USAGE_CALLER")]
    pub usage_caller: Option<String>,
    /// Seconds that a released slice is kept for the next pod of its profile
    /// [default: idleSliceSeconds of the node's GpuPool, else 600]
    #[arg(long, env = "IDLE_SLICE_SECONDS")]
    pub idle_slice_seconds: Option<u32>,
    /// Seconds a driver call may take before it is given up [default: 25]
    #[arg(long, env = "DRIVER_TIMEOUT_SECONDS")]
    pub driver_timeout_seconds: Option<u32>,
    /// text or json [default: text]
    #[arg(long, env = "LOG_FORMAT")]
    pub log_format: Option<String>,
    /// Config file (YAML)
    #[arg(long, env = "CONFIG_FILE")]
    pub config_file: Option<PathBuf>,
}

/// What holds, after everything was read.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "each field is documented where it is set, in `Flags`")]
pub struct Settings {
    pub strategy: Strategy,
    pub node_name: String,
    pub driver_root: PathBuf,
    pub dev_root: PathBuf,
    pub proc_root: PathBuf,
    pub kubelet_dir: PathBuf,
    pub pod_resources_socket: PathBuf,
    pub cdi_dir: PathBuf,
    pub cdi_common_spec: Option<PathBuf>,
    pub state_dir: PathBuf,
    pub device_list_strategy: ListStrategy,
    pub pass_device_specs: bool,
    pub admin_address: SocketAddr,
    pub usage_address: SocketAddr,
    pub usage_advertise: Option<IpAddr>,
    pub usage_caller: String,
    pub idle_slice: Option<Duration>,
    pub driver_timeout: Duration,
    pub log_format: String,
    pub xids: Table,
}

impl Flags {
    /// Reads the config file, if one is named, and settles every value.
    ///
    /// # Errors
    /// One sentence that names the file, the key and the fix.
    pub fn settle(self) -> anyhow::Result<Settings> {
        let file = self
            .config_file
            .as_deref()
            .map(File::read)
            .transpose()?
            .unwrap_or_default();
        let path = |flag: Option<PathBuf>, file: Option<PathBuf>, default: &str| {
            flag.or(file).unwrap_or(default.into())
        };
        let address = |flag: Option<SocketAddr>, file: Option<SocketAddr>, port: u16| {
            flag.or(file).unwrap_or(SocketAddr::from(([0, 0, 0, 0], port)))
        };
        let idle = self.idle_slice_seconds.or(file.idle_slice_seconds);
        // the kubelet gives PreStartContainer 30 s, within which we want to have answered
        let timeout = self
            .driver_timeout_seconds
            .or(file.driver_timeout_seconds)
            .unwrap_or(25);
        anyhow::ensure!(
            timeout > 0,
            "driver-timeout-seconds is 0; give the driver at least 1 second"
        );
        Ok(Settings {
            strategy: self.mig_strategy.or(file.mig_strategy).unwrap_or_default(),
            node_name: self.node_name.or(file.node_name).map_or_else(host_name, Ok)?,
            driver_root: path(self.driver_root, file.driver_root, "/"),
            dev_root: path(self.dev_root, file.dev_root, "/"),
            proc_root: path(self.proc_root, file.proc_root, "/proc"),
            kubelet_dir: path(
                self.kubelet_dir,
                file.kubelet_dir,
                "/var/lib/kubelet/device-plugins",
            ),
            pod_resources_socket: path(
                self.pod_resources_socket,
                file.pod_resources_socket,
                "/var/lib/kubelet/pod-resources/kubelet.sock",
            ),
            cdi_dir: path(self.cdi_dir, file.cdi_dir, "/var/run/cdi"),
            cdi_common_spec: self.cdi_common_spec.or(file.cdi_common_spec),
            state_dir: path(self.state_dir, file.state_dir, "/var/lib/migpool"),
            device_list_strategy: self
                .device_list_strategy
                .or(file.device_list_strategy)
                .unwrap_or(ListStrategy::CdiCri),
            pass_device_specs: self.pass_device_specs.or(file.pass_device_specs).unwrap_or(false),
            admin_address: address(self.admin_address, file.admin_address, 9402),
            usage_address: address(self.usage_address, file.usage_address, 9404),
            usage_advertise: self.usage_advertise.or(file.usage_advertise),
            usage_caller: self
                .usage_caller
                .or(file.usage_caller)
                .unwrap_or_else(scheduler_account),
            idle_slice: idle.map(|seconds| Duration::from_secs(seconds.into())),
            driver_timeout: Duration::from_secs(timeout.into()),
            log_format: self
                .log_format
                .or(file.log_format)
                .unwrap_or_else(|| "text".to_owned()),
            xids: file.xids,
        })
    }
}

/// The scheduler's ServiceAccount, where the chart puts it by default.
fn scheduler_account() -> String {
    format!("system:serviceaccount:{NAMESPACE}:{ACCOUNT_SCHEDULER}")
}

/// The node's name where nobody gives one.
fn host_name() -> anyhow::Result<String> {
    let name = rustix::system::uname()
        .nodename()
        .to_str()
        .context("the host name is not UTF-8; give --node-name")?
        .to_owned();
    Ok(name.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with_file(text: &str, flags: Flags) -> anyhow::Result<Settings> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        Flags {
            config_file: Some(path),
            ..flags
        }
        .settle()
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let text = "migStrategy: single\nidleSliceSeconds: 5\nxids: {\"31\": gpu}\nusageAdvertise: fd00::7\n";
        let flags = Flags {
            mig_strategy: Some(Strategy::Mixed),
            node_name: Some("n".into()),
            ..Flags::default()
        };
        let settings = with_file(text, flags).unwrap();
        assert_eq!(settings.strategy, Strategy::Mixed);
        assert_eq!(settings.idle_slice, Some(Duration::from_secs(5)));
        assert_eq!(settings.driver_root, PathBuf::from("/"));
        assert_eq!(settings.usage_advertise, Some("fd00::7".parse().unwrap()));
        assert_eq!(settings.usage_address.to_string(), "0.0.0.0:9404");
        assert_eq!(
            settings.usage_caller,
            "system:serviceaccount:migpool-system:migpool-scheduler"
        );
        assert_eq!(settings.xids.action(31), crate::health::xid::Action::Gpu);
        assert_eq!(settings.xids.action(13), crate::health::xid::Action::Ignore);
    }

    #[test]
    fn what_the_file_gets_wrong_is_named_with_the_fix() {
        for (text, names) in [
            ("migStrategi: single\n", ["migStrategi", "migStrategy"]),
            ("migStrategy: best\n", ["migStrategy", "dynamic"]),
            ("idleSliceSeconds: soon\n", ["idleSliceSeconds", "u32"]),
            ("usageAdvertise: here\n", ["usageAdvertise", "IP address"]),
            ("xids: {\"31\": explode}\n", ["xids", "slice"]),
            ("- a\n", ["config.yaml", "key: value"]),
        ] {
            let refused = format!("{:#}", with_file(text, Flags::default()).unwrap_err());
            assert!(
                names.iter().all(|name| refused.contains(name)),
                "{text}: {refused}"
            );
            assert_eq!(refused.lines().count(), 1, "{refused}");
        }
    }
}
