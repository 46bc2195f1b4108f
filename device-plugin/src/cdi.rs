//! CDI files: one a device, written whole or not at all, so that a container runtime never reads half of one.
//! A device's name is its id, which outlives the instance behind it: the file is rewritten when a slice is cut anew.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value, json};

use crate::device_nodes::DeviceNode;
use crate::replace::replace;

/// What every file of ours starts with.
const PREFIX: &str = "migpool.dev-";
/// Least version of the CDI specification that has what we use.
const CDI_VERSION: &str = "0.5.0";

/// The folder of CDI files.
#[derive(Clone, Debug)]
pub struct Cdi {
    folder: PathBuf,
    /// Container edits that every device carries as well.
    common: Map<String, Value>,
}

/// What a device gives its container.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Edits {
    /// Device nodes.
    pub nodes: Vec<DeviceNode>,
    /// Environment, as name and value.
    pub env: Vec<(String, String)>,
}

impl Cdi {
    /// Files in `folder`, with the common edits of another CDI file if one is named.
    ///
    /// # Errors
    /// A sentence about that file.
    pub fn new(folder: &Path, common: Option<&Path>) -> anyhow::Result<Self> {
        let common = common.map(read_common).transpose()?.unwrap_or_default();
        Ok(Self {
            folder: folder.to_owned(),
            common,
        })
    }

    /// Writes the file of a device, whole or not at all.
    ///
    /// # Errors
    /// What the file system says.
    pub fn write(&self, kind: &str, device: &str, edits: &Edits) -> io::Result<()> {
        let spec = json!({
            "cdiVersion": CDI_VERSION,
            "kind": kind,
            "devices": [{ "name": device, "containerEdits": self.edits(edits) }],
        });
        std::fs::create_dir_all(&self.folder)?;
        // runtimes read *.json and *.yaml alone, no drafts
        replace(&self.path(kind, device), spec.to_string().as_bytes())
    }

    /// Removes the file of a device; one that is not there is fine.
    ///
    /// # Errors
    /// What the file system says.
    pub fn remove(&self, kind: &str, device: &str) -> io::Result<()> {
        match std::fs::remove_file(self.path(kind, device)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    }

    /// Removes every file of ours that is not of one of these devices.
    ///
    /// # Errors
    /// What the file system says.
    pub fn keep_only<'a>(&self, devices: impl Iterator<Item = (&'a str, &'a str)>) -> io::Result<()> {
        let keep: Vec<PathBuf> = devices.map(|(kind, device)| self.path(kind, device)).collect();
        let entries = match std::fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            let ours = path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(|name| name.starts_with(PREFIX));
            if ours && !keep.contains(&path) {
                std::fs::remove_file(path)?;
            }
        }
        Ok(())
    }

    fn path(&self, kind: &str, device: &str) -> PathBuf {
        let class = kind.rsplit('/').next().unwrap_or(kind);
        // a device id has no character that a file name may not have, but ':' is awkward in shells
        self.folder
            .join(format!("{PREFIX}{class}_{}.json", device.replace(':', "_")))
    }

    fn edits(&self, edits: &Edits) -> Value {
        let nodes = edits
            .nodes
            .iter()
            .map(|node| json!({ "path": node.path, "hostPath": node.host }));
        let env = edits
            .env
            .iter()
            .map(|(name, value)| Value::from(format!("{name}={value}")));
        let mut all = self.common.clone();
        append(&mut all, "deviceNodes", nodes);
        append(&mut all, "env", env);
        Value::Object(all)
    }
}

/// Adds to a list of container edits.
fn append(edits: &mut Map<String, Value>, key: &str, more: impl Iterator<Item = Value>) {
    if let Value::Array(list) = edits.entry(key).or_insert_with(|| json!([])) {
        list.extend(more);
    }
}

fn read_common(path: &Path) -> anyhow::Result<Map<String, Value>> {
    let bad = |what: &str| {
        anyhow::anyhow!(
            "CDI file {}: {what}; point --cdi-common-spec at a CDI file",
            path.display()
        )
    };
    let text = std::fs::read_to_string(path).map_err(|error| bad(&error.to_string()))?;
    let mut spec: Value = serde_saphyr::from_str(&text).map_err(|_| bad("is neither JSON nor YAML"))?;
    match spec.get_mut("containerEdits").map(Value::take) {
        Some(Value::Object(edits)) => Ok(edits),
        _ => Err(bad("has no containerEdits")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: &str = shared::names::CDI_KIND;
    const DEVICE: &str = "GPU-1:1g.10gb:6";

    fn edits() -> Edits {
        let node = DeviceNode {
            path: "/dev/nvidia0".into(),
            host: "/run/nvidia/driver/dev/nvidia0".into(),
        };
        Edits {
            nodes: vec![node],
            env: vec![("A".into(), "b".into())],
        }
    }

    #[test]
    fn a_file_names_the_device_its_nodes_and_its_environment() {
        let dir = tempfile::tempdir().unwrap();
        let cdi = Cdi::new(dir.path(), None).unwrap();
        cdi.write(KIND, DEVICE, &edits()).unwrap();
        let text = std::fs::read_to_string(dir.path().join("migpool.dev-mig_GPU-1_1g.10gb_6.json")).unwrap();
        let spec: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(spec["kind"], "migpool.dev/mig");
        assert_eq!(spec["devices"][0]["name"], DEVICE);
        let edits = &spec["devices"][0]["containerEdits"];
        assert_eq!(
            edits["deviceNodes"][0]["hostPath"],
            "/run/nvidia/driver/dev/nvidia0"
        );
        assert_eq!(edits["env"], json!(["A=b"]));
    }

    #[test]
    fn common_edits_of_another_file_come_along() {
        let dir = tempfile::tempdir().unwrap();
        let common = dir.path().join("nvidia.yaml");
        std::fs::write(
            &common,
            "containerEdits:\n  env: [\"C=d\"]\n  mounts:\n  - {hostPath: /l, containerPath: /l}\n",
        )
        .unwrap();
        let cdi = Cdi::new(dir.path(), Some(&common)).unwrap();
        let all = cdi.edits(&edits());
        assert_eq!(all["env"], json!(["C=d", "A=b"]));
        assert_eq!(all["mounts"][0]["hostPath"], "/l");
        std::fs::write(&common, "devices: []\n").unwrap();
        let refused = Cdi::new(dir.path(), Some(&common)).unwrap_err().to_string();
        assert!(
            refused.contains("nvidia.yaml") && refused.contains("containerEdits"),
            "{refused}"
        );
    }

    #[test]
    fn files_of_devices_that_are_gone_are_removed_and_foreign_files_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let cdi = Cdi::new(dir.path(), None).unwrap();
        std::fs::write(dir.path().join("nvidia.yaml"), "").unwrap();
        for device in [DEVICE, "GPU-1:1g.10gb:5", "GPU-1:1g.10gb:4"] {
            cdi.write(KIND, device, &edits()).unwrap();
        }
        cdi.remove(KIND, "GPU-1:1g.10gb:4").unwrap();
        cdi.remove(KIND, "GPU-1:1g.10gb:4").unwrap();
        cdi.keep_only([(KIND, DEVICE)].into_iter()).unwrap();
        let mut left: Vec<_> = std::fs::read_dir(dir.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name())
            .collect();
        left.sort();
        assert_eq!(left, ["migpool.dev-mig_GPU-1_1g.10gb_6.json", "nvidia.yaml"]);
    }
}
