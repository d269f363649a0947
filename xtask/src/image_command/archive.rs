//! The archive: one layer, its configuration, a manifest and an index (OCI image specification 1.1, "Image Layout"), in one
//! tar file.

use std::collections::HashMap;
use std::io::Write as _;

use anyhow::{Context as _, Result};
use flate2::{Compression, GzBuilder};
use oci_spec::image::{
    ANNOTATION_CREATED, ANNOTATION_DESCRIPTION, ANNOTATION_LICENSES, ANNOTATION_REF_NAME, ANNOTATION_SOURCE,
    ANNOTATION_TITLE, ANNOTATION_VERSION, Arch, ConfigBuilder, Descriptor, HistoryBuilder,
    ImageConfigurationBuilder, ImageIndexBuilder, ImageManifestBuilder, MediaType, OciLayoutBuilder, Os,
    PlatformBuilder, RootFsBuilder, SCHEMA_VERSION, Sha256Digest,
};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tar::{EntryType, Header};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::static_build::Architecture;

/// Who runs in the container if nobody says otherwise: nobody's user, whom `/etc/passwd` of the image names.
pub(super) const USER: &str = "65532:65532";
/// By this name containerd keeps what it imports.
const ANNOTATION_CONTAINERD_NAME: &str = "io.containerd.image.name";

/// One file or folder of the image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Entry {
    /// Its path, without the leading slash.
    pub(super) path: String,
    /// `None` for a folder.
    pub(super) content: Option<Vec<u8>>,
    /// Permissions.
    pub(super) mode: u32,
}

/// What the image says of itself.
#[derive(Debug, Clone)]
pub(super) struct About {
    /// Name and tag.
    pub(super) name: String,
    pub(super) version: String,
    pub(super) architecture: Architecture,
    /// The date of everything, in seconds since 1970.
    pub(super) seconds: u64,
    pub(super) repository: String,
    pub(super) description: String,
    /// An SPDX expression.
    pub(super) licenses: String,
    /// What it starts, and with which arguments if nobody says otherwise.
    pub(super) entrypoint: Vec<String>,
    pub(super) arguments: Vec<String>,
    /// How hard the layer is compressed.
    pub(super) compression: Compression,
}

impl About {
    /// Labels of the configuration and annotations of the manifest: the same, so that either is enough.
    pub(super) fn labels(&self) -> Result<HashMap<String, String>> {
        Ok([
            (ANNOTATION_TITLE, "ackbeat".to_owned()),
            (ANNOTATION_DESCRIPTION, self.description.clone()),
            (ANNOTATION_VERSION, self.version.clone()),
            (ANNOTATION_SOURCE, self.repository.clone()),
            (ANNOTATION_LICENSES, self.licenses.clone()),
            (ANNOTATION_CREATED, self.created()?),
        ]
        .map(|(key, value)| (key.to_owned(), value))
        .into())
    }

    /// The date as RFC 3339 writes it.
    fn created(&self) -> Result<String> {
        let seconds = i64::try_from(self.seconds).context("SOURCE_DATE_EPOCH is too large")?;
        let date = OffsetDateTime::from_unix_timestamp(seconds).context("SOURCE_DATE_EPOCH is too large")?;
        date.format(&Rfc3339).context("SOURCE_DATE_EPOCH is too large")
    }
}

/// The archive's bytes.
///
/// # Errors
/// Something cannot be written as the formats ask, which a path of more than 255 bytes would be.
pub(super) fn write(entries: &[Entry], about: &About) -> Result<Vec<u8>> {
    let layer = tar_file(entries, about.seconds)?;
    let diff_id = digest(&layer);
    let layer = compressed(&layer, about.compression)?;
    let labels = about.labels()?;
    let architecture = Arch::from(about.architecture.oci_name());
    let configuration = json(
        &ImageConfigurationBuilder::default()
            .created(about.created()?)
            .architecture(architecture.clone())
            .os(Os::Linux)
            .config(
                ConfigBuilder::default()
                    .user(USER)
                    .entrypoint(about.entrypoint.clone())
                    .cmd(about.arguments.clone())
                    .working_dir("/")
                    .labels(labels.clone())
                    .build()?,
            )
            .rootfs(RootFsBuilder::default().typ("layers").diff_ids([diff_id]).build()?)
            .history([HistoryBuilder::default()
                .created(about.created()?)
                .created_by("cargo xtask image")
                .build()?])
            .build()?,
    )?;
    let manifest = json(
        &ImageManifestBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageManifest)
            .config(descriptor(MediaType::ImageConfig, &configuration)?)
            .layers([descriptor(MediaType::ImageLayerGzip, &layer)?])
            .annotations(labels)
            .build()?,
    )?;
    let mut of_manifest = descriptor(MediaType::ImageManifest, &manifest)?;
    of_manifest
        .set_platform(Some(PlatformBuilder::default().architecture(architecture).os(Os::Linux).build()?));
    of_manifest.set_annotations(Some(
        [(ANNOTATION_REF_NAME, &about.name), (ANNOTATION_CONTAINERD_NAME, &about.name)]
            .map(|(key, value)| (key.to_owned(), value.clone()))
            .into(),
    ));
    let index = json(
        &ImageIndexBuilder::default()
            .schema_version(SCHEMA_VERSION)
            .media_type(MediaType::ImageIndex)
            .manifests([of_manifest])
            .build()?,
    )?;
    let layout = json(&OciLayoutBuilder::default().image_layout_version("1.0.0".to_owned()).build()?)?;
    let folder = |path: &str| Entry { path: path.to_owned(), content: None, mode: 0o755 };
    let file = |path: String, content: Vec<u8>| Entry { path, content: Some(content), mode: 0o644 };
    let mut parts = vec![folder("blobs"), folder("blobs/sha256")];
    parts.extend([configuration, manifest, layer].map(|blob| {
        let name = format!("blobs/sha256/{}", hex(&blob));
        file(name, blob)
    }));
    parts.push(file("index.json".to_owned(), index));
    parts.push(file("oci-layout".to_owned(), layout));
    tar_file(&parts, about.seconds)
}

