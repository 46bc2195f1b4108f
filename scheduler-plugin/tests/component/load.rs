//! The load that agents tell, from their sockets to where a pod goes and what the pool says of it.

use serde_json::{Value, json};
use serve::usage::proto::Minute;

use super::agent::{Agent, Call};
use super::lab::{Extender, Lab, gpu_node, pod_object, until};

/// What an agent remembers: 26 hours in which the load swings around `middle` every six.
fn day(lab: &Lab, middle: f32) -> Vec<Minute> {
    let until = lab.minute();
    let minute = |minute: i64| {
        let angle = (minute % 360) as f32 * std::f32::consts::TAU / 360.0;
        Minute {
            minute,
            load: middle + 0.2 * angle.sin(),
        }
    };
    (until - 26 * 60..until).map(minute).collect()
}

fn set_endpoint(lab: &Lab, node: &str, endpoint: &Value) {
    lab.api.edit("gpunodes", node, |object| {
        object["status"]["endpoint"] = endpoint.clone();
    });
}

fn call(token: &str, after: i64) -> Call {
    Call {
        authorization: format!("Bearer {token}"),
        after,
    }
}

/// Waits until a line is among the metrics.
async fn shows(extender: &Extender, line: &str) {
    until(line, || async {
        let (_, metrics) = extender.get("/metrics").await;
        metrics.lines().any(|one| one == line)
    })
    .await;
}

/// A metric, 0 where it is not there.
async fn metric(extender: &Extender, name: &str) -> u64 {
    let (_, metrics) = extender.get("/metrics").await;
    let line = metrics.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |value| value.trim().parse().unwrap())
}

