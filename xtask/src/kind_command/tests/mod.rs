//! The plans as snapshots, and the executor with programs that only write down how they were started.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::executor::{Executor, Outcome};
use super::plan::{self, Expect, Invocation, NODE_IMAGE, Plan, Provider, Settings};
use super::preflight::{self, Program};
use super::spans::{Span, WantedSpan, parse};
use super::{ClusterOptions, E2eOptions, KindTask, cluster_name, run, was_made};

/// Two spans of a real sidecar beside the demo's real scripts (values as in `demo-values.yaml`, the pod's name and the like given
/// as the injector gives them), in the form of the exporter `debug`.
const COLLECTOR_LOG: &str = include_str!("collector-log.txt");

fn settings(root: &str) -> Settings {
    Settings {
        name: "ackbeat".to_owned(),
        provider: Provider::Docker,
        node_image: NODE_IMAGE.to_owned(),
        image: "ghcr.io/ackbeat/ackbeat:0.1.0".to_owned(),
        root: PathBuf::from(root),
        folder: PathBuf::from(root).join("target/kind/ackbeat"),
    }
}

fn cluster() -> ClusterOptions {
    ClusterOptions { name: "ackbeat".to_owned(), provider: None, node_image: None, plan: false }
}

fn e2e(keep: bool) -> KindTask {
    KindTask::E2e(E2eOptions { cluster: cluster(), keep })
}

/// A folder with programs in it, and an executor that finds no others.
struct Fakes {
    folder: TempDir,
    settings: Settings,
}

impl Fakes {
    /// `first` is a part of a shell script that answers before the usual answers; it ends with `exit` where it has answered.
    fn new(first: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kind_command/tests");
        // Links and not copies: a file that was just written may not be started while another thread starts something.
        for name in ["kind", "docker", "kubectl", "helm", "cargo"] {
            symlink(here.join("fake-program.sh"), folder.path().join(name)).expect("a link");
        }
        let usual = include_str!("answers.sh");
        fs::write(folder.path().join("answers.sh"), format!("{first}\n{usual}")).expect("answers");
        fs::write(folder.path().join("collector-log"), COLLECTOR_LOG).expect("a log");
        let settings = settings(&folder.path().display().to_string());
        Self { folder, settings }
    }

    fn executor(&self) -> Executor {
        Executor {
            path: OsString::from(self.folder.path()),
            root: self.settings.root.clone(),
            folder: self.settings.folder.clone(),
            pause: Duration::from_millis(1),
        }
    }

    fn run(&self, task: &KindTask) -> anyhow::Result<()> {
        run(task, &self.settings, &self.executor())
    }

