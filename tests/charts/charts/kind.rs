//! What `cargo xtask kind` would run, from the snapshot of its plan: by the real Helm and the real kubectl as far as they go
//! without a cluster, its manifests against the schemas of the node's version, and its parts against each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use ackbeat_chart_tests::api_server::ApiServer;
use ackbeat_chart_tests::helm::{Helm, Render};
use ackbeat_chart_tests::pod_security::violations;
use ackbeat_chart_tests::schemas::{Rendered, validate};
use ackbeat_chart_tests::{manifests, repository, tool};
use ackbeat_injection::{Facts, Namespace, Outcome, ServerVersion, Settings, inject};
use anyhow::{Context, Result, bail, ensure};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::matrix::chart;

/// Where the plan has the repository.
const ROOT: &str = "/repository";

#[derive(Deserialize)]
struct Plan {
    steps: Vec<Step>,
    diagnostics: Vec<Step>,
    list_pods: Step,
}

#[derive(Deserialize, Clone)]
struct Step {
    program: String,
    arguments: Vec<String>,
    /// Its lines.
    #[serde(default)]
    stdin: Vec<String>,
    #[serde(default)]
    expect: Value,
}

impl Step {
    fn reads(&self) -> String {
        self.stdin.iter().map(|line| format!("{line}\n")).collect()
    }

    /// The argument after this one.
    fn after(&self, name: &str) -> Result<&str> {
        let place = self.arguments.iter().position(|argument| argument == name);
        place
            .and_then(|place| self.arguments.get(place + 1))
            .map(String::as_str)
            .with_context(|| format!("no {name} in {:?}", self.arguments))
    }

    fn has(&self, name: &str) -> bool {
        self.arguments.iter().any(|argument| argument == name)
    }

    /// The arguments with another way into the cluster than the plan's.
    fn arguments_for(&self, kubeconfig: &Path) -> Vec<String> {
        let mut arguments = self.arguments.clone();
        for place in 1..arguments.len() {
            match arguments[place - 1].as_str() {
                "--kubeconfig" => arguments[place] = kubeconfig.display().to_string(),
                "--context" | "--kube-context" => "test".clone_into(&mut arguments[place]),
                _ => {}
            }
        }
        arguments
    }
}

/// The plan of `cargo xtask kind e2e`, which has the steps of all other commands but `down`.
fn plan() -> Result<Plan> {
    let file = repository("xtask/src/kind_command/tests/snapshots/e2e.snap")?;
    let text = fs::read_to_string(&file).context("the plan cannot be read")?;
    let (_, plan) = text.split_once("\n---\n").context("a snapshot has a head")?;
    serde_saphyr::from_str(plan).map_err(|error| anyhow::anyhow!("{}: {error}", file.display()))
}

fn steps<'a>(plan: &'a Plan, program: &'a str, command: &'a str) -> impl Iterator<Item = &'a Step> {
    plan.steps.iter().filter(move |step| step.program == program && step.has(command))
}

/// The Kubernetes of the node's image, as `1.37`.
fn node_version(plan: &Plan) -> Result<String> {
    let image = steps(plan, "kind", "create").next().context("a cluster is made")?.after("--image")?;
    let version = image.split_once(":v").context("a tag")?.1;
    let mut numbers = version.split('.');
    let (major, minor) = (numbers.next().context("major")?, numbers.next().context("minor")?);
    ensure!(image.contains("@sha256:"), "a tag alone may be built anew for another kind: {image}");
    Ok(format!("{major}.{minor}"))
}

/// What `kubectl apply` is given.
fn applied(plan: &Plan) -> Result<Vec<Value>> {
    let mut documents = Vec::new();
    for step in steps(plan, "kubectl", "apply") {
        documents.extend(manifests::parse(&step.reads())?);
    }
    ensure!(!documents.is_empty(), "nothing is applied");
    Ok(documents)
}

