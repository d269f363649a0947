//! What must be there before anything is begun: every missing program in one message, each with the way to get it, and an
//! engine that can do what is asked of it.

use std::error::Error;
use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use super::executor::{Attempt, Executor};
use super::plan::{Invocation, KIND_VERSION, Provider};
use crate::process;

/// How long an engine may take to say what it is.
const DEADLINE: Duration = Duration::from_secs(30);

/// A program that some commands need.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Program {
    Kind,
    Kubectl,
    Helm,
}

impl Program {
    const fn name(self) -> &'static str {
        match self {
            Self::Kind => "kind",
            Self::Kubectl => "kubectl",
            Self::Helm => "helm",
        }
    }

    /// What it is for, and the way to get it.
    fn missing(self) -> String {
        match self {
            Self::Kind => format!(
                "kind makes the cluster: `go install sigs.k8s.io/kind@v{KIND_VERSION}`, or the program from \
                 https://github.com/kubernetes-sigs/kind/releases/tag/v{KIND_VERSION}"
            ),
            Self::Kubectl => {
                "kubectl asks the cluster: https://kubernetes.io/docs/tasks/tools/install-kubectl-linux/"
                    .to_owned()
            }
            Self::Helm => "helm (3 or 4) installs the chart: https://helm.sh/docs/intro/install/".to_owned(),
        }
    }
}

fn missing_provider(provider: Option<Provider>) -> String {
    let docker = "docker: `apt-get install docker.io`, or https://docs.docker.com/engine/install/";
    let podman = "podman: `apt-get install podman`";
    match provider {
        Some(Provider::Docker) => format!("docker runs the node. {docker}; or take `--provider podman`"),
        Some(Provider::Podman) => format!("podman runs the node. {podman}; or take `--provider docker`"),
        None => format!("docker or podman runs the node. {docker}; {podman}"),
    }
}

/// Why nothing was begun.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Unfit {
    /// A line for each missing program.
    Missing(Vec<String>),
    /// The engine does not answer.
    Engine { command: String, said: String, provider: Provider },
    /// The engine answers that it cannot do it.
    CannotRun(String),
    /// kind is older than the node's image.
    OldKind { found: String },
}

impl fmt::Display for Unfit {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing(lines) => {
                write!(formatter, "nothing was begun, for these are not in PATH:")?;
                for line in lines {
                    write!(formatter, "\n  {line}")?;
                }
                Ok(())
            }
            Self::Engine { command, said, provider } => write!(
                formatter,
                "{} does not answer: {said}\n`{command}`\n{}",
                provider.program(),
                match provider {
                    Provider::Docker =>
                        "start it (`systemctl start docker`) and let this user talk to it (group docker)",
                    Provider::Podman => "see `podman info`",
                }
            ),
            Self::CannotRun(why) => formatter.write_str(why),
            Self::OldKind { found } => write!(
                formatter,
                "kind is {found}, and the node's image was built for v{KIND_VERSION}: {}\n\
                 or name an image that your release lists in its notes with `--node-image`",
                Program::Kind.missing()
            ),
        }
    }
}

impl Error for Unfit {}

/// Looks for the programs, and for an engine if none is named: docker before podman, as kind does.
///
/// # Errors
/// One is missing; the message names all that are.
pub(super) fn find(path: &OsStr, needed: &[Program], provider: Option<Provider>) -> Result<Provider, Unfit> {
    let is_there = |name: &str| process::find_in(path, name).is_some();
    let candidates = provider.map_or(vec![Provider::Docker, Provider::Podman], |provider| vec![provider]);
    let found = candidates.into_iter().find(|provider| is_there(provider.program()));
    let mut missing: Vec<String> =
        needed.iter().filter(|program| !is_there(program.name())).map(|program| program.missing()).collect();
    if found.is_none() {
        missing.push(missing_provider(provider));
    }
    match found {
        Some(provider) if missing.is_empty() => Ok(provider),
        _ => Err(Unfit::Missing(missing)),
    }
}

/// The question to an engine: whether it runs as root, and the version of its cgroups.
fn engine_question(provider: Provider) -> Invocation {
    let format = match provider {
        Provider::Docker => "{{json .SecurityOptions}} cgroup v{{.CgroupVersion}}",
        Provider::Podman => "rootless={{.Host.Security.Rootless}} cgroup {{.Host.CgroupsVersion}}",
    };
    ask(provider.program(), &["info", "--format", format])
}

fn ask(program: &'static str, arguments: &[&str]) -> Invocation {
    Invocation {
        program,
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        environment: std::collections::BTreeMap::new(),
        stdin: None,
    }
}

