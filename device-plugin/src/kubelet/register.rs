//! One socket a resource, and registration whenever the kubelet (re)starts. A kubelet that starts removes every
//! socket in its folder and makes its own anew: both are seen by a watch on the folder, and by a slow look at it
//! where the watch fails.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use notify::{RecursiveMode, Watcher as _};
use serve::admin::Readiness;
use tokio::net::UnixListener;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio_stream::wrappers::UnixListenerStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;

use super::proto::v1beta1::RegisterRequest;
use super::proto::v1beta1::device_plugin_server::DevicePluginServer;
use super::proto::v1beta1::registration_client::RegistrationClient;
use super::server::{OPTIONS, Plugin};
use crate::args::Settings;
use crate::carve::Carver;
use crate::inventory::Seen;

/// How often the folder is looked at without being told.
const LOOK: Duration = Duration::from_secs(2);
/// How soon a failed registration is tried again.
const RETRY: Duration = Duration::from_millis(500);
/// How long the kubelet may take to answer: it calls us back before it does.
const REGISTER: Duration = Duration::from_secs(12);
/// The kubelet's own socket.
const KUBELET: &str = "kubelet.sock";

/// A socket as it was made: another inode or time means another socket.
type Identity = (u64, i64, i64);

/// Serves every resource of the inventory and keeps the kubelet knowing of them.
pub struct Registrar {
    carver: Carver,
    readiness: Readiness,
    settings: Settings,
    /// The kubelet's socket that we last registered at.
    kubelet: Option<Identity>,
    servers: BTreeMap<String, Serving>,
    running: JoinSet<()>,
}

/// A resource being served.
struct Serving {
    socket: PathBuf,
    identity: Option<Identity>,
    registered: bool,
    token: CancellationToken,
}

impl Registrar {
    /// Nothing served yet.
    #[must_use]
    pub fn new(carver: Carver, readiness: Readiness, settings: Settings) -> Self {
        Self {
            carver,
            readiness,
            settings,
            kubelet: None,
            servers: BTreeMap::new(),
            running: JoinSet::new(),
        }
    }

    /// Serves until shutdown.
    ///
    /// # Errors
    /// The folder cannot be made.
    pub async fn run(mut self, token: CancellationToken) -> anyhow::Result<()> {
        let folder = self.settings.kubelet_dir.clone();
        std::fs::create_dir_all(&folder)
            .with_context(|| format!("kubelet folder {} (--kubelet-dir)", folder.display()))?;
        let (changes, mut changed) = mpsc::channel(1);
        let watcher = watch(&folder, changes);
        if let Err(error) = &watcher {
            tracing::warn!(%error, "the kubelet's folder cannot be watched; it is looked at instead");
        }
        let mut views = self.carver.inventory.subscribe();
        let mut resources = Vec::new();
        loop {
            let whole = self.keep_up().await;
            let wait = if whole { LOOK } else { RETRY };
            loop {
                tokio::select! {
                    () = token.cancelled() => {
                        self.close().await;
                        return Ok(());
                    }
                    () = tokio::time::sleep(wait) => break,
                    Some(()) = changed.recv() => break,
                    Ok(()) = views.changed() => {
                        let now: Vec<String> = self.wanted();
                        if now != resources {
                            resources = now;
                            break;
                        }
                    }
                }
            }
        }
    }

    /// The resources to serve. Before all is taken over, and where we stand back, none is served that was not served before.
    fn wanted(&self) -> Vec<String> {
        let view = self.carver.inventory.view();
        let new = view.state.adopted && view.state.stood_back.is_none();
        view.resources
            .keys()
            .filter(|name| new || self.servers.contains_key(*name))
            .cloned()
            .collect()
    }

    /// One look: serves what is not served, registers what is not registered. Says whether all is well.
    async fn keep_up(&mut self) -> bool {
        while self.running.try_join_next().is_some() {}
        let kubelet = identity(&self.settings.kubelet_dir.join(KUBELET));
        if kubelet != self.kubelet {
            self.kubelet_changed(kubelet).await;
        }
        let wanted = self.wanted();
        if kubelet.is_none() {
            let why = format!(
                "{} is not there",
                self.settings.kubelet_dir.join(KUBELET).display()
            );
            self.say(Some(why));
            return true;
        }
        let mut failed = None;
        for resource in wanted {
            if let Err(error) = self.serve(&resource).await {
                self.carver.metrics.registered(&resource, false);
                let error = format!("{resource}: {error:#}");
                tracing::warn!(error, "not registered");
                failed = Some(error);
            }
        }
        let none = self
            .servers
            .is_empty()
            .then(|| "there is nothing to register".to_owned());
        let whole = failed.is_none();
        self.say(failed.or(none));
        whole
    }