/// What each `helm upgrade` installs: rendered with exactly its values.
fn installed(plan: &Plan, helm: &Helm) -> Result<Vec<Vec<Value>>> {
    let version = node_version(plan)?;
    let mut renders = Vec::new();
    for step in steps(plan, "helm", "upgrade") {
        ensure!(step.after("--values")? == "-" && step.has("charts/ackbeat"), "{:?}", step.arguments);
        let folder = tempfile::tempdir().context("a folder")?;
        let values = folder.path().join("values.yaml");
        fs::write(&values, step.reads()).context("the values")?;
        let render = Render {
            values: vec![values],
            set: vec![step.after("--set-string")?],
            kube_version: Some(&version),
            api_versions: vec![],
        };
        renders.push(helm.template(&chart()?, &render)?);
    }
    ensure!(renders.len() == 2, "without the demo and with it");
    Ok(renders)
}

#[test]
fn every_manifest_is_valid_on_the_node_and_needs_no_privilege() -> Result<()> {
    let plan = plan()?;
    let version = node_version(&plan)?;
    let mut sets = vec![("the collector".to_owned(), applied(&plan)?)];
    for helm in Helm::both()? {
        for documents in installed(&plan, &helm)? {
            sets.push((format!("{helm}"), documents));
        }
    }
    let rendered: Vec<Rendered> = sets
        .iter()
        .map(|(name, documents)| Rendered {
            version: version.clone(),
            name: name.clone(),
            documents: documents.clone(),
        })
        .collect();
    for (set, verdict) in rendered.iter().zip(validate(&rendered)?) {
        ensure!(verdict.refused.is_empty(), "{}: {:#?}", set.name, verdict.refused);
        ensure!(verdict.without_schema.is_empty(), "{}: {:?}", set.name, verdict.without_schema);
        ensure!(verdict.validated == set.documents.len(), "{}", set.name);
        for document in &set.documents {
            let Some(spec) = manifests::pod_spec(document).filter(|spec| spec["containers"].is_array())
            else {
                continue;
            };
            let found = violations(spec, &document["spec"]["template"]["metadata"]["annotations"]);
            ensure!(found.is_empty(), "{}: {found:#?}", manifests::title(document));
        }
    }
    Ok(())
}

#[test]
fn helm_takes_the_commands_as_they_are() -> Result<()> {
    let plan = plan()?;
    // No release yet.
    let releases = json!({"apiVersion": "v1", "kind": "SecretList", "metadata": {}, "items": []});
    let path = "/api/v1/namespaces/ackbeat/secrets".to_owned();
    for helm in Helm::both()? {
        let server = ApiServer::with_objects(37, BTreeMap::from([(path.clone(), releases.clone())]))?;
        for step in steps(&plan, "helm", "upgrade") {
            let folder = tempfile::tempdir().context("a folder")?;
            let values = folder.path().join("values.yaml");
            fs::write(&values, step.reads()).context("the values")?;
            let mut arguments: Vec<String> = step
                .arguments_for(&server.kubeconfig)
                .into_iter()
                .map(|argument| match argument.as_str() {
                    "-" => values.display().to_string(),
                    _ => argument,
                })
                .collect();
            let place =
                arguments.iter().position(|argument| argument == "charts/ackbeat").context("the chart")?;
            arguments[place] = chart()?.display().to_string();
            arguments.extend(["--dry-run=client", "--disable-openapi-validation"].map(str::to_owned));
            let answer = helm.run_with_kubeconfig(&arguments, &server.kubeconfig)?;
            ensure!(answer.success, "{helm}, {arguments:?}: {}", answer.stderr);
            ensure!(
                answer.stdout.contains("kind: MutatingWebhookConfiguration"),
                "{helm}: {}",
                answer.stdout
            );
        }
        let written: Vec<String> =
            server.requests().into_iter().filter(|request| !request.starts_with("GET ")).collect();
        ensure!(written.is_empty(), "{helm} wrote: {written:?}");
        // Of the test only so much: the command is understood, and it goes to the cluster.
        let nowhere = nowhere()?;
        for step in steps(&plan, "helm", "test") {
            let answer = helm.run_with_kubeconfig(&step.arguments_for(nowhere.path()), nowhere.path())?;
            ensure!(!answer.success && answer.stderr.contains("refused"), "{helm}: {}", answer.stderr);
        }
    }
    Ok(())
}