/// Keys in their order: maps in memory have none.
fn json(value: &impl Serialize) -> Result<Vec<u8>> {
    let mut value = serde_json::to_value(value)?;
    value.sort_all_objects();
    Ok(serde_json::to_vec(&value)?)
}

fn descriptor(media_type: MediaType, content: &[u8]) -> Result<Descriptor> {
    let digest: Sha256Digest = hex(content).parse()?;
    Ok(Descriptor::new(media_type, content.len() as u64, digest))
}

/// SHA-256 in hexadecimal.
pub(super) fn hex(content: &[u8]) -> String {
    Sha256::digest(content).iter().fold(String::new(), |text, byte| text + &format!("{byte:02x}"))
}

/// As the specification writes a digest.
pub(super) fn digest(content: &[u8]) -> String {
    format!("sha256:{}", hex(content))
}

/// Entries in the order of their paths, all root's, all of one date.
fn tar_file(entries: &[Entry], seconds: u64) -> Result<Vec<u8>> {
    let mut sorted: Vec<&Entry> = entries.iter().collect();
    sorted.sort_by(|one, other| one.path.cmp(&other.path));
    let mut builder = tar::Builder::new(Vec::new());
    for entry in sorted {
        let mut header = Header::new_ustar();
        let content = entry.content.as_deref().unwrap_or_default();
        let path = match entry.content {
            Some(_) => entry.path.clone(),
            None => format!("{}/", entry.path),
        };
        header.set_path(&path).with_context(|| format!("{path} has no place in a tar header"))?;
        header.set_entry_type(if entry.content.is_some() {
            EntryType::Regular
        } else {
            EntryType::Directory
        });
        header.set_size(content.len() as u64);
        header.set_mode(entry.mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_mtime(seconds);
        header.set_cksum();
        builder.append(&header, content).with_context(|| format!("writing {path}"))?;
    }
    builder.into_inner().context("ending the tar file")
}

/// Gzip without name and date (RFC 1952 section 2.3.1).
fn compressed(content: &[u8], level: Compression) -> Result<Vec<u8>> {
    let mut encoder = GzBuilder::new().mtime(0).write(Vec::new(), level);
    encoder.write_all(content).context("compressing the layer")?;
    encoder.finish().context("compressing the layer")
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::image_command::read_back;

    pub(in crate::image_command) fn sample() -> (Vec<Entry>, About) {
        let entries = vec![
            Entry { path: "etc/passwd".to_owned(), content: Some(b"root".to_vec()), mode: 0o644 },
            Entry { path: "etc".to_owned(), content: None, mode: 0o755 },
            Entry { path: "ackbeat".to_owned(), content: Some(vec![7; 100_000]), mode: 0o755 },
        ];
        let about = About {
            name: "ackbeat:0.1.0".to_owned(),
            version: "0.1.0".to_owned(),
            architecture: Architecture::Amd64,
            seconds: 1_764_460_800,
            repository: "https://example.test/ackbeat".to_owned(),
            description: "A sidecar.".to_owned(),
            licenses: "MIT OR Apache-2.0".to_owned(),
            entrypoint: vec!["/ackbeat".to_owned()],
            arguments: vec!["run".to_owned()],
            compression: Compression::best(),
        };
        (entries, about)
    }

    #[test]
    fn the_order_of_what_is_given_changes_nothing() {
        let (mut entries, about) = sample();
        let once = write(&entries, &about).expect("written");
        entries.reverse();
        let again = write(&entries, &about).expect("written");
        assert_eq!(digest(&once), digest(&again));
        assert_ne!(
            once,
            write(&entries, &About { seconds: 0, ..about }).expect("written"),
            "the date is in it"
        );
    }

    #[test]
    fn it_reads_back_and_says_what_it_is() {
        let (entries, about) = sample();
        let found = read_back::read(&write(&entries, &about).expect("written")).expect("an archive");
        found.must_hold(&entries, &about).expect("what was written");
        assert_eq!(about.created().expect("a date"), "2025-11-30T00:00:00Z");
    }
}
