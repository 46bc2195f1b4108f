//! Pods come in JSON (in the questions of kube-scheduler) and in protobuf (from the watch): they must tell the same.

use prost::Message as _;
use scheduler_plugin::watch::pods::PodPart;
use scheduler_plugin::watch::pods::message::PodMessage;
use serde_json::{Value, json};

use super::api_server::protobuf;
use super::lab::{Lab, as_sent, pod_object, until};

fn in_both(pod: &Value) -> (PodPart, PodPart) {
    let message = PodMessage::decode(protobuf::pod(pod).as_slice()).unwrap();
    (
        PodPart::of(&serde_json::from_value(pod.clone()).unwrap()),
        PodPart::of(&message.into()),
    )
}

/// A pod with everything in it that is read, as kube-apiserver 1.37.2 wrote it for one who asked for JSON.
fn full() -> Value {
    serde_json::from_str(include_str!("../data/pod.json")).unwrap()
}

/// The same pod in the same version, as it wrote it for one who asked for protobuf.
const FULL: &[u8] = include_bytes!("../data/pod.pb");

/// What every object is wrapped in, behind four bytes of magic.
#[derive(Clone, PartialEq, prost::Message)]
struct Unknown {
    #[prost(bytes = "vec", tag = "2")]
    raw: Vec<u8>,
}

#[test]
fn what_the_real_api_server_writes_tells_the_same_in_both() {
    let wrapped = FULL.strip_prefix(b"k8s\0").unwrap();
    let message = PodMessage::decode(Unknown::decode(wrapped).unwrap().raw.as_slice()).unwrap();
    let protobuf = PodPart::of(&message.into());
    assert_eq!(protobuf, PodPart::of(&serde_json::from_value(full()).unwrap()));
    // nothing is equal for being absent
    assert_eq!(protobuf.besides.cpu_milli, 3250);
    assert_eq!(protobuf.request.as_ref().unwrap().wants.len(), 3);
    assert!(protobuf.placement.as_ref().is_some_and(Result::is_ok));
    assert!(
        protobuf
            .nominated
            .as_ref()
            .is_some_and(|nominated| nominated.ours)
    );
    assert!(protobuf.deleting && protobuf.unschedulable && protobuf.gated);
    assert!(protobuf.rules.soft && protobuf.rules.beyond && !protobuf.rules.goes_anywhere());
    assert_eq!(protobuf.started.len(), 2);
    assert!(protobuf.controller.is_some() && protobuf.created > 0);
    assert_eq!(protobuf.scheduler, "nobody");
}

#[test]
fn a_pod_tells_the_same_in_json_and_in_protobuf() {
    let (json, protobuf) = in_both(&full());
    assert_eq!(protobuf, json);
    // each part alone, and without each part, so that nothing covers for something else
    for part in ["metadata", "spec", "status"] {
        let names: Vec<String> = full()[part].as_object().unwrap().keys().cloned().collect();
        for name in names.iter().filter(|name| *name != "containers") {
            let mut without = full();
            without[part].as_object_mut().unwrap().remove(name);
            let (json, protobuf) = in_both(&without);
            assert_eq!(protobuf, json, "without {part}.{name}");
            let mut alone = pod_object("p", "1g.10gb");
            alone[part][name] = full()[part][name].clone();
            let (json, protobuf) = in_both(&alone);
            assert_eq!(protobuf, json, "{part}.{name} alone");
        }
    }
    for volume in ["csi", "ephemeral", "emptyDir"] {
        let mut pod = full();
        pod["spec"]["volumes"] = json!([{"name": "v", (volume): {}}]);
        for name in ["affinity", "resourceClaims", "topologySpreadConstraints"] {
            pod["spec"].as_object_mut().unwrap().remove(name);
        }
        pod["spec"]["containers"][0]
            .as_object_mut()
            .unwrap()
            .remove("ports");
        let (json, protobuf) = in_both(&pod);
        assert_eq!(protobuf, json, "{volume}");
        assert_eq!(protobuf.rules.beyond, volume != "emptyDir");
    }
}

#[tokio::test]
async fn a_question_about_a_pod_that_the_watch_told_of_is_not_read_again() {
    let lab = Lab::new(1, 1).await;
    let extender = lab.extender("a").await;
    lab.pod("p", "1g.10gb");
    let known = lab.pod_now("p");
    // such a question never comes: it shows whose reading the answer is
    let mut other = known.clone();
    other["spec"]["containers"][0]["resources"]["limits"] = json!({"nvidia.com/mig-9x": "1"});
    until("the watch has told", async || {
        extender.filter(&as_sent(&other), &["n1"]).await["NodeNames"] == json!(["n1"])
    })
    .await;
    other["metadata"]["resourceVersion"] = json!("999");
    let answer = extender.filter(&as_sent(&other), &["n1"]).await;
    let sentence = answer["FailedAndUnresolvableNodes"]["n1"]
        .as_str()
        .unwrap_or_default();
    assert!(
        sentence.contains("names no MIG profile"),
        "another version is read: {answer}"
    );
    other["metadata"]["resourceVersion"] = known["metadata"]["resourceVersion"].clone();
    other["metadata"]["uid"] = json!("another pod of that name");
    let answer = extender.filter(&as_sent(&other), &["n1"]).await;
    assert!(
        answer["FailedAndUnresolvableNodes"]["n1"].is_string(),
        "another pod is read: {answer}"
    );
}
