//! `cargo xtask image`: the sidecar as an OCI archive, from nothing but its static program.
//!
//! The same program, dependencies and certificates give the same bytes, whenever it is made: entries are sorted, owned by
//! root, and dated by `SOURCE_DATE_EPOCH` (0 without it).

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use flate2::Compression;

use crate::build_command::{self, CompilerOptions};
use crate::console;
use crate::packages::Installer;
use crate::static_build::{self, Architecture, Profile};
use crate::workspace::Workspace;

mod archive;
mod contents;
mod licences;
mod read_back;

/// What the archive may have in bytes: every node of a cluster fetches it.
const SIZE_MAX_BYTES: u64 = 25_000_000;

/// Options of `cargo xtask image`.
#[derive(Debug, Args)]
pub(crate) struct ImageOptions {
    /// Where the archive goes [default: `image/ackbeat-VERSION-ARCHITECTURE.tar` in the target directory].
    #[arg(long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// The image's name in the archive [default: ghcr.io/ackbeat/ackbeat:VERSION, as the charts name it].
    #[arg(long, value_name = "NAME:TAG")]
    name: Option<String>,
    /// A static program that was built before, to be put in without building one.
    #[arg(long, value_name = "FILE")]
    program: Option<PathBuf>,
    /// Compile quickly, not well: for tests. The image is several times as large, and the sidecar as slow.
    #[arg(long, conflicts_with = "program")]
    debug: bool,
    /// Write the files of the image below this folder too, where `sidecar/Dockerfile` copies them from.
    #[arg(long, value_name = "FOLDER")]
    unpacked: Option<PathBuf>,
    #[command(flatten)]
    compiler: CompilerOptions,
}

/// An archive that was written and read back.
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    /// Of the manifest: what a registry calls it.
    pub(crate) digest: String,
    pub(crate) size_bytes: u64,
}

/// Builds, writes, reads back, and says how large it is.
///
/// # Errors
/// As [`build`].
pub(crate) fn execute(workspace: &Workspace, options: &ImageOptions) -> Result<()> {
    let installer = Installer::new(options.compiler.no_install);
    let program = match &options.program {
        Some(program) => program.clone(),
        None => {
            let object = build_command::ebpf_object(workspace, &options.compiler, &installer)?;
            let profile = if options.debug { Profile::Debug } else { Profile::Release };
            static_build::sidecar(workspace, &object, Architecture::OF_THIS_MACHINE, profile, &installer)?
        }
    };
    static_build::check(&program, Architecture::OF_THIS_MACHINE)?;
    let image = write(workspace, &program, options, &installer)?;
    console::result(&format!("{}", image.path.display()));
    console::result(&format!(
        "{}  {:.1} MB of at most {} MB",
        image.digest,
        megabytes(image.size_bytes),
        SIZE_MAX_BYTES / 1_000_000
    ));
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a size to be read by people")]
fn megabytes(bytes: u64) -> f64 {
    bytes as f64 / 1e6
}

/// Writes an image around a static program, and reads it back.
///
/// # Errors
/// A part is missing and may not be installed, the archive cannot be written, it does not read back as what it should be,
/// or it is too large.
fn write(
    workspace: &Workspace,
    program: &Path,
    options: &ImageOptions,
    installer: &Installer,
) -> Result<Image> {
    let architecture = Architecture::OF_THIS_MACHINE;
    let package = workspace.package("ackbeat")?;
    let version = &package.version;
    let name = options.name.clone().unwrap_or_else(|| format!("ghcr.io/ackbeat/ackbeat:{version}"));
    let path = options.output.clone().unwrap_or_else(|| {
        workspace.target.join("image").join(format!("ackbeat-{version}-{architecture}.tar"))
    });
    let entries = contents::gather(workspace, program, architecture, installer)?;
    let about = archive::About {
        name,
        version: version.clone(),
        architecture,
        seconds: source_date_epoch(env::var("SOURCE_DATE_EPOCH").ok().as_deref())?,
        repository: package.repository.clone().unwrap_or_default(),
        description: package.description.clone().unwrap_or_default(),
        licenses: package.license.clone().unwrap_or_default(),
        entrypoint: vec!["/ackbeat".to_owned()],
        arguments: vec!["run".to_owned()],
        compression: if options.debug { Compression::fast() } else { Compression::best() },
    };
    let content = archive::write(&entries, &about)?;
    let found = read_back::read(&content).context("the archive does not read back")?;
    found.must_hold(&entries, &about)?;
    let size_bytes = content.len() as u64;
    ensure!(
        options.debug || size_bytes <= SIZE_MAX_BYTES,
        "the image has {size_bytes} bytes, more than {SIZE_MAX_BYTES}: look at what the program links (`cargo bloat`)"
    );
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
    }
    if let Some(folder) = &options.unpacked {
        contents::unpack(&entries, folder)?;
    }
    fs::write(&path, content).with_context(|| format!("could not write {}", path.display()))?;
    Ok(Image { path, digest: found.manifest_digest, size_bytes })
}

