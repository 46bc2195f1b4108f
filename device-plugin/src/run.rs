//! Puts the parts together and runs them until shutdown.

use std::time::Duration;

use anyhow::Context as _;
use jiff::Timestamp;
use serve::admin::Readiness;
use serve::tasks::Tasks;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::args::{Settings, Strategy};
use crate::carve::Carver;
use crate::cdi::Cdi;
use crate::device_nodes::DeviceNodes;
use crate::gpus::driver::Driver;
use crate::gpus::nvml::NvmlGpus;
use crate::inventory::{self, Inventory};
use crate::journal::Journal;
use crate::kubelet::account::Account;
use crate::kubelet::register::Registrar;
use crate::metrics::Metrics;
use crate::node_object::{NodeObject, events};
use crate::ownership::Ownership;
use crate::pods::Pods;
use crate::usage::Load;
use crate::usage::callers::Callers;
use crate::usage::sampler::Sampler;
use crate::usage::server::Teller;
use crate::{health, pool, usage};

/// How often a missing driver is looked for.
const DRIVER_RETRY: Duration = Duration::from_secs(2);
/// How often NVML is read again although nothing told of a change.
const RESCAN: Duration = Duration::from_secs(15);
/// How often the kubelet's account is read while something comes or goes.
const BUSY: Duration = Duration::from_millis(500);
/// How often otherwise.
const CALM: Duration = Duration::from_secs(15);
/// As [`CALM`], where no API server tells of pods.
const CALM_ALONE: Duration = Duration::from_secs(2);
/// How often idle and blocked slices are looked after.
const TIDY: Duration = Duration::from_secs(1);

/// Runs the agent.
///
/// # Errors
/// What cannot be begun, or the first part that fails.
pub async fn run(settings: Settings) -> anyhow::Result<()> {
    let format = settings
        .log_format
        .parse::<serve::logs::Format>()
        .map_err(|error| anyhow::anyhow!("--log-format: {error}"))?;
    serve::logs::init(format);
    let token = serve::shutdown::token();
    tracing::info!(
        node = settings.node_name,
        strategy = settings.strategy.as_str(),
        version = env!("CARGO_PKG_VERSION"),
        "starting"
    );
    let client = client().await?;
    let alone = client.is_none();
    let inventory = Inventory::new(settings.strategy);
    inventory.change(|state| state.boot_id = crate::journal::boot_id(&settings.proc_root));
    let journal = Journal::open(&settings.state_dir)?;
    let (file, minutes) = usage::file::File::open(&settings.state_dir, Timestamp::now());
    let load = Load::new(minutes);
    let (metrics, registry) = Metrics::new(&inventory, &load);
    let readiness = Readiness::new();
    readiness.set("driver", Err("not looked for yet".to_owned()));
    readiness.set("kubelet", Err("not registered yet".to_owned()));
    let root = settings.driver_root.clone();
    let connect = move || NvmlGpus::open(&root).map(|gpus| Box::new(gpus) as Box<dyn crate::gpus::Gpus>);
    let carver = Carver::new(
        inventory.clone(),
        Pods::new(client.clone(), &settings.node_name),
        Account::new(&settings.pod_resources_socket),
        metrics,
        Driver::start(Box::new(connect), settings.driver_timeout),
        journal,
        DeviceNodes::new(&settings.dev_root, &settings.proc_root),
        Cdi::new(&settings.cdi_dir, settings.cdi_common_spec.as_deref())?,
    );
    let admin = TcpListener::bind(settings.admin_address).await;
    let admin =
        admin.with_context(|| format!("--admin-address {} cannot be listened on", settings.admin_address))?;

    let mut tasks = Tasks::new(token.clone());
    let admin = serve::admin::serve(
        admin,
        registry,
        readiness.clone(),
        axum::Router::new(),
        token.clone(),
    );
    tasks.spawn("admin", admin);
    tasks.spawn("pods", carver.pods.clone().follow(token.clone()));
    let ownership = Ownership::new(
        carver.clone(),
        client.clone(),
        &settings.node_name,
        &settings.kubelet_dir,
    );
    let labels = ownership.labels();
    tasks.spawn(
        "driver",
        watch_driver(
            carver.clone(),
            ownership.clone(),
            readiness.clone(),
            token.clone(),
        ),
    );
    tasks.spawn("ownership", ownership.follow(token.clone()));
    tasks.spawn(
        "health",
        health::watch(carver.clone(), settings.xids.clone(), token.clone()),
    );
    tasks.spawn(
        "account",
        watch_account(
            carver.clone(),
            if alone { CALM_ALONE } else { CALM },
            token.clone(),
        ),
    );
    let keep = watch::Sender::new(settings.idle_slice.unwrap_or_else(pool::default_keep));
    if settings.strategy == Strategy::Dynamic {
        tasks.spawn("tidy", tidy(carver.clone(), keep.subscribe(), token.clone()));
    }
    let scan = watch::Sender::new(pool::default_scan());
    let sampler = Sampler::new(carver.clone(), load.clone(), file);
    tasks.spawn(
        "load",
        sampler.run(Timestamp::now, scan.subscribe(), token.clone()),
    );
    if let Some(client) = client {
        if let Some(teller) = teller(&settings, load, carver.metrics.clone()).await? {
            inventory.change(|state| state.endpoint = Some(teller.endpoint()));
            tasks.spawn("usage", teller.serve(token.clone()));
        }
        let object = NodeObject::new(
            client.clone(),
            &settings.node_name,
            inventory.clone(),
            carver.metrics.clone(),
        );
        tasks.spawn("spec", object.clone().follow(token.clone()));
        tasks.spawn("status", object.clone().write_status(token.clone()));
        tasks.spawn("labels", object.write_labels(token.clone()));
        let (node, metrics) = (settings.node_name.clone(), carver.metrics.clone());
        tasks.spawn(
            "events",
            events::tell(client.clone(), node, inventory, metrics, token.clone()),
        );
        let keep = settings.idle_slice.is_none().then_some(keep);
        tasks.spawn("pool", pool::follow(client, labels, keep, scan, token.clone()));
    }
    tasks.spawn(
        "kubelet",
        Registrar::new(carver, readiness, settings).run(token.clone()),
    );
    tasks.join().await
}

