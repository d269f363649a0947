//! Which kernels are run, and where they come from.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::capture;
use super::debian::{self, Apt, Tools};
use crate::console;
use crate::packages::Installer;

/// The kernels that are run beside this machine's: Debian 12's own, and the newer long-term one that it has beside it.
const USUAL: [(&str, &str); 2] =
    [("bookworm-security", "linux-image-cloud-amd64"), ("bookworm-security", "linux-image-6.12-cloud-amd64")];
/// The package that needs the newest kernel of a suite.
const NEWEST: &str = "linux-image-cloud-amd64";
/// The release of the kernel that runs (proc(5)).
const RUNNING: &str = "/proc/sys/kernel/osrelease";
/// Packages that make up a kernel: the image, and in later releases what was split off.
const PARTS: [&str; 3] = ["linux-image-", "linux-binary-", "linux-modules-"];

/// A kernel that can be booted.
pub(crate) struct Kernel {
    /// What `uname -r` will say.
    pub(crate) release: String,
    /// The compressed kernel.
    pub(crate) image: PathBuf,
    /// Its modules, with `modules.dep`; `None` if it has none.
    pub(crate) modules: Option<PathBuf>,
}

/// A kernel that is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// What a package of a Debian suite needs.
    Debian {
        /// The suite.
        suite: String,
        /// The package that needs the kernel.
        package: String,
    },
    /// A file.
    File(PathBuf),
    /// This machine's own.
    Running,
}

/// A kernel that was found.
pub(crate) enum Found {
    /// It can be booted.
    Image(Kernel),
    /// It runs here, and its image is not there: whoever made this machine kept it.
    Running {
        /// What `uname -r` says.
        release: String,
    },
}

/// The kernels to run.
pub(crate) fn wanted(files: &[PathBuf], suites: &[String]) -> Vec<Wanted> {
    if files.is_empty() && suites.is_empty() {
        let usual = USUAL.into_iter();
        return usual
            .map(|(suite, package)| Wanted::Debian { suite: suite.to_owned(), package: package.to_owned() })
            .chain([Wanted::Running])
            .collect();
    }
    let newest_of =
        suites.iter().map(|suite| Wanted::Debian { suite: suite.clone(), package: NEWEST.to_owned() });
    files.iter().cloned().map(Wanted::File).chain(newest_of).collect()
}

impl fmt::Display for Wanted {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Debian { suite, package } => write!(formatter, "{package} of {suite}"),
            Self::File(path) => write!(formatter, "{}", path.display()),
            Self::Running => formatter.write_str("this machine's kernel"),
        }
    }
}

impl Wanted {
    /// Makes it a kernel that can be booted. What comes from Debian is kept below `cache`; remove it there to have a newer
    /// one.
    ///
    /// # Errors
    /// It cannot be fetched, or is no kernel.
    pub(crate) fn fetch(&self, cache: &Path, tools: &Tools, installer: &Installer) -> Result<Found> {
        let kernel = match self {
            Self::Debian { suite, package } => {
                let folder = cache.join("kernels").join(format!("{suite}_{package}"));
                if !folder.join("done").is_file() {
                    debian::may_fetch(installer, package)?;
                    console::progress(&format!("fetching: {self} into {}", folder.display()));
                    fetch(suite, package, &cache.join("apt").join(suite), &folder)?;
                }
                unpacked(&folder, tools)?
            }
            Self::File(path) if path.extension().is_some_and(|extension| extension == "deb") => {
                let name = path.file_stem().unwrap_or_default();
                let folder = cache.join("kernels").join(name);
                debian::unpack(path, &folder)?;
                unpacked(&folder, tools)?
            }
            Self::File(path) => of_file(path)?,
            Self::Running => {
                let release =
                    fs::read_to_string(RUNNING).with_context(|| format!("could not read {RUNNING}"))?;
                let release = release.trim().to_owned();
                let image = Path::new("/boot").join(format!("vmlinuz-{release}"));
                if !image.is_file() {
                    return Ok(Found::Running { release });
                }
                of_file(&image)?
            }
        };
        Ok(Found::Image(kernel))
    }
}

/// Fetches the kernel that `package` needs.
fn fetch(suite: &str, package: &str, state: &Path, folder: &Path) -> Result<()> {
    let apt = Apt::with_suites(state, &[suite])?;
    // A fetch that was interrupted left parts.
    if folder.exists() {
        fs::remove_dir_all(folder).with_context(|| format!("could not empty {}", folder.display()))?;
    }
    let mut names = vec![package.to_owned()];
    let mut next = 0;
    while let Some(name) = names.get(next).cloned() {
        next += 1;
        for needed in apt.needs(&name)? {
            if PARTS.iter().any(|part| needed.starts_with(part)) && !names.contains(&needed) {
                names.push(needed);
            }
        }
    }
    for name in names.iter().skip(1) {
        debian::unpack(&apt.download(name)?, folder)?;
    }
    apt.clean();
    let done = folder.join("done");
    fs::write(&done, names.join("\n")).with_context(|| format!("could not write {}", done.display()))
}