/// The image for tests: made quickly, at `output`.
///
/// # Errors
/// As [`execute`].
pub(crate) fn for_tests(workspace: &Workspace, compiler: &CompilerOptions, output: PathBuf) -> Result<()> {
    let compiler = compiler.clone();
    let options = ImageOptions {
        output: Some(output),
        name: None,
        program: None,
        debug: true,
        unpacked: None,
        compiler,
    };
    execute(workspace, &options)
}

/// Writes an image of other programs for tests: `files` are copied from this machine to the same paths, `added` are further
/// ones with their content.
///
/// # Errors
/// A file cannot be read, or the archive cannot be written.
pub(crate) fn of_files(
    name: &str,
    entrypoint: &str,
    files: &[PathBuf],
    added: Vec<(String, Vec<u8>)>,
    output: &Path,
) -> Result<()> {
    let about = archive::About {
        name: name.to_owned(),
        version: "1".to_owned(),
        architecture: Architecture::OF_THIS_MACHINE,
        seconds: 0,
        repository: String::new(),
        description: "For tests".to_owned(),
        licenses: String::new(),
        entrypoint: vec![entrypoint.to_owned()],
        arguments: Vec::new(),
        compression: Compression::fast(),
    };
    let entries = contents::from_this_machine(files, added)?;
    if let Some(folder) = output.parent() {
        fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
    }
    let content = archive::write(&entries, &about)?;
    fs::write(output, content).with_context(|| format!("could not write {}", output.display()))
}

/// Seconds since 1970 for every date in the image (<https://reproducible-builds.org/specs/source-date-epoch/>).
fn source_date_epoch(value: Option<&str>) -> Result<u64> {
    value.map_or(Ok(0), |text| {
        text.parse()
            .with_context(|| format!("SOURCE_DATE_EPOCH: {text:?} is no number of seconds since 1970"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf_compiler::Choice;

    /// With this test in the place of the program, which takes minutes to build.
    #[test]
    fn two_images_of_the_same_files_are_the_same() {
        let workspace = Workspace::load().expect("cargo metadata of this workspace");
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        fs::write(&program, vec![7; 1_000_000]).expect("a program");
        let installer = Installer::that_only_names();
        let images = ["one.tar", "two.tar"].map(|name| {
            let options = ImageOptions {
                output: Some(folder.path().join(name)),
                name: None,
                program: None,
                debug: false,
                unpacked: Some(folder.path().join(name).with_extension("root")),
                compiler: CompilerOptions {
                    bpf_toolchain: Choice::Auto,
                    rustup_toolchain: None,
                    no_install: true,
                    rustup_home: None,
                },
            };
            write(&workspace, &program, &options, &installer).expect("an image")
        });
        assert_eq!(images[0].digest, images[1].digest);
        let [one, two] = images.map(|image| fs::read(image.path).expect("an archive"));
        assert_eq!(archive::digest(&one), archive::digest(&two));
        let root = folder.path().join("one.root");
        let licences = fs::read_to_string(root.join("licenses/third-party.txt")).expect("licences");
        for linked in ["\ntokio 1.", "\naya 0.14", "\nbtf-rs 2.", "\nrustls 0.23"] {
            assert!(licences.contains(linked), "{linked:?}");
        }
        for text in ["Permission is hereby granted", "Apache License", "GNU LESSER GENERAL PUBLIC LICENSE"] {
            assert!(licences.contains(text), "{text}");
        }
        for not_linked in ["\nproptest ", "\ninsta ", "\nopenssl-sys "] {
            assert!(!licences.contains(not_linked), "{not_linked:?}");
        }
        let certificates =
            fs::read_to_string(root.join("etc/ssl/certs/ca-certificates.crt")).expect("certificates");
        assert!(certificates.matches("BEGIN CERTIFICATE").count() > 100);
    }

    #[test]
    fn the_date_is_that_of_the_variable_or_none() {
        assert_eq!(source_date_epoch(None).expect("the default"), 0);
        assert_eq!(source_date_epoch(Some("1764460800")).expect("a number"), 1_764_460_800);
        let error = source_date_epoch(Some("today")).expect_err("no number").to_string();
        assert!(error.contains("SOURCE_DATE_EPOCH") && error.contains("today"), "{error}");
    }
}
