//! `migpool-scheduler`: reads its settings and runs.

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use scheduler_plugin::args::{Flags, LogFormat, Settings};
use scheduler_plugin::clock::Clock;
use scheduler_plugin::run::{Clients, Listeners, run};
use serve::logs::Format;
use shared::policy::SCHEDULER_THREADS;

fn main() -> ExitCode {
    let settings = match Settings::new(Flags::parse(), &host_name()) {
        Ok(settings) => settings,
        Err(bad) => {
            // before logging starts: its format is one of the settings
            eprintln!("migpool-scheduler: {bad}");
            return ExitCode::from(2);
        }
    };
    serve::logs::init(match settings.log_format {
        LogFormat::Text => Format::Text,
        LogFormat::Json => Format::Json,
    });
    match start(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!(error = format!("{error:#}"), "ended");
            ExitCode::FAILURE
        }
    }
}

fn start(settings: Settings) -> anyhow::Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(SCHEDULER_THREADS)
        .enable_all()
        .build()
        .context("start the runtime")?
        .block_on(serve(settings))
}

async fn serve(settings: Settings) -> anyhow::Result<()> {
    let token = serve::shutdown::token();
    let clients = Clients {
        watching: serve::client::client().await?,
        writing: serve::client::client_without_retry().await?,
    };
    let listeners = Listeners::open(&settings).await?;
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        extender = %settings.extender_address,
        identity = settings.identity,
        "starting"
    );
    run(settings, clients, listeners, Clock::of_machine(), token)
        .await
        .context("migpool-scheduler")
}

fn host_name() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|name| name.trim().to_owned())
        .unwrap_or_default()
}
