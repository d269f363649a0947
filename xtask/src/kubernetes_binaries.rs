//! Kubernetes' own programs, built once from Debian's source package and kept outside the tree.
//!
//! The package is that of Kubernetes 1.20.2: the newest in Debian 12 that holds the whole tree. No package registry has the
//! kubelet or the API server as programs.

use std::env;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

use crate::packages::{Installer, with_retries};
use crate::{console, process};

const VERSION: &str = "1.20.2";
/// The commit of the tag v1.20.2; the archive itself does not say it.
const COMMIT: &str = "faecb196815e248d3ecfb03c680a4507229c2a56";
const PROGRAMS: [&str; 5] =
    ["kube-apiserver", "kube-controller-manager", "kube-scheduler", "kube-proxy", "kubelet"];
/// Compiler and helpers of Kubernetes' build, and what takes the place of a broken dependency.
const BUILD_PACKAGES: [&str; 6] =
    ["golang-go", "golang-github-modern-go-reflect2-dev", "rsync", "jq", "make", "dpkg-dev"];
/// Debian 12, whose archive has the source package.
const SUITE: &str = "bookworm";

/// The folder with all five programs, built if they are not there.
///
/// # Errors
/// A package is missing and may not be installed, the source package cannot be had, or it does not compile.
pub(crate) fn ensure_built(installer: &Installer) -> Result<PathBuf> {
    let folder = cache()?.join(format!("kubernetes-{VERSION}"));
    if PROGRAMS.iter().all(|program| works(&folder.join(program))) {
        return Ok(folder);
    }
    ensure!(
        installer.may_compile_tools(),
        "the programs of Kubernetes {VERSION} are not in {}: run without --no-install, which builds them",
        folder.display()
    );
    console::progress(&format!(
        "building: Kubernetes {VERSION} from Debian's source package into {} (an API server and a node for the tests; about \
         15 minutes, once)",
        folder.display()
    ));
    installer.packages(&BUILD_PACKAGES, "builds Kubernetes' own programs for the tests")?;
    let work = folder.with_extension("build");
    // What a build that was interrupted left behind.
    let _ = fs::remove_dir_all(&work);
    make_folder(&work)?;
    make_folder(&folder)?;
    let tree = fetch(&work)?;
    mend(&tree)?;
    build(&work, &tree, &folder)?;
    for program in PROGRAMS {
        ensure!(works(&folder.join(program)), "{program} was built and does not start");
    }
    fs::remove_dir_all(&work).with_context(|| format!("could not remove {}", work.display()))?;
    Ok(folder)
}

/// Where programs that are built once are kept (XDG Base Directory specification).
fn cache() -> Result<PathBuf> {
    let base = env::var_os("XDG_CACHE_HOME")
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
        .or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cache")))
        .context("neither XDG_CACHE_HOME nor HOME is set")?;
    Ok(base.join("ackbeat"))
}

fn make_folder(folder: &Path) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("could not make {}", folder.display()))
}

/// Whether a program starts and is of this version.
fn works(program: &Path) -> bool {
    let mut command = process::command(program);
    command.arg("--version");
    process::is_executable(program)
        && process::capture(&mut command, "asking for the version")
            .is_ok_and(|answer| answer.success && answer.stdout.contains(VERSION))
}

