//! The node agent's program: flags in, exit code out.

use clap::Parser;

fn main() -> anyhow::Result<()> {
    let settings = device_plugin::args::Flags::parse().settle()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    runtime.block_on(device_plugin::run::run(settings))
}
