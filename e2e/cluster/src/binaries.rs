//! Kubernetes, containerd and helm: built once from the Go modules beside this crate, kept by version.
//!
//! The versions stand here and in each module's go.mod; a test keeps the two alike. go.sum holds the checksums.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, IsTerminal as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use crate::programs;
use crate::progress::Progress;

/// Kubernetes, without the leading v.
pub const KUBERNETES_VERSION: &str = "1.37.2";
/// containerd, without the leading v.
pub const CONTAINERD_VERSION: &str = "2.4.2";
/// helm, without the leading v.
pub const HELM_VERSION: &str = "4.3.1";

/// Variable that names a folder with official Kubernetes programs.
pub const K8S_BIN_VARIABLE: &str = "MIGPOOL_K8S_BIN";
/// Variable that moves the cache away from `~/.cache/migpool`.
pub const CACHE_VARIABLE: &str = "MIGPOOL_CACHE";

/// Programs that one Go module brings.
#[derive(Debug)]
pub struct Family {
    /// Folder beside this crate's manifest, and first part of the cache folder.
    pub name: &'static str,
    /// Version without the leading v.
    pub version: &'static str,
    /// Import path of the programs' parent package.
    commands: &'static str,
    /// Programs, as packages below `commands`.
    pub programs: &'static [&'static str],
    /// About how long the first build takes on two cores, for the progress line.
    build_seconds: u32,
}

/// The three families, in the order in which they are built.
pub const FAMILIES: [Family; 3] = [
    Family {
        name: "kubernetes",
        version: KUBERNETES_VERSION,
        commands: "k8s.io/kubernetes/cmd",
        programs: &[
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
            "kubelet",
        ],
        build_seconds: 560,
    },
    Family {
        name: "containerd",
        version: CONTAINERD_VERSION,
        commands: "github.com/containerd/containerd/v2/cmd",
        programs: &["containerd", "containerd-shim-runc-v2", "ctr"],
        build_seconds: 85,
    },
    Family {
        name: "helm",
        version: HELM_VERSION,
        commands: "helm.sh/helm/v4/cmd",
        programs: &["helm"],
        build_seconds: 160,
    },
];

/// Where the programs are.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Binaries {
    /// Folder with kube-apiserver, kube-controller-manager, kube-scheduler and kubelet.
    pub kubernetes: PathBuf,
    /// Folder with containerd, its shim and ctr.
    pub containerd: PathBuf,
    /// Folder with helm.
    pub helm: PathBuf,
}

impl Binaries {
    /// Finds every program; builds what is missing and says so while it lasts.
    pub fn locate(progress: &Progress) -> Result<Self> {
        let [kubernetes, containerd, helm] = &FAMILIES;
        Ok(Self {
            kubernetes: folder(kubernetes, progress)?,
            containerd: folder(containerd, progress)?,
            helm: folder(helm, progress)?,
        })
    }

    /// The PATH of everything that runs inside the cluster: our containerd's shim comes first.
    pub fn path(&self) -> String {
        format!(
            "{}:{}:{}",
            self.containerd.display(),
            self.kubernetes.display(),
            programs::SYSTEM_PATH
        )
    }
}

impl Family {
    fn is_in(&self, folder: &Path) -> bool {
        self.programs.iter().all(|program| folder.join(program).is_file())
    }

    fn source(&self) -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join(self.name)
    }

    fn linker_flags(&self) -> String {
        let version = self.version;
        match self.name {
            "kubernetes" => {
                let mut numbers = version.split('.');
                let (major, minor) = (
                    numbers.next().unwrap_or_default(),
                    numbers.next().unwrap_or_default(),
                );
                let at = "-X k8s.io/component-base/version";
                format!(
                    "-s -w {at}.gitVersion=v{version} {at}.gitMajor={major} {at}.gitMinor={minor} {at}.gitTreeState=clean"
                )
            }
            "containerd" => {
                format!("-s -w -X github.com/containerd/containerd/v2/version.Version=v{version}")
            }
            _ => format!("-s -w -X helm.sh/helm/v4/internal/version.version=v{version}"),
        }
    }
}

/// `~/.cache/migpool`, or where the variable says.
pub fn cache() -> PathBuf {
    env::var_os(CACHE_VARIABLE).map_or_else(
        || PathBuf::from(env::var_os("HOME").unwrap_or_else(|| "/root".into())).join(".cache/migpool"),
        PathBuf::from,
    )
}

/// Tells in one line why a family can neither be found nor built; `None` when it can.
pub fn obstacle() -> Option<String> {
    let missing: Vec<&str> = FAMILIES
        .iter()
        .filter(|family| !family.is_in(&cached_folder(family)))
        .filter(|family| family.name != "kubernetes" || env::var_os(K8S_BIN_VARIABLE).is_none())
        .map(|family| family.name)
        .collect();
    if missing.is_empty() || programs::find("go").is_some() {
        return None;
    }
    let where_ = cache().join("bin");
    Some(format!(
        "{} not in {} and no Go to build from",
        missing.join(", "),
        where_.display()
    ))
}

/// Where a family is kept once it is built.
pub fn cached_folder(family: &Family) -> PathBuf {
    cache()
        .join("bin")
        .join(format!("{}-{}", family.name, family.version))
}

