//! Every setting of the program, once: flag, environment variable and key of the config file have one name in
//! three spellings (`--body-limit`, `MIGPOOL_BODY_LIMIT`, `bodyLimit`). A flag wins over the environment, the
//! environment over the file, the file over the default.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Parser;
use serde::Deserialize;
use shared::{names, policy};

/// Where the chart puts the token that is shown to agents.
const USAGE_TOKEN_FILE: &str = "/var/run/secrets/migpool/usage/token";

/// The command line and the environment.
#[derive(Clone, Debug, Default, Parser)]
#[command(
    name = "migpool-scheduler",
    version,
    about = "Scheduler extender that places pods on MIG slices, beside an unmodified kube-scheduler.",
    after_help = "A flag wins over its environment variable, that over the config file, that over the default."
)]
pub struct Flags {
    /// YAML file with any of the settings below, in camelCase
    #[arg(long, env = "MIGPOOL_CONFIG_FILE", value_name = "PATH")]
    pub config_file: Option<PathBuf>,
    /// Where kube-scheduler calls filter, prioritize and bind [default: 127.0.0.1:9401]
    #[arg(long, env = "MIGPOOL_EXTENDER_ADDRESS", value_name = "IP:PORT")]
    pub extender_address: Option<SocketAddr>,
    /// Where /metrics, /livez, /readyz and /layout are served [default: 0.0.0.0:9403]
    #[arg(long, env = "MIGPOOL_ADMIN_ADDRESS", value_name = "IP:PORT")]
    pub admin_address: Option<SocketAddr>,
    /// Namespace of the leader's Lease [default: migpool-system]
    #[arg(
        long,
        alias = "namespace",
        env = "MIGPOOL_LEASE_NAMESPACE",
        value_name = "NAMESPACE"
    )]
    pub lease_namespace: Option<String>,
    /// Who this replica is in the Lease; unlike any other's [default: the host's name]
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub identity: Option<String>,
    /// text or json [default: text]
    #[arg(long, env = "MIGPOOL_LOG_FORMAT", value_name = "FORMAT")]
    pub log_format: Option<LogFormat>,
    /// Largest request body that is read, bytes [default: 67108864]
    #[arg(long, env = "MIGPOOL_BODY_LIMIT", value_name = "BYTES")]
    pub body_limit: Option<usize>,
    /// Longest that one write to the API server may take; keep it under the extender's httpTimeout [default: 4]
    #[arg(long, env = "MIGPOOL_WRITE_TIMEOUT_SECONDS", value_name = "SECONDS")]
    pub write_timeout_seconds: Option<u64>,
    /// Names of the kube-schedulers that ask this extender: their pods are planned and nominated ahead. Empty: none
    /// are [default: migpool-scheduler]
    #[arg(
        long,
        env = "MIGPOOL_NOMINATE_FOR",
        value_name = "NAME",
        value_delimiter = ','
    )]
    pub nominate_for: Option<Vec<String>>,
    /// Pods are nominated in clusters of at least so many nodes; in smaller ones it costs more than it saves
    /// [default: 1000]
    #[arg(long, env = "MIGPOOL_NOMINATE_FROM_NODES", value_name = "NODES")]
    pub nominate_from_nodes: Option<usize>,
    /// File with the token that is shown to agents for the load of their nodes. Empty: no load is followed
    /// [default: /var/run/secrets/migpool/usage/token]
    #[arg(long, env = "MIGPOOL_USAGE_TOKEN_FILE", value_name = "PATH")]
    pub usage_token_file: Option<String>,
}

/// The config file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
struct File {
    extender_address: Option<SocketAddr>,
    admin_address: Option<SocketAddr>,
    lease_namespace: Option<String>,
    identity: Option<String>,
    log_format: Option<LogFormat>,
    body_limit: Option<usize>,
    write_timeout_seconds: Option<u64>,
    nominate_for: Option<Vec<String>>,
    nominate_from_nodes: Option<usize>,
    usage_token_file: Option<String>,
}

/// How logs are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people.
    #[default]
    Text,
    /// For machines, one object a line.
    Json,
}

