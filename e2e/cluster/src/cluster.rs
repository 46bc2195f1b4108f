//! The cluster as tests and the command line use it: up, attach, nodes, down.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::binaries::Binaries;
use crate::images::{self, Archive};
use crate::namespaces::Space;
use crate::node::{self, Node};
use crate::plan::{CONTROL, Options, Plan, root_from_environment};
use crate::process::Processes;
use crate::progress::Progress;
use crate::state::{self, Record};
use crate::{certs, chart, control_plane, kubeconfig, mount_points, preflight, teardown};

/// A running cluster.
#[derive(Debug)]
pub struct Cluster {
    plan: Plan,
    binaries: Binaries,
    progress: Progress,
}

impl Cluster {
    /// Brings a cluster up, or returns the one that already runs with the same options. What a broken start left
    /// behind is cleaned first.
    pub fn up(options: &Options) -> Result<Self> {
        Self::up_with(&root_from_environment(), options, Progress::shown())
    }

    /// As [`Cluster::up`], with the folder and the way to show progress.
    pub fn up_with(root: &Path, options: &Options, progress: Progress) -> Result<Self> {
        preflight().map_err(|why| anyhow!("cannot run here: {why}"))?;
        let plan = Plan::new(root, options)?;
        if options.chart {
            chart::locate()?;
        }
        if let Some(other) = teardown::other_cluster(root) {
            bail!(
                "a cluster runs under {}: take it down first, one machine holds one",
                other.display()
            );
        }
        let _lock = state::lock(root)?;
        if let Some(running) = Self::already(root, options, &progress)? {
            return Ok(running);
        }
        let binaries = progress.step("programs found", || Binaries::locate(&progress))?;
        let archives = progress.step("images ready", || {
            images::build(&binaries, options.chart, &progress)
        })?;
        let cluster = Self {
            plan,
            binaries,
            progress,
        };
        cluster.start(&archives)?;
        Ok(cluster)
    }

    /// The cluster that runs now.
    pub fn attach() -> Result<Self> {
        Self::attach_to(&root_from_environment())
    }

    /// The cluster that runs under this folder.
    pub fn attach_to(root: &Path) -> Result<Self> {
        let record = Record::load(root).with_context(|| {
            format!(
                "no cluster under {}: migpool-cluster up makes one",
                root.display()
            )
        })?;
        let plan = Plan::new(root, &record.options)?;
        Ok(Self {
            plan,
            binaries: record.binaries,
            progress: Progress::shown(),
        })
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> PathBuf {
        self.plan.kubeconfig()
    }

    /// Names, addresses and paths.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The Kubernetes, containerd and helm programs in use.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// All nodes.
    pub fn nodes(&self) -> Vec<Node<'_>> {
        self.plan
            .nodes
            .iter()
            .map(|node| Node::new(&self.plan, node, &self.binaries))
            .collect()
    }

