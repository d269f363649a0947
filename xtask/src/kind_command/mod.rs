//! `cargo xtask kind`: a cluster of one node on this machine, with the sidecar's image, the chart and its demo in it.
//!
//! | module | what it holds |
//! |---|---|
//! | `preflight` | what must be there first |
//! | `plan` | every command of every step, as data |
//! | `manifests` | what the commands read |
//! | `executor` | runs a plan |
//! | `spans` | the spans in a collector's log |

use std::env;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::console;
use crate::workspace::Workspace;

mod executor;
mod manifests;
mod plan;
mod preflight;
mod spans;
#[cfg(test)]
mod tests;

use executor::{Executor, Outcome};
use plan::{CREATE, NODE_IMAGE, Plan, Provider, Settings};
use preflight::Program;

/// Between two times of asking the cluster something.
const PAUSE: Duration = Duration::from_secs(2);

/// Options of `cargo xtask kind`.
#[derive(Debug, Args)]
pub(crate) struct KindOptions {
    #[command(subcommand)]
    task: KindTask,
}

#[derive(Debug, Subcommand)]
enum KindTask {
    /// Make the cluster, if it is not there yet.
    Up(ClusterOptions),
    /// Build the sidecar's image and put it on the cluster's node.
    Load(ClusterOptions),
    /// Install a collector and the chart.
    Install(ClusterOptions),
    /// All of it, then run the demo until the span of a false kill has come; remove the cluster if this made it.
    E2e(E2eOptions),
    /// Remove the cluster, and no other.
    Down(ClusterOptions),
}

#[derive(Debug, Clone, Args)]
struct ClusterOptions {
    /// The cluster's name.
    #[arg(long, default_value = "ackbeat", value_parser = cluster_name)]
    name: String,
    /// What runs the node [default: docker if it is there, else podman].
    #[arg(long, value_enum, env = "KIND_EXPERIMENTAL_PROVIDER")]
    provider: Option<Provider>,
    /// The node's image [default: Kubernetes 1.37, for kind 0.33].
    #[arg(long, value_name = "IMAGE")]
    node_image: Option<String>,
    /// Only print what would be run, with everything that it reads.
    #[arg(long)]
    plan: bool,
}

#[derive(Debug, Args)]
struct E2eOptions {
    #[command(flatten)]
    cluster: ClusterOptions,
    /// Leave the cluster as it is at the end.
    #[arg(long)]
    keep: bool,
}

/// As kind wants it, and so that it is one folder.
fn cluster_name(text: &str) -> Result<String, String> {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    // The node is called NAME-control-plane, which is a host name of at most 63 characters.
    if text.is_empty() || text.len() > 49 || !text.bytes().all(plain) || text.starts_with('-') {
        return Err("1 to 49 of a to z, 0 to 9 and -, not - first".to_owned());
    }
    Ok(text.to_owned())
}

impl KindTask {
    const fn cluster(&self) -> &ClusterOptions {
        match self {
            Self::Up(cluster) | Self::Load(cluster) | Self::Install(cluster) | Self::Down(cluster) => cluster,
            Self::E2e(options) => &options.cluster,
        }
    }

    /// Programs besides the engine's.
    const fn needed(&self) -> &'static [Program] {
        match self {
            Self::Up(_) => &[Program::Kind, Program::Kubectl],
            Self::Load(_) | Self::Down(_) => &[Program::Kind],
            Self::Install(_) => &[Program::Kubectl, Program::Helm],
            Self::E2e(_) => &[Program::Kind, Program::Kubectl, Program::Helm],
        }
    }

    fn plan(&self, settings: &Settings) -> Plan {
        match self {
            Self::Up(_) => plan::up(settings),
            Self::Load(_) => plan::load(settings),
            Self::Install(_) => plan::install(settings),
            Self::E2e(_) => plan::e2e(settings),
            Self::Down(_) => plan::down(settings),
        }
    }
}

/// Looks whether everything is there, then runs the plan.
///
/// # Errors
/// Something is missing, or a step failed: the message names the step, its command and where the logs are.
pub(crate) fn execute(workspace: &Workspace, options: &KindOptions) -> Result<()> {
    let cluster = options.task.cluster();
    let path = env::var_os("PATH").unwrap_or_default();
    let folder = workspace.target.join("kind").join(&cluster.name);
    let settings = |provider| -> Result<Settings> {
        Ok(Settings {
            name: cluster.name.clone(),
            provider,
            node_image: cluster.node_image.clone().unwrap_or_else(|| NODE_IMAGE.to_owned()),
            image: format!("ghcr.io/ackbeat/ackbeat:{}", workspace.package("ackbeat")?.version),
            root: workspace.root.clone(),
            folder: folder.clone(),
        })
    };
    if cluster.plan {
        let settings = settings(cluster.provider.unwrap_or(Provider::Docker))?;
        console::result(options.task.plan(&settings).to_string().trim_end());
        return Ok(());
    }
    let provider = preflight::find(&path, options.task.needed(), cluster.provider)?;
    let settings = settings(provider)?;
    let executor = Executor { path, root: settings.root.clone(), folder, pause: PAUSE };
    run(&options.task, &settings, &executor)
}

/// Asks the engine, runs the plan, and says what comes next.
fn run(task: &KindTask, settings: &Settings, executor: &Executor) -> Result<()> {
    let begun = Instant::now();
    // Only these two start a node.
    if matches!(task, KindTask::Up(_) | KindTask::E2e(_)) {
        let is_e2e = matches!(task, KindTask::E2e(_));
        preflight::probe(executor, settings.provider, is_e2e, settings.node_image == NODE_IMAGE)?;
    }
    let plan = task.plan(settings);
    let outcomes = executor.run(&plan)?;
    let seconds = begun.elapsed().as_secs();
    let (name, kubeconfig) = (&settings.name, settings.kubeconfig());
    match task {
        KindTask::Up(_) | KindTask::Load(_) | KindTask::Install(_) => console::result(&format!(
            "done in {seconds} s: kubectl --kubeconfig {} --context kind-{name} get pods --all-namespaces",
            kubeconfig.display()
        )),
        KindTask::Down(_) if outcomes.contains(&Outcome::LeftOut) => {
            console::result(&format!("there is no cluster {name}"));
        }
        KindTask::Down(_) => console::result(&format!("the cluster {name} is removed")),
        KindTask::E2e(options) => {
            console::result(&format!("passed in {seconds} s: the span of a false kill has come"));
            let is_ours = was_made(&plan, &outcomes);
            if is_ours && !options.keep {
                let remover = Executor { folder: settings.folder.join("down"), ..executor.clone() };
                remover.run(&plan::down(settings))?;
            } else {
                console::result(&format!(
                    "the cluster stays: `cargo xtask kind down --name {name}` removes it"
                ));
            }
        }
    }
    Ok(())
}

/// Whether this run has made the cluster.
fn was_made(plan: &Plan, outcomes: &[Outcome]) -> bool {
    let mut steps = plan.steps.iter().zip(outcomes);
    steps.any(|(step, outcome)| step.title == CREATE && *outcome == Outcome::Done)
}