/// The settings as they hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where kube-scheduler calls.
    pub extender_address: SocketAddr,
    /// Where metrics and health are served.
    pub admin_address: SocketAddr,
    /// Namespace of the Lease.
    pub lease_namespace: String,
    /// Who this replica is.
    pub identity: String,
    /// How logs are written.
    pub log_format: LogFormat,
    /// Largest request body, bytes.
    pub body_limit: usize,
    /// Longest that one write may take.
    pub write_timeout: Duration,
    /// Schedulers whose pods are nominated.
    pub nominate_for: Vec<String>,
    /// Least number of nodes at which they are.
    pub nominate_from_nodes: usize,
    /// File with the token that is shown to agents; `None` where no load is followed.
    pub usage_token_file: Option<PathBuf>,
}

/// A setting that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum BadSettings {
    /// The config file cannot be read.
    #[error("config file {path}: {error}; check --config-file")]
    Unreadable {
        /// Its path.
        path: PathBuf,
        /// What happened.
        error: std::io::Error,
    },
    /// The config file says something that is no setting.
    #[error("config file {path}: {error}; correct that key or remove it")]
    Malformed {
        /// Its path.
        path: PathBuf,
        /// What the reader found, and where.
        error: String,
    },
    /// A value makes no sense.
    #[error("{setting} is {value}; {fix}")]
    Value {
        /// The setting, as a flag.
        setting: &'static str,
        /// What it says.
        value: String,
        /// What to write.
        fix: &'static str,
    },
}

impl Settings {
    /// Joins flags, environment, file and defaults.
    ///
    /// # Errors
    /// [`BadSettings`] names the setting and the fix.
    pub fn new(flags: Flags, host_name: &str) -> Result<Self, BadSettings> {
        let file = flags
            .config_file
            .as_deref()
            .map(File::read)
            .transpose()?
            .unwrap_or_default();
        let settings = Self {
            extender_address: flags
                .extender_address
                .or(file.extender_address)
                .unwrap_or(([127, 0, 0, 1], 9401).into()),
            admin_address: flags
                .admin_address
                .or(file.admin_address)
                .unwrap_or(([0, 0, 0, 0], 9403).into()),
            lease_namespace: flags
                .lease_namespace
                .or(file.lease_namespace)
                .unwrap_or_else(|| names::NAMESPACE.to_owned()),
            identity: flags
                .identity
                .or(file.identity)
                .unwrap_or_else(|| host_name.to_owned()),
            log_format: flags.log_format.or(file.log_format).unwrap_or_default(),
            body_limit: flags
                .body_limit
                .or(file.body_limit)
                .unwrap_or(policy::EXTENDER_BODY_LIMIT_BYTES),
            write_timeout: Duration::from_secs(
                flags
                    .write_timeout_seconds
                    .or(file.write_timeout_seconds)
                    .unwrap_or(policy::WRITE_TIMEOUT_SECONDS),
            ),
            nominate_for: flags
                .nominate_for
                .or(file.nominate_for)
                .unwrap_or_else(|| vec![names::SCHEDULER.to_owned()])
                .into_iter()
                .filter(|name| !name.is_empty())
                .collect(),
            nominate_from_nodes: flags
                .nominate_from_nodes
                .or(file.nominate_from_nodes)
                .unwrap_or(policy::NOMINATE_FROM_NODES),
            usage_token_file: Some(
                flags
                    .usage_token_file
                    .or(file.usage_token_file)
                    .unwrap_or_else(|| USAGE_TOKEN_FILE.to_owned()),
            )
            .filter(|path| !path.is_empty())
            .map(PathBuf::from),
        };
        settings.check()
    }

    fn check(self) -> Result<Self, BadSettings> {
        let bad = |setting, value: String, fix| Err(BadSettings::Value { setting, value, fix });
        if self.identity.is_empty() {
            return bad(
                "--identity",
                "empty".into(),
                "give the pod's name through POD_NAME",
            );
        }
        if self.lease_namespace.is_empty() {
            return bad(
                "--lease-namespace",
                "empty".into(),
                "name the namespace that the chart was installed into",
            );
        }
        if self.body_limit < 1 << 16 {
            return bad(
                "--body-limit",
                self.body_limit.to_string(),
                "give at least 65536 bytes, one pod may need that",
            );
        }
        let seconds = self.write_timeout.as_secs();
        if !(1..=300).contains(&seconds) {
            return bad(
                "--write-timeout-seconds",
                seconds.to_string(),
                "allowed is 1 to 300, under the extender's httpTimeout",
            );
        }
        Ok(self)
    }
}

