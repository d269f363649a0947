//! Whether a pod is served, and what changes in it.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};

use crate::annotations::{self, Chosen, names};
use crate::container::{API_PORT, CONTAINER_NAME, Plan};
use crate::edits::Edits;
use crate::facts::{Facts, Owner, PodSecurity, owners_of};
use crate::identity::Identity;
use crate::mesh;
use crate::outcome::{NotWanted, Outcome, Report, Skip};
use crate::settings::{Mode, NativeSidecar, Settings};
use crate::status::{Place, Status};

/// The label of a namespace that says what PodSecurity admission refuses there.
const ENFORCE: &str = "pod-security.kubernetes.io/enforce";
/// Annotation of a pod that the kubelet made from a file.
const MIRROR: &str = "kubernetes.io/config.mirror";
const LISTS: [&str; 2] = ["initContainers", "containers"];

type Object = Map<String, Value>;

/// A pod or a pod template, with everything that is read of it in its place.
struct Pod<'a> {
    value: &'a Value,
    metadata: Option<&'a Object>,
    annotations: Option<&'a Object>,
    labels: Option<&'a Object>,
    spec: &'a Object,
    /// `initContainers`, `containers`
    lists: [Vec<&'a Object>; 2],
}

fn malformed(at: &str, expected: &'static str) -> Skip {
    Skip::Malformed { at: at.to_owned(), expected }
}

/// A key's object; `None` where it is absent or null.
fn object<'a>(parent: &'a Value, key: &str, at: &str) -> Result<Option<&'a Object>, Skip> {
    match parent.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(malformed(at, "an object")),
    }
}

impl<'a> Pod<'a> {
    fn read(value: &'a Value) -> Result<Self, Skip> {
        let metadata = object(value, "metadata", "metadata")?;
        let of_metadata = |key: &str, at: &str| match value.get("metadata") {
            Some(metadata) => object(metadata, key, at),
            None => Ok(None),
        };
        let annotations = of_metadata("annotations", "metadata.annotations")?;
        let labels = of_metadata("labels", "metadata.labels")?;
        let spec = object(value, "spec", "spec")?.ok_or_else(|| malformed("spec", "an object"))?;
        let list = |key: &str| -> Result<Vec<&'a Object>, Skip> {
            match spec.get(key) {
                None | Some(Value::Null) => Ok(Vec::new()),
                Some(Value::Array(containers)) => containers
                    .iter()
                    .map(|container| {
                        container
                            .as_object()
                            .ok_or_else(|| malformed(&format!("spec.{key}"), "a list of containers"))
                    })
                    .collect(),
                Some(_) => Err(malformed(&format!("spec.{key}"), "a list of containers")),
            }
        };
        match spec.get("imagePullSecrets") {
            None | Some(Value::Null | Value::Array(_)) => {}
            Some(_) => return Err(malformed("spec.imagePullSecrets", "a list of names")),
        }
        let lists = [list(LISTS[0])?, list(LISTS[1])?];
        Ok(Self { value, metadata, annotations, labels, spec, lists })
    }

    fn annotation(&self, name: &str) -> Result<Option<&'a str>, Skip> {
        match self.annotations.and_then(|annotations| annotations.get(name)) {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(_) => Err(Skip::BadAnnotation {
                name: name.to_owned(),
                problem: "the value of an annotation is a text; quote it".to_owned(),
            }),
        }
    }

    /// The containers but ours.
    fn others(&self) -> impl Iterator<Item = &'a Object> {
        self.lists.iter().flatten().copied().filter(|container| !is_ours(container))
    }

    /// Where our container is: the list and the index in it.
    fn ours(&self) -> Option<(usize, usize)> {
        self.lists.iter().enumerate().find_map(|(list, containers)| {
            containers.iter().position(|container| is_ours(container)).map(|index| (list, index))
        })
    }

    /// The note of an earlier injection.
    fn status(&self) -> Result<Option<Status>, Skip> {
        let Some(text) = self.annotation(names::STATUS)? else { return Ok(None) };
        serde_json::from_str(text).map(Some).map_err(|error| Skip::BadAnnotation {
            name: names::STATUS.to_owned(),
            problem: format!(
                "it is none of ackbeat's notes ({error}); remove it, and a container named `ackbeat` too"
            ),
        })
    }

    /// Ports that the other containers declare.
    fn declared_ports(&self) -> BTreeSet<u16> {
        self.others().flat_map(ports_of).collect()
    }

    fn is_windows(&self) -> bool {
        let of = |key: &str, inner: &str| {
            self.spec.get(key).and_then(|map| map.get(inner)).and_then(Value::as_str)
        };
        of("os", "name") == Some("windows")
            || ["kubernetes.io/os", "beta.kubernetes.io/os"]
                .iter()
                .any(|label| of("nodeSelector", label) == Some("windows"))
    }

    fn is_set(&self, key: &str) -> bool {
        self.spec.get(key) == Some(&Value::Bool(true))
    }
}

