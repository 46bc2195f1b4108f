//! The kubelet of one node: configuration, start, stop.

use std::fs;
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::binaries::Binaries;
use crate::containerd::SOCKET;
use crate::kubeconfig;
use crate::namespaces::Space;
use crate::plan::{NodePlan, Plan};
use crate::process::Processes;

/// Label that GPU operators put on nodes with GPUs; the chart's DaemonSet selects it.
const GPU_LABEL: &str = "nvidia.com/gpu.present=true";
const PORT: u16 = 10250;
const READY_LIMIT: Duration = Duration::from_secs(60);
const STOP_GRACE: Duration = Duration::from_secs(10);

/// Writes the configuration and starts it; the node registers by itself.
pub fn start(plan: &Plan, node: &NodePlan, space: &Space, binaries: &Binaries) -> Result<()> {
    let access = node.dir.join("kubelet.kubeconfig");
    kubeconfig::write(plan, &node.name, &access)?;
    fs::create_dir_all(node.dir.join("volume-plugins"))?;
    let config = node.dir.join("kubelet.json");
    fs::write(&config, serde_json::to_vec_pretty(&configuration(plan, node))?)
        .with_context(|| format!("write {}", config.display()))?;
    let mut command = space.daemon(binaries.kubernetes.join("kubelet"));
    command.args([
        format!("--kubeconfig={}", access.display()),
        format!("--config={}", config.display()),
        format!("--hostname-override={}", node.name),
        format!("--node-ip={}", node.address),
    ]);
    if plan.options.gpus_per_node > 0 {
        command.arg(format!("--node-labels={GPU_LABEL}"));
    }
    Processes::under(&plan.root).start(&node.process("kubelet"), &mut command)?;
    Ok(())
}

/// Ends it; containers go on.
pub fn stop(plan: &Plan, node: &NodePlan) -> Result<()> {
    Processes::under(&plan.root).stop(&node.process("kubelet"), STOP_GRACE)
}

/// Waits until its own port answers.
pub fn await_listening(plan: &Plan, node: &NodePlan) -> Result<()> {
    let address = (node.address, PORT).into();
    Processes::under(&plan.root).await_ready(&node.process("kubelet"), READY_LIMIT, || {
        TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok()
    })
}

fn configuration(plan: &Plan, node: &NodePlan) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "containerRuntimeEndpoint": format!("unix://{SOCKET}"),
        "cgroupDriver": "cgroupfs",
        // A root of its own, or all kubelets of the machine would tidy up the same groups.
        "cgroupRoot": format!("/{}", node.cgroup),
        // The machine may have cgroup v1 only; Kubernetes has to be told that this is known.
        "failCgroupV1": false,
        "failSwapOn": false,
        // The capability to lower scores may be missing.
        "oomScoreAdj": 0,
        "enforceNodeAllocatable": ["pods"],
        // The disk is shared with everything else on the machine: the defaults could taint the node.
        "evictionHard": {
            "memory.available": "50Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "0%",
        },
        // Images cannot be pulled again, so none is ever collected.
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "serializeImagePulls": false,
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": true},
            "x509": {"clientCAFile": plan.pki_file("ca.crt")},
        },
        "authorization": {"mode": "Webhook"},
        "tlsCertFile": plan.pki_file(&format!("{}.crt", node.name)),
        "tlsPrivateKeyFile": plan.pki_file(&format!("{}.key", node.name)),
        "clusterDomain": "cluster.local",
        "resolvConf": "",
        "volumePluginDir": node.dir.join("volume-plugins"),
        "nodeStatusUpdateFrequency": "2s",
        "syncFrequency": "5s",
        "volumeStatsAggPeriod": "10m",
        "maxPods": 200,
        "port": PORT,
        "readOnlyPort": 0,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::plan::Options;

    #[test]
    fn two_kubelets_share_neither_cgroup_nor_certificate() {
        let plan = Plan::new(Path::new("/lab"), &Options::default()).unwrap();
        let [first, second] = [0, 1].map(|i| configuration(&plan, &plan.nodes[i]));
        assert_eq!(first["cgroupRoot"], "/migpool-gpu-1");
        assert_eq!(second["cgroupRoot"], "/migpool-gpu-2");
        assert_eq!(second["tlsCertFile"], "/lab/pki/gpu-2.crt");
        assert_eq!(first["failCgroupV1"], false);
    }
}
