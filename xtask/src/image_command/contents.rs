//! What is in the image: the program, the certificates it trusts, who is who, and licences. There is no shell.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use super::archive::Entry;
use super::licences;
use crate::packages::Installer;
use crate::static_build::Architecture;
use crate::workspace::Workspace;

/// Debian's bundle of the certificates that Mozilla trusts, and where OpenSSL's users, rustls-native-certs among them, look
/// for it.
const CERTIFICATES: &str = "etc/ssl/certs/ca-certificates.crt";
/// Users of the image: the nonroot one has the number that images without a shell usually give it.
const PASSWD: &str = "root:x:0:0:root:/:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/:/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnonroot:x:65532:\n";
/// Where nobody mounts a better one, as Kubernetes and Docker do.
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
/// Names are looked up by what the C library has in it: another word here would have it load libraries.
const NSSWITCH: &str = "hosts: files dns\n";

/// Every file and folder.
///
/// # Errors
/// One is missing and may not be installed.
pub(super) fn gather(
    workspace: &Workspace,
    program: &Path,
    architecture: Architecture,
    installer: &Installer,
) -> Result<Vec<Entry>> {
    installer.packages(&["ca-certificates"], "the certificates that the image trusts")?;
    let program = fs::read(program).with_context(|| format!("could not read {}", program.display()))?;
    let certificates = fs::read(Path::new("/").join(CERTIFICATES))
        .with_context(|| format!("could not read /{CERTIFICATES} (Debian's package ca-certificates)"))?;
    let mut files = vec![
        ("ackbeat".to_owned(), program, 0o755),
        (CERTIFICATES.to_owned(), certificates, 0o644),
        ("etc/group".to_owned(), GROUP.into(), 0o644),
        ("etc/hosts".to_owned(), HOSTS.into(), 0o644),
        ("etc/nsswitch.conf".to_owned(), NSSWITCH.into(), 0o644),
        ("etc/passwd".to_owned(), PASSWD.into(), 0o644),
    ];
    for (name, content) in licences::gather(workspace, architecture)? {
        files.push((format!("licenses/{name}"), content, 0o644));
    }
    Ok(with_folders(files))
}

/// Files of this machine at the same paths, links followed, and further ones with their content. All of them may be run.
///
/// # Errors
/// A file cannot be read.
pub(super) fn from_this_machine(files: &[PathBuf], added: Vec<(String, Vec<u8>)>) -> Result<Vec<Entry>> {
    let mut all = Vec::with_capacity(files.len() + added.len());
    for path in files {
        let content = fs::read(path).with_context(|| format!("could not read {}", path.display()))?;
        let name = path.to_str().with_context(|| format!("{} is no text", path.display()))?;
        all.push((name.trim_start_matches('/').to_owned(), content, 0o755));
    }
    all.extend(added.into_iter().map(|(name, content)| (name, content, 0o755)));
    Ok(with_folders(all))
}

/// The files, and every folder that one of them lies in.
fn with_folders(files: Vec<(String, Vec<u8>, u32)>) -> Vec<Entry> {
    let mut folders: Vec<String> = files
        .iter()
        .flat_map(|(path, ..)| Path::new(path).ancestors().skip(1))
        .map(|folder| folder.to_string_lossy().into_owned())
        .filter(|folder| !folder.is_empty())
        .collect();
    folders.sort();
    folders.dedup();
    let folders = folders.into_iter().map(|path| Entry { path, content: None, mode: 0o755 });
    let files = files.into_iter().map(|(path, content, mode)| Entry { path, content: Some(content), mode });
    folders.chain(files).collect()
}

/// Writes the entries below a folder that is not there yet or empty.
///
/// # Errors
/// Something is in it, or it cannot be written.
pub(super) fn unpack(entries: &[Entry], folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))?;
    ensure!(
        fs::read_dir(folder).is_ok_and(|mut found| found.next().is_none()),
        "{} is not empty: name another folder",
        folder.display()
    );
    for entry in entries {
        let path = folder.join(&entry.path);
        match &entry.content {
            None => fs::create_dir(&path),
            Some(content) => fs::write(&path, content)
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(entry.mode))),
        }
        .with_context(|| format!("could not write {}", path.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_file_has_its_folders_once() {
        let entries = with_folders(vec![
            ("etc/ssl/certs/a".to_owned(), vec![1], 0o644),
            ("etc/passwd".to_owned(), vec![2], 0o644),
            ("ackbeat".to_owned(), vec![3], 0o755),
        ]);
        let paths: Vec<(&str, bool)> =
            entries.iter().map(|entry| (entry.path.as_str(), entry.content.is_some())).collect();
        assert_eq!(
            paths,
            [
                ("etc", false),
                ("etc/ssl", false),
                ("etc/ssl/certs", false),
                ("etc/ssl/certs/a", true),
                ("etc/passwd", true),
                ("ackbeat", true)
            ]
        );
    }

    #[test]
    fn the_files_can_be_had_without_the_archive() {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().join("root");
        let entries = with_folders(vec![("etc/passwd".to_owned(), PASSWD.into(), 0o640)]);
        unpack(&entries, &root).expect("an empty folder");
        let found = fs::metadata(root.join("etc/passwd")).expect("it is there");
        assert_eq!(found.permissions().mode() & 0o777, 0o640);
        let error = unpack(&entries, &root).expect_err("a full folder").to_string();
        assert!(error.contains("is not empty"), "{error}");
    }

    #[test]
    fn the_nonroot_user_is_the_images() {
        let number = super::super::archive::USER.split(':').next().expect("a user");
        assert!(PASSWD.lines().any(|line| line.starts_with(&format!("nonroot:x:{number}:"))), "{PASSWD}");
    }
}