fn is_ours(container: &Object) -> bool {
    container.get("name").and_then(Value::as_str) == Some(CONTAINER_NAME)
}

/// Injects into one pod or pod template. `base` is where it is in its manifest, `owners` who owns it.
pub(crate) fn inject(
    value: &Value,
    base: &[&str],
    owners: &[Owner],
    facts: &Facts,
    settings: &Settings,
) -> Report {
    let mut warnings = Vec::new();
    let outcome = match inject_into(value, base, owners, facts, settings, &mut warnings) {
        Ok(outcome) => outcome,
        Err(skip) => Outcome::Skipped(skip),
    };
    Report { outcome, warnings }
}

/// Whether somebody asks for a sidecar: the pod, else its namespace, else the operator.
fn wanted(pod: &Pod<'_>, facts: &Facts, settings: &Settings) -> Result<Option<NotWanted>, Skip> {
    if let Some(word) = pod.annotation(names::INJECT)? {
        let bad = |problem| Skip::BadAnnotation { name: names::INJECT.to_owned(), problem };
        return Ok((!annotations::inject(word).map_err(bad)?).then_some(NotWanted::Disabled));
    }
    if facts.is_wanted {
        return Ok(None);
    }
    let mut is_asked = settings.inject_by_default;
    for word in facts
        .namespace
        .iter()
        .flat_map(|namespace| [&namespace.labels, &namespace.annotations])
        .filter_map(|map| map.get(names::INJECT))
    {
        match annotations::inject(word) {
            Ok(true) => is_asked = true,
            // Of a label and an annotation that disagree, the careful one counts.
            Ok(false) => return Ok(Some(NotWanted::NamespaceDisabled)),
            Err(problem) => {
                return Err(Skip::BadAnnotation {
                    name: format!("{} of the namespace", names::INJECT),
                    problem,
                });
            }
        }
    }
    Ok((!is_asked).then_some(NotWanted::NotAsked))
}

