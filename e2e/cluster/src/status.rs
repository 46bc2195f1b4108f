//! The table that `migpool-cluster status` prints.

use std::fmt::Write as _;

use crate::api::{Api, NodeView};
use crate::cluster::process_names;
use crate::plan::Plan;
use crate::process::Processes;

/// What runs, and what the API server says about the nodes.
#[derive(Clone, Debug)]
pub struct Status {
    /// Each process with its pid, or none when it is not there.
    pub processes: Vec<(String, Option<i32>)>,
    /// The nodes, or why they cannot be asked for.
    pub nodes: Result<Vec<NodeView>, String>,
}

impl Status {
    /// Looks at the cluster of this plan.
    pub fn of(plan: &Plan) -> Self {
        let recorded = Processes::under(&plan.root);
        let processes = process_names(plan)
            .into_iter()
            .map(|name| {
                let pid = recorded.running(&name).map(|identity| identity.pid);
                (name, pid)
            })
            .collect();
        let nodes = Api::admin(plan)
            .and_then(|api| api.nodes())
            .map_err(|error| format!("{error:#}"));
        Self { processes, nodes }
    }

    /// Whether everything runs and every node is Ready.
    pub fn is_healthy(&self) -> bool {
        self.processes.iter().all(|(_, pid)| pid.is_some())
            && self
                .nodes
                .as_ref()
                .is_ok_and(|nodes| !nodes.is_empty() && nodes.iter().all(|node| node.ready))
    }

    /// The table.
    pub fn table(&self, plan: &Plan) -> String {
        let mut text = format!("{:<26}{:<10}STATE\n", "PROCESS", "PID");
        for (name, pid) in &self.processes {
            let (pid, state) = pid.map_or(("-".to_owned(), "gone"), |pid| (pid.to_string(), "running"));
            // Writing to a String cannot fail.
            let _ = writeln!(text, "{name:<26}{pid:<10}{state}");
        }
        let _ = writeln!(
            text,
            "\n{:<10}{:<10}{:<12}{:<16}{:<12}RESOURCES",
            "NODE", "READY", "ADDRESS", "PODS", "KUBELET"
        );
        match &self.nodes {
            Err(why) => {
                let _ = writeln!(text, "{why}");
            }
            Ok(nodes) => {
                for node in nodes {
                    let paper = plan.nodes.iter().find(|paper| paper.name == node.name);
                    let address = paper.map_or_else(|| "-".to_owned(), |paper| paper.address.to_string());
                    let pods = paper.map_or("-", |paper| paper.pods.as_str());
                    let ready = if node.ready { "yes" } else { "no" };
                    let resources = if node.resources.is_empty() {
                        "-".to_owned()
                    } else {
                        node.resources.join(" ")
                    };
                    let NodeView { name, version, .. } = node;
                    let _ = writeln!(
                        text,
                        "{name:<10}{ready:<10}{address:<12}{pods:<16}{version:<12}{resources}"
                    );
                }
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::plan::Options;

    #[test]
    fn a_dead_process_and_a_node_that_is_not_ready_are_seen() {
        let plan = Plan::new(
            Path::new("/lab"),
            &Options {
                nodes: 1,
                ..Options::default()
            },
        )
        .unwrap();
        let node = |ready| NodeView {
            name: "gpu-1".to_owned(),
            ready,
            boot: String::new(),
            version: "v1.37.2".to_owned(),
            resources: vec!["nvidia.com/mig-1g.10gb=28".to_owned()],
        };
        let mut status = Status {
            processes: vec![("etcd".to_owned(), Some(7))],
            nodes: Ok(vec![node(true)]),
        };
        assert!(status.is_healthy());
        let table = status.table(&plan);
        assert!(
            table.contains("10.99.1.2   10.244.1.0/24   v1.37.2     nvidia.com/mig-1g.10gb=28"),
            "{table}"
        );
        status.nodes = Ok(vec![node(false)]);
        assert!(!status.is_healthy());
        status.nodes = Ok(vec![node(true)]);
        status.processes[0].1 = None;
        assert!(!status.is_healthy() && status.table(&plan).contains("gone"));
    }
}
