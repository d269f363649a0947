//! Reads an archive as a runtime would: by the index, the manifest and the digests, and not by how it was written.

use std::collections::BTreeMap;
use std::io::Read as _;

use anyhow::{Context as _, Result, ensure};
use flate2::read::GzDecoder;
use oci_spec::image::{ImageConfiguration, ImageIndex, ImageManifest, MediaType, OciLayout};

use super::archive::{About, Entry, USER, digest};

/// What an archive holds.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) manifest_digest: String,
    manifest: ImageManifest,
    configuration: ImageConfiguration,
    index: ImageIndex,
    entries: Vec<Entry>,
}

/// Reads all of it and checks every digest.
///
/// # Errors
/// It is no OCI archive of one image with one layer, or a part is not what its digest says.
pub(super) fn read(content: &[u8]) -> Result<Found> {
    let files: BTreeMap<String, Vec<u8>> =
        tar_entries(content)?.into_iter().filter_map(|entry| Some((entry.path, entry.content?))).collect();
    let file = |name: &str| files.get(name).map(Vec::as_slice).with_context(|| format!("there is no {name}"));
    OciLayout::from_reader(file("oci-layout")?).context("oci-layout")?;
    let index = ImageIndex::from_reader(file("index.json")?).context("index.json")?;
    let blob = |digest_wanted: &str| {
        let (_, name) = digest_wanted.split_once(':').context("a digest without its algorithm")?;
        let content = file(&format!("blobs/sha256/{name}"))?;
        ensure!(digest(content) == digest_wanted, "{digest_wanted} is {}", digest(content));
        Ok(content)
    };
    let [of_manifest] = index.manifests().as_slice() else {
        anyhow::bail!("the index names {} manifests", index.manifests().len());
    };
    let manifest_digest = of_manifest.digest().to_string();
    let manifest = ImageManifest::from_reader(blob(&manifest_digest)?).context("the manifest")?;
    let configuration = ImageConfiguration::from_reader(blob(manifest.config().digest().as_ref())?)
        .context("the configuration")?;
    let [of_layer] = manifest.layers().as_slice() else {
        anyhow::bail!("the manifest names {} layers", manifest.layers().len());
    };
    ensure!(*of_layer.media_type() == MediaType::ImageLayerGzip, "the layer is {}", of_layer.media_type());
    let mut layer = Vec::new();
    GzDecoder::new(blob(of_layer.digest().as_ref())?).read_to_end(&mut layer).context("the layer")?;
    ensure!(
        *configuration.rootfs().diff_ids() == [digest(&layer)],
        "the configuration names another layer than the manifest"
    );
    let entries = tar_entries(&layer)?;
    Ok(Found { manifest_digest, manifest, configuration, index, entries })
}

fn tar_entries(content: &[u8]) -> Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for entry in tar::Archive::new(content).entries().context("reading a tar file")? {
        let mut entry = entry.context("reading a tar file")?;
        let path = entry.path()?.to_string_lossy().trim_end_matches('/').to_owned();
        let mode = entry.header().mode()?;
        let content = if entry.header().entry_type().is_dir() {
            None
        } else {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).with_context(|| format!("reading {path}"))?;
            Some(content)
        };
        entries.push(Entry { path, content, mode });
    }
    Ok(entries)
}

impl Found {
    /// Whether it is the image of these entries.
    ///
    /// # Errors
    /// What differs.
    pub(super) fn must_hold(&self, entries: &[Entry], about: &About) -> Result<()> {
        let mut sorted = entries.to_vec();
        sorted.sort_by(|one, other| one.path.cmp(&other.path));
        ensure!(self.entries == sorted, "the layer holds other files than were put in");
        let config = self.configuration.config().as_ref().context("nothing says what to run")?;
        ensure!(
            config.entrypoint().as_deref() == Some(about.entrypoint.as_slice()),
            "{:?}",
            config.entrypoint()
        );
        ensure!(config.user().as_deref() == Some(USER), "{:?}", config.user());
        let labels = about.labels()?;
        ensure!(config.labels().as_ref() == Some(&labels), "{:?}", config.labels());
        ensure!(self.manifest.annotations().as_ref() == Some(&labels), "{:?}", self.manifest.annotations());
        let names: Vec<&String> = self
            .index
            .manifests()
            .iter()
            .filter_map(|found| found.annotations().as_ref())
            .flat_map(|found| found.values())
            .collect();
        ensure!(!names.is_empty() && names.iter().all(|name| **name == about.name), "{names:?}");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::image_command::archive;
    use crate::image_command::archive::tests::sample;

    #[test]
    fn a_byte_that_changed_is_found() {
        let (entries, about) = sample();
        let mut content = archive::write(&entries, &about).expect("written");
        // In a blob: after the header of its name.
        let name = b"blobs/sha256/";
        let blobs: Vec<usize> = (0..content.len() - 600)
            .filter(|at| content[*at..].starts_with(name) && content[at + 13] != 0)
            .collect();
        assert_eq!(blobs.len(), 3);
        content[blobs[0] + 512 + 20] ^= 1;
        assert!(read(&content).is_err());
        assert!(read(b"").is_err());
    }

    #[test]
    fn other_files_than_were_put_in_are_named() {
        let (mut entries, about) = sample();
        let found = read(&archive::write(&entries, &about).expect("written")).expect("an archive");
        entries[0].mode = 0o600;
        let error = found.must_hold(&entries, &about).expect_err("another mode").to_string();
        assert!(error.contains("other files"), "{error}");
    }
}