/// Downloads the source package with lists of its own, so that the machine's package sources stay as they are, and
/// unpacks it. Gives the folder of the tree.
fn fetch(work: &Path) -> Result<PathBuf> {
    let apt = work.join("apt");
    for folder in ["sources", "lists/partial"] {
        make_folder(&apt.join(folder))?;
    }
    let sources = source_entries(Path::new("/etc/apt"))?;
    ensure!(
        !sources.is_empty(),
        "no entry of /etc/apt names {SUITE}, whose archive has the source package kubernetes: add one"
    );
    for (name, content) in sources {
        fs::write(apt.join("sources").join(name), content).context("could not write a package source")?;
    }
    let apt_get = |arguments: &[&str]| {
        let mut command = process::command("apt-get");
        command
            .current_dir(work)
            .args(["--quiet=2", "-o", "Acquire::Retries=3", "-o", "Dir::Etc::SourceList=/dev/null"])
            .arg("-o")
            .arg(format!("Dir::Etc::SourceParts={}", apt.join("sources").display()))
            .arg("-o")
            .arg(format!("Dir::State::Lists={}", apt.join("lists").display()))
            // The download is checked against the lists, by root too.
            .args(["-o", "APT::Sandbox::User=root"])
            .args(arguments);
        process::run(&mut command, "fetching the source package kubernetes")
    };
    with_retries("refreshing the lists of source packages", || apt_get(&["update"]))?;
    with_retries("downloading the source package kubernetes", || {
        apt_get(&["source", "--download-only", "kubernetes"])
    })?;
    let archive = files_in(work)?
        .into_iter()
        .find(|path| path.to_string_lossy().ends_with(".orig.tar.gz"))
        .context("the source package kubernetes has no .orig.tar.gz")?;
    let mut unpack = process::command("tar");
    unpack.current_dir(work).arg("--extract").arg("--gzip").arg("--file").arg(&archive);
    process::run(&mut unpack, "unpacking Kubernetes")?;
    let tree = work.join(format!("kubernetes-{VERSION}"));
    ensure!(tree.is_dir(), "the source package is not of Kubernetes {VERSION}: {}", archive.display());
    Ok(tree)
}

fn files_in(folder: &Path) -> Result<Vec<PathBuf>> {
    let entries = fs::read_dir(folder).with_context(|| format!("could not read {}", folder.display()))?;
    Ok(entries.flatten().map(|entry| entry.path()).collect())
}

/// The machine's entries for packages of [`SUITE`], asking for source packages: file name and content.
fn source_entries(apt: &Path) -> Result<Vec<(String, String)>> {
    let mut paths = files_in(&apt.join("sources.list.d")).unwrap_or_default();
    paths.push(apt.join("sources.list"));
    paths.sort();
    let mut entries = Vec::new();
    for path in paths.into_iter().filter(|path| path.is_file()) {
        let text = fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        let is_deb822 = path.extension().is_some_and(|extension| extension == "sources");
        let content = if is_deb822 { deb822_sources(&text) } else { one_line_sources(&text) };
        // A machine may ask for sources already.
        if !content.is_empty() && !entries.iter().any(|(_, known)| *known == content) {
            let extension = if is_deb822 { "sources" } else { "list" };
            entries.push((format!("{}.{extension}", entries.len()), content));
        }
    }
    Ok(entries)
}

/// Stanzas of the suite with `Types: deb-src` (sources.list(5), "DEB822-STYLE FORMAT").
fn deb822_sources(text: &str) -> String {
    let stanzas = text.split("\n\n").filter(|stanza| {
        let mut suites = stanza.lines().filter_map(|line| line.strip_prefix("Suites:"));
        suites.any(|suites| suites.split_whitespace().any(|suite| suite == SUITE))
    });
    let lines = |stanza: &str| {
        let kept = stanza.lines().filter(|line| !line.starts_with("Types:") && !line.starts_with('#'));
        kept.fold("Types: deb-src\n".to_owned(), |all, line| all + line + "\n")
    };
    let mut stanzas: Vec<String> = stanzas.map(lines).collect();
    stanzas.dedup();
    stanzas.join("\n")
}

/// Lines of the suite with `deb-src` (sources.list(5), "ONE-LINE-STYLE FORMAT").
fn one_line_sources(text: &str) -> String {
    let lines = text.lines().filter_map(|line| line.strip_prefix("deb "));
    let of_suite = lines.filter(|rest| rest.split_whitespace().any(|word| word == SUITE));
    of_suite.fold(String::new(), |all, rest| all + "deb-src " + rest + "\n")
}

/// Go 1.18 changed how maps are walked: the vendored reflect2 1.0.1 crashes the API server at its first call of a webhook.
/// Debian's package has a newer one.
fn mend(tree: &Path) -> Result<()> {
    let vendored = tree.join("vendor/github.com/modern-go/reflect2");
    let is_code =
        |path: &PathBuf| path.extension().is_some_and(|extension| extension == "go" || extension == "s");
    for path in files_in(&vendored)?.iter().filter(|path| is_code(path)) {
        fs::remove_file(path).with_context(|| format!("could not remove {}", path.display()))?;
    }
    let newer = Path::new("/usr/share/gocode/src/github.com/modern-go/reflect2");
    for path in files_in(newer)?.iter().filter(|path| is_code(path)) {
        let name = path.file_name().context("a file without a name")?;
        fs::copy(path, vendored.join(name)).with_context(|| format!("could not copy {}", path.display()))?;
    }
    Ok(())
}