/// What a pod's surroundings and its own words make of the mode.
fn resolve_mode(
    pod: &Pod<'_>,
    facts: &Facts,
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<Mode, Skip> {
    let level = match facts.namespace.as_ref().and_then(|namespace| namespace.labels.get(ENFORCE)) {
        // PodSecurity takes a level that it does not know for the strictest.
        Some(word) => PodSecurity::from_word(word).unwrap_or(PodSecurity::Restricted),
        None => settings.default_pod_security,
    };
    let own_users = pod.spec.get("hostUsers") == Some(&Value::Bool(false));
    match settings.mode {
        Mode::SockDiag => Ok(Mode::SockDiag),
        Mode::Ebpf if level != PodSecurity::Privileged => Err(Skip::PodSecurity { level }),
        Mode::Ebpf if own_users => Err(Skip::UserNamespace),
        Mode::Auto if level != PodSecurity::Privileged => {
            warnings.push(format!(
                "mode sock-diag, without heartbeats: PodSecurity `{}` of the namespace forbids the capabilities of mode ebpf",
                level.as_str()
            ));
            Ok(Mode::SockDiag)
        }
        Mode::Auto if own_users => {
            warnings.push(
                "mode sock-diag, without heartbeats: the pod has its own user namespace (hostUsers: false), from which no \
                 kernel programs are loaded"
                    .to_owned(),
            );
            Ok(Mode::SockDiag)
        }
        mode => Ok(mode),
    }
}

/// Whether the sidecar is a native one. An ordinary one is right with every server, but for pods that end.
fn resolve_native(
    pod: &Pod<'_>,
    facts: &Facts,
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<bool, Skip> {
    let is_native = match (settings.native_sidecar, facts.server) {
        (NativeSidecar::Always, Some(server)) if !server.has_native_sidecars() => {
            return Err(Skip::NoNativeSidecars { server });
        }
        (NativeSidecar::Always, _) => true,
        (NativeSidecar::Never, _) => false,
        (NativeSidecar::Auto, Some(server)) => server.has_native_sidecars(),
        (NativeSidecar::Auto, None) => {
            warnings.push(
                "the server's version is not known: an ordinary container, which starts with the application's; for a native \
                 sidecar say --server-version 1.29 or later"
                    .to_owned(),
            );
            false
        }
    };
    let restart_policy = pod.spec.get("restartPolicy").and_then(Value::as_str);
    match restart_policy {
        Some(policy @ ("Never" | "OnFailure")) if !is_native => {
            Err(Skip::RunsToCompletion { restart_policy: policy.to_owned() })
        }
        _ => Ok(is_native),
    }
}

fn inject_into(
    value: &Value,
    base: &[&str],
    owners: &[Owner],
    facts: &Facts,
    settings: &Settings,
    warnings: &mut Vec<String>,
) -> Result<Outcome, Skip> {
    let pod = Pod::read(value)?;
    if let Some(reason) = wanted(&pod, facts, settings)? {
        return Ok(Outcome::NotWanted(reason));
    }
    let previous = pod.status()?;
    let ours = pod.ours();
    match (&previous, ours) {
        (None, Some(_)) => return Err(Skip::ForeignContainer),
        (Some(_), None) => return Err(Skip::ContainerGone),
        _ => {}
    }
    if pod.is_windows() {
        return Err(Skip::Windows);
    }
    if pod.annotations.is_some_and(|annotations| annotations.contains_key(MIRROR)) {
        return Err(Skip::MirrorPod);
    }
    if pod.is_set("hostNetwork") && !settings.allow_host_network {
        return Err(Skip::HostNetwork);
    }
    let chosen = Chosen::new(settings, pod.annotations)?;
    warnings.extend(chosen.warnings);
    let settings = &chosen.settings;
    let mode = resolve_mode(&pod, facts, settings, warnings)?;
    let is_native = resolve_native(&pod, facts, settings, warnings)?;

    let declared = pod.declared_ports();
    let mut ports = settings.ports.clone();
    let mesh = mesh::of_pod(pod.others(), pod.annotations, pod.labels, facts);
    if let Some(mesh) = mesh {
        let own: Vec<u16> = pod.lists[1]
            .iter()
            .filter(|container| !is_ours(container) && !mesh::is_proxy(container))
            .flat_map(|container| ports_of(container))
            .collect();
        if ports.is_empty() {
            ports = own;
        }
        let watched = if ports.is_empty() {
            format!("name the application's ports with {}", names::PORTS)
        } else {
            format!("watched ports: {}", ports.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "))
        };
        warnings.push(format!(
            "{mesh}: the application's connections come from the mesh's proxy over loopback, so evidence ends at the proxy; {watched}"
        ));
    }
    let has_metrics = settings.metrics_port != 0 && !declared.contains(&settings.metrics_port);
    if settings.metrics_port != 0 && !has_metrics {
        warnings.push(format!(
            "a container of the pod uses port {}: the sidecar has no page of metrics",
            settings.metrics_port
        ));
    }
    let has_api = !declared.contains(&API_PORT);
    if !has_api {
        warnings.push(format!("a container of the pod uses port {API_PORT}: the sidecar's API is off"));
    }
    let apps: Vec<&Object> = pod.lists[1]
        .iter()
        .copied()
        .filter(|container| !is_ours(container) && !mesh::is_proxy(container))
        .collect();
    if apps.is_empty() {
        return Err(malformed("spec.containers", "a list with a container of the application"));
    }
    let own_owners: Vec<Owner> = owners_of(pod.value.get("metadata"));
    let all_owners: Vec<Owner> =
        owners.iter().chain(&own_owners).chain(&facts.further_owners).cloned().collect();
    let identity = Identity::new(pod.value.get("metadata"), &apps, &all_owners, &settings.cluster_name);
    let plan = Plan {
        settings,
        identity: &identity,
        mode,
        is_native,
        ports: &ports,
        behind_proxy: mesh.is_some(),
        has_api,
        has_metrics,
        token_mount: token_mount_of(&apps),
    };
    let patch = changes(&pod, base, &plan, previous.as_ref().zip(ours), warnings)?;
    Ok(match patch {
        None => Outcome::Unchanged,
        Some(patch) if previous.is_some() => Outcome::Updated { patch, mode, is_native },
        Some(patch) => Outcome::Injected { patch, mode, is_native },
    })
}

/// Where the API server has given the application its ServiceAccount's token, as it did before it asks a webhook: a container
/// that joins later gets none by itself. A manifest has no such mount yet, and there the API server gives it to all containers.
fn token_mount_of(apps: &[&Object]) -> Option<Value> {
    const PATH: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
    let mounts = apps.iter().filter_map(|container| container.get("volumeMounts")?.as_array()).flatten();
    let mut tokens = mounts.filter(|mount| mount.get("mountPath").and_then(Value::as_str) == Some(PATH));
    tokens.next().cloned()
}

/// The TCP ports that a container declares.
fn ports_of(container: &Object) -> Vec<u16> {
    let ports = container.get("ports").and_then(Value::as_array);
    ports
        .into_iter()
        .flatten()
        .filter(|port| matches!(port.get("protocol").and_then(Value::as_str), None | Some("TCP")))
        .filter_map(|port| u16::try_from(port.get("containerPort")?.as_u64()?).ok())
        .filter(|port| *port > 0)
        .collect()
}

/// The changes; `None` where there are none.
fn changes(
    pod: &Pod<'_>,
    base: &[&str],
    plan: &Plan<'_>,
    previous: Option<(&Status, (usize, usize))>,
    warnings: &mut Vec<String>,
) -> Result<Option<json_patch::Patch>, Skip> {
    let container = plan.container();
    let mut edits = Edits::new(pod.value, base);
    let mut status = previous.map(|(status, _)| status.clone()).unwrap_or_default();
    env!("CARGO_PKG_VERSION").clone_into(&mut status.version);
    let list = usize::from(!plan.is_native);
    match previous {
        Some((_, (there, index))) if there == list => {
            edits.set(&["spec", LISTS[there], &index.to_string()], &container)?;
        }
        _ => {
            if let Some((_, (there, index))) = previous {
                edits.remove(&["spec", LISTS[there], &index.to_string()])?;
            }
            if plan.is_native {
                edits.make(Place::InitContainers, &mut status)?;
            }
            // The last to start, after a mesh's proxy through which spans leave, and the first to end, before it.
            edits.add(&["spec", LISTS[list], "-"], &container)?;
        }
    }
    add_pull_secrets(pod, plan, &mut edits, &mut status, warnings)?;
    edits.make(Place::Metadata, &mut status)?;
    edits.make(Place::Labels, &mut status)?;
    if previous.is_none() {
        status.label_was = pod.labels.and_then(|labels| labels.get(names::INJECTED)).cloned();
    }
    edits.set(&["metadata", "labels", names::INJECTED], &json!("true"))?;
    edits.make(Place::Annotations, &mut status)?;
    let note = serde_json::to_string(&status).map_err(|_| malformed("metadata.labels", "an object"))?;
    edits.set(&["metadata", "annotations", names::STATUS], &Value::String(note))?;
    Ok((!edits.is_empty()).then(|| edits.into_patch()))
}

fn add_pull_secrets(
    pod: &Pod<'_>,
    plan: &Plan<'_>,
    edits: &mut Edits,
    status: &mut Status,
    warnings: &mut Vec<String>,
) -> Result<(), Skip> {
    let there = pod.spec.get("imagePullSecrets").and_then(Value::as_array);
    let is_there = |name: &str| {
        there.into_iter().flatten().any(|secret| secret.get("name").and_then(Value::as_str) == Some(name))
    };
    let mut missing: Vec<&String> = Vec::new();
    for name in &plan.settings.image_pull_secrets {
        if !is_there(name) && !missing.contains(&name) {
            missing.push(name);
        }
    }
    if missing.is_empty() {
        return Ok(());
    }
    if there.is_none_or(Vec::is_empty) {
        warnings.push(
            "imagePullSecrets are added to a pod without any: those of its ServiceAccount count only where the pod has none \
             when it is made"
                .to_owned(),
        );
    }
    edits.make(Place::ImagePullSecrets, status)?;
    for name in missing {
        edits.add(&["spec", "imagePullSecrets", "-"], &json!({"name": name}))?;
        if !status.pull_secrets.contains(name) {
            status.pull_secrets.push(name.clone());
        }
    }
    Ok(())
}

/// Takes the sidecar out of one pod or pod template.
pub(crate) fn uninject(value: &Value, base: &[&str]) -> Report {
    let outcome = match uninject_from(value, base) {
        Ok(outcome) => outcome,
        Err(skip) => Outcome::Skipped(skip),
    };
    Report { outcome, warnings: Vec::new() }
}

fn uninject_from(value: &Value, base: &[&str]) -> Result<Outcome, Skip> {
    let pod = Pod::read(value)?;
    let Some(status) = pod.status()? else {
        return match pod.ours() {
            Some(_) => Err(Skip::ForeignContainer),
            None => Ok(Outcome::NotWanted(NotWanted::NotInjected)),
        };
    };
    let mut edits = Edits::new(value, base);
    if let Some((list, index)) = pod.ours() {
        edits.remove(&["spec", LISTS[list], &index.to_string()])?;
    }
    let secrets = pod.spec.get("imagePullSecrets").and_then(Value::as_array);
    for (index, secret) in secrets.map(Vec::as_slice).unwrap_or_default().iter().enumerate().rev() {
        let name = secret.get("name").and_then(Value::as_str);
        if name.is_some_and(|name| status.pull_secrets.iter().any(|added| added == name)) {
            edits.remove(&["spec", "imagePullSecrets", &index.to_string()])?;
        }
    }
    if pod.labels.is_some_and(|labels| labels.contains_key(names::INJECTED)) {
        match &status.label_was {
            Some(value) => edits.set(&["metadata", "labels", names::INJECTED], value)?,
            None => edits.remove(&["metadata", "labels", names::INJECTED])?,
        }
    }
    if pod.metadata.is_some() {
        edits.remove(&["metadata", "annotations", names::STATUS])?;
    }
    edits.unmake(&status)?;
    Ok(Outcome::Removed { patch: edits.into_patch() })
}
