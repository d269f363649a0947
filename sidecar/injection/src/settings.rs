//! What an operator chooses for all pods.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::facts::PodSecurity;

macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant),+
        }
        impl $name {
            /// Every word for it.
            pub const WORDS: &[&str] = &[$($word),+];
            /// The word for it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
            /// What a word stands for; `None` where it stands for nothing.
            #[must_use]
            pub fn from_word(word: &str) -> Option<Self> {
                match word { $($word => Some(Self::$variant),)+ _ => None }
            }
        }
    };
}
pub(crate) use words;

words! {
    /// How the sidecar gathers evidence, and with it the rights that its container asks for.
    Mode {
        /// eBPF; `sock-diag` where the pod may have no capabilities, or the node cannot do it.
        Auto = "auto",
        /// eBPF, or a container that says what is missing and ends.
        Ebpf = "ebpf",
        /// Without any capability, as a user without rights.
        SockDiag = "sock-diag",
    }
}

words! {
    /// A container among `initContainers` with `restartPolicy: Always` (Kubernetes 1.29 and later), or an ordinary one.
    NativeSidecar {
        /// Native where the server is known to have it.
        Auto = "auto",
        /// Native.
        Always = "always",
        /// Ordinary.
        Never = "never",
    }
}

words! {
    /// The sidecar's thresholds (setting `policy`).
    Policy {
        /// Prefers to keep a connection.
        Default = "default",
        /// Prefers to know first.
        Fast = "fast",
    }
}

words! {
    /// How much the sidecar logs (setting `log.level`).
    LogLevel {
        /// Nothing.
        Off = "off",
        /// Errors.
        Error = "error",
        /// And warnings.
        Warn = "warn",
        /// And one line for each close.
        Info = "info",
        /// And every verdict change.
        Debug = "debug",
        /// And everything.
        Trace = "trace",
    }
}

words! {
    /// Whose addresses the sidecar resolves to names (setting `kubernetes.peers`).
    Peers {
        /// Nobody's.
        Off = "off",
        /// Those of pods and Services of its own namespace.
        Namespace = "namespace",
        /// Those of all namespaces.
        Cluster = "cluster",
    }
}

words! {
    /// How spans and metrics travel (`OTEL_EXPORTER_OTLP_PROTOCOL`).
    OtlpProtocol {
        /// gRPC, usually on port 4317.
        Grpc = "grpc",
        /// Protobuf over HTTP, usually on port 4318.
        HttpProtobuf = "http/protobuf",
    }
}

words! {
    /// When the kubelet pulls the image.
    ImagePullPolicy {
        /// At every start.
        Always = "Always",
        /// Where the node has none.
        IfNotPresent = "IfNotPresent",
        /// Never.
        Never = "Never",
    }
}

/// Where spans and metrics go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Otlp {
    /// URL of a collector; empty for none. `$(NODE_IP)` in it is the address of the pod's node.
    pub endpoint: String,
    /// How it is spoken to.
    pub protocol: OtlpProtocol,
}

impl Default for Otlp {
    fn default() -> Self {
        Self { endpoint: String::new(), protocol: OtlpProtocol::Grpc }
    }
}

/// Quantities of CPU and memory by name (`cpu`, `memory`), as in a container's `resources`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Resources {
    /// What the scheduler reserves.
    #[serde(default)]
    pub requests: BTreeMap<String, String>,
    /// What the container may use.
    #[serde(default)]
    pub limits: BTreeMap<String, String>,
}

impl Default for Resources {
    fn default() -> Self {
        let quantity = |name: &str, quantity: &str| (name.to_owned(), quantity.to_owned());
        Self {
            requests: BTreeMap::from([quantity("cpu", "20m"), quantity("memory", "64Mi")]),
            limits: BTreeMap::from([quantity("memory", "256Mi")]),
        }
    }
}

/// A container's `seccompProfile`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SeccompProfile {
    /// `RuntimeDefault`, `Localhost` or `Unconfined`.
    #[serde(rename = "type")]
    pub kind: String,
    /// The profile's file below the kubelet's folder; with `Localhost` only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub localhost_profile: Option<String>,
}

impl Default for SeccompProfile {
    fn default() -> Self {
        Self { kind: "RuntimeDefault".to_owned(), localhost_profile: None }
    }
}

