//! The images that the cluster runs, made from programs of this machine and this workspace.
//!
//! An archive is kept by the fingerprint of what goes in, so that a second start builds nothing.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use sha2::{Digest as _, Sha256};

use crate::binaries::{self, Binaries, KUBERNETES_VERSION};
use crate::command::run;
use crate::oci::{self, Content, Entry, Image};
use crate::plan::{NodePlan, PAUSE_IMAGE, Plan};
use crate::programs;
use crate::progress::Progress;

/// A small image with a shell, for pods of tests and demos.
pub const BUSYBOX_IMAGE: &str = "localhost/migpool/busybox:dev";
/// The node agent.
pub const DEVICE_PLUGIN_IMAGE: &str = "localhost/migpool/device-plugin:dev";
/// The scheduler's sidecar.
pub const SCHEDULER_IMAGE: &str = "localhost/migpool/scheduler:dev";

/// An archive that is ready to be imported.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Archive {
    /// The image's full name.
    pub reference: String,
    /// Changes whenever the content does.
    pub fingerprint: String,
    /// The file.
    pub file: PathBuf,
}

/// The upstream scheduler, under the name that its publishers give it.
pub fn kube_scheduler_image() -> String {
    format!("registry.k8s.io/kube-scheduler:v{KUBERNETES_VERSION}")
}

/// The file in which a node notes the fingerprint of the image that it has under this name.
pub fn mark(node: &NodePlan, reference: &str) -> PathBuf {
    node.dir.join("images").join(reference.replace(['/', ':'], "_"))
}

/// The fingerprint of the image that the first node has; nothing if it has none.
pub fn loaded(plan: &Plan, reference: &str) -> String {
    plan.nodes
        .first()
        .and_then(|node| fs::read_to_string(mark(node, reference)).ok())
        .unwrap_or_default()
}

/// Builds what is not built yet. Without `complete`, programs of ours that are missing are left out.
pub fn build(binaries: &Binaries, complete: bool, progress: &Progress) -> Result<Vec<Archive>> {
    let mut archives = Vec::new();
    for (reference, recipe) in recipes(binaries) {
        match recipe {
            Ok(image) => archives.push(archive(&image, progress)?),
            Err(error) if complete => return Err(error.context(format!("image {reference}"))),
            Err(error) => progress.say(format_args!("no image {reference}: {error:#}")),
        }
    }
    Ok(archives)
}

fn recipes(binaries: &Binaries) -> Vec<(String, Result<Image>)> {
    let upstream = kube_scheduler_image();
    let scheduler = upstream_scheduler(&upstream, binaries);
    vec![
        (PAUSE_IMAGE.to_owned(), pause()),
        (BUSYBOX_IMAGE.to_owned(), busybox(BUSYBOX_IMAGE)),
        (upstream, scheduler),
        (
            DEVICE_PLUGIN_IMAGE.to_owned(),
            ours(DEVICE_PLUGIN_IMAGE, "migpool-device-plugin", "device-plugin"),
        ),
        (
            SCHEDULER_IMAGE.to_owned(),
            ours(SCHEDULER_IMAGE, "migpool-scheduler", "scheduler-plugin"),
        ),
    ]
}

/// The program of a sandbox only has to stay; containerd ends it with SIGKILL.
fn pause() -> Result<Image> {
    let mut image = named(PAUSE_IMAGE, &["/bin/busybox", "sleep", "2147483647"]);
    image.put("bin/busybox", 0o755, Content::File(programs::need("busybox")?));
    Ok(image)
}

fn busybox(reference: &str) -> Result<Image> {
    let program = programs::need("busybox")?;
    let mut image = named(reference, &[]);
    image.arguments = vec!["/bin/sh".to_owned()];
    let applets = run(Command::new(&program).arg("--list")).context("list busybox's applets")?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        image.put(
            &format!("bin/{applet}"),
            0o777,
            Content::Link("/bin/busybox".to_owned()),
        );
    }
    image
        .put("bin/busybox", 0o755, Content::File(program))
        .put("tmp", 0o1777, Content::Folder)
        .put(
            "etc/passwd",
            0o644,
            Content::Text("root:x:0:0:root:/:/bin/sh\n".to_owned()),
        )
        .put("etc/group", 0o644, Content::Text("root:x:0:\n".to_owned()));
    Ok(image)
}

fn upstream_scheduler(reference: &str, binaries: &Binaries) -> Result<Image> {
    let mut image = busybox(reference)?;
    image.entrypoint = vec!["/usr/local/bin/kube-scheduler".to_owned()];
    image.arguments.clear();
    let program = binaries.kubernetes.join("kube-scheduler");
    image.put("usr/local/bin/kube-scheduler", 0o755, Content::File(program));
    Ok(image)
}

/// A program of this workspace with every library that it and the fake NVML load.
fn ours(reference: &str, program: &str, package: &str) -> Result<Image> {
    let source = programs::ours(program, package)?;
    let mut image = busybox(reference)?;
    image.entrypoint = vec![format!("/usr/bin/{program}")];
    image.arguments.clear();
    let mut wanted = libraries(&source)?;
    if let Ok(fake) = programs::ours("libnvidia_ml.so", "fake-nvml") {
        wanted.extend(libraries(&fake)?);
    }
    for library in wanted {
        let path = library.display().to_string();
        let real = fs::canonicalize(&library).with_context(|| format!("resolve {path}"))?;
        image.put(&path, 0o755, Content::File(real));
    }
    image.put(&format!("usr/bin/{program}"), 0o755, Content::File(source));
    Ok(image)
}