/// Asks the engine, and kind if the node's image is the pinned one.
///
/// # Errors
/// The engine does not answer, cannot run such a node, or kind is too old for it.
pub(super) fn probe(
    executor: &Executor,
    provider: Provider,
    kernel_programs: bool,
    pinned_image: bool,
) -> Result<(), Unfit> {
    let answer = |question: &Invocation, file: &str| -> Result<Attempt, String> {
        executor
            .attempt(question, DEADLINE, &executor.folder.join(Path::new("preflight").join(file)))
            .map_err(|error| error.to_string())
    };
    let question = engine_question(provider);
    let failed = |said: String| Unfit::Engine { command: question.to_string(), said, provider };
    let engine = answer(&question, "engine").map_err(failed)?;
    if !engine.is_success() {
        return Err(failed(match engine.status {
            None => format!("no answer within {} s", DEADLINE.as_secs()),
            Some(_) => crate::packages::last_lines(&engine.stderr, 3),
        }));
    }
    judge_engine(provider, &engine.stdout, kernel_programs, pinned_image)?;
    if pinned_image {
        // Whatever kind says instead of its version will be told by the first step.
        if let Ok(said) = answer(&ask("kind", &["version"]), "kind") {
            judge_kind(&said.stdout)?;
        }
    }
    Ok(())
}

fn judge_engine(
    provider: Provider,
    said: &str,
    kernel_programs: bool,
    pinned_image: bool,
) -> Result<(), Unfit> {
    let program = provider.program();
    let is_rootless = said.contains("name=rootless") || said.contains("rootless=true");
    if kernel_programs && is_rootless {
        return Err(Unfit::CannotRun(format!(
            "{program} runs without root here, and kernel programs need the root of the machine: run this as root \
             ({}), or with an engine that has it",
            process::as_root("kind e2e")
        )));
    }
    if pinned_image && said.contains("cgroup v1") {
        return Err(Unfit::CannotRun(format!(
            "{program} says cgroup v1, and Kubernetes 1.35 and later want v2: start the machine with \
             systemd.unified_cgroup_hierarchy=1, or name an older image with `--node-image`"
        )));
    }
    Ok(())
}

/// `kind v0.33.0 go1.27.0 linux/amd64`
fn judge_kind(said: &str) -> Result<(), Unfit> {
    let found = said.split_whitespace().find(|word| word.starts_with('v')).unwrap_or_default();
    match (numbers(found), numbers(KIND_VERSION)) {
        (Some(found_numbers), Some(wanted)) if found_numbers < wanted => {
            Err(Unfit::OldKind { found: found.to_owned() })
        }
        _ => Ok(()),
    }
}

/// The three numbers of a version, without what follows them.
fn numbers(version: &str) -> Option<[u32; 3]> {
    let version = version.trim_start_matches('v');
    let version = version.split(['-', '+']).next()?;
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some([parts.next()??, parts.next()??, parts.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_kind_is_told() {
        assert_eq!(judge_kind("kind v0.33.0 go1.27.0 linux/amd64\n"), Ok(()));
        assert_eq!(judge_kind("kind v0.34.0-alpha+1234 go1.27.0 linux/amd64\n"), Ok(()));
        assert_eq!(judge_kind("something else\n"), Ok(()));
        let error = judge_kind("kind v0.9.0 go1.15 linux/amd64\n").expect_err("too old").to_string();
        assert!(error.contains("kind is v0.9.0") && error.contains("--node-image"), "{error}");
        assert!(error.contains(&format!("go install sigs.k8s.io/kind@v{KIND_VERSION}")), "{error}");
    }

    #[test]
    fn an_engine_that_cannot_do_it_is_told() {
        let rootful = r#"["name=seccomp,profile=builtin","name=cgroupns"] cgroup v2"#;
        let rootless = r#"["name=seccomp,profile=builtin","name=rootless","name=cgroupns"] cgroup v2"#;
        assert_eq!(judge_engine(Provider::Docker, rootful, true, true), Ok(()));
        assert_eq!(
            judge_engine(Provider::Docker, rootless, false, true),
            Ok(()),
            "no kernel program is asked for"
        );
        let error = judge_engine(Provider::Docker, rootless, true, true).expect_err("rootless").to_string();
        assert!(error.starts_with("docker runs without root") && error.contains("sudo"), "{error}");
        assert_eq!(judge_engine(Provider::Podman, "rootless=false cgroup v2", true, true), Ok(()));
        assert!(judge_engine(Provider::Podman, "rootless=true cgroup v2", true, true).is_err());
        let error = judge_engine(Provider::Podman, "rootless=false cgroup v1", true, true)
            .expect_err("v1")
            .to_string();
        assert!(error.contains("systemd.unified_cgroup_hierarchy=1"), "{error}");
        assert_eq!(judge_engine(Provider::Podman, "rootless=false cgroup v1", true, false), Ok(()));
    }
}
