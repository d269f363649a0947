//! The Pod Security Standards as code: every control of both levels, by the name that the standard gives it.
//!
//! Source: <https://kubernetes.io/docs/concepts/security/pod-security-standards/>, as of Kubernetes 1.37, for pods of Linux.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::Value;

/// The two levels that forbid something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Known privilege escalations are forbidden.
    Baseline,
    /// Current best practice for hardening. Contains [`Level::Baseline`].
    Restricted,
}

/// One control of the standard.
pub struct Control {
    /// The level that brings it.
    pub level: Level,
    /// Its name in the standard.
    pub name: &'static str,
    check: fn(&Pod<'_>) -> Vec<String>,
}

/// One way in which a pod breaks a control.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Violation {
    /// The level that forbids it.
    pub level: Level,
    /// The control's name in the standard.
    pub control: &'static str,
    /// The field and its value.
    pub what: String,
}

/// All controls, in the standard's order.
pub const CONTROLS: [Control; 18] = [
    Control { level: Level::Baseline, name: "HostProcess", check: host_process },
    Control { level: Level::Baseline, name: "Host Namespaces", check: host_namespaces },
    Control { level: Level::Baseline, name: "Privileged Containers", check: privileged },
    Control { level: Level::Baseline, name: "Capabilities", check: capabilities },
    Control { level: Level::Baseline, name: "HostPath Volumes", check: host_path },
    Control { level: Level::Baseline, name: "Host Ports", check: host_ports },
    Control { level: Level::Baseline, name: "Host Probes / Lifecycle Hooks", check: host_probes },
    Control { level: Level::Baseline, name: "AppArmor", check: app_armor },
    Control { level: Level::Baseline, name: "SELinux", check: se_linux },
    Control { level: Level::Baseline, name: "/proc Mount Type", check: proc_mount },
    Control { level: Level::Baseline, name: "Seccomp", check: seccomp },
    Control { level: Level::Baseline, name: "Sysctls", check: sysctls },
    Control { level: Level::Restricted, name: "Volume Types", check: volume_types },
    Control { level: Level::Restricted, name: "Privilege Escalation", check: privilege_escalation },
    Control { level: Level::Restricted, name: "Running as Non-root", check: non_root },
    Control { level: Level::Restricted, name: "Running as Non-root user", check: non_root_user },
    Control { level: Level::Restricted, name: "Seccomp", check: seccomp_restricted },
    Control { level: Level::Restricted, name: "Capabilities", check: capabilities_restricted },
];

/// Capabilities that *baseline* lets a container add.
const BASELINE_CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];
const SELINUX_TYPES: [&str; 5] =
    ["", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"];
const SAFE_SYSCTLS: [&str; 12] = [
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_syncookies",
    "net.ipv4.tcp_wmem",
];
const VOLUME_TYPES: [&str; 8] = [
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "persistentVolumeClaim",
    "projected",
    "secret",
];
const PROBES: [&str; 5] =
    ["/livenessProbe", "/readinessProbe", "/startupProbe", "/lifecycle/postStart", "/lifecycle/preStop"];

/// A pod as the controls look at it.
struct Pod<'a> {
    spec: &'a Value,
    annotations: &'a Value,
    /// Containers of all three kinds, each with its field.
    containers: Vec<(String, &'a Value)>,
}

/// Everything that the standard's two levels find wrong with a pod.
#[must_use]
pub fn violations(spec: &Value, annotations: &Value) -> Vec<Violation> {
    let mut containers = Vec::new();
    for kind in ["initContainers", "containers", "ephemeralContainers"] {
        for container in array(&spec[kind]) {
            containers.push((format!("{kind}.{}", container["name"].as_str().unwrap_or("?")), container));
        }
    }
    let pod = Pod { spec, annotations, containers };
    CONTROLS
        .iter()
        .flat_map(|control| {
            (control.check)(&pod).into_iter().map(|what| Violation {
                level: control.level,
                control: control.name,
                what,
            })
        })
        .collect()
}

/// `level: control` of every control that is broken.
#[must_use]
pub fn broken_controls(spec: &Value, annotations: &Value) -> BTreeSet<String> {
    violations(spec, annotations)
        .iter()
        .map(|violation| format!("{:?}: {}", violation.level, violation.control))
        .collect()
}

impl fmt::Display for Violation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:?}: {}: {}", self.level, self.control, self.what)
    }
}

