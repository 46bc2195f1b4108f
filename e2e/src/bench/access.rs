//! How the programs that are measured log in: all by the token of a service account, as the chart's programs do. It may
//! do everything; what it does is not what is measured.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use cluster::Cluster;
use cluster::certs::write_secret;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use kube::api::{Api, PostParams};
use kube::config::Kubeconfig;
use serde_json::json;

use crate::world::World;

/// The service account.
const ACCOUNT: &str = "migpool-bench";

/// Makes the service account and gives a kubeconfig with a token of it.
pub async fn kubeconfig(cluster: &Cluster, world: &World) -> Result<PathBuf> {
    let accounts: Api<ServiceAccount> = Api::namespaced(world.client.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": ACCOUNT}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let bindings: Api<ClusterRoleBinding> = Api::all(world.client.clone());
    let binding = serde_json::from_value(json!({
        "metadata": {"name": ACCOUNT},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
    }))?;
    bindings.create(&PostParams::default(), &binding).await?;
    let asked = serde_json::from_value(json!({"spec": {"audiences": [], "expirationSeconds": 7200}}))?;
    let answer = accounts
        .create_token_request(ACCOUNT, &PostParams::default(), &asked)
        .await?;
    let token = answer.status.context("the token request has no status")?.token;
    let config = Kubeconfig::read_from(cluster.kubeconfig())?;
    let mut config = serde_json::to_value(config)?;
    config["users"][0]["user"] = json!({"token": token});
    let path = cluster.plan().root.join("bench.kubeconfig");
    write_secret(&path, &config.to_string())?;
    Ok(path)
}
