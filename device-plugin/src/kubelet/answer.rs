//! How a container is told what it got.

use super::proto::v1beta1::{CdiDevice, ContainerAllocateResponse, DeviceSpec};
use crate::args::ListStrategy;
use crate::carve::Granted;
use shared::names;

/// Key of the annotation with CDI names, for runtimes that read no field.
const CDI_ANNOTATION: &str = "cdi.k8s.io/migpool";

/// The kubelet's answer for one container.
#[must_use]
pub fn answer(granted: &[Granted], strategy: ListStrategy, specs: bool) -> ContainerAllocateResponse {
    let mut answer = ContainerAllocateResponse::default();
    let cdi = granted.iter().map(|one| format!("{}={}", one.kind, one.id));
    match strategy {
        ListStrategy::CdiCri => answer.cdi_devices = cdi.map(|name| CdiDevice { name }).collect(),
        ListStrategy::CdiAnnotations => {
            let names: Vec<String> = cdi.collect();
            // several resources in one container are answered one by one: each needs a key of its own
            let key = format!(
                "{CDI_ANNOTATION}_{}",
                granted.first().map_or_else(String::new, |one| key_of(&one.id))
            );
            answer.annotations.insert(key, names.join(","));
        }
        ListStrategy::Envvar => {
            let uuids: Vec<&str> = granted.iter().map(|one| one.uuid.as_str()).collect();
            answer
                .envs
                .insert(names::ENV_VISIBLE_DEVICES.to_owned(), uuids.join(","));
        }
    }
    if specs {
        let nodes = granted.iter().flat_map(|one| &one.nodes);
        for node in nodes {
            let spec = DeviceSpec {
                container_path: node.path.clone(),
                host_path: node.host.to_string_lossy().into_owned(),
                permissions: "rw".to_owned(),
            };
            if !answer.devices.contains(&spec) {
                answer.devices.push(spec);
            }
        }
    }
    answer
}

/// A device id as the end of an annotation key: what a label value may hold, at most 63 characters with the rest.
fn key_of(id: &str) -> String {
    let plain: String = id
        .chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '-'
            }
        })
        .collect();
    plain
        .chars()
        .rev()
        .take(40)
        .collect::<String>()
        .chars()
        .rev()
        .collect::<String>()
        .trim_matches(['-', '.'])
        .to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device_nodes::DeviceNode;

    fn granted() -> Vec<Granted> {
        let node = |path: &str| DeviceNode {
            path: path.to_owned(),
            host: format!("/r{path}").into(),
        };
        let slice = |start: u8| Granted {
            id: format!("GPU-00000000-0000-0000-0000-000000000000:1g.10gb:{start}"),
            kind: names::CDI_KIND,
            uuid: format!("MIG-{start}"),
            nodes: vec![
                node("/dev/nvidia0"),
                node(&format!("/dev/nvidia-caps/nvidia-cap{start}")),
            ],
        };
        vec![slice(5), slice(6)]
    }

    #[test]
    fn each_strategy_tells_in_its_own_way() {
        let cri = answer(&granted(), ListStrategy::CdiCri, false);
        assert_eq!(
            cri.cdi_devices[1].name,
            "migpool.dev/mig=GPU-00000000-0000-0000-0000-000000000000:1g.10gb:6"
        );
        assert!(cri.envs.is_empty() && cri.devices.is_empty());
        let env = answer(&granted(), ListStrategy::Envvar, false);
        assert_eq!(env.envs["NVIDIA_VISIBLE_DEVICES"], "MIG-5,MIG-6");
        let annotated = answer(&granted(), ListStrategy::CdiAnnotations, false);
        let (key, value) = annotated.annotations.iter().next().unwrap();
        assert!(
            key.starts_with("cdi.k8s.io/") && key.len() <= 63 + "cdi.k8s.io/".len(),
            "{key}"
        );
        assert_eq!(value.split(',').count(), 2);
    }

    #[test]
    fn device_specs_come_along_each_once() {
        let both = answer(&granted(), ListStrategy::CdiCri, true);
        let paths: Vec<_> = both
            .devices
            .iter()
            .map(|spec| spec.container_path.as_str())
            .collect();
        assert_eq!(
            paths,
            [
                "/dev/nvidia0",
                "/dev/nvidia-caps/nvidia-cap5",
                "/dev/nvidia-caps/nvidia-cap6"
            ]
        );
        assert_eq!(both.devices[0].host_path, "/r/dev/nvidia0");
    }
}