fn folder(family: &Family, progress: &Progress) -> Result<PathBuf> {
    if family.name == "kubernetes"
        && let Some(given) = env::var_os(K8S_BIN_VARIABLE).map(PathBuf::from)
    {
        if !family.is_in(&given) {
            let programs = family.programs.join(", ");
            bail!(
                "{K8S_BIN_VARIABLE} is {}: it must hold {programs}",
                given.display()
            );
        }
        return fs::canonicalize(&given).with_context(|| format!("resolve {}", given.display()));
    }
    let target = cached_folder(family);
    if family.is_in(&target) {
        return Ok(target);
    }
    build(family, &target, progress).with_context(|| format!("build {} {}", family.name, family.version))?;
    Ok(target)
}

/// Builds into a folder beside the target and renames it, so that half a build is never taken for a whole one.
fn build(family: &Family, target: &Path, progress: &Progress) -> Result<()> {
    let bin = cache().join("bin");
    fs::create_dir_all(&bin).with_context(|| format!("make {}", bin.display()))?;
    let lock = File::create(bin.join(".lock"))?;
    progress.say(format_args!(
        "building {} {} from Go modules, once (about {} s on two cores)",
        family.name, family.version, family.build_seconds
    ));
    lock.lock().context("wait for another build")?;
    if family.is_in(target) {
        return Ok(());
    }
    let fresh = bin.join(format!(".{}-{}.new", family.name, family.version));
    if fresh.exists() {
        fs::remove_dir_all(&fresh)?;
    }
    fs::create_dir_all(&fresh)?;
    let mut command = Command::new(programs::find("go").context("no Go on this machine to build it with")?);
    command
        .current_dir(family.source())
        .env("CGO_ENABLED", "0")
        .args([
            "build",
            "-v",
            "-mod=readonly",
            "-trimpath",
            "-ldflags",
            &family.linker_flags(),
            "-o",
        ])
        .arg(&fresh)
        .args(
            family
                .programs
                .iter()
                .map(|program| format!("{}/{program}", family.commands)),
        );
    watch(family, &mut command, progress)?;
    if !family.is_in(&fresh) {
        bail!("go build ended well but {} lacks a program", fresh.display());
    }
    if target.exists() {
        fs::remove_dir_all(target)?;
    }
    fs::rename(&fresh, target).with_context(|| format!("rename to {}", target.display()))
}

/// Runs `go build -v`, counting the packages it names; on a terminal the line is rewritten, else it comes twice a minute.
fn watch(family: &Family, command: &mut Command, progress: &Progress) -> Result<()> {
    let started = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("start go build")?;
    let lines = BufReader::new(child.stderr.take().context("go build has no standard error")?).lines();
    let compiled = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&compiled);
    let reader = thread::spawn(move || {
        let mut last = Vec::new();
        for line in lines.map_while(Result::ok) {
            count.fetch_add(1, Ordering::Relaxed);
            last.push(line);
            if last.len() > 12 {
                last.remove(0);
            }
        }
        last
    });
    let terminal = std::io::stderr().is_terminal();
    let every = Duration::from_secs(if terminal { 1 } else { 30 });
    let mut next = every;
    let status = loop {
        if let Some(status) = child.try_wait()? {
            break status;
        }
        if started.elapsed() >= next {
            next += every;
            let line = format!(
                "building {} {}: {} s, {} packages compiled",
                family.name,
                family.version,
                started.elapsed().as_secs(),
                compiled.load(Ordering::Relaxed)
            );
            if terminal {
                eprint!("\r           {line}\x1b[K");
            } else {
                progress.say(line);
            }
        }
        thread::sleep(Duration::from_millis(200));
    };
    if terminal {
        eprint!("\r\x1b[K");
    }
    let last = reader.join().unwrap_or_default();
    if !status.success() {
        bail!("go build failed ({status}):\n{}", last.join("\n"));
    }
    progress.say(format_args!(
        "built {} {} in {} s",
        family.name,
        family.version,
        started.elapsed().as_secs()
    ));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_module_pins_the_version_named_here() {
        for (family, module) in FAMILIES.iter().zip([
            "k8s.io/kubernetes",
            "github.com/containerd/containerd/v2",
            "helm.sh/helm/v4",
        ]) {
            let manifest = fs::read_to_string(family.source().join("go.mod")).unwrap();
            let wanted = format!("require {module} v{}", family.version);
            assert!(
                manifest.lines().any(|line| line == wanted),
                "{}: no line '{wanted}'",
                family.name
            );
        }
    }

    #[test]
    fn each_module_imports_every_program_it_builds() {
        for family in &FAMILIES {
            let tools = fs::read_to_string(family.source().join("tools.go")).unwrap();
            for program in family.programs {
                assert!(
                    tools.contains(&format!("\"{}/{program}\"", family.commands)),
                    "{program}"
                );
            }
        }
    }

    #[test]
    fn kubernetes_is_stamped_with_its_version() {
        let flags = FAMILIES[0].linker_flags();
        assert!(
            flags.contains("gitVersion=v1.37.2") && flags.contains("gitMinor=37 "),
            "{flags}"
        );
    }
}