    /// The node of this name.
    pub fn node(&self, name: &str) -> Result<Node<'_>> {
        self.nodes()
            .into_iter()
            .find(|node| node.name() == name)
            .with_context(|| {
                let names: Vec<&str> = self.plan.nodes.iter().map(|node| node.name.as_str()).collect();
                format!("no node {name}: there are {}", names.join(", "))
            })
    }

    /// Runs a command on a node.
    pub fn exec(&self, node: &str, argv: &[&str]) -> Result<Output> {
        self.node(node)?.exec(argv)
    }

    /// Restarts a node's kubelet.
    pub fn restart_kubelet(&self, node: &str) -> Result<()> {
        self.node(node)?.restart_kubelet()
    }

    /// Reboots a node.
    pub fn reboot(&self, node: &str) -> Result<()> {
        self.node(node)?.reboot()
    }

    /// Restarts a component of the control plane (etcd's data is in memory and would be lost).
    pub fn restart_component(&self, name: &str) -> Result<()> {
        if !control_plane::COMPONENTS[1..].contains(&name) {
            bail!(
                "cannot restart {name}: give one of {}",
                control_plane::COMPONENTS[1..].join(", ")
            );
        }
        let space = Space::attach(&self.plan.root, CONTROL, &self.binaries.path())?;
        // A polite stop of the API server waits for every watch to end; tests want the crash, not the wait.
        Processes::under(&self.plan.root).stop(name, Duration::from_millis(500))?;
        control_plane::start_component(&self.plan, &space, &self.binaries, name)?;
        control_plane::await_api(&self.plan)
    }

    /// Builds changed images and imports them on every node; returns `node: image` for each import.
    pub fn load_images(&self) -> Result<Vec<String>> {
        let archives = images::build(&self.binaries, false, &self.progress)?;
        let mut loaded = Vec::new();
        for node in self.nodes() {
            loaded.extend(
                node.load(&archives)?
                    .into_iter()
                    .map(|image| format!("{}: {image}", node.name())),
            );
        }
        Ok(loaded)
    }

    /// Installs our chart, or upgrades it.
    pub fn install_chart(&self) -> Result<()> {
        self.progress
            .step("chart installed", || chart::install(&self.plan, &self.binaries))
    }

    /// Takes it all away.
    pub fn down(self) -> Result<()> {
        down(&self.plan.root, false, &self.progress)
    }

    /// The running cluster if it serves these options; cleans up one that is only half there.
    fn already(root: &Path, options: &Options, progress: &Progress) -> Result<Option<Self>> {
        if !teardown::anything_left(root) {
            return Ok(None);
        }
        let record = Record::load(root);
        if let Some(mut record) = record.filter(|record| record.complete && is_whole(root, &record.options)) {
            if !options.same_machines(&record.options) {
                bail!(
                    "a cluster of {} runs: take it down first (migpool-cluster down)",
                    record.options
                );
            }
            let plan = Plan::new(root, options)?;
            let cluster = Self {
                plan,
                binaries: record.binaries.clone(),
                progress: progress.clone(),
            };
            progress.say("already up");
            for line in cluster.load_images()? {
                progress.say(format_args!("imported {line}"));
            }
            if options.chart {
                cluster.install_chart()?;
                record.options.chart = true;
                record.save(root)?;
            }
            return Ok(Some(cluster));
        }
        progress.say("cleaning what an earlier cluster left");
        teardown::take_down(root, false, progress)?;
        Ok(None)
    }

    fn start(&self, archives: &[Archive]) -> Result<()> {
        let Self {
            plan,
            binaries,
            progress,
        } = self;
        let mut record = Record::new(&plan.options, binaries);
        record.save(&plan.root)?;
        mount_points::make()?;
        progress.step("certificates made", || certs::make(plan))?;
        kubeconfig::write(plan, "admin", &plan.kubeconfig())?;
        let control = progress.step("control namespace joined to the machine", || {
            control_plane::make_space(plan, binaries)
        })?;
        let nodes = self.nodes();
        thread::scope(|scope| {
            let booting: Vec<_> = nodes
                .iter()
                .map(|node| {
                    let control = &control;
                    scope.spawn(move || {
                        progress.step(format_args!("{} booted: containerd, images", node.name()), || {
                            node.make_gpus()?;
                            node.boot(control, archives)
                        })
                    })
                })
                .collect();
            let started = control_plane::start(plan, &control, binaries, progress);
            for thread in booting {
                thread
                    .join()
                    .map_err(|_| anyhow!("a thread that boots a node broke"))??;
            }
            started
        })?;
        progress.step("nodes Ready", || {
            nodes.iter().try_for_each(Node::start_kubelet)?;
            node::await_all(&nodes)?;
            node::await_service_account(plan)
        })?;
        if plan.options.chart {
            self.install_chart()?;
        }
        record.complete = true;
        record.save(&plan.root)?;
        progress.say(format_args!("up: {}", plan.options));
        Ok(())
    }
}

/// Takes the cluster under this folder away, whatever is left of it.
pub fn down(root: &Path, keep_logs: bool, progress: &Progress) -> Result<()> {
    if !root.exists() && !teardown::anything_left(root) {
        progress.say("nothing is up");
        return Ok(());
    }
    let _lock = state::lock(root)?;
    teardown::take_down(root, keep_logs, progress)?;
    state::leave(root);
    Ok(())
}

/// Names of the processes that a whole cluster has.
pub fn process_names(plan: &Plan) -> Vec<String> {
    let mut names = vec![CONTROL.to_owned()];
    names.extend(control_plane::COMPONENTS.iter().map(|name| (*name).to_owned()));
    for node in &plan.nodes {
        names.extend([
            node.name.clone(),
            node.process("containerd"),
            node.process("kubelet"),
        ]);
    }
    names
}

/// Whether every process of the cluster runs.
fn is_whole(root: &Path, options: &Options) -> bool {
    let processes = Processes::under(root);
    Plan::new(root, options).is_ok_and(|plan| {
        process_names(&plan)
            .iter()
            .all(|name| processes.running(name).is_some())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_cluster_has_a_known_set_of_processes() {
        let plan = Plan::new(
            Path::new("/lab"),
            &Options {
                nodes: 1,
                ..Options::default()
            },
        )
        .unwrap();
        assert_eq!(
            process_names(&plan),
            [
                "control",
                "etcd",
                "kube-apiserver",
                "kube-controller-manager",
                "kube-scheduler",
                "gpu-1",
                "gpu-1.containerd",
                "gpu-1.kubelet"
            ]
        );
        assert!(!is_whole(Path::new("/lab"), &plan.options));
    }

    #[test]
    fn attaching_to_nothing_says_what_to_do() {
        let folder = tempfile::tempdir().unwrap();
        let error = Cluster::attach_to(folder.path()).unwrap_err().to_string();
        assert!(error.contains("migpool-cluster up"), "{error}");
    }
}