fn build(work: &Path, tree: &Path, folder: &Path) -> Result<()> {
    make_folder(&tree.join(".go/src/k8s.io"))?;
    symlink("../../..", tree.join(".go/src/k8s.io/kubernetes"))
        .context("could not link the tree into its GOPATH")?;
    let version = work.join("version");
    let (major, minor) = VERSION.split_once('.').context("a version has a dot")?;
    let minor = minor.split('.').next().unwrap_or(minor);
    fs::write(
        &version,
        format!(
            "KUBE_GIT_COMMIT='{COMMIT}'\nKUBE_GIT_TREE_STATE='archive'\nKUBE_GIT_VERSION='v{VERSION}'\nKUBE_GIT_MAJOR='{major}'\n\
             KUBE_GIT_MINOR='{minor}'\n"
        ),
    )
    .context("could not write Kubernetes' version")?;
    let what: Vec<String> = PROGRAMS.iter().map(|program| format!("cmd/{program}")).collect();
    let path = env::var("PATH").unwrap_or_default();
    let mut make = process::command("make");
    make.current_dir(tree)
        .arg(format!("WHAT={}", what.join(" ")))
        .env("GOPATH", tree.join(".go"))
        .env("PATH", format!("/usr/lib/go/bin:{path}"))
        .env("CGO_ENABLED", "0")
        .env("HOME", work)
        .env("GOCACHE", work.join("go-cache"))
        .env("KUBE_GIT_VERSION_FILE", &version)
        // It counts this machine's make as its own.
        .env_remove("MAKEFLAGS");
    process::run(&mut make, "building Kubernetes")?;
    for program in PROGRAMS {
        let built = tree.join("_output/local/bin/linux").join(go_architecture()).join(program);
        fs::copy(&built, folder.join(program))
            .with_context(|| format!("could not copy {}", built.display()))?;
    }
    Ok(())
}

const fn go_architecture() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_suite_is_asked_for_sources() {
        let text = "# Debian\nTypes: deb\nURIs: https://deb.example.test/debian\nSuites: bookworm bookworm-updates\n\
                    Components: main\nSigned-By: /usr/share/keyrings/debian.gpg\n\nTypes: deb\nURIs: https://deb.example.test/other\n\
                    Suites: trixie\nComponents: main\n";
        assert_eq!(
            deb822_sources(text),
            "Types: deb-src\nURIs: https://deb.example.test/debian\nSuites: bookworm bookworm-updates\nComponents: main\n\
             Signed-By: /usr/share/keyrings/debian.gpg\n"
        );
        let text = "deb https://deb.example.test/debian bookworm main\n# deb bookworm\ndeb [arch=amd64] https://deb.example.test/s bookworm-security main\n";
        assert_eq!(one_line_sources(text), "deb-src https://deb.example.test/debian bookworm main\n");
    }

    #[test]
    fn the_machines_own_entries_are_left_alone() {
        let apt = tempfile::tempdir().expect("a folder");
        fs::create_dir(apt.path().join("sources.list.d")).expect("a folder");
        fs::write(apt.path().join("sources.list"), "deb https://one.test/debian bookworm main\n")
            .expect("a file");
        fs::write(apt.path().join("sources.list.d/x.sources"), "Types: deb\nSuites: sid\n").expect("a file");
        let entries = source_entries(apt.path()).expect("entries");
        assert_eq!(
            entries,
            [("0.list".to_owned(), "deb-src https://one.test/debian bookworm main\n".to_owned())]
        );
    }

    #[test]
    fn a_program_of_another_version_does_not_count() {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("kubelet");
        assert!(!works(&program));
        fs::write(&program, "#!/bin/sh\necho Kubernetes v1.19.0\n").expect("a file");
        let mut chmod = process::command("chmod");
        chmod.arg("755").arg(&program);
        process::run(&mut chmod, "chmod").expect("executable");
        assert!(!works(&program));
        fs::write(&program, format!("#!/bin/sh\necho Kubernetes v{VERSION}\n")).expect("a file");
        assert!(works(&program));
    }
}
