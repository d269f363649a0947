//! Debian packages beside those of the machine: fetched by apt in a configuration of its own, unpacked, not installed.
//!
//! Kernels of other releases need another suite, and QEMU may not fit to what is installed (a newer `qemu-utils` keeps it
//! from being installed). Neither is a reason to change the machine.

use std::fs;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::capture;
use crate::packages::{Installer, with_retries};
use crate::{console, process};

/// Debian's keys; the package that has them cannot be removed from a Debian.
const KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
const MAIN_MIRROR: &str = "http://deb.debian.org/debian";
const SECURITY_MIRROR: &str = "http://deb.debian.org/debian-security";
/// The release whose packages fit where the machine's own is not known.
const RELEASE: &str = "bookworm";
const QEMU: &str = "qemu-system-x86_64";

/// Programs that were unpacked, with the libraries that the machine lacks.
pub(crate) struct Tools {
    folder: PathBuf,
}

impl Tools {
    /// QEMU with its firmware and modules.
    pub(crate) fn qemu(&self) -> Command {
        let mut command = process::command(self.folder.join("usr/bin").join(QEMU));
        command.env("LD_LIBRARY_PATH", self.library_path());
        command.env("QEMU_MODULE_DIR", self.folder.join("usr/lib/x86_64-linux-gnu/qemu"));
        for data in ["usr/share/qemu", "usr/share/seabios"] {
            command.arg("-L").arg(self.folder.join(data));
        }
        command
    }

    /// `modprobe`, as a file: the program that is `depmod` too.
    pub(crate) fn modprobe(&self) -> PathBuf {
        self.folder.join("bin/kmod")
    }

    /// `depmod`, which writes down what each module needs.
    pub(crate) fn depmod(&self) -> Command {
        // One program that goes by the name that it is called by; the package's links are absolute.
        let mut command = process::command(self.modprobe());
        command.arg0("depmod").env("LD_LIBRARY_PATH", self.library_path());
        command
    }

    /// Where libraries of the unpacked packages lie.
    pub(crate) fn library_path(&self) -> String {
        ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"]
            .map(|folder| self.folder.join(folder).display().to_string())
            .join(":")
    }
}

/// Fetches QEMU and kmod once.
///
/// # Errors
/// They may not be fetched, or apt failed.
pub(crate) fn tools(cache: &Path, installer: &Installer) -> Result<Tools> {
    let folder = cache.join("qemu");
    let tools = Tools { folder: folder.clone() };
    let done = folder.join("done");
    if done.is_file() {
        return Ok(tools);
    }
    may_fetch(installer, "qemu-system-x86 and kmod")?;
    console::progress(&format!(
        "fetching: qemu-system-x86, kmod and what they need, from Debian into {} (boots other kernels; nothing is \
         installed)",
        folder.display()
    ));
    let release = codename().unwrap_or_else(|| RELEASE.to_owned());
    let apt =
        Apt::with_suites(&cache.join("apt").join("tools"), &[&release, &format!("{release}-security")])?;
    // As if no QEMU were installed: one that does not fit together with this one must not keep it from being fetched.
    apt.forget("qemu")?;
    with_retries("fetching QEMU", || apt.fetch(&["qemu-system-x86", "kmod"]))?;
    apt.unpack(&folder)?;
    capture(tools.qemu().arg("--version"), "trying QEMU")?;
    fs::write(&done, "").with_context(|| format!("could not write {}", done.display()))?;
    Ok(tools)
}

/// Fails where nothing may be fetched.
///
/// # Errors
/// `--no-install` was given, or there is no apt.
pub(crate) fn may_fetch(installer: &Installer, what: &str) -> Result<()> {
    if !installer.may_compile_tools() {
        bail!("{what} would be fetched from Debian, and --no-install was given");
    }
    for program in ["apt-get", "dpkg"] {
        if process::find_program(program).is_none() {
            bail!("{what} would be fetched from Debian, and this machine has no {program}");
        }
    }
    Ok(())
}

/// The code name of the machine's Debian.
fn codename() -> Option<String> {
    let text = fs::read_to_string("/etc/os-release").ok()?;
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    (value("ID")? == "debian").then(|| value("VERSION_CODENAME").map(str::to_owned))?
}

/// Unpacks one package over `folder`.
///
/// # Errors
/// It is no package.
pub(crate) fn unpack(package: &Path, folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("could not make the folder {}", folder.display()))?;
    let mut command = process::command("dpkg");
    command.arg("--extract").arg(package).arg(folder);
    process::run(&mut command, "unpacking a package")
}