    fn say(&self, why: Option<String>) {
        self.readiness.set("kubelet", why.clone().map_or(Ok(()), Err));
        if self.carver.inventory.view().state.unregistered != why {
            self.carver.inventory.change(|state| state.unregistered = why);
        }
    }

    /// Another kubelet, or none: what it knew of us is gone, and its account starts empty.
    async fn kubelet_changed(&mut self, now: Option<Identity>) {
        if self.kubelet.is_some() {
            tracing::info!(back = now.is_some(), "the kubelet's socket changed");
        }
        self.kubelet = now;
        self.close().await;
        let at = tokio::time::Instant::now();
        self.carver.inventory.change(|state| {
            for held in state.held.values_mut() {
                (held.seen, held.since) = (Seen::Never, at);
            }
        });
    }

    /// Serves and registers one resource, where that is not so already.
    async fn serve(&mut self, resource: &str) -> anyhow::Result<()> {
        let there = self.servers.get(resource).is_some_and(|serving| {
            serving.identity.is_some() && identity(&serving.socket) == serving.identity
        });
        if !there {
            if let Some(old) = self.servers.remove(resource) {
                old.token.cancel();
            }
            let serving = self.listen(resource)?;
            self.servers.insert(resource.to_owned(), serving);
        }
        let Some(serving) = self.servers.get_mut(resource) else {
            return Ok(());
        };
        if serving.registered {
            return Ok(());
        }
        let request = RegisterRequest {
            version: "v1beta1".to_owned(),
            endpoint: serving
                .socket
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned(),
            resource_name: resource.to_owned(),
            options: Some(OPTIONS),
        };
        let channel = super::channel(&self.settings.kubelet_dir.join(KUBELET));
        let mut client = RegistrationClient::new(channel);
        let answer = tokio::time::timeout(REGISTER, client.register(request))
            .await
            .context("the kubelet does not answer")?;
        answer.map_err(|status| anyhow::anyhow!("the kubelet says: {}", status.message()))?;
        serving.registered = true;
        self.carver.metrics.registered(resource, true);
        tracing::info!(resource, "registered");
        let served = self.carver.journal.change(|record| {
            record.served.insert(resource.to_owned());
        });
        served.context("the journal cannot be written")
    }

    /// Opens the socket of a resource and serves on it. It accepts before the kubelet is told of it.
    fn listen(&mut self, resource: &str) -> anyhow::Result<Serving> {
        let name = resource.rsplit('/').next().unwrap_or(resource);
        let socket = self.settings.kubelet_dir.join(format!("migpool-{name}.sock"));
        if let Err(error) = std::fs::remove_file(&socket)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).with_context(|| format!("{} cannot be replaced", socket.display()));
        }
        let listener =
            UnixListener::bind(&socket).with_context(|| format!("{} cannot be made", socket.display()))?;
        let token = CancellationToken::new();
        let plugin = Plugin {
            resource: resource.to_owned(),
            carver: self.carver.clone(),
            list_strategy: self.settings.device_list_strategy,
            device_specs: self.settings.pass_device_specs,
            token: token.clone(),
        };
        let end = token.clone();
        self.running.spawn(async move {
            let served = Server::builder()
                .add_service(DevicePluginServer::new(plugin))
                .serve_with_incoming_shutdown(UnixListenerStream::new(listener), end.cancelled_owned());
            if let Err(error) = served.await {
                tracing::error!(%error, "a device plugin socket failed");
            }
        });
        let identity = identity(&socket);
        Ok(Serving {
            socket,
            identity,
            registered: false,
            token,
        })
    }

    /// Ends every server and removes the sockets that are still ours.
    async fn close(&mut self) {
        for serving in std::mem::take(&mut self.servers).into_values() {
            serving.token.cancel();
            if serving.identity.is_some() && identity(&serving.socket) == serving.identity {
                // a socket nobody listens on would look like a plugin
                let _ = std::fs::remove_file(&serving.socket);
            }
        }
        let ended = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(RETRY, ended).await.is_err() {
            self.running.abort_all();
        }
    }
}

/// Which socket stands at a path.
fn identity(path: &Path) -> Option<Identity> {
    let found = std::fs::symlink_metadata(path).ok()?;
    Some((found.ino(), found.ctime(), found.ctime_nsec()))
}

/// Tells of every socket that comes or goes in a folder.
fn watch(folder: &Path, changes: mpsc::Sender<()>) -> notify::Result<notify::RecommendedWatcher> {
    let mut watcher = notify::recommended_watcher(move |event: notify::Result<notify::Event>| {
        let tells = event
            .is_ok_and(|event| event.kind.is_create() || event.kind.is_remove() || event.kind.is_modify());
        if tells {
            // one that waits already tells as much
            let _ = changes.try_send(());
        }
    })?;
    watcher.watch(folder, RecursiveMode::NonRecursive)?;
    Ok(watcher)
}
