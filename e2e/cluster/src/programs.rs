//! Where other programs are: those of the machine and those of this workspace.

use std::env;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

/// Variable that names the folder of this workspace's programs.
pub const PROGRAMS_VARIABLE: &str = "MIGPOOL_PROGRAMS";

/// A program of the machine that the cluster needs, and the Debian package that brings it.
pub struct Needed {
    /// File name.
    pub program: &'static str,
    /// Debian package.
    pub package: &'static str,
}

/// Everything that has to be on the machine.
pub const NEEDED: [Needed; 10] = [
    Needed {
        program: "etcd",
        package: "etcd-server",
    },
    Needed {
        program: "runc",
        package: "runc",
    },
    Needed {
        program: "iptables",
        package: "iptables",
    },
    Needed {
        program: "ip",
        package: "iproute2",
    },
    Needed {
        program: "busybox",
        package: "busybox-static",
    },
    Needed {
        program: "unshare",
        package: "util-linux",
    },
    Needed {
        program: "nsenter",
        package: "util-linux",
    },
    Needed {
        program: "setsid",
        package: "util-linux",
    },
    Needed {
        program: "mount",
        package: "mount",
    },
    Needed {
        program: "ldd",
        package: "libc-bin",
    },
];

/// Folders that a root shell has and a test runner's PATH may lack.
pub const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

const CNI_FOLDERS: [&str; 3] = ["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
const CNI_PLUGINS: [&str; 3] = ["bridge", "host-local", "loopback"];

/// The program's path, from PATH or the system folders.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = env::var("PATH").unwrap_or_default();
    path.split(':')
        .chain(SYSTEM_PATH.split(':'))
        .filter(|folder| folder.starts_with('/'))
        .map(|folder| Path::new(folder).join(program))
        .find(|file| file.is_file())
}

/// The program's path, or one sentence with the package that brings it.
pub fn need(program: &str) -> Result<PathBuf> {
    let package = NEEDED
        .iter()
        .find(|needed| needed.program == program)
        .map_or(program, |needed| needed.package);
    find(program).with_context(|| format!("no program {program} on this machine: apt-get install {package}"))
}

/// The folder with the CNI plugins.
pub fn cni_folder() -> Result<PathBuf> {
    CNI_FOLDERS
        .iter()
        .map(PathBuf::from)
        .find(|folder| CNI_PLUGINS.iter().all(|plugin| folder.join(plugin).is_file()))
        .with_context(|| {
            format!(
                "no CNI plugins in {}: apt-get install containernetworking-plugins",
                CNI_FOLDERS.join(", ")
            )
        })
}

/// A program or library that this workspace builds.
pub fn ours(name: &str, package: &str) -> Result<PathBuf> {
    let folder = ours_folder()?;
    let file = folder.join(name);
    if !file.is_file() {
        bail!(
            "no {} in {}: cargo build -p {package}, or set {PROGRAMS_VARIABLE}",
            name,
            folder.display()
        );
    }
    Ok(file)
}

/// The variable's folder, else the folder of the running program; a test runs one folder deeper, in `deps`.
fn ours_folder() -> Result<PathBuf> {
    if let Some(folder) = env::var_os(PROGRAMS_VARIABLE) {
        return Ok(PathBuf::from(folder));
    }
    let program = env::current_exe().context("find the running program")?;
    let mut folder = program.parent().context("the running program has no folder")?;
    if folder.ends_with("deps") || folder.ends_with("examples") {
        folder = folder.parent().unwrap_or(folder);
    }
    Ok(folder.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_program_names_its_package() {
        assert!(need("sh").unwrap().is_absolute());
        let error = need("no-such-program").unwrap_err().to_string();
        assert!(error.contains("no program no-such-program"), "{error}");
    }

    #[test]
    fn a_missing_program_of_ours_says_how_to_build_it() {
        let error = ours("migpool-nothing", "nothing").unwrap_err().to_string();
        assert!(error.contains("cargo build -p nothing"), "{error}");
        assert!(!error.contains("/deps"), "looked in the test folder: {error}");
    }
}
