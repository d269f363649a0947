//! What each command runs, as data: nothing here starts a program, so that all of it can be compared with what it was
//! (`snapshots`) and be run with other programs in the places of the real ones.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::ValueEnum;
use serde::{Serialize, Serializer};

use super::manifests::{
    CHART, CHART_VALUES, CHART_VALUES_WITH_DEMO, COLLECTOR, COLLECTOR_DEPLOYMENT, COLLECTOR_NAMESPACE,
    DEMO_DEPLOYMENTS, DEMO_HOST_WITH_SIDECAR, DEMO_NAMESPACE, RELEASE, RELEASE_NAMESPACE,
};
use super::spans::WantedSpan;
use crate::process;

/// The release of kind whose node image is pinned below: an image is supported by the release that it was built for only.
pub(super) const KIND_VERSION: &str = "0.33.0";
/// The node: Kubernetes 1.37, the newest that the charts are held against
/// (<https://github.com/kubernetes-sigs/kind/releases/tag/v0.33.0>).
pub(super) const NODE_IMAGE: &str =
    "kindest/node:v1.37.0@sha256:a1ed56cfb0e7b93589bdf97c8cd566405a265939e3620fc4f5de89adff580ae5";

/// What runs the node, a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Provider {
    /// Docker.
    Docker,
    /// Podman.
    Podman,
}

impl Provider {
    /// The program, and what kind calls it.
    pub(super) const fn program(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }
}

/// Where and with what.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    /// The cluster's name.
    pub(super) name: String,
    pub(super) provider: Provider,
    pub(super) node_image: String,
    /// Name and tag of the sidecar's image, as the chart names it.
    pub(super) image: String,
    /// The repository: what every program is started in.
    pub(super) root: PathBuf,
    /// Everything that belongs to this cluster on this machine.
    pub(super) folder: PathBuf,
}

/// One start of a program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Invocation {
    pub(super) program: &'static str,
    pub(super) arguments: Vec<String>,
    /// Variables besides those of this program.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) environment: BTreeMap<&'static str, String>,
    /// A manifest, or values.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "lines")]
    pub(super) stdin: Option<&'static str>,
}

/// A step that is left out, depending on what a program prints.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Condition {
    pub(super) ask: Invocation,
    /// A whole line of its output.
    pub(super) line: String,
    /// Run the step if the line is there (`true`), or if it is not.
    pub(super) run_if_there: bool,
}

/// When a step is done.
#[derive(Debug, Clone, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Expect {
    /// The program ends with 0; it waits by itself where something must be waited for.
    Success,
    /// It ends with 0 and prints something; it is asked again until then.
    Output,
    /// It ends with 0 and what it prints is a collector's log with such a span; it is asked again until then.
    Span(WantedSpan),
}

/// One step.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Step {
    /// What it does, for the terminal and for errors.
    pub(super) title: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) condition: Option<Condition>,
    #[serde(flatten)]
    pub(super) command: Invocation,
    #[serde(rename = "deadline_s", serialize_with = "seconds")]
    pub(super) deadline: Duration,
    pub(super) expect: Expect,
}

/// Line by line, so that a change of one is a change of one.
fn lines<S: Serializer>(text: &Option<&'static str>, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(text.iter().flat_map(|text| text.lines()))
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_u64(duration.as_secs())
}

/// What is kept of a cluster when a step has failed.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Diagnostic {
    /// Relative to the folder of the failure.
    pub(super) file: &'static str,
    #[serde(flatten)]
    pub(super) command: Invocation,
}

/// All of a command.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Plan {
    pub(super) steps: Vec<Step>,
    /// Run in this order when a step fails. None where there is nothing to look at.
    pub(super) diagnostics: Vec<Diagnostic>,
    /// Lists `NAMESPACE POD`, a line each, when a step fails.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) list_pods: Option<Invocation>,
}

/// Title of the step that may be left out, and that tells whether the cluster is ours to remove.
pub(super) const CREATE: &str = "create the cluster";

impl Settings {
    /// Where the way into the cluster is written. The user's own kubeconfig is not touched.
    pub(super) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// Where the sidecar's image is written.
    fn archive(&self) -> PathBuf {
        self.folder.join("ackbeat.tar")
    }