/// apt with its own sources, lists, cache and state in one folder.
pub(crate) struct Apt {
    folder: PathBuf,
}

impl Apt {
    /// Knows the packages of these suites, from the mirrors that the machine uses.
    ///
    /// # Errors
    /// The folder cannot be written, or the lists cannot be fetched.
    pub(crate) fn with_suites(folder: &Path, suites: &[&str]) -> Result<Self> {
        let apt = Self { folder: folder.to_owned() };
        for name in ["lists/partial", "archives/partial"] {
            let path = folder.join(name);
            fs::create_dir_all(&path)
                .with_context(|| format!("could not make the folder {}", path.display()))?;
        }
        let mirrors = Mirrors::of_this_machine();
        let sources: String = suites.iter().map(|suite| mirrors.entry(suite)).collect();
        apt.write("sources.list", &sources)?;
        let status = fs::read_to_string("/var/lib/dpkg/status").unwrap_or_default();
        apt.write("status", &status)?;
        with_retries("fetching package lists", || {
            capture(apt.command("apt-get").arg("update"), "apt-get update").map(drop)
        })?;
        Ok(apt)
    }

    fn write(&self, name: &str, content: &str) -> Result<()> {
        let path = self.folder.join(name);
        fs::write(&path, content).with_context(|| format!("could not write {}", path.display()))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = process::command(program);
        command.env("DEBIAN_FRONTEND", "noninteractive").arg("--quiet=2");
        let mut set = |key: &str, value: &str| {
            command.arg("-o").arg(format!("{key}={value}"));
        };
        let path = |name: &str| self.folder.join(name).display().to_string();
        set("Dir::Etc::SourceList", &path("sources.list"));
        set("Dir::Etc::SourceParts", "-");
        // A pin of the machine is about the machine.
        set("Dir::Etc::Preferences", "-");
        set("Dir::Etc::PreferencesParts", "-");
        set("Dir::State::Lists", &path("lists"));
        set("Dir::State::Status", &path("status"));
        set("Dir::Cache", &path(""));
        set("Dir::Cache::Archives", &path("archives"));
        set("Acquire::Retries", "3");
        // The user that apt fetches as cannot enter every target directory.
        set("APT::Sandbox::User", "root");
        // No lock of the machine is taken.
        set("Debug::NoLocking", "true");
        command
    }

    /// Leaves out of what counts as installed every package whose name begins so.
    fn forget(&self, prefix: &str) -> Result<()> {
        let path = self.folder.join("status");
        let status =
            fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        self.write("status", &without(&status, prefix))
    }

    /// Fetches packages, and what they need that is not installed.
    fn fetch(&self, packages: &[&str]) -> Result<()> {
        let mut command = self.command("apt-get");
        command.args(["install", "--yes", "--download-only", "--no-remove", "--no-install-recommends"]);
        command.args(packages);
        capture(&mut command, "apt-get install --download-only").map(drop)
    }

    /// Fetches one package alone.
    ///
    /// # Errors
    /// The suites do not have it.
    pub(crate) fn download(&self, package: &str) -> Result<PathBuf> {
        let archives = self.folder.join("archives");
        with_retries("fetching a package", || {
            let mut command = self.command("apt-get");
            command.current_dir(&archives).args(["download", package]);
            capture(&mut command, "apt-get download").map(drop)
        })?;
        let prefix = format!("{package}_");
        packages_in(&archives)?
            .into_iter()
            .find(|path| {
                path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(prefix.as_str()))
            })
            .with_context(|| format!("apt-get download left no file of {package}"))
    }

    /// Names of the packages that one needs directly.
    ///
    /// # Errors
    /// The suites do not have it.
    pub(crate) fn needs(&self, package: &str) -> Result<Vec<String>> {
        let mut command = self.command("apt-cache");
        command.args(["show", "--no-all-versions", package]);
        Ok(depends(&capture(&mut command, "apt-cache show")?))
    }

    /// Unpacks everything that was fetched, and forgets the packages.
    fn unpack(&self, folder: &Path) -> Result<()> {
        for package in packages_in(&self.folder.join("archives"))? {
            unpack(&package, folder)?;
        }
        self.clean();
        Ok(())
    }

    /// Removes what was fetched: lists and packages are not needed again.
    pub(crate) fn clean(&self) {
        // A leftover costs only room.
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn packages_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))?;
    let mut packages: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "deb"))
        .collect();
    packages.sort();
    Ok(packages)
}

/// dpkg's list without the packages whose name begins with `prefix`.
fn without(status: &str, prefix: &str) -> String {
    let field = format!("Package: {prefix}");
    let kept = status.split("\n\n").filter(|stanza| !stanza.trim_start().starts_with(&field));
    kept.collect::<Vec<_>>().join("\n\n")
}

