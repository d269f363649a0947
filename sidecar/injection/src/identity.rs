//! `service.name` and the other resource attributes, in the order of the OpenTelemetry operator's conventions.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::facts::Owner;

/// Annotations with this prefix are resource attributes.
const RESOURCE_PREFIX: &str = "resource.opentelemetry.io/";

/// Variables of the container that hold the pod's own fields (the downward API).
pub mod variables {
    /// Name of the pod.
    pub const POD_NAME: &str = "OTEL_RESOURCE_ATTRIBUTES_POD_NAME";
    /// Its UID.
    pub const POD_UID: &str = "OTEL_RESOURCE_ATTRIBUTES_POD_UID";
    /// Its namespace.
    pub const POD_NAMESPACE: &str = "OTEL_RESOURCE_ATTRIBUTES_NAMESPACE";
    /// Its node.
    pub const NODE_NAME: &str = "OTEL_RESOURCE_ATTRIBUTES_NODE_NAME";
}

/// These variables, and the fields.
pub(crate) const FIELDS: [(&str, &str); 4] = [
    (variables::POD_NAME, "metadata.name"),
    (variables::POD_UID, "metadata.uid"),
    (variables::POD_NAMESPACE, "metadata.namespace"),
    (variables::NODE_NAME, "spec.nodeName"),
];

/// Owners whose name is the service's, the most telling first, and the attribute that holds it.
const WORKLOADS: [(&str, Option<&str>); 7] = [
    ("Deployment", Some("k8s.deployment.name")),
    ("ReplicaSet", Some("k8s.replicaset.name")),
    ("StatefulSet", Some("k8s.statefulset.name")),
    ("DaemonSet", Some("k8s.daemonset.name")),
    ("CronJob", Some("k8s.cronjob.name")),
    ("Job", Some("k8s.job.name")),
    ("ReplicationController", Some("k8s.replicationcontroller.name")),
];

/// Whom the sidecar speaks for.
#[derive(Debug)]
pub(crate) struct Identity {
    /// `OTEL_SERVICE_NAME`, as the value of a variable.
    pub(crate) service_name: String,
    /// `OTEL_RESOURCE_ATTRIBUTES`, as the value of a variable.
    pub(crate) resource_attributes: String,
}

/// A literal in the value of a container's variable, where `$(NAME)` would be another variable's value and `$$` a `$`.
fn literal(text: &str) -> String {
    text.replace('$', "$$")
}

/// A literal in `OTEL_RESOURCE_ATTRIBUTES`, whose entries are separated by commas.
fn attribute(text: &str) -> String {
    literal(&text.replace('%', "%25").replace(',', "%2C"))
}

fn text<'a>(map: Option<&'a Map<String, Value>>, key: &str) -> Option<&'a str> {
    map?.get(key)?.as_str().map(str::trim).filter(|text| !text.is_empty())
}

/// The name by which the application calls itself: the literal value of `OTEL_SERVICE_NAME` in its first container that has one.
fn own_name(containers: &[&Map<String, Value>]) -> Option<String> {
    containers.iter().find_map(|container| {
        let variables = container.get("env")?.as_array()?;
        let variable = variables
            .iter()
            .find(|variable| variable.get("name").and_then(Value::as_str) == Some("OTEL_SERVICE_NAME"))?;
        let value = variable.get("value")?.as_str()?.trim();
        (!value.is_empty() && !value.contains('$')).then(|| value.to_owned())
    })
}

impl Identity {
    pub(crate) fn new(
        metadata: Option<&Value>,
        containers: &[&Map<String, Value>],
        owners: &[Owner],
        cluster_name: &str,
    ) -> Self {
        let map = |key| metadata.and_then(|metadata| metadata.get(key)).and_then(Value::as_object);
        let (annotations, labels) = (map("annotations"), map("labels"));
        let workload = WORKLOADS.iter().find_map(|(kind, attribute)| {
            let owner = owners.iter().find(|owner| owner.kind == *kind && !owner.name.is_empty())?;
            Some((owner.name.as_str(), *attribute))
        });
        let service_name = text(annotations, &format!("{RESOURCE_PREFIX}service.name"))
            .map(literal)
            .or_else(|| own_name(containers))
            .or_else(|| text(labels, "app.kubernetes.io/instance").map(literal))
            .or_else(|| text(labels, "app.kubernetes.io/name").map(literal))
            .or_else(|| workload.map(|(name, _)| literal(name)))
            .unwrap_or_else(|| format!("$({})", FIELDS[0].0));

        let mut attributes: BTreeMap<String, String> = [
            ("k8s.pod.name", FIELDS[0].0),
            ("k8s.pod.uid", FIELDS[1].0),
            ("k8s.namespace.name", FIELDS[2].0),
            ("service.namespace", FIELDS[2].0),
            ("k8s.node.name", FIELDS[3].0),
        ]
        .into_iter()
        .map(|(key, variable)| (key.to_owned(), format!("$({variable})")))
        .collect();
        // Which of several containers owns a socket is not known here.
        if let [container] = containers
            && let Some(name) = text(Some(container), "name")
        {
            attributes.insert("k8s.container.name".to_owned(), attribute(name));
            let instance = format!("$({}).$({}).{}", FIELDS[2].0, FIELDS[0].0, attribute(name));
            attributes.insert("service.instance.id".to_owned(), instance);
        }
        if let Some((name, Some(key))) = workload {
            attributes.insert(key.to_owned(), attribute(name));
        }
        if let Some(version) = text(labels, "app.kubernetes.io/version") {
            attributes.insert("service.version".to_owned(), attribute(version));
        }
        if !cluster_name.is_empty() {
            attributes.insert("k8s.cluster.name".to_owned(), attribute(cluster_name));
        }
        for (key, value) in annotations.into_iter().flatten() {
            let Some(key) = key.strip_prefix(RESOURCE_PREFIX).filter(|key| !key.is_empty()) else { continue };
            // It is in OTEL_SERVICE_NAME, which is the stronger variable.
            if key == "service.name" || key.contains(['=', ',', '$']) {
                continue;
            }
            if let Some(value) = value.as_str() {
                attributes.insert(key.to_owned(), attribute(value));
            }
        }
        let pairs: Vec<String> =
            attributes.into_iter().map(|(key, value)| format!("{key}={value}")).collect();
        Self { service_name, resource_attributes: pairs.join(",") }
    }
}
