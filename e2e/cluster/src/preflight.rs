//! Whether this machine can hold the cluster, and in one line why not.

use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Command, Stdio};

use crate::plan::MACHINE_LINK;
use crate::{binaries, cgroups, programs};

/// Says yes, or why not in one line; a test prints that line after `skipped:`.
pub fn preflight() -> Result<(), String> {
    if !cfg!(target_os = "linux") {
        return Err("this is not Linux".to_owned());
    }
    if !rustix::process::geteuid().is_root() {
        return Err("not root: namespaces, mounts and cgroups need it".to_owned());
    }
    for needed in &programs::NEEDED {
        programs::need(needed.program).map_err(|error| error.to_string())?;
    }
    programs::cni_folder().map_err(|error| error.to_string())?;
    cgroups_writable()?;
    namespaces_allowed()?;
    if let Some(obstacle) = binaries::obstacle() {
        return Err(obstacle);
    }
    let routes = fs::read_to_string("/proc/net/route").unwrap_or_default();
    match route_in_the_way(&routes) {
        Some(route) => Err(format!(
            "the machine has a route to {route}, which the cluster uses for itself"
        )),
        None => Ok(()),
    }
}

/// Tries what the kubelet will do: make a group in the hierarchy that limits memory.
fn cgroups_writable() -> Result<(), String> {
    let hierarchy = cgroups::hierarchies()
        .into_iter()
        .find(|hierarchy| hierarchy.ends_with("memory") || hierarchy == Path::new("/sys/fs/cgroup"))
        .ok_or_else(|| "no cgroup hierarchy with a memory controller is mounted".to_owned())?;
    let probe = hierarchy.join(format!("migpool.probe.{}", std::process::id()));
    fs::create_dir(&probe)
        .map_err(|error| format!("cannot make a cgroup in {}: {error}", hierarchy.display()))?;
    fs::remove_dir(&probe).map_err(|error| format!("cannot remove {}: {error}", probe.display()))
}

fn namespaces_allowed() -> Result<(), String> {
    let program = programs::need("unshare").map_err(|error| error.to_string())?;
    let status = Command::new(program)
        .env("PATH", programs::SYSTEM_PATH)
        .args(["--mount", "--net", "--propagation", "private", "--", "true"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    match status {
        Ok(status) if status.success() => Ok(()),
        _ => Err("unshare --mount --net is refused here".to_owned()),
    }
}

/// The first route of another link into the ranges that the cluster uses (`10.99/16`, `10.244/16`).
fn route_in_the_way(table: &str) -> Option<String> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (link, destination) = (*fields.first()?, *fields.get(1)?);
        // The kernel prints the address as the machine's own integer.
        let address = Ipv4Addr::from(u32::from_str_radix(destination, 16).ok()?.to_ne_bytes());
        let [first, second, ..] = address.octets();
        (link != MACHINE_LINK && first == 10 && matches!(second, 99 | 244))
            .then(|| format!("{address} over {link}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(link: &str, address: Ipv4Addr) -> String {
        let number = u32::from_ne_bytes(address.octets());
        format!("Iface\tDestination\tGateway\n{link}\t{number:08X}\t00000000\n")
    }

    #[test]
    fn only_a_foreign_route_into_our_ranges_is_in_the_way() {
        assert_eq!(
            route_in_the_way(&table("eth0", Ipv4Addr::new(192, 0, 2, 0))),
            None
        );
        assert_eq!(
            route_in_the_way(&table(MACHINE_LINK, Ipv4Addr::new(10, 99, 0, 0))),
            None
        );
        let found = route_in_the_way(&table("tun0", Ipv4Addr::new(10, 244, 0, 0)));
        assert_eq!(found.as_deref(), Some("10.244.0.0 over tun0"));
    }
}