impl Pod<'_> {
    /// The pod's security context and every container's, each with its field.
    fn security_contexts(&self) -> Vec<(String, &Value)> {
        let of_containers = self
            .containers
            .iter()
            .map(|(field, container)| (format!("{field}.securityContext"), &container["securityContext"]));
        std::iter::once(("securityContext".to_owned(), &self.spec["securityContext"]))
            .chain(of_containers)
            .collect()
    }

    /// What every security context has at `pointer`, where `forbidden` says so.
    fn forbidden_in_contexts(&self, pointer: &str, forbidden: impl Fn(&Value) -> bool) -> Vec<String> {
        self.security_contexts()
            .into_iter()
            .filter_map(|(field, context)| {
                let value = context.pointer(pointer).filter(|value| forbidden(value))?;
                Some(format!("{field}{} = {value}", pointer.replace('/', ".")))
            })
            .collect()
    }

    /// Containers whose own value, or the pod's where they have none, is not `allowed`.
    fn not_allowed_after_inheritance(&self, pointer: &str, allowed: impl Fn(&Value) -> bool) -> Vec<String> {
        let of_pod = self.spec["securityContext"].pointer(pointer).unwrap_or(&Value::Null);
        self.containers
            .iter()
            .filter_map(|(field, container)| {
                let own = container["securityContext"].pointer(pointer).filter(|value| !value.is_null());
                let value = own.unwrap_or(of_pod);
                let path = pointer.replace('/', ".");
                (!allowed(value)).then(|| format!("{field}.securityContext{path} = {value}"))
            })
            .collect()
    }
}

fn array(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

fn one_of(value: &Value, allowed: &[&str]) -> bool {
    value.is_null() || allowed.contains(&text(value))
}

fn host_process(pod: &Pod<'_>) -> Vec<String> {
    pod.forbidden_in_contexts("/windowsOptions/hostProcess", |value| *value == true)
}

fn host_namespaces(pod: &Pod<'_>) -> Vec<String> {
    ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod.spec[*field] == true)
        .map(|field| format!("{field} = true"))
        .collect()
}

fn privileged(pod: &Pod<'_>) -> Vec<String> {
    pod.forbidden_in_contexts("/privileged", |value| *value == true)
}

fn added_capabilities(pod: &Pod<'_>, allowed: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (field, container) in &pod.containers {
        for capability in array(&container["securityContext"]["capabilities"]["add"]) {
            if !allowed.contains(&text(capability)) {
                found.push(format!("{field}.securityContext.capabilities.add has {capability}"));
            }
        }
    }
    found
}

fn capabilities(pod: &Pod<'_>) -> Vec<String> {
    added_capabilities(pod, &BASELINE_CAPABILITIES)
}

fn host_path(pod: &Pod<'_>) -> Vec<String> {
    array(&pod.spec["volumes"])
        .filter(|volume| !volume["hostPath"].is_null())
        .map(|volume| format!("volumes.{} is a hostPath", text(&volume["name"])))
        .collect()
}

fn host_ports(pod: &Pod<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (field, container) in &pod.containers {
        for port in array(&container["ports"]) {
            if port["hostPort"].as_u64().is_some_and(|number| number != 0) {
                found.push(format!("{field}.ports has hostPort {}", port["hostPort"]));
            }
        }
    }
    found
}

/// Since 1.34.
fn host_probes(pod: &Pod<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for (field, container) in &pod.containers {
        for probe in PROBES {
            for action in ["httpGet", "tcpSocket"] {
                let pointer = format!("{probe}/{action}/host");
                let host = container.pointer(&pointer).map(text).unwrap_or_default();
                if !host.is_empty() {
                    found.push(format!("{field}{} = {host}", pointer.replace('/', ".")));
                }
            }
        }
    }
    found
}

