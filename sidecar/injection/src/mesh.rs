//! Service meshes whose proxy stands between the peers and the application, on the pod's loopback.

use serde_json::{Map, Value};

use crate::facts::Facts;

/// Proxies by the name of their container.
const PROXIES: &[(&str, &str)] = &[
    ("istio-proxy", "Istio"),
    ("linkerd-proxy", "Linkerd"),
    ("kuma-sidecar", "Kuma"),
    ("consul-dataplane", "Consul"),
    ("envoy-sidecar", "Consul"),
];

/// Whether a container is a mesh's proxy.
pub(crate) fn is_proxy(container: &Map<String, Value>) -> bool {
    let name = container.get("name").and_then(Value::as_str);
    name.is_some_and(|name| PROXIES.iter().any(|(proxy, _)| *proxy == name))
}

/// The mesh of a pod: its proxy is there already, or will be put there by the mesh's own injector.
pub(crate) fn of_pod<'a>(
    containers: impl Iterator<Item = &'a Map<String, Value>>,
    annotations: Option<&Map<String, Value>>,
    labels: Option<&Map<String, Value>>,
    facts: &Facts,
) -> Option<&'static str> {
    let by_container = containers
        .filter_map(|container| container.get("name")?.as_str())
        .find_map(|name| PROXIES.iter().find(|(proxy, _)| *proxy == name));
    if let Some((_, mesh)) = by_container {
        return Some(mesh);
    }
    let of = |map: Option<&Map<String, Value>>, key: &str| {
        map.and_then(|map| map.get(key)).and_then(Value::as_str).map(str::to_owned)
    };
    let namespace = facts.namespace.as_ref();
    let of_namespace = |label: &str| namespace.and_then(|namespace| namespace.labels.get(label).cloned());
    let namespace_annotation =
        |key: &str| namespace.and_then(|namespace| namespace.annotations.get(key).cloned());
    match of(labels, "sidecar.istio.io/inject")
        .or_else(|| of(annotations, "sidecar.istio.io/inject"))
        .as_deref()
    {
        Some("true") => return Some("Istio"),
        Some(_) => {}
        None => {
            if of_namespace("istio-injection").as_deref() == Some("enabled")
                || of_namespace("istio.io/rev").is_some()
            {
                return Some("Istio");
            }
        }
    }
    let linkerd = of(annotations, "linkerd.io/inject").or_else(|| namespace_annotation("linkerd.io/inject"));
    matches!(linkerd.as_deref(), Some("enabled" | "ingress")).then_some("Linkerd")
}
