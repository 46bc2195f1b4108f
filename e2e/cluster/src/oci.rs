//! OCI image archives, written without a registry, a daemon or a network: five small members around one layer.
//!
//! `oci-layout`, `index.json` (with the image's name as containerd reads it), and three blobs by digest: layer,
//! configuration, manifest.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::json;
use sha2::{Digest as _, Sha256};
use tar::{Builder, EntryType, Header};

/// What stands at one path of the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Content {
    /// A copy of a file of the machine.
    File(PathBuf),
    /// A small file with this text.
    Text(String),
    /// A symbolic link to this target.
    Link(String),
    /// An empty folder; folders above a file need not be named.
    Folder,
}

/// One path of the image, without the leading slash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// What is there.
    pub content: Content,
    /// Permissions.
    pub mode: u32,
}

/// An image on paper.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Full name with tag.
    pub reference: String,
    /// The program to run.
    pub entrypoint: Vec<String>,
    /// Its default arguments.
    pub arguments: Vec<String>,
    /// Everything in it, by path.
    pub entries: BTreeMap<String, Entry>,
}

impl Image {
    /// Puts something at a path.
    pub fn put(&mut self, path: &str, mode: u32, content: Content) -> &mut Self {
        self.entries
            .insert(path.trim_start_matches('/').to_owned(), Entry { content, mode });
        self
    }
}

/// Writes the archive; a name is given to it only when it is whole.
pub fn write(image: &Image, target: &Path) -> Result<()> {
    let folder = target.parent().context("an archive needs a folder")?;
    fs::create_dir_all(folder).with_context(|| format!("make {}", folder.display()))?;
    let (layer_file, whole) = (target.with_extension("layer"), target.with_extension("part"));
    let layer = write_layer(image, &layer_file).with_context(|| format!("layer of {}", image.reference))?;
    let written = write_archive(image, &layer, &layer_file, &whole)
        .with_context(|| format!("write {}", whole.display()));
    fs::remove_file(&layer_file)?;
    written?;
    fs::rename(&whole, target).with_context(|| format!("rename to {}", target.display()))
}

/// The lower-case hexadecimal form of a SHA-256.
pub fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A digest with the size of what it stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Blob {
    digest: String,
    size: u64,
}

impl Blob {
    fn of(bytes: &[u8]) -> Self {
        Self {
            digest: hex(&Sha256::digest(bytes)),
            size: bytes.len() as u64,
        }
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", self.digest)
    }

    fn descriptor(&self, kind: &str) -> serde_json::Value {
        json!({"mediaType": kind, "digest": format!("sha256:{}", self.digest), "size": self.size})
    }
}

/// Passes bytes on and digests them.
struct Digesting<W> {
    inner: W,
    digest: Sha256,
    size: u64,
}

impl<W: Write> Write for Digesting<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.digest.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn write_layer(image: &Image, target: &Path) -> Result<Blob> {
    let file = BufWriter::new(File::create(target)?);
    let mut layer = Builder::new(Digesting {
        inner: file,
        digest: Sha256::new(),
        size: 0,
    });
    for (path, entry) in with_parents(image) {
        append(&mut layer, &path, &entry).with_context(|| path.clone())?;
    }
    let mut written = layer.into_inner()?;
    written.flush()?;
    Ok(Blob {
        digest: hex(&written.digest.finalize()),
        size: written.size,
    })
}

/// The entries with every folder above them, in an order where a folder comes before what it holds.
fn with_parents(image: &Image) -> BTreeMap<String, Entry> {
    let mut all = BTreeMap::new();
    for (path, entry) in &image.entries {
        for (end, _) in path.match_indices('/') {
            let folder = Entry {
                content: Content::Folder,
                mode: 0o755,
            };
            all.entry(path[..end].to_owned()).or_insert(folder);
        }
        all.insert(path.clone(), entry.clone());
    }
    all
}

fn append<W: Write>(layer: &mut Builder<W>, path: &str, entry: &Entry) -> Result<()> {
    let mut header = header(0, entry.mode);
    match &entry.content {
        Content::File(source) => {
            let file = File::open(source).with_context(|| format!("open {}", source.display()))?;
            header.set_size(file.metadata()?.len());
            layer.append_data(&mut header, path, BufReader::with_capacity(1 << 20, file))?;
        }
        Content::Text(text) => {
            header.set_size(text.len() as u64);
            layer.append_data(&mut header, path, text.as_bytes())?;
        }
        Content::Link(to) => {
            header.set_entry_type(EntryType::Symlink);
            layer.append_link(&mut header, path, to)?;
        }
        Content::Folder => {
            header.set_entry_type(EntryType::Directory);
            layer.append_data(&mut header, format!("{path}/"), io::empty())?;
        }
    }
    Ok(())
}