    /// Every start of a program in order, without those that repeat the one before.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("calls")).unwrap_or_default();
        let mut calls: Vec<String> = text.lines().map(str::to_owned).collect();
        calls.dedup();
        calls
    }

    fn is_cluster_there(&self) -> bool {
        self.folder.path().join("clusters").exists()
    }

    fn kept(&self, file: &str) -> String {
        let path = self.settings.folder.join("failure").join(file);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

/// As the fake programs write themselves down.
fn written(invocation: &Invocation) -> String {
    format!("{} {}", invocation.program, invocation.arguments.join(" "))
}

fn calls_of(plan: &Plan) -> Vec<String> {
    let mut calls = Vec::new();
    for step in &plan.steps {
        calls.extend(step.condition.iter().map(|condition| written(&condition.ask)));
        calls.push(written(&step.command));
    }
    calls
}

#[test]
fn the_plans_are_as_they_were() {
    let settings = settings("/repository");
    let podman = Settings { provider: Provider::Podman, name: "other".to_owned(), ..settings.clone() };
    let plans = [
        ("up", plan::up(&settings)),
        ("load", plan::load(&settings)),
        ("install", plan::install(&settings)),
        ("e2e", plan::e2e(&settings)),
        ("down", plan::down(&settings)),
        ("down-podman", plan::down(&podman)),
    ];
    insta::with_settings!({prepend_module_to_snapshot => false, omit_expression => true}, {
        for (name, plan) in plans {
            insta::assert_yaml_snapshot!(name, plan);
        }
    });
}

#[test]
fn a_plan_can_be_read() {
    let text = plan::e2e(&settings("/repository")).to_string();
    for part in [
        "# 2: create the cluster, within 900 s\n# only unless `KIND_EXPERIMENTAL_PROVIDER=docker kind get clusters` has the line ackbeat\n",
        "--kube-context kind-ackbeat <<'EOF'\n# Values of charts/ackbeat for a kind cluster.\n",
        "# until it prints a span websocket.host_close with k8s.cluster.name=Str(ackbeat)",
    ] {
        assert!(text.contains(part), "{part:?} in {text}");
    }
}

/// No command of a plan may reach another cluster than ours, and none may run without an end.
#[test]
fn every_command_names_the_cluster() {
    let settings = settings("/repository");
    for plan in [plan::e2e(&settings), plan::down(&settings)] {
        let commands = plan
            .steps
            .iter()
            .map(|step| &step.command)
            .chain(plan.diagnostics.iter().map(|diagnostic| &diagnostic.command))
            .chain(&plan.list_pods);
        for command in commands {
            let arguments = command.arguments.join(" ");
            let named = match command.program {
                "kind" => arguments.contains("--name ackbeat"),
                "kubectl" => arguments.contains(
                    "--kubeconfig /repository/target/kind/ackbeat/kubeconfig --context kind-ackbeat",
                ),
                "helm" => arguments.contains(
                    "--kubeconfig /repository/target/kind/ackbeat/kubeconfig --kube-context kind-ackbeat",
                ),
                "docker" => arguments.starts_with("exec ackbeat-control-plane "),
                other => other == "cargo",
            };
            assert!(named, "{command}");
        }
        assert!(plan.steps.iter().all(|step| step.deadline > Duration::ZERO));
    }
}

#[test]
fn the_whole_way_is_the_plan_and_nothing_else() {
    let fakes = Fakes::new("");
    fakes.run(&e2e(false)).expect("all is well");
    let plan = plan::e2e(&fakes.settings);
    let mut expected = vec![
        "docker info --format {{json .SecurityOptions}} cgroup v{{.CgroupVersion}}".to_owned(),
        "kind version".to_owned(),
    ];
    expected.extend(calls_of(&plan));
    // This run has made the cluster.
    expected.extend(calls_of(&plan::down(&fakes.settings)));
    assert_eq!(fakes.calls(), expected);
    assert!(!fakes.is_cluster_there());
    // Each program read what the plan gives it.
    let given: Vec<String> = (1..=fakes.calls().len() + 1)
        .filter_map(|call| fs::read_to_string(fakes.folder.path().join(format!("given-{call}"))).ok())
        .collect();
    let manifests: Vec<&str> = plan.steps.iter().filter_map(|step| step.command.stdin).collect();
    assert_eq!(given, manifests);
    // The first time the log has no span yet.
    let all = fs::read_to_string(fakes.folder.path().join("calls")).expect("calls");
    assert_eq!(all.matches(" logs deployment/otel-collector ").count(), 2);
    assert!(!fakes.settings.folder.join("failure").exists());
    // What a program printed can be read afterwards.
    let steps = fs::read_dir(fakes.settings.folder.join("steps")).expect("the steps").count();
    assert!(steps > 2 * plan.steps.len(), "{steps} files");
}

#[test]
fn a_cluster_that_was_there_is_used_and_stays() {
    let fakes = Fakes::new("");
    fakes.run(&KindTask::Up(cluster())).expect("made");
    fakes.run(&KindTask::Up(cluster())).expect("made before");
    fakes.run(&e2e(false)).expect("all is well");
    let made = fakes.calls().iter().filter(|call| call.starts_with("kind create")).count();
    assert_eq!(made, 1);
    assert!(fakes.is_cluster_there());
    fakes.run(&KindTask::Down(cluster())).expect("removed");
    assert!(!fakes.is_cluster_there());
    fakes.run(&KindTask::Down(cluster())).expect("nothing to remove");
    let removed = fakes.calls().iter().filter(|call| call.starts_with("kind delete")).count();
    assert_eq!(removed, 1);
}

#[test]
fn a_cluster_with_another_name_is_another_cluster() {
    let fakes = Fakes::new("");
    fs::write(fakes.folder.path().join("clusters"), "ackbeat-2\nmy-ackbeat\n").expect("clusters");
    fakes.run(&KindTask::Down(cluster())).expect("nothing to remove");
    assert!(fakes.is_cluster_there());
    let outcomes = fakes.executor().run(&plan::up(&fakes.settings)).expect("made");
    assert_eq!(outcomes[0], Outcome::Done);
    assert!(was_made(&plan::up(&fakes.settings), &outcomes));
    fakes.run(&e2e(true)).expect("all is well");
    assert!(fakes.is_cluster_there(), "--keep");
}

#[test]
fn a_step_that_fails_is_named_and_leaves_the_logs() {
    let fakes = Fakes::new(
        r#"case "$command" in
        *" rollout status deployment/ackbeat-demo-host "*) echo "error: timed out waiting for the condition" >&2; exit 1 ;;
        *" describe nodes") echo "nodes is forbidden" >&2; exit 1 ;;
        esac"#,
    );
    let error = format!("{:#}", fakes.run(&e2e(false)).expect_err("no host"));
    let folder = fakes.settings.folder.join("failure");
    for part in [
        "step 18 of 22 failed: wait for ackbeat-demo-host: exit status: 1: error: timed out waiting for the condition",
        "--context kind-ackbeat rollout status deployment/ackbeat-demo-host --namespace ackbeat-demo --timeout=300s`",
        &format!("the logs of all pods, the events and the descriptions are in {}", folder.display()),
    ] {
        assert!(error.contains(part), "{part:?} in {error}");
    }
    assert!(fakes.kept("pods.txt").starts_with("NAMESPACE NAME"));
    assert!(fakes.kept("events.txt").starts_with("LAST SEEN"));
    for (namespace, pod) in [("observability", "otel-collector-1"), ("ackbeat-demo", "ackbeat-demo-host-1")] {
        let logs = fakes.kept(&format!("logs/{namespace}/{pod}.txt"));
        let asked =
            format!("logs {pod} --namespace {namespace} --all-containers --prefix --timestamps --tail=-1");
        assert!(logs.contains(&asked), "{logs}");
    }
    let without = fakes.kept("could-not-be-had.txt");
    assert!(without.contains("describe-nodes.txt: ") && without.contains("nodes is forbidden"), "{without}");
    assert_eq!(without.lines().count(), 1, "{without}");
    // To be looked at.
    assert!(fakes.is_cluster_there());
    assert!(!fakes.calls().iter().any(|call| call.contains("rollout status deployment/ackbeat-demo-slow")));
    // A run that goes well leaves nothing of it.
    fs::write(fakes.folder.path().join("answers.sh"), include_str!("answers.sh")).expect("answers");
    fakes.run(&e2e(false)).expect("all is well now");
    assert!(!folder.exists());
}