#[tokio::test]
async fn a_pod_goes_to_the_node_that_will_be_calm_and_the_pool_says_why() {
    let lab = Lab::new(2, 1).await;
    // by room alone a pod goes where a GPU is fuller
    let used = [
        (0, "1g.10gb:6", "Allocated", None),
        (0, "1g.10gb:5", "Allocated", None),
    ];
    lab.api.put("gpunodes", gpu_node("n1", 1, &used));
    lab.api.put("gpunodes", gpu_node("n2", 1, &used[..1]));
    let extender = lab.extender("a").await;
    let nodes = ["n1", "n2"];
    let answer = async |name: &str| {
        let pod = pod_object(name, "1g.10gb");
        extender.filter(&pod, &nodes).await["NodeNames"].clone()
    };
    let held = |count: u8| format!(r#"migpool_scheduler_reservations{{state="tentative"}} {count}"#);
    assert_eq!(answer("before").await, json!(["n1"]));
    // each is asked of the same cluster, in which nothing is held for the one before
    shows(&extender, &held(1)).await;
    lab.pass(61);
    shows(&extender, &held(0)).await;

    let (busy, calm) = (
        Agent::start(day(&lab, 0.75)).await,
        Agent::start(day(&lab, 0.25)).await,
    );
    set_endpoint(&lab, "n1", &busy.endpoint);
    set_endpoint(&lab, "n2", &calm.endpoint);
    shows(&extender, r#"migpool_pool_forecast_nodes{state="own"} 2"#).await;
    assert_eq!(answer("after").await, json!(["n2"]));
    shows(&extender, &held(1)).await;
    let forecast = || lab.api.get("gpupools", "default").unwrap()["status"]["forecast"].clone();
    until("the pool's forecast", || async { forecast()["acting"] == 2 }).await;
    let said = forecast();
    assert_eq!(said["nodes"], 2, "{said}");
    assert!(said["accuracyPercent"].as_u64().unwrap() >= 95, "{said}");
    assert!(said["errorPercent"].as_u64().unwrap() < 100, "{said}");
    assert_eq!(
        said["message"],
        "forecasts are right and better than \"as it is now\"; those of 2 of 2 nodes count"
    );
    assert_eq!(
        (busy.calls(), calm.calls()),
        (vec![call("first", 0)], vec![call("first", 0)])
    );

    // for four minutes nobody tells anything
    lab.pass(240);
    shows(&extender, r#"migpool_scheduler_load_streams{state="stale"} 2"#).await;
    shows(&extender, r#"migpool_pool_forecast_nodes{state="own"} 0"#).await;
    shows(&extender, &held(0)).await;
    assert_eq!(answer("in silence").await, json!(["n1"]));
    until("the pool's forecast", || async { forecast()["nodes"] == 0 }).await;
    assert_eq!(
        forecast()["message"],
        "no node has told its load for 3 minutes; no forecast counts"
    );
}

#[tokio::test]
async fn an_agent_that_starts_anew_is_followed_from_the_last_minute_on() {
    let lab = Lab::new(1, 1).await;
    let first = Agent::start(day(&lab, 0.5)).await;
    set_endpoint(&lab, "n1", &first.endpoint);
    let extender = lab.extender("a").await;
    let taken = r#"migpool_scheduler_load_minutes_total{outcome="taken"}"#;
    shows(&extender, &format!("{taken} 1560")).await;
    let now = lab.minute();
    first.tell(now, 0.5);
    shows(&extender, &format!("{taken} 1561")).await;
    first.stop();

    let second = Agent::start(day(&lab, 0.5)).await;
    set_endpoint(&lab, "n1", &second.endpoint);
    until("the call", || async { !second.calls().is_empty() }).await;
    assert_eq!(second.calls(), [call("first", now)]);
    second.tell(now + 1, 0.5);
    shows(&extender, &format!("{taken} 1562")).await;
    // a minute that is not to be yet is not taken
    second.tell(now + 3, 0.5);
    shows(
        &extender,
        r#"migpool_scheduler_load_minutes_total{outcome="refused"} 1"#,
    )
    .await;
    assert_eq!(metric(&extender, taken).await, 1_562);
}

#[tokio::test]
async fn the_token_goes_to_nobody_but_the_agent_that_its_gpu_node_names() {
    let lab = Lab::new(1, 1).await;
    let (named, other) = (Agent::start(day(&lab, 0.5)).await, Agent::start(Vec::new()).await);
    // the right fingerprint at the wrong address
    let mut endpoint = named.endpoint.clone();
    endpoint["address"] = other.endpoint["address"].clone();
    set_endpoint(&lab, "n1", &endpoint);
    let extender = lab.extender("a").await;
    let failures = r#"migpool_scheduler_load_dial_failures_total{reason="Unreachable"}"#;
    until("a call that fails", || async {
        metric(&extender, failures).await > 0
    })
    .await;
    assert!(other.connections() > 0);
    assert_eq!(other.calls(), []);
    set_endpoint(&lab, "n1", &named.endpoint);
    until("the call", || async { !named.calls().is_empty() }).await;
    assert_eq!(other.calls(), []);
}

#[tokio::test]
async fn the_token_is_read_anew_for_each_call_and_waited_for_where_it_is_missing() {
    let lab = Lab::new(1, 1).await;
    std::fs::remove_file(lab.token_file()).unwrap();
    let agent = Agent::start(day(&lab, 0.5)).await;
    set_endpoint(&lab, "n1", &agent.endpoint);
    let extender = lab.extender("a").await;
    let failures =
        |reason: &str| format!(r#"migpool_scheduler_load_dial_failures_total{{reason="{reason}"}}"#);
    until("a call that was not made", || async {
        metric(&extender, &failures("NoToken")).await > 0
    })
    .await;
    assert_eq!(agent.connections(), 0);
    lab.put_token("first");
    until("the first call", || async { !agent.calls().is_empty() }).await;
    shows(
        &extender,
        r#"migpool_scheduler_load_minutes_total{outcome="taken"} 1560"#,
    )
    .await;
    agent.let_in("second");
    lab.put_token("second");
    agent.hang_up();
    until("the second call", || async { agent.calls().len() > 1 }).await;
    assert_eq!(agent.calls()[1], call("second", lab.minute() - 1));
    // one that is not let in says so
    agent.let_in("third");
    agent.hang_up();
    until("a refusal", || async {
        metric(&extender, &failures("Refused")).await > 0
    })
    .await;
}

#[tokio::test]
async fn a_node_that_goes_is_not_called_any_more() {
    let lab = Lab::new(2, 1).await;
    let agent = Agent::start(day(&lab, 0.5)).await;
    set_endpoint(&lab, "n1", &agent.endpoint);
    let extender = lab.extender("a").await;
    shows(&extender, r#"migpool_scheduler_load_streams{state="live"} 1"#).await;
    lab.api.delete("gpunodes", "n1");
    shows(&extender, r#"migpool_scheduler_load_streams{state="live"} 0"#).await;
    // it comes back as a node of which nothing is known
    let mut back = gpu_node("n1", 1, &[]);
    back["status"]["endpoint"] = agent.endpoint.clone();
    lab.api.put("gpunodes", back);
    until("the call", || async { agent.calls().len() > 1 }).await;
    assert_eq!(agent.calls(), [call("first", 0), call("first", 0)]);
}

#[tokio::test]
async fn an_agent_that_floods_is_hung_up_on_and_called_again_after_a_rest() {
    let lab = Lab::new(2, 1).await;
    let of = |minute: i64| Minute { minute, load: 0.5 };
    // more than is remembered, all of it long ago; and more than a message may have
    let useless = Agent::start((1..=2_000).map(of).collect()).await;
    let large = Agent::in_messages_of(10_000, (1..=10_000).map(of).collect()).await;
    set_endpoint(&lab, "n1", &useless.endpoint);
    set_endpoint(&lab, "n2", &large.endpoint);
    let extender = lab.extender("a").await;
    for agent in [&useless, &large] {
        until("a second call", || async { agent.calls().len() > 1 }).await;
        assert_eq!(agent.calls()[1], call("first", 0));
    }
    let minutes = async |outcome: &str| {
        let name = format!(r#"migpool_scheduler_load_minutes_total{{outcome="{outcome}"}}"#);
        metric(&extender, &name).await
    };
    assert_eq!(minutes("taken").await, 0);
    // seven messages were enough of it; none of the other was read
    let refused = minutes("refused").await;
    assert!(refused >= 7 * 256, "{refused}");
}

#[tokio::test]
async fn every_replica_follows_whether_or_not_it_leads() {
    let lab = Lab::new(1, 1).await;
    let agent = Agent::start(day(&lab, 0.5)).await;
    set_endpoint(&lab, "n1", &agent.endpoint);
    let first = lab.extender("a").await;
    first.leads().await;
    let second = lab.extender("b").await;
    for extender in [&first, &second] {
        shows(extender, r#"migpool_pool_forecast_nodes{state="own"} 1"#).await;
    }
    shows(&second, "migpool_scheduler_leader 0").await;
    assert_eq!(agent.calls().len(), 2);
}
