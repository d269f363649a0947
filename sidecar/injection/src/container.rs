//! The container.

use serde_json::{Map, Value, json};

use crate::annotations::NODE_IP;
use crate::identity::{FIELDS, Identity};
use crate::settings::{Mode, Peers, Settings};

/// Name of the injected container.
pub const CONTAINER_NAME: &str = "ackbeat";
/// Name of the port on which Prometheus finds the metrics.
pub const METRICS_PORT_NAME: &str = "ackbeat-metrics";
/// Where the sidecar's API listens (setting `api.listen`).
pub(crate) const API_PORT: u16 = 9465;

/// A user that owns nothing.
const NOBODY: u32 = 65_532;
/// `BPF` creates maps and loads programs, `PERFMON` is for tracing programs, `NET_ADMIN` attaches the wire parser (and destroys
/// sockets, where reaping is on).
const CAPABILITIES: [&str; 3] = ["BPF", "PERFMON", "NET_ADMIN"];

/// What is decided about the container.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) identity: &'a Identity,
    /// As resolved: `Auto` stands for eBPF with a way back.
    pub(crate) mode: Mode,
    pub(crate) is_native: bool,
    /// Ports to watch; empty for every one.
    pub(crate) ports: &'a [u16],
    /// Whether a mesh's proxy is what the application's connections come from.
    pub(crate) behind_proxy: bool,
    /// Whether the application does not use the API's port itself.
    pub(crate) has_api: bool,
    /// Whether the application does not use the port of the page of metrics itself.
    pub(crate) has_metrics: bool,
    /// The mount of the ServiceAccount's token that the application has.
    pub(crate) token_mount: Option<Value>,
}