fn write_archive(image: &Image, layer: &Blob, layer_file: &Path, target: &Path) -> Result<()> {
    let configuration = serde_json::to_vec(&configuration(image, layer))?;
    let configuration_blob = Blob::of(&configuration);
    let manifest = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": configuration_blob.descriptor("application/vnd.oci.image.config.v1+json"),
        "layers": [layer.descriptor("application/vnd.oci.image.layer.v1.tar")],
    }))?;
    let manifest_blob = Blob::of(&manifest);
    let mut described = manifest_blob.descriptor("application/vnd.oci.image.manifest.v1+json");
    described["annotations"] = json!({"io.containerd.image.name": image.reference});
    let index = serde_json::to_vec(&json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [described],
    }))?;

    let mut archive = Builder::new(BufWriter::new(File::create(target)?));
    member(&mut archive, "oci-layout", br#"{"imageLayoutVersion":"1.0.0"}"#)?;
    member(&mut archive, "index.json", &index)?;
    member(&mut archive, &manifest_blob.path(), &manifest)?;
    member(&mut archive, &configuration_blob.path(), &configuration)?;
    let source = File::open(layer_file)?;
    let mut head = header(layer.size, 0o644);
    archive.append_data(
        &mut head,
        layer.path(),
        BufReader::with_capacity(1 << 20, source).take(layer.size),
    )?;
    archive.into_inner()?.flush()?;
    Ok(())
}

fn configuration(image: &Image, layer: &Blob) -> serde_json::Value {
    let architecture = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    json!({
        "architecture": architecture,
        "os": "linux",
        "config": {
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
            "Entrypoint": image.entrypoint,
            "Cmd": image.arguments,
        },
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{}", layer.digest)]},
    })
}

fn member<W: Write>(archive: &mut Builder<W>, path: &str, bytes: &[u8]) -> Result<()> {
    archive
        .append_data(&mut header(bytes.len() as u64, 0o644), path, bytes)
        .with_context(|| path.to_owned())
}

/// Owner root and time zero: the same content always gives the same digest.
fn header(size: u64, mode: u32) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_size(size);
    header.set_mode(mode);
    header.set_mtime(0);
    header.set_uid(0);
    header.set_gid(0);
    header
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    fn image(source: &Path) -> Image {
        let mut image = Image {
            reference: "localhost/migpool/probe:dev".to_owned(),
            entrypoint: vec!["/bin/probe".to_owned()],
            ..Image::default()
        };
        image
            .put("/bin/probe", 0o755, Content::File(source.to_owned()))
            .put("bin/sh", 0o777, Content::Link("/bin/probe".to_owned()))
            .put("tmp", 0o1777, Content::Folder)
            .put(
                "etc/passwd",
                0o644,
                Content::Text("root:x:0:0:root:/:/bin/sh\n".to_owned()),
            );
        image
    }

    fn members(archive: &Path) -> HashMap<String, Vec<u8>> {
        let mut found = HashMap::new();
        for entry in tar::Archive::new(File::open(archive).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            found.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        found
    }

    #[test]
    fn every_digest_is_that_of_its_blob_and_leads_to_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::write(&source, "#!binary").unwrap();
        let target = folder.path().join("probe.tar");
        write(&image(&source), &target).unwrap();

        let members = members(&target);
        for (path, bytes) in members.iter().filter(|(path, _)| path.starts_with("blobs/")) {
            assert_eq!(*path, format!("blobs/sha256/{}", hex(&Sha256::digest(bytes))));
        }
        let follow = |descriptor: &serde_json::Value| {
            let digest = descriptor["digest"]
                .as_str()
                .unwrap()
                .strip_prefix("sha256:")
                .unwrap();
            let bytes = &members[&format!("blobs/sha256/{digest}")];
            assert_eq!(descriptor["size"], bytes.len());
            bytes.clone()
        };
        let index: serde_json::Value = serde_json::from_slice(&members["index.json"]).unwrap();
        let first = &index["manifests"][0];
        assert_eq!(
            first["annotations"]["io.containerd.image.name"],
            "localhost/migpool/probe:dev"
        );
        let manifest: serde_json::Value = serde_json::from_slice(&follow(first)).unwrap();
        let configuration: serde_json::Value = serde_json::from_slice(&follow(&manifest["config"])).unwrap();
        assert_eq!(configuration["config"]["Entrypoint"][0], "/bin/probe");
        assert_eq!(
            configuration["rootfs"]["diff_ids"][0],
            manifest["layers"][0]["digest"]
        );

        let layer = follow(&manifest["layers"][0]);
        let mut archive = tar::Archive::new(layer.as_slice());
        let seen: Vec<(String, u32)> = archive
            .entries()
            .unwrap()
            .map(|entry| {
                let entry = entry.unwrap();
                (
                    entry.path().unwrap().display().to_string(),
                    entry.header().mode().unwrap(),
                )
            })
            .collect();
        let expected = [
            ("bin/", 0o755),
            ("bin/probe", 0o755),
            ("bin/sh", 0o777),
            ("etc/", 0o755),
            ("etc/passwd", 0o644),
            ("tmp/", 0o1777),
        ];
        assert_eq!(seen, expected.map(|(path, mode)| (path.to_owned(), mode)));
    }

    #[test]
    fn the_same_content_gives_the_same_archive() {
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("source");
        fs::write(&source, "#!binary").unwrap();
        let [first, second] = ["a.tar", "b.tar"].map(|name| {
            let target = folder.path().join(name);
            write(&image(&source), &target).unwrap();
            fs::read(target).unwrap()
        });
        assert_eq!(first, second);
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            3,
            "temporary files are left"
        );
    }
}
