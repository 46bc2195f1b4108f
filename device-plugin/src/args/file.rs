//! The config file: the same settings as the flags, in camel case, and the table of XIDs.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use super::{ListStrategy, Strategy};
use crate::health::xid::Table;

/// What a config file says. A key that is not there is `None`.
#[derive(Clone, Debug, Default)]
#[allow(missing_docs, reason = "each field is documented where it is set, in `Flags`")]
pub struct File {
    pub mig_strategy: Option<Strategy>,
    pub node_name: Option<String>,
    pub driver_root: Option<PathBuf>,
    pub dev_root: Option<PathBuf>,
    pub proc_root: Option<PathBuf>,
    pub kubelet_dir: Option<PathBuf>,
    pub pod_resources_socket: Option<PathBuf>,
    pub cdi_dir: Option<PathBuf>,
    pub cdi_common_spec: Option<PathBuf>,
    pub state_dir: Option<PathBuf>,
    pub device_list_strategy: Option<ListStrategy>,
    pub pass_device_specs: Option<bool>,
    pub admin_address: Option<SocketAddr>,
    pub usage_address: Option<SocketAddr>,
    pub usage_advertise: Option<IpAddr>,
    pub usage_caller: Option<String>,
    pub idle_slice_seconds: Option<u32>,
    pub driver_timeout_seconds: Option<u32>,
    pub log_format: Option<String>,
    pub xids: Table,
}

impl File {
    /// Reads a config file.
    ///
    /// # Errors
    /// One sentence that names the file, the key and the fix.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("config file {} cannot be read", path.display()))?;
        Self::parse(&text).with_context(|| format!("config file {}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let Ok(Value::Object(keys)) = serde_saphyr::from_str::<Value>(text) else {
            bail!("is not a YAML mapping; write one \"key: value\" a line");
        };
        let mut keys = Keys {
            left: keys,
            known: Vec::new(),
        };
        let file = Self {
            mig_strategy: keys.take("migStrategy")?,
            node_name: keys.take("nodeName")?,
            driver_root: keys.take("driverRoot")?,
            dev_root: keys.take("devRoot")?,
            proc_root: keys.take("procRoot")?,
            kubelet_dir: keys.take("kubeletDir")?,
            pod_resources_socket: keys.take("podResourcesSocket")?,
            cdi_dir: keys.take("cdiDir")?,
            cdi_common_spec: keys.take("cdiCommonSpec")?,
            state_dir: keys.take("stateDir")?,
            device_list_strategy: keys.take("deviceListStrategy")?,
            pass_device_specs: keys.take("passDeviceSpecs")?,
            admin_address: keys.take("adminAddress")?,
            usage_address: keys.take("usageAddress")?,
            usage_advertise: keys.take("usageAdvertise")?,
            usage_caller: keys.take("usageCaller")?,
            idle_slice_seconds: keys.take("idleSliceSeconds")?,
            driver_timeout_seconds: keys.take("driverTimeoutSeconds")?,
            log_format: keys.take("logFormat")?,
            xids: Table::with(keys.take("xids")?.unwrap_or_default())?,
        };
        match keys.left.keys().next() {
            Some(key) => bail!(
                "has the unknown key {key:?}; known keys are {}",
                keys.known.join(", ")
            ),
            None => Ok(file),
        }
    }
}

/// Keys not read yet, and those that there are.
struct Keys {
    left: Map<String, Value>,
    known: Vec<&'static str>,
}

impl Keys {
    fn take<T: DeserializeOwned>(&mut self, key: &'static str) -> anyhow::Result<Option<T>> {
        self.known.push(key);
        let Some(value) = self.left.remove(key) else {
            return Ok(None);
        };
        let said = value.to_string();
        match serde_json::from_value(value) {
            Ok(value) => Ok(Some(value)),
            Err(error) => bail!("key {key:?} says {said}: {error}"),
        }
    }
}