impl File {
    fn read(path: &Path) -> Result<Self, BadSettings> {
        let text = std::fs::read_to_string(path).map_err(|error| BadSettings::Unreadable {
            path: path.into(),
            error,
        })?;
        // the reader would draw the lines around the fault; one sentence is enough here
        let malformed = |error: serde_saphyr::Error| {
            let text = error.to_string();
            let sentence = text
                .lines()
                .next()
                .unwrap_or_default()
                .trim_start_matches("error: ");
            BadSettings::Malformed {
                path: path.into(),
                error: sentence.to_owned(),
            }
        };
        if text
            .lines()
            .all(|line| line.trim().is_empty() || line.trim_start().starts_with('#'))
        {
            return Ok(Self::default());
        }
        serde_saphyr::from_str(&text).map_err(malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, Flags) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("config.yaml");
        std::fs::write(&path, text).unwrap();
        (
            dir,
            Flags {
                config_file: Some(path),
                ..Flags::default()
            },
        )
    }

    #[test]
    fn a_flag_wins_over_the_file_and_the_file_over_the_default() {
        let (_dir, mut flags) = file("bodyLimit: 100000\nleaseNamespace: elsewhere\nlogFormat: json\n");
        flags.body_limit = Some(200_000);
        let settings = Settings::new(flags, "host").unwrap();
        assert_eq!(settings.body_limit, 200_000);
        assert_eq!(settings.lease_namespace, "elsewhere");
        assert_eq!(settings.log_format, LogFormat::Json);
        assert_eq!(settings.identity, "host");
        assert_eq!(settings.nominate_for, [names::SCHEDULER]);
        assert_eq!(settings.extender_address.to_string(), "127.0.0.1:9401");
    }

    #[test]
    fn load_is_followed_unless_the_name_of_the_token_file_is_empty() {
        let path = |flags: Flags| Settings::new(flags, "host").unwrap().usage_token_file;
        assert_eq!(path(Flags::default()), Some(USAGE_TOKEN_FILE.into()));
        let (_dir, mut flags) = file("usageTokenFile: \"\"\n");
        assert_eq!(path(flags.clone()), None);
        flags.usage_token_file = Some("/token".into());
        assert_eq!(path(flags), Some("/token".into()));
        let none = Flags::try_parse_from(["migpool-scheduler", "--usage-token-file="]).unwrap();
        assert_eq!(path(none), None);
    }

    #[test]
    fn an_unknown_key_is_named_in_one_sentence() {
        let (_dir, flags) = file("bodyLimits: 100000\n");
        let refused = Settings::new(flags, "host").unwrap_err().to_string();
        assert!(
            refused.contains("bodyLimits") && refused.contains("bodyLimit,") && refused.contains("remove it"),
            "{refused}"
        );
        assert!(!refused.contains('\n'), "{refused}");
    }

    #[test]
    fn a_value_that_makes_no_sense_is_named_with_its_fix() {
        let refused = |flags: Flags| Settings::new(flags, "host").unwrap_err().to_string();
        let small = refused(Flags {
            body_limit: Some(1),
            ..Flags::default()
        });
        assert_eq!(
            small,
            "--body-limit is 1; give at least 65536 bytes, one pod may need that"
        );
        assert!(
            refused(Flags {
                write_timeout_seconds: Some(0),
                ..Flags::default()
            })
            .contains("1 to 300")
        );
        assert!(
            refused(Flags {
                identity: Some(String::new()),
                ..Flags::default()
            })
            .contains("POD_NAME")
        );
        let missing = Flags {
            config_file: Some("/nowhere/config.yaml".into()),
            ..Flags::default()
        };
        assert!(refused(missing).contains("check --config-file"));
    }

    #[test]
    fn an_empty_file_is_a_file_without_settings() {
        let (_dir, flags) = file("# nothing yet\n");
        assert_eq!(
            Settings::new(flags, "host").unwrap().body_limit,
            policy::EXTENDER_BODY_LIMIT_BYTES
        );
    }
}