fn app_armor(pod: &Pod<'_>) -> Vec<String> {
    let mut found = pod.forbidden_in_contexts("/appArmorProfile/type", |value| {
        !one_of(value, &["RuntimeDefault", "Localhost"])
    });
    for (key, value) in pod.annotations.as_object().into_iter().flatten() {
        let is_profile = key.starts_with("container.apparmor.security.beta.kubernetes.io/");
        let profile = text(value);
        if is_profile && profile != "runtime/default" && !profile.starts_with("localhost/") {
            found.push(format!("annotation {key} = {profile}"));
        }
    }
    found
}

fn se_linux(pod: &Pod<'_>) -> Vec<String> {
    let mut found = pod.forbidden_in_contexts("/seLinuxOptions/type", |value| !one_of(value, &SELINUX_TYPES));
    for field in ["user", "role"] {
        found.extend(
            pod.forbidden_in_contexts(&format!("/seLinuxOptions/{field}"), |value| !one_of(value, &[""])),
        );
    }
    found
}

fn proc_mount(pod: &Pod<'_>) -> Vec<String> {
    pod.forbidden_in_contexts("/procMount", |value| !one_of(value, &["Default"]))
}

fn seccomp(pod: &Pod<'_>) -> Vec<String> {
    pod.forbidden_in_contexts("/seccompProfile/type", |value| {
        !one_of(value, &["RuntimeDefault", "Localhost"])
    })
}

fn sysctls(pod: &Pod<'_>) -> Vec<String> {
    array(&pod.spec["securityContext"]["sysctls"])
        .map(|sysctl| text(&sysctl["name"]))
        .filter(|name| !SAFE_SYSCTLS.contains(name))
        .map(|name| format!("securityContext.sysctls has {name}"))
        .collect()
}

fn volume_types(pod: &Pod<'_>) -> Vec<String> {
    let mut found = Vec::new();
    for volume in array(&pod.spec["volumes"]) {
        for (key, _) in volume.as_object().into_iter().flatten() {
            if key != "name" && !VOLUME_TYPES.contains(&key.as_str()) {
                found.push(format!("volumes.{} is a {key}", text(&volume["name"])));
            }
        }
    }
    found
}

fn privilege_escalation(pod: &Pod<'_>) -> Vec<String> {
    pod.containers
        .iter()
        .filter(|(_, container)| container["securityContext"]["allowPrivilegeEscalation"] != false)
        .map(|(field, _)| format!("{field}.securityContext.allowPrivilegeEscalation is not false"))
        .collect()
}

fn non_root(pod: &Pod<'_>) -> Vec<String> {
    pod.not_allowed_after_inheritance("/runAsNonRoot", |value| *value == true)
}

fn non_root_user(pod: &Pod<'_>) -> Vec<String> {
    pod.forbidden_in_contexts("/runAsUser", |value| *value == 0)
}

fn seccomp_restricted(pod: &Pod<'_>) -> Vec<String> {
    pod.not_allowed_after_inheritance("/seccompProfile/type", |value| {
        ["RuntimeDefault", "Localhost"].contains(&text(value))
    })
}