    fn kind(&self, arguments: &[&str]) -> Invocation {
        let mut invocation = invocation("kind", arguments);
        invocation.environment.insert("KIND_EXPERIMENTAL_PROVIDER", self.provider.program().to_owned());
        invocation
    }

    /// A kind command on this cluster, with its kubeconfig.
    fn kind_here(&self, arguments: &[&str]) -> Invocation {
        let mut invocation = self.kind(arguments);
        invocation.arguments.extend(["--name".to_owned(), self.name.clone()]);
        invocation.arguments.extend(["--kubeconfig".to_owned(), text(&self.kubeconfig())]);
        invocation
    }

    fn kubectl(&self, arguments: &[&str]) -> Invocation {
        let mut invocation = invocation("kubectl", arguments);
        // The context too: whatever the file holds, no other cluster is meant.
        let target = ["--kubeconfig", &text(&self.kubeconfig()), "--context", &format!("kind-{}", self.name)]
            .map(str::to_owned);
        invocation.arguments.splice(0..0, target);
        invocation
    }

    fn helm(&self, arguments: &[&str], values: Option<&'static str>) -> Invocation {
        let mut invocation = invocation("helm", arguments);
        let target =
            ["--kubeconfig", &text(&self.kubeconfig()), "--kube-context", &format!("kind-{}", self.name)]
                .map(str::to_owned);
        invocation.arguments.extend(target);
        invocation.stdin = values;
        invocation
    }

