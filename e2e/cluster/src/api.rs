//! A very small client of the API server: one GET at a time, so that waiting needs no kubectl.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};
use serde_json::Value;

use crate::plan::{API_PORT, CONTROL_ADDRESS, Plan};

const TIMEOUT: Duration = Duration::from_secs(5);

/// The API server, as the administrator sees it.
#[derive(Clone, Debug)]
pub struct Api {
    config: Arc<ClientConfig>,
}

/// One node as the API server knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeView {
    /// The node's name.
    pub name: String,
    /// Whether its condition Ready is True.
    pub ready: bool,
    /// The boot that its kubelet last reported.
    pub boot: String,
    /// The kubelet's version.
    pub version: String,
    /// `allocatable` of the extended resources, as `name=count`.
    pub resources: Vec<String>,
}

impl Api {
    /// With the administrator's certificate of this plan.
    pub fn admin(plan: &Plan) -> Result<Self> {
        let mut roots = RootCertStore::empty();
        roots.add(
            CertificateDer::from_pem_file(plan.pki_file("ca.crt")).context("read the CA certificate")?,
        )?;
        let certificate =
            CertificateDer::from_pem_file(plan.pki_file("admin.crt")).context("read admin.crt")?;
        let key = PrivateKeyDer::from_pem_file(plan.pki_file("admin.key")).context("read admin.key")?;
        let config = ClientConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_client_auth_cert(vec![certificate], key)?;
        Ok(Self {
            config: Arc::new(config),
        })
    }

    /// The body of a GET that succeeds.
    pub fn get(&self, path: &str) -> Result<Vec<u8>> {
        let address = SocketAddr::from((CONTROL_ADDRESS, API_PORT));
        let socket = TcpStream::connect_timeout(&address, TIMEOUT).context("connect to the API server")?;
        socket.set_read_timeout(Some(TIMEOUT))?;
        socket.set_write_timeout(Some(TIMEOUT))?;
        let name = ServerName::IpAddress(CONTROL_ADDRESS.into());
        let mut stream = StreamOwned::new(ClientConnection::new(Arc::clone(&self.config), name)?, socket);
        // HTTP/1.0: the server neither chunks the body nor keeps the connection.
        write!(
            stream,
            "GET {path} HTTP/1.0\r\nHost: {CONTROL_ADDRESS}\r\nAccept: application/json\r\n\r\n"
        )?;
        let mut reply = Vec::new();
        stream
            .read_to_end(&mut reply)
            .context("read the API server's answer")?;
        let (status, body) = split(&reply).context("the API server's answer is not HTTP")?;
        if status != 200 {
            bail!("GET {path}: status {status}: {}", String::from_utf8_lossy(body));
        }
        Ok(body.to_vec())
    }

    /// As [`Api::get`], parsed.
    pub fn json(&self, path: &str) -> Result<Value> {
        serde_json::from_slice(&self.get(path)?).with_context(|| format!("GET {path}: not JSON"))
    }

    /// Whether the API server says that it is ready.
    pub fn is_ready(&self) -> bool {
        self.get("/readyz").is_ok()
    }

    /// All nodes.
    pub fn nodes(&self) -> Result<Vec<NodeView>> {
        let list = self.json("/api/v1/nodes")?;
        Ok(list["items"]
            .as_array()
            .map(|items| items.iter().map(view).collect())
            .unwrap_or_default())
    }
}

fn view(node: &Value) -> NodeView {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let conditions = node["status"]["conditions"].as_array();
    let resources = node["status"]["allocatable"].as_object();
    NodeView {
        name: text(&node["metadata"]["name"]),
        ready: conditions
            .is_some_and(|all| all.iter().any(|c| c["type"] == "Ready" && c["status"] == "True")),
        boot: text(&node["status"]["nodeInfo"]["bootID"]),
        version: text(&node["status"]["nodeInfo"]["kubeletVersion"]),
        resources: resources
            .map(|all| {
                all.iter()
                    .filter(|(name, _)| name.contains('/'))
                    .map(resource)
                    .collect()
            })
            .unwrap_or_default(),
    }
}

fn resource((name, count): (&String, &Value)) -> String {
    format!("{name}={}", count.as_str().unwrap_or("?"))
}

fn split(reply: &[u8]) -> Option<(u16, &[u8])> {
    let end = reply.windows(4).position(|window| window == b"\r\n\r\n")?;
    let head = std::str::from_utf8(&reply[..end]).ok()?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    Some((status, &reply[end + 4..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_is_split_into_status_and_body() {
        assert_eq!(
            split(b"HTTP/1.0 200 OK\r\nA: b\r\n\r\n{}"),
            Some((200, b"{}".as_slice()))
        );
        assert_eq!(split(b"HTTP/1.0 503 Busy\r\n\r\n"), Some((503, b"".as_slice())));
        assert_eq!(split(b"garbage"), None);
    }

    #[test]
    fn a_node_is_ready_only_when_it_says_true() {
        let node = |status: &str| {
            serde_json::json!({
                "metadata": {"name": "gpu-1"},
                "status": {
                    "conditions": [{"type": "MemoryPressure", "status": "True"}, {"type": "Ready", "status": status}],
                    "nodeInfo": {"bootID": "b", "kubeletVersion": "v1.37.2"},
                    "allocatable": {"cpu": "2", "nvidia.com/mig-1g.10gb": "7"},
                },
            })
        };
        let seen = view(&node("True"));
        assert!(seen.ready);
        assert_eq!(seen.resources, ["nvidia.com/mig-1g.10gb=7"]);
        assert!(!view(&node("Unknown")).ready);
    }
}