fn capabilities_restricted(pod: &Pod<'_>) -> Vec<String> {
    let mut found = added_capabilities(pod, &["NET_BIND_SERVICE"]);
    for (field, container) in &pod.containers {
        if !array(&container["securityContext"]["capabilities"]["drop"]).any(|dropped| dropped == "ALL") {
            found.push(format!("{field}.securityContext.capabilities.drop has no ALL"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn good() -> Value {
        json!({
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
            "containers": [{
                "name": "app",
                "securityContext": {"allowPrivilegeEscalation": false, "capabilities": {"drop": ["ALL"]}}
            }]
        })
    }

    /// For each control one change that breaks it, and what else that change must break with it.
    #[test]
    fn every_control_refuses_what_it_is_there_for() {
        assert!(violations(&good(), &Value::Null).is_empty());
        let cases = [
            ("/securityContext/windowsOptions", json!({"hostProcess": true}), vec!["Baseline: HostProcess"]),
            ("/hostPID", json!(true), vec!["Baseline: Host Namespaces"]),
            ("/hostIPC", json!(true), vec!["Baseline: Host Namespaces"]),
            ("/hostNetwork", json!(true), vec!["Baseline: Host Namespaces"]),
            (
                "/containers/0/securityContext/privileged",
                json!(true),
                vec!["Baseline: Privileged Containers"],
            ),
            (
                "/containers/0/securityContext/capabilities/add",
                json!(["BPF"]),
                vec!["Baseline: Capabilities", "Restricted: Capabilities"],
            ),
            (
                "/containers/0/securityContext/capabilities/add",
                json!(["CHOWN"]),
                vec!["Restricted: Capabilities"],
            ),
            (
                "/containers/0/securityContext/capabilities/drop",
                json!(["CHOWN"]),
                vec!["Restricted: Capabilities"],
            ),
            (
                "/volumes/0",
                json!({"name": "host", "hostPath": {"path": "/"}}),
                vec!["Baseline: HostPath Volumes", "Restricted: Volume Types"],
            ),
            ("/volumes/0", json!({"name": "nfs", "nfs": {}}), vec!["Restricted: Volume Types"]),
            ("/containers/0/ports", json!([{"hostPort": 80}]), vec!["Baseline: Host Ports"]),
            (
                "/containers/0/startupProbe",
                json!({"httpGet": {"host": "10.0.0.1", "port": 80}}),
                vec!["Baseline: Host Probes / Lifecycle Hooks"],
            ),
            (
                "/containers/0/securityContext/appArmorProfile",
                json!({"type": "Unconfined"}),
                vec!["Baseline: AppArmor"],
            ),
            ("/securityContext/seLinuxOptions", json!({"type": "spc_t"}), vec!["Baseline: SELinux"]),
            ("/securityContext/seLinuxOptions", json!({"user": "root"}), vec!["Baseline: SELinux"]),
            (
                "/containers/0/securityContext/procMount",
                json!("Unmasked"),
                vec!["Baseline: /proc Mount Type"],
            ),
            (
                "/containers/0/securityContext/seccompProfile",
                json!({"type": "Unconfined"}),
                vec!["Baseline: Seccomp", "Restricted: Seccomp"],
            ),
            ("/securityContext/seccompProfile", json!({}), vec!["Restricted: Seccomp"]),
            ("/securityContext/sysctls", json!([{"name": "kernel.msgmax"}]), vec!["Baseline: Sysctls"]),
            (
                "/containers/0/securityContext/allowPrivilegeEscalation",
                json!(true),
                vec!["Restricted: Privilege Escalation"],
            ),
            (
                "/containers/0/securityContext/runAsNonRoot",
                json!(false),
                vec!["Restricted: Running as Non-root"],
            ),
            (
                "/containers/0/securityContext/runAsUser",
                json!(0),
                vec!["Restricted: Running as Non-root user"],
            ),
        ];
        let mut seen = BTreeSet::new();
        for (pointer, value, expected) in cases {
            let mut pod = good();
            let (parent, key) = pointer.rsplit_once('/').expect("a pointer");
            match pod.pointer_mut(parent).expect("the parent is there") {
                Value::Array(list) => list[0] = value,
                parent => parent[key] = value,
            }
            let broken = broken_controls(&pod, &Value::Null);
            assert_eq!(broken.iter().map(String::as_str).collect::<Vec<_>>(), expected, "{pointer}");
            seen.extend(broken);
        }
        let all: BTreeSet<String> =
            CONTROLS.iter().map(|control| format!("{:?}: {}", control.level, control.name)).collect();
        assert_eq!(seen, all, "a control that nothing breaks");
        let annotated = json!({"container.apparmor.security.beta.kubernetes.io/app": "unconfined"});
        assert_eq!(
            broken_controls(&good(), &annotated).into_iter().collect::<Vec<_>>(),
            ["Baseline: AppArmor"]
        );
    }
}