/// A client, where the environment names an API server. Without one the agent serves the kubelet alone.
async fn client() -> anyhow::Result<Option<kube::Client>> {
    if std::env::var_os("KUBECONFIG").is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none() {
        tracing::warn!("no API server: neither KUBECONFIG nor a ServiceAccount; only the kubelet is served");
        return Ok(None);
    }
    serve::client::client().await.map(Some)
}

/// What tells the load, where others are told how to reach it.
async fn teller(settings: &Settings, load: Load, metrics: Metrics) -> anyhow::Result<Option<Teller>> {
    let Some(advertise) = settings.usage_advertise else {
        tracing::info!("the load of the GPUs is not told: --usage-advertise is not given");
        return Ok(None);
    };
    // a caller waits for the answer, and comes again by itself
    let client = serve::client::client_without_retry().await?;
    let callers = Callers::new(client, &settings.usage_caller);
    let teller = Teller::listen(settings.usage_address, advertise, load, callers, metrics).await?;
    Ok(Some(teller))
}

/// Takes the GPUs over when there is a driver, and looks again from time to time.
async fn watch_driver(
    carver: Carver,
    ownership: Ownership,
    readiness: Readiness,
    token: CancellationToken,
) -> anyhow::Result<()> {
    loop {
        let view = carver.inventory.view();
        let works = matches!(view.state.driver, inventory::Driver::Works(_)) && view.state.adopted;
        let mut looked = carver.rescan().await;
        if looked.is_ok() && !works {
            // whose the GPUs are must be known before anything is touched
            ownership.look().await;
            looked = carver.adopt().await;
        }
        readiness.set("driver", looked.clone().map_err(|error| error.to_string()));
        let wait = if looked.is_ok() { RESCAN } else { DRIVER_RETRY };
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            () = tokio::time::sleep(wait) => {}
        }
    }
}

/// Reads the kubelet's account: often while something comes or goes, else seldom.
async fn watch_account(carver: Carver, calm: Duration, token: CancellationToken) -> anyhow::Result<()> {
    let mut views = carver.inventory.subscribe();
    loop {
        // before all is taken over, what is held is not known and cannot be judged
        let adopted = views.borrow_and_update().state.adopted;
        let busy = adopted && carver.watch_account().await;
        let wait = tokio::time::sleep(if busy { BUSY } else { calm });
        tokio::pin!(wait);
        loop {
            tokio::select! {
                () = token.cancelled() => return Ok(()),
                () = &mut wait => break,
                () = carver.pods.changed() => break,
                Ok(()) = views.changed(), if !busy => {
                    // something was handed out: from now on the account is worth reading often
                    let state = &views.borrow_and_update().state;
                    if adopted != state.adopted || state.held.values().any(|held| held.seen != inventory::Seen::Now) {
                        break;
                    }
                }
            }
        }
    }
}

async fn tidy(
    carver: Carver,
    keep: watch::Receiver<Duration>,
    token: CancellationToken,
) -> anyhow::Result<()> {
    loop {
        let keep = *keep.borrow();
        if carver.inventory.view().state.adopted {
            carver.tidy(keep).await;
        }
        tokio::select! {
            () = token.cancelled() => return Ok(()),
            () = tokio::time::sleep(TIDY) => {}
        }
    }
}