#[test]
fn a_failure_without_a_cluster_is_told_too() {
    let fakes = Fakes::new(
        r#"case "$command" in
        "cargo xtask image "*) echo "error: could not compile" >&2; exit 101 ;;
        "kubectl "*) echo "error: context does not exist" >&2; exit 1 ;;
        esac"#,
    );
    let error = format!("{:#}", fakes.run(&e2e(false)).expect_err("no image"));
    assert!(error.starts_with("step 1 of 22 failed: build the sidecar's image, the eBPF object in it: exit status: 101: error: could not compile"), "{error}");
    assert!(fakes.kept("could-not-be-had.txt").contains("context does not exist"));
    assert!(!fakes.is_cluster_there());
}

/// The plan with another deadline for one step: what is tested is that there is one, not how long it is.
fn with_deadline(mut plan: Plan, title: &str, deadline: Duration) -> Plan {
    let step = plan.steps.iter_mut().find(|step| step.title.contains(title)).expect("such a step");
    step.deadline = deadline;
    plan
}

#[test]
fn spans_that_never_come_end_it() {
    let fakes = Fakes::new("");
    fs::write(fakes.folder.path().join("collector-log"), "").expect("a log");
    let plan =
        with_deadline(plan::e2e(&fakes.settings), "the span of a false kill", Duration::from_millis(300));
    let error = fakes.executor().run(&plan).expect_err("no span").to_string();
    assert!(error.starts_with("step 22 of 22 failed: wait for the span of a false kill in the collector's log: not done after 0.3 s: no span has come\n"), "{error}");
    assert!(error.contains("failure"), "{error}");
    // Others came: what the nearest lacks.
    fs::write(
        fakes.folder.path().join("collector-log"),
        COLLECTOR_LOG.replace("Str(ebpf)", "Str(sock_diag)"),
    )
    .expect("a log");
    let error = fakes.executor().run(&plan).expect_err("not this span").to_string();
    assert!(
        error.contains(
            "of 2 spans none is it; of the nearest, ackbeat.mode is Str(sock_diag), not Str(ebpf)\n"
        ),
        "{error}"
    );
}