    fn is_there(&self, run_if_there: bool) -> Condition {
        Condition { ask: self.kind(&["get", "clusters"]), line: self.name.clone(), run_if_there }
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

fn invocation(program: &'static str, arguments: &[&str]) -> Invocation {
    Invocation {
        program,
        arguments: arguments.iter().map(|argument| (*argument).to_owned()).collect(),
        environment: BTreeMap::new(),
        stdin: None,
    }
}

fn step(title: &str, deadline_s: u64, command: Invocation) -> Step {
    Step {
        title: title.to_owned(),
        condition: None,
        command,
        deadline: Duration::from_secs(deadline_s),
        expect: Expect::Success,
    }
}

/// `cargo xtask kind up`: a cluster of one node. One that is there already is taken as it is.
pub(super) fn up(settings: &Settings) -> Plan {
    plan(settings, up_steps(settings))
}

/// `cargo xtask kind load`: the sidecar's image, built and put on the node.
pub(super) fn load(settings: &Settings) -> Plan {
    let mut steps = vec![image_step(settings)];
    steps.extend(load_steps(settings));
    plan(settings, steps)
}

/// `cargo xtask kind install`: a collector, and the chart without its demo.
pub(super) fn install(settings: &Settings) -> Plan {
    plan(settings, install_steps(settings))
}

/// `cargo xtask kind e2e`: all of it, then the demo, until its span is there.
pub(super) fn e2e(settings: &Settings) -> Plan {
    // What fails without a cluster fails before there is one.
    let mut steps = vec![image_step(settings)];
    steps.extend(up_steps(settings));
    steps.extend(load_steps(settings));
    steps.extend(install_steps(settings));
    steps.extend(demo_steps(settings));
    plan(settings, steps)
}

/// `cargo xtask kind down`: this cluster and no other.
pub(super) fn down(settings: &Settings) -> Plan {
    let mut delete = step("remove the cluster", 180, settings.kind_here(&["delete", "cluster"]));
    delete.condition = Some(settings.is_there(true));
    Plan { steps: vec![delete], diagnostics: vec![], list_pods: None }
}

fn up_steps(settings: &Settings) -> Vec<Step> {
    let mut create = step(
        CREATE,
        // The node's image has about 1 GB, and is fetched once.
        900,
        settings.kind_here(&["create", "cluster", "--image", &settings.node_image, "--wait", "180s"]),
    );
    create.condition = Some(settings.is_there(false));
    vec![
        create,
        // A cluster that was there may have another address by now.
        step("write the kubeconfig", 60, settings.kind_here(&["export", "kubeconfig"])),
        step(
            "wait for the node",
            195,
            settings.kubectl(&["wait", "--for=condition=Ready", "nodes", "--all", "--timeout=180s"]),
        ),
    ]
}

fn image_step(settings: &Settings) -> Step {
    step(
        "build the sidecar's image, the eBPF object in it",
        // An optimised build from nothing on a small machine.
        3600,
        invocation(
            "cargo",
            &["xtask", "image", "--output", &text(&settings.archive()), "--name", &settings.image],
        ),
    )
}

fn load_steps(settings: &Settings) -> Vec<Step> {
    let node = format!("{}-control-plane", settings.name);
    let load =
        settings.kind(&["load", "image-archive", &text(&settings.archive()), "--name", &settings.name]);
    vec![
        step("put the image on the node", 180, load),
        step(
            "look for the image on the node by its name",
            30,
            invocation(settings.provider.program(), &["exec", &node, "crictl", "inspecti", &settings.image]),
        ),
    ]
}

/// Waits for what a Deployment has been told last.
fn rollout(settings: &Settings, title: &str, namespace: &str, deployment: &str, seconds: u64) -> Step {
    let timeout = format!("--timeout={seconds}s");
    step(
        title,
        seconds + 15,
        settings.kubectl(&["rollout", "status", deployment, "--namespace", namespace, &timeout]),
    )
}

fn chart(settings: &Settings, values: &'static str) -> Invocation {
    let cluster = format!("clusterName={}", settings.name);
    let arguments = [
        "upgrade",
        RELEASE,
        CHART,
        "--install",
        "--namespace",
        RELEASE_NAMESPACE,
        "--create-namespace",
        "--set-string",
        &cluster,
        "--values",
        "-",
    ];
    settings.helm(&arguments, Some(values))
}

fn install_steps(settings: &Settings) -> Vec<Step> {
    let injector = format!("deployment/{RELEASE}");
    let mut apply = settings.kubectl(&["apply", "--filename", "-"]);
    apply.stdin = Some(COLLECTOR);
    let bundle = "jsonpath={.webhooks[0].clientConfig.caBundle}";
    let mut trusted = step(
        "wait until the API server trusts the injector",
        120,
        settings.kubectl(&["get", "mutatingwebhookconfiguration", RELEASE, "--output", bundle]),
    );
    trusted.expect = Expect::Output;
    vec![
        step("apply the collector", 60, apply),
        rollout(settings, "wait for the collector", COLLECTOR_NAMESPACE, COLLECTOR_DEPLOYMENT, 300),
        step("install the chart", 120, chart(settings, CHART_VALUES)),
        // The tag stays the same from build to build, so nothing else says that the image is a new one.
        step(
            "restart the injector with the image that was loaded",
            60,
            settings.kubectl(&["rollout", "restart", &injector, "--namespace", RELEASE_NAMESPACE]),
        ),
        rollout(settings, "wait for the injector", RELEASE_NAMESPACE, &injector, 180),
        trusted,
    ]
}

fn demo_steps(settings: &Settings) -> Vec<Step> {
    let namespace = format!("namespace/{DEMO_NAMESPACE}");
    let mut steps = vec![
        step(
            "run the chart's own test",
            150,
            settings.helm(&["test", RELEASE, "--namespace", RELEASE_NAMESPACE, "--timeout", "120s"], None),
        ),
        // The release has no demo at this point. One of an earlier run would have spans of the earlier image.
        step(
            "wait until the demo of an earlier run is gone",
            195,
            settings.kubectl(&["wait", "--for=delete", &namespace, "--timeout=180s"]),
        ),
        step(
            "begin a new log of the collector",
            60,
            settings.kubectl(&[
                "rollout",
                "restart",
                COLLECTOR_DEPLOYMENT,
                "--namespace",
                COLLECTOR_NAMESPACE,
            ]),
        ),
        rollout(
            settings,
            "wait for the collector with the new log",
            COLLECTOR_NAMESPACE,
            COLLECTOR_DEPLOYMENT,
            120,
        ),
        step("start the demo", 120, chart(settings, CHART_VALUES_WITH_DEMO)),
    ];
    for name in DEMO_DEPLOYMENTS {
        let (title, deployment) = (format!("wait for {name}"), format!("deployment/{name}"));
        steps.push(rollout(settings, &title, DEMO_NAMESPACE, &deployment, 300));
    }
    let mut injected = step(
        "look for the sidecar beside the host",
        30,
        settings.kubectl(&[
            "get",
            "pods",
            "--namespace",
            DEMO_NAMESPACE,
            "--selector",
            DEMO_HOST_WITH_SIDECAR,
            "--output",
            "name",
        ]),
    );
    injected.expect = Expect::Output;
    steps.push(injected);
    let mut spans = step(
        "wait for the span of a false kill in the collector's log",
        // A slow reader is given up after 6 s; its socket is watched for some more, and spans are sent in batches.
        180,
        settings.kubectl(&["logs", COLLECTOR_DEPLOYMENT, "--namespace", COLLECTOR_NAMESPACE, "--tail=-1"]),
    );
    spans.expect = Expect::Span(WantedSpan::of_a_false_kill(&settings.name));
    steps.push(spans);
    steps
}

fn plan(settings: &Settings, steps: Vec<Step>) -> Plan {
    let kubectl = |file, arguments: &[&str]| Diagnostic { file, command: settings.kubectl(arguments) };
    let all = "--all-namespaces";
    let node_logs = text(&settings.folder.join("failure").join("node"));
    let diagnostics = vec![
        kubectl("pods.txt", &["get", "pods", all, "--output", "wide"]),
        kubectl("events.txt", &["get", "events", all, "--sort-by=.metadata.creationTimestamp"]),
        kubectl("describe-pods.txt", &["describe", "pods", all]),
        kubectl("describe-nodes.txt", &["describe", "nodes"]),
        kubectl("webhooks.yaml", &["get", "mutatingwebhookconfigurations", "--output", "yaml"]),
        // The kubelet's and the runtime's logs, and those of containers that are gone.
        Diagnostic {
            file: "export-logs.txt",
            command: settings.kind(&["export", "logs", &node_logs, "--name", &settings.name]),
        },
    ];
    let columns = "jsonpath={range .items[*]}{.metadata.namespace}{\" \"}{.metadata.name}{\"\\n\"}{end}";
    let list_pods = Some(settings.kubectl(&["get", "pods", all, "--output", columns]));
    Plan { steps, diagnostics, list_pods }
}

/// The logs of every container of a pod, those of its sidecars too.
pub(super) fn logs_of(list_pods: &Invocation, namespace: &str, pod: &str) -> Invocation {
    let mut logs = list_pods.clone();
    // What leads to the cluster stays; what is asked there is new.
    let asked = logs.arguments.iter().position(|argument| argument == "get").unwrap_or(logs.arguments.len());
    logs.arguments.truncate(asked);
    let arguments =
        ["logs", pod, "--namespace", namespace, "--all-containers", "--prefix", "--timestamps", "--tail=-1"];
    logs.arguments.extend(arguments.map(str::to_owned));
    logs
}

impl fmt::Display for Invocation {
    /// As one would type it, without what it reads.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, value) in &self.environment {
            write!(formatter, "{name}={value} ")?;
        }
        let mut command = std::process::Command::new(self.program);
        command.args(&self.arguments);
        formatter.write_str(&process::command_line(&command))
    }
}

impl fmt::Display for Plan {
    /// A script to be read.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (number, step) in self.steps.iter().enumerate() {
            writeln!(formatter, "# {}: {}, within {} s", number + 1, step.title, step.deadline.as_secs())?;
            if let Some(condition) = &step.condition {
                let only = if condition.run_if_there { "if" } else { "unless" };
                writeln!(formatter, "# only {only} `{}` has the line {}", condition.ask, condition.line)?;
            }
            match &step.expect {
                Expect::Success => {}
                Expect::Output => writeln!(formatter, "# until it prints something")?,
                Expect::Span(wanted) => writeln!(formatter, "# until it prints {wanted}")?,
            }
            match step.command.stdin {
                None => writeln!(formatter, "{}\n", step.command)?,
                Some(manifest) => writeln!(formatter, "{} <<'EOF'\n{manifest}EOF\n", step.command)?,
            }
        }
        Ok(())
    }
}