/// The first alternative of each dependency that apt shows.
fn depends(shown: &str) -> Vec<String> {
    let lines = shown
        .lines()
        .filter_map(|line| line.strip_prefix("Depends: ").or_else(|| line.strip_prefix("Pre-Depends: ")));
    let names = lines.flat_map(|list| list.split(',')).filter_map(|one| one.split_whitespace().next());
    names.map(str::to_owned).collect()
}

/// Where the machine fetches Debian's packages from.
#[derive(Debug, PartialEq, Eq)]
struct Mirrors {
    main: String,
    security: String,
}

impl Mirrors {
    fn of_this_machine() -> Self {
        let mut text = fs::read_to_string("/etc/apt/sources.list").unwrap_or_default();
        let parts = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
        for part in parts {
            text.push_str("\n\n");
            text.push_str(&fs::read_to_string(part.path()).unwrap_or_default());
        }
        Self::read(&text, &codename().unwrap_or_else(|| RELEASE.to_owned()))
    }

    /// Both forms of sources.list(5) name the mirror and then the suites.
    fn read(sources: &str, release: &str) -> Self {
        let security_suite = format!("{release}-security");
        let mirror_of = |suite: &str| {
            sources.split("\n\n").find_map(|stanza| {
                let field = |key: &str| stanza.lines().find_map(|line| line.strip_prefix(key));
                let of_stanza = || {
                    let suites = field("Suites:")?;
                    let has_it = suites.split_whitespace().any(|found| found == suite);
                    field("URIs:").filter(|_| has_it)?.split_whitespace().next()
                };
                let of_line = || {
                    stanza.lines().filter(|line| line.starts_with("deb ")).find_map(|line| {
                        let words = line.split_whitespace().skip(1);
                        let mut words = words.skip_while(|word| !word.contains("://"));
                        let uri = words.next()?;
                        (words.next()? == suite).then_some(uri)
                    })
                };
                of_stanza().or_else(of_line).map(str::to_owned)
            })
        };
        Self {
            main: mirror_of(release).unwrap_or_else(|| MAIN_MIRROR.to_owned()),
            security: mirror_of(&security_suite).unwrap_or_else(|| SECURITY_MIRROR.to_owned()),
        }
    }

    /// One line of sources.list(5).
    fn entry(&self, suite: &str) -> String {
        let mirror = if suite.ends_with("-security") { &self.security } else { &self.main };
        format!("deb [signed-by={KEYRING}] {mirror} {suite} main\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANZAS: &str = "Types: deb
# a comment
URIs: http://mirror.example/debian
Suites: bookworm bookworm-updates
Components: main

Types: deb
URIs: http://mirror.example/debian-security
Suites: bookworm-security
Components: main
";

    #[test]
    fn the_machines_mirrors_are_used_for_other_suites_too() {
        let mirrors = Mirrors::read(STANZAS, "bookworm");
        assert_eq!(
            mirrors.entry("bullseye-security"),
            format!(
                "deb [signed-by={KEYRING}] http://mirror.example/debian-security bullseye-security main\n"
            )
        );
        assert!(
            mirrors.entry("trixie-backports").contains(" http://mirror.example/debian trixie-backports ")
        );
    }

    #[test]
    fn one_line_entries_are_read_too() {
        let lines = "deb [arch=amd64 signed-by=/k] https://a.example/debian bookworm main contrib\n\
                     deb https://b.example/security bookworm-security main\n";
        let expected = Mirrors {
            main: "https://a.example/debian".to_owned(),
            security: "https://b.example/security".to_owned(),
        };
        assert_eq!(Mirrors::read(lines, "bookworm"), expected);
        assert_eq!(Mirrors::read("", "bookworm").main, MAIN_MIRROR);
    }

    #[test]
    fn packages_are_forgotten_by_the_beginning_of_their_name() {
        let status = "Package: qemu-utils\nStatus: x\n\nPackage: libc6\nStatus: y\n\nPackage: qemu-guest-agent\nStatus: z\n";
        assert_eq!(without(status, "qemu"), "Package: libc6\nStatus: y");
    }

    #[test]
    fn dependencies_are_read_without_their_versions() {
        let shown = "Package: linux-image-cloud-amd64\nDepends: linux-image-6.1.0-57-cloud-amd64 (= 6.1.192-3), kmod | x\n";
        assert_eq!(depends(shown), ["linux-image-6.1.0-57-cloud-amd64", "kmod"]);
    }
}