impl Plan<'_> {
    /// The container.
    pub(crate) fn container(&self) -> Value {
        let settings = self.settings;
        let mut container = Map::new();
        let mut set = |key: &str, value: Value| container.insert(key.to_owned(), value);
        set("name", json!(CONTAINER_NAME));
        set("image", json!(settings.image));
        if let Some(policy) = settings.image_pull_policy {
            set("imagePullPolicy", json!(policy.as_str()));
        }
        set("args", json!(["run"]));
        set("env", Value::Array(self.variables()));
        if self.has_metrics {
            let port =
                json!({"name": METRICS_PORT_NAME, "containerPort": settings.metrics_port, "protocol": "TCP"});
            set("ports", json!([port]));
        }
        let resources = &settings.resources;
        let mut quantities = Map::new();
        for (key, of_key) in [("requests", &resources.requests), ("limits", &resources.limits)] {
            if !of_key.is_empty() {
                quantities.insert(key.to_owned(), json!(of_key));
            }
        }
        if !quantities.is_empty() {
            set("resources", Value::Object(quantities));
        }
        set("securityContext", self.security_context());
        set("terminationMessagePolicy", json!("FallbackToLogsOnError"));
        if let Some(mount) = &self.token_mount {
            set("volumeMounts", json!([mount]));
        }
        if self.is_native {
            set("restartPolicy", json!("Always"));
            if self.has_api {
                set("startupProbe", startup_probe());
            }
        }
        Value::Object(container)
    }

    /// The container's own, so that the pod's is never loosened: what the pod says of users, capabilities and profiles stays
    /// in force for the other containers.
    fn security_context(&self) -> Value {
        if self.mode == Mode::SockDiag {
            return json!({
                "allowPrivilegeEscalation": false,
                "capabilities": {"drop": ["ALL"]},
                "privileged": false,
                "readOnlyRootFilesystem": true,
                "runAsGroup": NOBODY,
                "runAsNonRoot": true,
                "runAsUser": NOBODY,
                "seccompProfile": {"type": "RuntimeDefault"},
            });
        }
        let extra = &self.settings.extra_capabilities;
        let added: Vec<&str> = CAPABILITIES.into_iter().chain(extra.iter().map(String::as_str)).collect();
        let mut context = json!({
            "capabilities": {"add": added, "drop": ["ALL"]},
            "privileged": false,
            "readOnlyRootFilesystem": true,
            // A container's capabilities reach no other user than root; runAsNonRoot of the pod would refuse it.
            "runAsGroup": 0,
            "runAsNonRoot": false,
            "runAsUser": 0,
            "seccompProfile": self.settings.seccomp_profile,
        });
        // Kubernetes refuses it together with SYS_ADMIN.
        if let Some(context) = context.as_object_mut()
            && !extra.iter().any(|name| name == "SYS_ADMIN")
        {
            context.insert("allowPrivilegeEscalation".to_owned(), json!(false));
        }
        context
    }

    fn variables(&self) -> Vec<Value> {
        let settings = self.settings;
        let mut variables = Vec::new();
        let mode = match self.mode {
            // A privilege that the node or an admission policy takes away must not keep the pod from being ready.
            Mode::Auto => "best-effort",
            Mode::Ebpf => "ebpf",
            Mode::SockDiag => "sock-diag",
        };
        let mut set = |name: &str, value: String| put(&mut variables, json!({"name": name, "value": value}));
        set("ACKBEAT_MODE", mode.to_owned());
        set("ACKBEAT_POLICY", settings.policy.as_str().to_owned());
        if !self.ports.is_empty() {
            let ports: Vec<String> = self.ports.iter().map(ToString::to_string).collect();
            set("ACKBEAT_PORTS", ports.join(","));
        }
        set("ACKBEAT_LOG_LEVEL", settings.log_level.as_str().to_owned());
        let page =
            if self.has_metrics { format!("0.0.0.0:{}", settings.metrics_port) } else { "off".to_owned() };
        set("ACKBEAT_METRICS_LISTEN", page);
        if !self.has_api {
            set("ACKBEAT_API_LISTEN", "off".to_owned());
        }
        if self.behind_proxy {
            set("ACKBEAT_PEER_IS_PROXY", "yes".to_owned());
        }
        if settings.peers != Peers::Off {
            set("ACKBEAT_KUBERNETES_PEERS", settings.peers.as_str().to_owned());
        }
        for (key, value) in &settings.settings {
            set(&variable(key), word(value));
        }
        for (name, field) in FIELDS {
            put(&mut variables, json!({"name": name, "valueFrom": {"fieldRef": {"fieldPath": field}}}));
        }
        let mut set = |name: &str, value: &str| put(&mut variables, json!({"name": name, "value": value}));
        set("OTEL_SERVICE_NAME", &self.identity.service_name);
        set("OTEL_RESOURCE_ATTRIBUTES", &self.identity.resource_attributes);
        let otlp = &settings.otlp;
        if !otlp.endpoint.is_empty() {
            if otlp.endpoint.contains(NODE_IP) {
                let field = json!({"fieldRef": {"fieldPath": "status.hostIP"}});
                put(&mut variables, json!({"name": "NODE_IP", "valueFrom": field}));
            }
            let mut set =
                |name: &str, value: &str| put(&mut variables, json!({"name": name, "value": value}));
            set("OTEL_EXPORTER_OTLP_ENDPOINT", &otlp.endpoint);
            set("OTEL_EXPORTER_OTLP_PROTOCOL", otlp.protocol.as_str());
        }
        for entry in &settings.env {
            put(&mut variables, entry.clone());
        }
        variables
    }
}

/// A variable comes after those that its value names, and once: one with the name of an earlier one takes its place.
fn put(variables: &mut Vec<Value>, entry: Value) {
    match variables.iter_mut().find(|there| there.get("name") == entry.get("name")) {
        Some(there) => *there = entry,
        None => variables.push(entry),
    }
}

/// The variable of a setting of the sidecar: `leaks.reap` is `ACKBEAT_LEAKS_REAP`.
fn variable(key: &str) -> String {
    format!("ACKBEAT_{}", key.replace('.', "_").to_uppercase())
}

/// The value of a setting as the text of a variable.
fn word(value: &Value) -> String {
    match value {
        Value::String(text) => text.replace('$', "$$"),
        Value::Array(values) => values.iter().map(word).collect::<Vec<String>>().join(","),
        other => other.to_string(),
    }
}

/// The application starts once the sidecar watches, so that its first connection is seen; but it starts: the command ends well
/// after 20 s whatever the sidecar does.
fn startup_probe() -> Value {
    json!({
        "exec": {"command": ["/ackbeat", "ready", "--within", "20s", "--lenient"]},
        "periodSeconds": 1,
        "timeoutSeconds": 30,
        "failureThreshold": 30,
    })
}