/// What an operator chooses for all pods: the injector's file of settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Settings {
    /// The sidecar's image, by tag or digest.
    pub image: String,
    /// When it is pulled; `None` leaves it to Kubernetes.
    pub image_pull_policy: Option<ImagePullPolicy>,
    /// Secrets with which it is pulled, added to the pod's own.
    pub image_pull_secrets: Vec<String>,
    /// Whether pods are served where neither they nor their namespace say.
    pub inject_by_default: bool,
    /// Native or ordinary.
    pub native_sidecar: NativeSidecar,
    /// Whether pods on the node's network are served: the sidecar sees every socket of the node there.
    pub allow_host_network: bool,
    /// The level of namespaces without PodSecurity's label `enforce`.
    pub default_pod_security: PodSecurity,
    /// How evidence is gathered.
    pub mode: Mode,
    /// Thresholds.
    pub policy: Policy,
    /// Listening ports to watch; empty for every one.
    pub ports: Vec<u16>,
    /// How much is logged.
    pub log_level: LogLevel,
    /// Whose addresses are resolved to names.
    pub peers: Peers,
    /// Where the page of metrics is, on every address of the pod; 0 for nowhere. It is not 9464, the default of
    /// OpenTelemetry's exporters: a native sidecar listens before the application and would take it away.
    pub metrics_port: u16,
    /// Where spans and metrics go.
    pub otlp: Otlp,
    /// CPU and memory of the container.
    pub resources: Resources,
    /// The container's profile where it loads kernel programs; without capabilities it is always `RuntimeDefault`.
    pub seccomp_profile: SeccompProfile,
    /// Capabilities beyond `BPF`, `PERFMON` and `NET_ADMIN`, of [`EXTRA_CAPABILITIES`].
    pub extra_capabilities: Vec<String>,
    /// `k8s.cluster.name`; empty for none.
    pub cluster_name: String,
    /// Further settings of the sidecar, by their keys in its configuration.
    pub settings: BTreeMap<String, Value>,
    /// Further environment variables of the container. One with the name of ours takes its place.
    pub env: Vec<Value>,
}

/// What may be asked for beyond the usual: `SYS_RESOURCE` on kernels before 5.11 (memory locks), `SYS_ADMIN` for seccomp
/// profiles and kernels that know no `CAP_BPF`, `NET_RAW` for own window probes.
pub const EXTRA_CAPABILITIES: &[&str] = &["SYS_RESOURCE", "SYS_ADMIN", "NET_RAW"];

impl Default for Settings {
    fn default() -> Self {
        Self {
            image: String::new(),
            image_pull_policy: None,
            image_pull_secrets: Vec::new(),
            inject_by_default: false,
            native_sidecar: NativeSidecar::Auto,
            allow_host_network: false,
            default_pod_security: PodSecurity::Privileged,
            mode: Mode::Auto,
            policy: Policy::Default,
            ports: Vec::new(),
            log_level: LogLevel::Info,
            peers: Peers::Off,
            metrics_port: 9466,
            otlp: Otlp::default(),
            resources: Resources::default(),
            seccomp_profile: SeccompProfile::default(),
            extra_capabilities: Vec::new(),
            cluster_name: String::new(),
            settings: BTreeMap::new(),
            env: Vec::new(),
        }
    }
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{key}: {problem}")]
pub struct BadSetting {
    /// The key in the injector's file.
    pub key: String,
    /// What is wrong, and what would be right.
    pub problem: String,
}

impl Settings {
    /// Checks what the types do not: with settings that pass, no pod is refused by the API server because of them.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn check(&self) -> Result<(), BadSetting> {
        let bad = |key: &str, problem: String| Err(BadSetting { key: key.to_owned(), problem });
        if self.image.is_empty() || self.image.contains(char::is_whitespace) {
            return bad(
                "image",
                "the sidecar's image is needed, as NAME:TAG or NAME@sha256:DIGEST".to_owned(),
            );
        }
        if !self.otlp.endpoint.is_empty()
            && let Err(problem) = crate::annotations::endpoint(&self.otlp.endpoint)
        {
            return bad("otlp.endpoint", problem);
        }
        if let Err(problem) = crate::quantity::check(&self.resources) {
            return bad("resources", problem);
        }
        if self.ports.contains(&0) {
            return bad("ports", "a port is from 1 to 65535".to_owned());
        }
        if let Some(other) =
            self.extra_capabilities.iter().find(|name| !EXTRA_CAPABILITIES.contains(&name.as_str()))
        {
            return bad(
                "extraCapabilities",
                format!("`{other}` is none of {}", EXTRA_CAPABILITIES.join(", ")),
            );
        }
        let profile = &self.seccomp_profile;
        let fits = match profile.kind.as_str() {
            "RuntimeDefault" | "Unconfined" => profile.localhost_profile.is_none(),
            "Localhost" => profile.localhost_profile.is_some(),
            _ => false,
        };
        if !fits {
            return bad(
                "seccompProfile",
                "the type is RuntimeDefault, Unconfined, or Localhost with a localhostProfile".to_owned(),
            );
        }
        for (key, value) in &self.settings {
            if value.is_object() || value.is_null() {
                return bad(
                    &format!("settings.{key}"),
                    "keys are flat, as `leaks.reap: dry-run`, and have a value".to_owned(),
                );
            }
        }
        let named =
            |entry: &Value| entry.get("name").and_then(Value::as_str).is_some_and(|name| !name.is_empty());
        if let Some(index) = self.env.iter().position(|entry| !named(entry)) {
            return bad(
                &format!("env[{index}]"),
                "a variable has a name, and a value or a valueFrom".to_owned(),
            );
        }
        Ok(())
    }
}