/// A kubeconfig that leads to a port on which nobody listens.
fn nowhere() -> Result<tempfile::NamedTempFile> {
    let file = tempfile::NamedTempFile::new().context("a file")?;
    // Port 1 (tcpmux) is a privileged one that nothing uses.
    let content = json!({
        "apiVersion": "v1", "kind": "Config",
        "clusters": [{"name": "test", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "test", "user": {}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        "current-context": "test"
    });
    fs::write(file.path(), content.to_string()).context("the kubeconfig")?;
    Ok(file)
}

/// Exit code and standard error of a kubectl.
fn kubectl(version: &str, arguments: &[String], reads: &str) -> Result<(bool, String)> {
    let folder = tempfile::tempdir().context("a folder")?;
    let input = folder.path().join("input");
    fs::write(&input, reads).context("what it reads")?;
    let output = Command::new(tool(&format!("helm/{version}/kubectl"))?)
        .args(arguments)
        .env("HOME", folder.path())
        .stdin(Stdio::from(fs::File::open(&input).context("what it reads")?))
        .output()
        .context("kubectl does not start")?;
    Ok((output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned()))
}

/// Every command goes as far as to the cluster: its words and options are kubectl's, in the version of Helm 3's package and in that of
/// Helm 4's.
#[test]
fn kubectl_takes_the_commands_as_they_are() -> Result<()> {
    let plan = plan()?;
    let nowhere = nowhere()?;
    let all = plan.steps.iter().chain(&plan.diagnostics).chain([&plan.list_pods]);
    let commands: Vec<&Step> = all.filter(|step| step.program == "kubectl").collect();
    ensure!(commands.len() > 15, "{} commands", commands.len());
    for version in ["v3", "v4"] {
        for step in &commands {
            let arguments = step.arguments_for(nowhere.path());
            let (success, stderr) = kubectl(version, &arguments, &step.reads())?;
            ensure!(!success && stderr.contains("refused"), "{version} {arguments:?}: {stderr}");
        }
        // An option that it does not know would have been found.
        let mut wrong = commands[0].arguments_for(nowhere.path());
        wrong.push("--until-ready".to_owned());
        let (_, stderr) = kubectl(version, &wrong, "")?;
        ensure!(stderr.contains("unknown flag: --until-ready"), "{stderr}");
    }
    Ok(())
}

/// On a new cluster there is no demo of an earlier run, and that must be no failure.
#[test]
fn waiting_for_the_end_of_what_is_not_there_is_no_failure() -> Result<()> {
    let plan = plan()?;
    let server = ApiServer::start(37)?;
    for version in ["v3", "v4"] {
        let mut waits = 0;
        for step in steps(&plan, "kubectl", "--for=delete") {
            let (success, stderr) = kubectl(version, &step.arguments_for(&server.kubeconfig), "")?;
            ensure!(success, "{version}: {stderr}");
            waits += 1;
        }
        ensure!(waits == 1, "{waits} waits");
    }
    let asked = server.requests();
    ensure!(asked.iter().any(|request| request.ends_with("/namespaces/ackbeat-demo")), "{asked:?}");
    Ok(())
}

/// Names are written in the plan, in its manifests and in the chart; they are the same.
#[test]
fn the_steps_speak_of_what_is_installed() -> Result<()> {
    let plan = plan()?;
    let helm = Helm::new(4)?;
    let [without_demo, with_demo] = installed(&plan, &helm)?.try_into().ok().context("two renders")?;
    let mut there = applied(&plan)?;
    there.extend(with_demo.iter().cloned());

    // Deployments that are waited for or restarted, in their namespaces.
    let deployments: BTreeSet<(String, String)> = there
        .iter()
        .filter(|document| document["kind"] == "Deployment")
        .filter_map(|document| {
            let metadata = &document["metadata"];
            Some((
                metadata["namespace"].as_str()?.to_owned(),
                format!("deployment/{}", metadata["name"].as_str()?),
            ))
        })
        .collect();
    let mut meant = BTreeSet::new();
    for step in plan.steps.iter().filter(|step| step.program == "kubectl") {
        if let Some(name) = step.arguments.iter().find(|argument| argument.starts_with("deployment/")) {
            meant.insert((step.after("--namespace")?.to_owned(), name.clone()));
        }
    }
    ensure!(meant == deployments, "{meant:?} are meant, {deployments:?} are there");

    // The image that is built, put on the node and looked for there is the one that the chart starts, and no other is fetched.
    let image = steps(&plan, "cargo", "image").next().context("an image is built")?.after("--name")?;
    let looked_for = steps(&plan, "docker", "inspecti").next().context("it is looked for")?;
    ensure!(looked_for.arguments.last().is_some_and(|name| name == image), "{:?}", looked_for.arguments);
    let injector = manifests::find(&without_demo, "Deployment", "ackbeat")?;
    let container = &injector["spec"]["template"]["spec"]["containers"][0];
    ensure!(container["image"] == image && container["imagePullPolicy"] == "Never", "{container:#}");
    let configuration = manifests::find(&with_demo, "MutatingWebhookConfiguration", "ackbeat")?;
    ensure!(configuration["metadata"]["name"] == "ackbeat", "{configuration:#}");

    // The sidecars send to the collector's Service.
    let service = manifests::find(&there, "Service", "otel-collector")?;
    let endpoint = format!(
        "http://{}.{}:{}",
        service["metadata"]["name"].as_str().context("a name")?,
        service["metadata"]["namespace"].as_str().context("a namespace")?,
        service["spec"]["ports"][0]["port"]
    );
    let settings = settings_of(&with_demo)?;
    ensure!(settings.otlp.endpoint == endpoint, "{} and {endpoint}", settings.otlp.endpoint);

    // The collector's own configuration listens on that port.
    let map = manifests::find(&there, "ConfigMap", "otel-collector")?;
    let text = map["data"]["config.yaml"].as_str().context("the collector's file")?;
    let config: Value = serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("{error}"))?;
    ensure!(config["receivers"]["otlp"]["protocols"]["grpc"]["endpoint"] == "0.0.0.0:4317", "{config:#}");
    ensure!(config["exporters"]["debug"]["verbosity"] == "detailed", "{config:#}");
    Ok(())
}

/// The settings that the chart gives the injector.
fn settings_of(documents: &[Value]) -> Result<Settings> {
    let map = manifests::find(documents, "ConfigMap", "-injector")?;
    let text = map["data"]["injector.yaml"].as_str().context("the injector's file")?;
    serde_saphyr::from_str(text).map_err(|error| anyhow::anyhow!("{error}"))
}

/// The sidecar that the injector puts beside the demo's host speaks as the span must that is waited for, and the pod has the labels by
/// which it is looked for.
#[test]
fn the_injected_host_sends_what_is_waited_for() -> Result<()> {
    let plan = plan()?;
    let helm = Helm::new(4)?;
    let renders = installed(&plan, &helm)?;
    let with_demo = renders.last().context("the demo")?;
    let host = manifests::find(with_demo, "Deployment", "-demo-host")?;
    let template = &host["spec"]["template"];
    let mut pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": template["metadata"], "spec": template["spec"]});
    let namespace = host["metadata"]["namespace"].as_str().context("a namespace")?;
    let name = host["metadata"]["name"].as_str().context("a name")?;
    // As the Deployment's ReplicaSet makes it.
    let hash = "6cc6558496";
    pod["metadata"]["labels"]["pod-template-hash"] = json!(hash);
    pod["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": format!("{name}-{hash}"), "uid": "1", "controller": true
    }]);
    let labels = &manifests::find(with_demo, "Namespace", namespace)?["metadata"]["labels"];
    let labels = labels.as_object().context("the namespace has labels")?;
    let labels = labels.iter().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())));
    let facts = Facts {
        server: ServerVersion::from_text(&node_version(&plan)?),
        namespace: Some(Namespace {
            name: namespace.to_owned(),
            labels: labels.collect(),
            ..Namespace::default()
        }),
        ..Facts::default()
    };
    match inject(&pod, &facts, &settings_of(with_demo)?).context("a pod")?.outcome {
        Outcome::Injected { patch, .. } => json_patch::patch(&mut pod, &patch)?,
        other => bail!("{other:?}"),
    }
    for step in steps(&plan, "kubectl", "--selector") {
        for pair in step.after("--selector")?.split(',') {
            let (label, value) = pair.split_once('=').context("a label and its value")?;
            ensure!(pod["metadata"]["labels"][label] == value, "{pair}: {:#}", pod["metadata"]["labels"]);
        }
    }
    let sidecar = pod["spec"]["initContainers"]
        .as_array()
        .and_then(|containers| containers.iter().find(|container| container["name"] == "ackbeat"))
        .context("a native sidecar")?;
    ensure!(sidecar["imagePullPolicy"] == "Never", "{sidecar:#}");
    let variable = |name: &str| {
        sidecar["env"]
            .as_array()
            .and_then(|variables| variables.iter().find(|variable| variable["name"] == name))
            .and_then(|variable| variable["value"].as_str())
            .with_context(|| format!("no {name} in {sidecar:#}"))
    };
    let mut attributes: Vec<(&str, String)> = variable("OTEL_RESOURCE_ATTRIBUTES")?
        .split(',')
        .filter_map(|pair| pair.split_once('='))
        .map(|(key, value)| {
            // What the kubelet puts in.
            let value = value
                .replace("$(OTEL_RESOURCE_ATTRIBUTES_POD_NAME)", &format!("{name}-{hash}-d9gxp"))
                .replace("$(OTEL_RESOURCE_ATTRIBUTES_NAMESPACE)", namespace);
            (key, value)
        })
        .collect();
    attributes.push(("service.name", variable("OTEL_SERVICE_NAME")?.to_owned()));
    let wanted = plan
        .steps
        .iter()
        .find_map(|step| step.expect["span"]["resource"].as_object())
        .context("a span is waited for")?;
    ensure!(wanted.len() == 5, "{wanted:?}");
    for (key, value) in wanted {
        let found = attributes.iter().find(|(name, _)| name == key).with_context(|| format!("no {key}"))?;
        let found = format!("Str({})", found.1);
        let holds = match (value["is"].as_str(), value["starts_with"].as_str()) {
            (Some(value), None) => found == value,
            (None, Some(start)) => found.starts_with(start),
            _ => bail!("{value}"),
        };
        ensure!(holds, "{key} is {found}, and {value} is waited for");
    }
    Ok(())
}

/// What the plan has for this repository is this repository's.
#[test]
fn nothing_is_written_outside_the_target_directory() -> Result<()> {
    let plan = plan()?;
    let target = format!("{ROOT}/target/kind/ackbeat/");
    let mut paths = 0;
    for argument in plan.steps.iter().chain(&plan.diagnostics).flat_map(|step| &step.arguments) {
        if argument.starts_with('/') {
            ensure!(argument.starts_with(&target), "{argument}");
            paths += 1;
        }
    }
    ensure!(paths > 10, "{paths} paths");
    Ok(())
}