fn named(reference: &str, entrypoint: &[&str]) -> Image {
    Image {
        reference: reference.to_owned(),
        entrypoint: entrypoint.iter().map(|part| (*part).to_owned()).collect(),
        ..Image::default()
    }
}

/// Everything that the dynamic loader opens for this file, itself included.
fn libraries(program: &Path) -> Result<Vec<PathBuf>> {
    let text = run(Command::new(programs::need("ldd")?).arg(program))?;
    let found = parse_ldd(&text);
    if let Some(missing) = text.lines().find(|line| line.contains("not found")) {
        bail!(
            "{} needs a library that is not here: {}",
            program.display(),
            missing.trim()
        );
    }
    Ok(found)
}

/// Takes `name => /path (address)` and `/path (address)`; the kernel's own vdso has no path.
fn parse_ldd(text: &str) -> Vec<PathBuf> {
    text.lines()
        .filter_map(|line| {
            let path = line.rsplit("=> ").next()?.trim().split(" (").next()?;
            path.starts_with('/').then(|| PathBuf::from(path))
        })
        .collect()
}

fn archive(image: &Image, progress: &Progress) -> Result<Archive> {
    let fingerprint = fingerprint(image)?;
    let folder = binaries::cache().join("images");
    let name = image.reference.replace(['/', ':'], "_");
    let file = folder.join(format!("{name}-{fingerprint}.tar"));
    if !file.is_file() {
        progress.step(format_args!("image {} built", image.reference), || {
            let stale = siblings(&folder, &name);
            let scratch = folder.join(format!("{name}.stripped"));
            let written = stripped(image, &scratch).and_then(|image| oci::write(&image, &file));
            for old in stale.into_iter().chain([scratch]) {
                // Another call may have been faster; a leftover only costs room.
                let _ = fs::remove_file(old);
            }
            written
        })?;
    }
    Ok(Archive {
        reference: image.reference.clone(),
        fingerprint,
        file,
    })
}

/// Debug information is most of a debug build; a copy without it keeps the image small.
fn stripped(image: &Image, copy: &Path) -> Result<Image> {
    let mut image = image.clone();
    let Some(strip) = programs::find("strip") else {
        return Ok(image);
    };
    if let Some(folder) = copy.parent() {
        fs::create_dir_all(folder)?;
    }
    let ours = image
        .entries
        .iter_mut()
        .find(|(path, _)| path.starts_with("usr/bin/"));
    if let Some((
        _,
        Entry {
            content: Content::File(source),
            ..
        },
    )) = ours
        && run(Command::new(strip)
            .arg("--strip-debug")
            .arg("-o")
            .arg(copy)
            .arg(&*source))
        .is_ok()
    {
        *source = copy.to_owned();
    }
    Ok(image)
}

/// Built from size and time of the sources, as make does: digesting them would take longer than using them.
fn fingerprint(image: &Image) -> Result<String> {
    let mut text = format!(
        "1 {} {:?} {:?}\n",
        image.reference, image.entrypoint, image.arguments
    );
    for (path, entry) in &image.entries {
        text += &format!("{path} {:o} {:?}", entry.mode, entry.content);
        if let Content::File(source) = &entry.content {
            let found = fs::metadata(source).with_context(|| format!("look at {}", source.display()))?;
            text += &format!(" {} {}.{}", found.len(), found.mtime(), found.mtime_nsec());
        }
        text.push('\n');
    }
    let mut digest = oci::hex(&Sha256::digest(text.as_bytes()));
    digest.truncate(16);
    Ok(digest)
}

fn siblings(folder: &Path, name: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let prefix = format!("{name}-");
    entries
        .flatten()
        .filter(|entry| {
            entry
                .file_name()
                .to_str()
                .is_some_and(|file| file.starts_with(&prefix))
        })
        .map(|entry| entry.path())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ldd_gives_paths_only() {
        let text = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                    \tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f1)\n\
                    \t/lib64/ld-linux-x86-64.so.2 (0x00007f2)\n";
        let expected = [
            "/lib/x86_64-linux-gnu/libgcc_s.so.1",
            "/lib64/ld-linux-x86-64.so.2",
        ]
        .map(PathBuf::from);
        assert_eq!(parse_ldd(text), expected);
        assert!(parse_ldd("\tstatically linked\n").is_empty());
    }

    #[test]
    fn the_fingerprint_follows_content_and_arguments() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("program");
        fs::write(&source, "one").unwrap();
        let mut image = named("localhost/x:dev", &["/bin/x"]);
        image.put("bin/x", 0o755, Content::File(source.clone()));
        let first = fingerprint(&image).unwrap();
        assert_eq!(first, fingerprint(&image).unwrap());
        fs::write(&source, "longer").unwrap();
        let second = fingerprint(&image).unwrap();
        assert_ne!(first, second);
        image.entrypoint.push("--flag".to_owned());
        assert_ne!(second, fingerprint(&image).unwrap());
    }

    #[test]
    fn the_busybox_image_has_a_shell() {
        let image = busybox(BUSYBOX_IMAGE).unwrap();
        assert_eq!(
            image.entries["bin/sh"].content,
            Content::Link("/bin/busybox".to_owned())
        );
        assert!(matches!(image.entries["bin/busybox"].content, Content::File(_)));
    }
}
