//! Installing our chart with helm, the way a user does, with the values of `values.yaml` beside this crate.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use serde_json::{Value, json};

use crate::binaries::Binaries;
use crate::command::run;
use crate::plan::Plan;
use crate::{images, programs};

/// Variable that names another chart.
pub const CHART_VARIABLE: &str = "MIGPOOL_CHART";
/// The release's name.
pub const RELEASE: &str = "migpool";
/// The namespace it is installed in.
pub const NAMESPACE: &str = "migpool-system";

const ANNOTATION: &str = "migpool.dev/image";
const VALUES: &str = include_str!("../values.yaml");

/// Installs the chart, or upgrades it, and waits until its pods are ready.
pub fn install(plan: &Plan, binaries: &Binaries) -> Result<()> {
    let chart = locate()?;
    let values = plan.root.join("values.yaml");
    fs::write(&values, VALUES).with_context(|| format!("write {}", values.display()))?;
    let marks = plan.root.join("values-images.json");
    fs::write(&marks, serde_json::to_vec_pretty(&image_marks(plan))?)?;
    let home = plan.root.join("helm");
    let mut command = Command::new(binaries.helm.join("helm"));
    command
        // A clean environment: no proxy between us and the API server, nothing left in the user's home.
        .env_clear()
        .env("PATH", programs::SYSTEM_PATH)
        .env("HOME", &home)
        .args(["upgrade", "--install", RELEASE])
        .arg(&chart)
        .args([
            "--namespace",
            NAMESPACE,
            "--create-namespace",
            "--wait",
            "--timeout",
            "180s",
        ])
        .arg("--values")
        .arg(&values)
        .arg("--values")
        .arg(&marks)
        .arg("--kubeconfig")
        .arg(plan.kubeconfig());
    run(&mut command)
        .map(drop)
        .with_context(|| format!("install the chart {}", chart.display()))
}

/// An image keeps its tag when it is built anew, so the pods carry its fingerprint: a new one rolls them out.
fn image_marks(plan: &Plan) -> Value {
    let mark = |reference| json!({"podAnnotations": {ANNOTATION: images::loaded(plan, reference)}});
    json!({
        "devicePlugin": mark(images::DEVICE_PLUGIN_IMAGE),
        "scheduler": mark(images::SCHEDULER_IMAGE),
    })
}

/// Says early that there is no chart to install.
pub fn locate() -> Result<PathBuf> {
    let chart = env::var_os(CHART_VARIABLE).map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manifests/chart"),
        PathBuf::from,
    );
    if !chart.join("Chart.yaml").is_file() {
        bail!(
            "no chart in {}: pass --chart=false for a cluster without it",
            chart.display()
        );
    }
    fs::canonicalize(&chart).with_context(|| format!("resolve {}", chart.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpus;
    use crate::plan::Options;

    #[test]
    fn the_values_name_the_images_and_paths_of_this_crate() {
        for (part, name) in [
            (images::DEVICE_PLUGIN_IMAGE, "device plugin image"),
            (images::SCHEDULER_IMAGE, "scheduler image"),
            (&images::kube_scheduler_image(), "kube-scheduler image"),
        ] {
            let (repository, tag) = part.rsplit_once(':').unwrap();
            assert!(
                VALUES.contains(repository) && VALUES.contains(tag),
                "{name} is not in values.yaml"
            );
        }
        for path in [gpus::DRIVER_ROOT, gpus::STATE_FOLDER] {
            assert!(VALUES.contains(path), "{path} is not in values.yaml");
        }
    }

    #[test]
    fn a_new_image_changes_the_pods() {
        let folder = tempfile::tempdir().unwrap();
        let plan = Plan::new(folder.path(), &Options::default()).unwrap();
        let mark = |fingerprint: &str| {
            let file = images::mark(&plan.nodes[0], images::SCHEDULER_IMAGE);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, fingerprint).unwrap();
            image_marks(&plan)["scheduler"]["podAnnotations"][ANNOTATION].clone()
        };
        assert_eq!(mark("a1"), "a1");
        assert_eq!(mark("b2"), "b2");
    }
}
