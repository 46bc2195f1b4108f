//! etcd, kube-apiserver, kube-controller-manager and kube-scheduler, as they come, in the control namespace.

use std::fs;
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::json;

use crate::api::Api;
use crate::binaries::Binaries;
use crate::namespaces::{Mounts, Space, connect_machine};
use crate::plan::{API_PORT, CONTROL, CONTROL_ADDRESS, Plan, SERVICE_RANGE};
use crate::process::Processes;
use crate::progress::Progress;
use crate::{kubeconfig, programs};

/// The components, in the order of their start.
pub const COMPONENTS: [&str; 4] = [
    "etcd",
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
];

const READY_LIMIT: Duration = Duration::from_secs(120);

/// Makes the control namespace and joins it to the machine.
pub fn make_space(plan: &Plan, binaries: &Binaries) -> Result<Space> {
    let space = Space::create(plan, CONTROL, &binaries.path(), &Mounts::private_run())?;
    connect_machine(&space, plan)?;
    Ok(space)
}

/// Starts all components and returns once the API server is ready; the other two find it by themselves.
pub fn start(plan: &Plan, space: &Space, binaries: &Binaries, progress: &Progress) -> Result<()> {
    progress.step("API server ready", || {
        start_component(plan, space, binaries, "etcd")?;
        start_component(plan, space, binaries, "kube-apiserver")?;
        await_api(plan)
    })?;
    start_component(plan, space, binaries, "kube-controller-manager")?;
    start_component(plan, space, binaries, "kube-scheduler")
}

/// Starts one component; its files must be there already, but for those that it needs from here.
pub fn start_component(plan: &Plan, space: &Space, binaries: &Binaries, name: &str) -> Result<()> {
    let mut command = match name {
        "etcd" => etcd(space)?,
        "kube-apiserver" => api_server(plan, space, binaries),
        "kube-controller-manager" => controller_manager(plan, space, binaries)?,
        _ => scheduler(plan, space, binaries)?,
    };
    Processes::under(&plan.root).start(name, &mut command)?;
    Ok(())
}

/// Waits until the API server says that it is ready.
pub fn await_api(plan: &Plan) -> Result<()> {
    let api = Api::admin(plan)?;
    let address = (CONTROL_ADDRESS, API_PORT).into();
    Processes::under(&plan.root).await_ready("kube-apiserver", READY_LIMIT, || {
        // A refused connection is cheaper to see than a failed handshake.
        TcpStream::connect_timeout(&address, Duration::from_millis(200)).is_ok() && api.is_ready()
    })
}

/// Its data is in the namespace's own `/run`, in memory: fast, and gone with the namespace.
fn etcd(space: &Space) -> Result<Command> {
    let mut command = space.daemon(programs::need("etcd")?);
    command.args([
        "--data-dir=/run/etcd",
        "--listen-client-urls=http://127.0.0.1:2379",
        "--advertise-client-urls=http://127.0.0.1:2379",
        "--listen-peer-urls=http://127.0.0.1:2380",
        "--initial-advertise-peer-urls=http://127.0.0.1:2380",
        "--initial-cluster=default=http://127.0.0.1:2380",
        "--quota-backend-bytes=2147483648",
    ]);
    Ok(command)
}

fn api_server(plan: &Plan, space: &Space, binaries: &Binaries) -> Command {
    let pki = |name: &str| plan.pki_file(name).display().to_string();
    let mut command = space.daemon(binaries.kubernetes.join("kube-apiserver"));
    command.args([
        "--etcd-servers=http://127.0.0.1:2379".to_owned(),
        format!("--advertise-address={CONTROL_ADDRESS}"),
        format!("--secure-port={API_PORT}"),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--client-ca-file={}", pki("ca.crt")),
        // any cluster's API server names one; a kube-scheduler in a pod waits for it
        format!("--requestheader-client-ca-file={}", pki("ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".to_owned(),
        "--requestheader-username-headers=X-Remote-User".to_owned(),
        "--requestheader-group-headers=X-Remote-Group".to_owned(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".to_owned(),
        "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
        format!("--service-account-key-file={}", pki("sa.pub")),
        format!("--service-account-signing-key-file={}", pki("sa.key")),
        "--authorization-mode=Node,RBAC".to_owned(),
        "--enable-admission-plugins=NodeRestriction".to_owned(),
        format!("--service-cluster-ip-range={SERVICE_RANGE}"),
        "--allow-privileged=true".to_owned(),
        format!(
            "--kubelet-client-certificate={}",
            pki("apiserver-kubelet-client.crt")
        ),
        format!("--kubelet-client-key={}", pki("apiserver-kubelet-client.key")),
        format!("--kubelet-certificate-authority={}", pki("ca.crt")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        // No kube-proxy here: webhooks behind a Service are called at their pods' addresses.
        "--enable-aggregator-routing=true".to_owned(),
        "--profiling=false".to_owned(),
    ]);
    command
}

fn controller_manager(plan: &Plan, space: &Space, binaries: &Binaries) -> Result<Command> {
    let name = "kube-controller-manager";
    let config = plan.root.join(format!("{name}.kubeconfig"));
    kubeconfig::write(plan, name, &config)?;
    let plugins = plan.root.join("volume-plugins");
    fs::create_dir_all(&plugins)?;
    let mut command = space.daemon(binaries.kubernetes.join(name));
    command.args([
        format!("--kubeconfig={}", config.display()),
        format!(
            "--service-account-private-key-file={}",
            plan.pki_file("sa.key").display()
        ),
        format!("--root-ca-file={}", plan.pki_file("ca.crt").display()),
        "--use-service-account-credentials=true".to_owned(),
        "--leader-elect=false".to_owned(),
        "--allocate-node-cidrs=false".to_owned(),
        "--node-monitor-grace-period=16s".to_owned(),
        // Its default is a folder of the machine, which it would make.
        format!("--flex-volume-plugin-dir={}", plugins.display()),
        "--kube-api-qps=200".to_owned(),
        "--kube-api-burst=400".to_owned(),
        "--profiling=false".to_owned(),
    ]);
    Ok(command)
}

fn scheduler(plan: &Plan, space: &Space, binaries: &Binaries) -> Result<Command> {
    let name = "kube-scheduler";
    let access = plan.root.join(format!("{name}.kubeconfig"));
    kubeconfig::write(plan, name, &access)?;
    let config = plan.root.join(format!("{name}.json"));
    let document = json!({
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": false},
        "clientConnection": {"kubeconfig": access, "qps": 200, "burst": 400},
    });
    fs::write(&config, serde_json::to_vec_pretty(&document)?)
        .context("write the scheduler's configuration")?;
    let mut command = space.daemon(binaries.kubernetes.join(name));
    command.arg(format!("--config={}", config.display()));
    Ok(command)
}