/// The kernel in an unpacked package.
fn unpacked(folder: &Path, tools: &Tools) -> Result<Kernel> {
    // Later releases have everything below /usr, and nothing makes the links here.
    if !folder.join("lib").exists() && folder.join("usr/lib").is_dir() {
        std::os::unix::fs::symlink("usr/lib", folder.join("lib"))
            .with_context(|| format!("could not link {}", folder.join("lib").display()))?;
    }
    let image = vmlinuz_below(folder)?;
    let release = release_of(&image)?;
    let modules = folder.join("lib/modules").join(&release);
    if modules.is_dir() && !modules.join("modules.dep").is_file() {
        let mut depmod = tools.depmod();
        depmod.arg("-b").arg(folder).arg(&release);
        capture(&mut depmod, "depmod")?;
    }
    Ok(Kernel { release, image, modules: modules.is_dir().then_some(modules) })
}

/// A kernel that lies where a distribution puts it, with its modules in `lib/modules` beside its folder or at the root.
fn of_file(path: &Path) -> Result<Kernel> {
    let image =
        path.canonicalize().with_context(|| format!("the kernel {} cannot be found", path.display()))?;
    let release = release_of(&image)?;
    let beside = image.parent().and_then(Path::parent).unwrap_or(Path::new("/"));
    let modules = [beside, Path::new("/")]
        .map(|root| root.join("lib/modules").join(&release))
        .into_iter()
        .find(|modules| modules.join("modules.dep").is_file());
    Ok(Kernel { release, image, modules })
}

/// `boot/vmlinuz-RELEASE`, or in later releases `lib/modules/RELEASE/vmlinuz`.
fn vmlinuz_below(folder: &Path) -> Result<PathBuf> {
    let entries = |name: &str| {
        let found = fs::read_dir(folder.join(name)).into_iter().flatten().flatten();
        found.map(|entry| entry.path()).collect::<Vec<_>>()
    };
    let is_image =
        |path: &PathBuf| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz-"));
    let in_boot = entries("boot").into_iter().find(is_image);
    let beside_modules = || {
        let releases = entries("lib/modules").into_iter();
        releases.map(|release| release.join("vmlinuz")).find(|image| image.is_file())
    };
    in_boot
        .or_else(beside_modules)
        .with_context(|| format!("{} has no vmlinuz in boot and none in lib/modules", folder.display()))
}

/// The release that a compressed kernel names in its header (`kernel_version`, Documentation/arch/x86/boot.rst).
fn release_of(image: &Path) -> Result<String> {
    let content = fs::read(image).with_context(|| format!("could not read {}", image.display()))?;
    let Some(release) = release_in(&content) else {
        bail!("{} is no compressed x86 kernel (bzImage)", image.display());
    };
    Ok(release)
}

fn release_in(content: &[u8]) -> Option<String> {
    if content.get(0x202..0x206)? != b"HdrS" {
        return None;
    }
    let offset = u16::from_le_bytes(content.get(0x20e..0x210)?.try_into().ok()?);
    let text = content.get(usize::from(offset) + 0x200..)?.split(|byte| *byte == 0).next()?;
    // `6.1.0-57-cloud-amd64 (maintainer) #1 SMP …`
    String::from_utf8_lossy(text).split(' ').next().map(str::to_owned).filter(|release| !release.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_usual_kernels_are_run_unless_others_are_named() {
        let usual: Vec<String> = wanted(&[], &[]).iter().map(ToString::to_string).collect();
        assert_eq!(
            usual,
            [
                "linux-image-cloud-amd64 of bookworm-security",
                "linux-image-6.12-cloud-amd64 of bookworm-security",
                "this machine's kernel"
            ]
        );
        let named = wanted(&[PathBuf::from("/boot/vmlinuz-5.15.0")], &["trixie-backports".to_owned()]);
        let shown: Vec<String> = named.iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["/boot/vmlinuz-5.15.0", "linux-image-cloud-amd64 of trixie-backports"]);
    }

    #[test]
    fn an_image_is_found_where_old_and_new_packages_have_it() {
        let folder = tempfile::tempdir().expect("a folder");
        assert!(vmlinuz_below(folder.path()).is_err());
        let modules = folder.path().join("lib/modules/7.3.4");
        fs::create_dir_all(&modules).expect("made");
        fs::write(modules.join("vmlinuz"), "").expect("written");
        assert_eq!(vmlinuz_below(folder.path()).expect("found"), modules.join("vmlinuz"));
        let boot = folder.path().join("boot");
        fs::create_dir(&boot).expect("made");
        fs::write(boot.join("config-6.1"), "").expect("written");
        fs::write(boot.join("vmlinuz-6.1"), "").expect("written");
        assert_eq!(vmlinuz_below(folder.path()).expect("found"), boot.join("vmlinuz-6.1"));
    }

    #[test]
    fn a_kernel_names_its_release() {
        let mut content = vec![0_u8; 0x400];
        content[0x202..0x206].copy_from_slice(b"HdrS");
        content[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        content[0x300..0x312].copy_from_slice(b"6.1.0-57 (x) #1 \0\0");
        assert_eq!(release_in(&content).as_deref(), Some("6.1.0-57"));
        assert_eq!(release_in(b"\x7fELF"), None);
    }
}