#[test]
fn a_question_without_an_answer_ends_it() {
    let fakes = Fakes::new(r#"case "$command" in *" get pods --namespace ackbeat-demo "*) exit 0 ;; esac"#);
    let plan =
        with_deadline(plan::e2e(&fakes.settings), "the sidecar beside the host", Duration::from_millis(100));
    let error = fakes.executor().run(&plan).expect_err("no sidecar").to_string();
    assert!(
        error.contains(
            "look for the sidecar beside the host: not done after 0.1 s: it still prints nothing\n"
        ),
        "{error}"
    );
}

#[test]
fn a_program_that_hangs_is_ended() {
    let fakes = Fakes::new(r#"case "$command" in "kind load "*) exec sleep 600 ;; esac"#);
    let plan =
        with_deadline(plan::load(&fakes.settings), "put the image on the node", Duration::from_millis(200));
    let begun = Instant::now();
    let error = fakes.executor().run(&plan).expect_err("it hangs").to_string();
    assert!(
        error.starts_with("step 2 of 3 failed: put the image on the node: not done after 0.2 s\n"),
        "{error}"
    );
    assert!(begun.elapsed() < Duration::from_secs(300));
}

#[test]
fn every_missing_program_is_named_with_the_way_to_get_it() {
    let fakes = Fakes::new("");
    for name in ["kind", "helm", "docker"] {
        fs::remove_file(fakes.folder.path().join(name)).expect("a link");
    }
    let path = OsString::from(fakes.folder.path());
    let needed = [Program::Kind, Program::Kubectl, Program::Helm];
    let error = preflight::find(&path, &needed, None).expect_err("missing").to_string();
    for part in [
        "nothing was begun",
        "\n  kind makes the cluster: `go install sigs.k8s.io/kind@v0.33.0`",
        "\n  helm (3 or 4) installs the chart: https://helm.sh/",
        "\n  docker or podman runs the node. docker: `apt-get install docker.io`",
        "podman: `apt-get install podman`",
    ] {
        assert!(error.contains(part), "{part:?} in {error}");
    }
    assert!(!error.contains("kubectl"), "{error}");
    // One engine is enough, and the one that was asked for is the one that is missing.
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/kind_command/tests/fake-program.sh");
    symlink(here, fakes.folder.path().join("podman")).expect("a link");
    assert_eq!(preflight::find(&path, &[Program::Kubectl], None), Ok(Provider::Podman));
    let error = preflight::find(&path, &[], Some(Provider::Docker)).expect_err("missing").to_string();
    assert!(error.contains("or take `--provider podman`"), "{error}");
    assert_eq!(fakes.calls(), Vec::<String>::new());
}

#[test]
fn an_engine_that_does_not_answer_or_cannot_is_told_before_anything_is_begun() {
    let stopped = r#"case "$command" in "docker info "*) echo "Cannot connect to the Docker daemon" >&2; exit 1 ;; esac"#;
    let error = format!("{:#}", Fakes::new(stopped).run(&KindTask::Up(cluster())).expect_err("stopped"));
    assert!(
        error.starts_with("docker does not answer: Cannot connect to the Docker daemon\n`docker info "),
        "{error}"
    );
    assert!(error.contains("systemctl start docker"), "{error}");
    let rootless =
        r#"case "$command" in "docker info "*) echo '["name=rootless"] cgroup v2'; exit 0 ;; esac"#;
    let fakes = Fakes::new(rootless);
    let error = format!("{:#}", fakes.run(&e2e(false)).expect_err("rootless"));
    assert!(error.starts_with("docker runs without root here"), "{error}");
    assert_eq!(fakes.calls().len(), 1);
    // A cluster is no matter of kernel programs.
    fakes.run(&KindTask::Up(cluster())).expect("a cluster without root");
}

#[test]
fn the_spans_of_a_log_are_read() {
    let spans = parse(COLLECTOR_LOG);
    let names: Vec<&str> = spans.iter().map(|span| span.name.as_str()).collect();
    assert_eq!(names, ["websocket.host_close", "websocket.connection"]);
    assert!(spans.iter().all(|span| span.resource.len() == 14), "{spans:#?}");
    assert_eq!(spans[0].resource["k8s.node.name"], "Str(ackbeat-control-plane)");
    assert_eq!(spans[0].attributes["ackbeat.tcp.send_queue_bytes"], "Int(4076145)");
    // The attributes of an event are not the span's.
    assert_eq!(spans[1].attributes["ackbeat.verdict.evidence"], "Str(drain)");
    assert!(!spans[1].attributes.contains_key("ackbeat.verdict.previous"));
    assert_eq!(parse("info\tEverything is ready.\nSpan of attention\n"), []);
    // A batch without its resource's attributes does not have those of the one before.
    let next = format!(
        "{COLLECTOR_LOG}2026-12-01T00:15:00Z\tinfo\tResourceSpans #0\nScopeSpans #0\nSpan #0\n    Name           : a\n"
    );
    let last = parse(&next).pop().expect("a span");
    assert_eq!(last, Span { name: "a".to_owned(), resource: BTreeMap::new(), attributes: BTreeMap::new() });
}

#[test]
fn the_span_of_a_false_kill_is_found_and_no_other() {
    let wanted = WantedSpan::of_a_false_kill("ackbeat");
    assert_eq!(wanted.find(COLLECTOR_LOG), Ok(()));
    for (right, wrong) in [
        ("websocket.host_close", "tcp.host_close"),
        ("k8s.pod.name: Str(ackbeat-demo-host-", "k8s.pod.name: Str(ackbeat-demo-slow-client-"),
        ("     -> k8s.namespace.name: Str(ackbeat-demo)\n", ""),
        ("service.name: Str(ackbeat)", "service.name: Str(unknown_service)"),
        ("k8s.cluster.name: Str(ackbeat)", "k8s.cluster.name: Str(production)"),
        ("k8s.deployment.name: Str(ackbeat-demo-host)", "k8s.deployment.name: Str(ackbeat)"),
        ("false_kill: Bool(true)", "false_kill: Bool(false)"),
        ("kill.assessment: Str(false_kill)", "kill.assessment: Str(unknown)"),
        ("close.initiator: Str(host)", "close.initiator: Str(peer)"),
    ] {
        assert!(COLLECTOR_LOG.contains(right), "{right}");
        let error = wanted.find(&COLLECTOR_LOG.replace(right, wrong)).expect_err(wrong);
        assert!(error.starts_with("of 2 spans none is it; of the nearest, "), "{error}");
    }
    assert_eq!(wanted.find(""), Err("no span has come".to_owned()));
}

#[test]
fn names_of_clusters_are_those_that_kind_takes() {
    assert_eq!(cluster_name("ackbeat-2"), Ok("ackbeat-2".to_owned()));
    for wrong in ["", "Ackbeat", "a/b", "..", "-a", &"a".repeat(50)] {
        assert!(cluster_name(wrong).is_err(), "{wrong}");
    }
}

/// Only these expectations ask again, so only they may take longer than one start of the program.
#[test]
fn what_is_asked_again_is_only_asked() {
    for step in plan::e2e(&settings("/repository")).steps {
        let asks = step.command.arguments.iter().any(|argument| ["get", "logs"].contains(&argument.as_str()));
        match step.expect {
            Expect::Success => {}
            Expect::Output | Expect::Span(_) => assert!(asks, "{}", step.title),
        }
    }
}
