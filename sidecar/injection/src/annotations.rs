//! What a pod chooses for itself.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::outcome::Skip;
use crate::quantity;
use crate::settings::{LogLevel, Mode, OtlpProtocol, Peers, Policy, Resources, Settings};

/// The names, as users write them.
pub mod names {
    /// `enabled` or `disabled`; on a pod, and as label or annotation on a namespace. The pod's word is the stronger one.
    pub const INJECT: &str = "ackbeat.dev/inject";
    /// Listening ports to watch, separated by commas.
    pub const PORTS: &str = "ackbeat.dev/ports";
    /// `default` or `fast`.
    pub const POLICY: &str = "ackbeat.dev/policy";
    /// `auto`, `ebpf` or `sock-diag`.
    pub const MODE: &str = "ackbeat.dev/mode";
    /// `off`, `error`, `warn`, `info`, `debug` or `trace`.
    pub const LOG_LEVEL: &str = "ackbeat.dev/log-level";
    /// `off`, `namespace` or `cluster`.
    pub const PEERS: &str = "ackbeat.dev/peers";
    /// URL of a collector.
    pub const OTLP_ENDPOINT: &str = "ackbeat.dev/otlp-endpoint";
    /// `grpc` or `http/protobuf`.
    pub const OTLP_PROTOCOL: &str = "ackbeat.dev/otlp-protocol";
    /// The container's request of CPU.
    pub const CPU_REQUEST: &str = "ackbeat.dev/cpu-request";
    /// Its limit of CPU.
    pub const CPU_LIMIT: &str = "ackbeat.dev/cpu-limit";
    /// Its request of memory.
    pub const MEMORY_REQUEST: &str = "ackbeat.dev/memory-request";
    /// Its limit of memory.
    pub const MEMORY_LIMIT: &str = "ackbeat.dev/memory-limit";
    /// Afterwards: what was added, in JSON.
    pub const STATUS: &str = "ackbeat.dev/status";
    /// Afterwards, a label: `true`.
    pub const INJECTED: &str = "ackbeat.dev/injected";
    /// Every annotation that a user may write.
    pub const ALL: &[&str] = &[
        INJECT,
        PORTS,
        POLICY,
        MODE,
        LOG_LEVEL,
        PEERS,
        OTLP_ENDPOINT,
        OTLP_PROTOCOL,
        CPU_REQUEST,
        CPU_LIMIT,
        MEMORY_REQUEST,
        MEMORY_LIMIT,
    ];
    /// What annotations of ours begin with.
    pub const PREFIX: &str = "ackbeat.dev/";
}

/// Longest list of ports: what a person would write, and a variable may hold.
const PORTS_MAX: usize = 1_024;

/// Whether something asks for a sidecar: `enabled`, `disabled`, or what else was written.
pub(crate) fn inject(word: &str) -> Result<bool, String> {
    match word {
        "enabled" => Ok(true),
        "disabled" => Ok(false),
        other => Err(format!("`{other}` is neither enabled nor disabled")),
    }
}

/// The settings of one pod: the operator's, and over them the pod's annotations.
#[derive(Clone, Debug)]
pub(crate) struct Chosen {
    pub(crate) settings: Settings,
    /// The pod names ports itself.
    pub(crate) warnings: Vec<String>,
}

impl Chosen {
    pub(crate) fn new(settings: &Settings, annotations: Option<&Map<String, Value>>) -> Result<Self, Skip> {
        let mut chosen = Self { settings: settings.clone(), warnings: Vec::new() };
        let Some(annotations) = annotations else { return Ok(chosen) };
        for (name, value) in annotations {
            if !name.starts_with(names::PREFIX) || [names::STATUS, names::INJECTED].contains(&name.as_str()) {
                continue;
            }
            let bad = |problem: String| Skip::BadAnnotation { name: name.clone(), problem };
            let Some(text) = value.as_str() else {
                return Err(bad("the value of an annotation is a text; quote it".to_owned()));
            };
            if !names::ALL.contains(&name.as_str()) {
                chosen.warnings.push(format!("annotation {name} is unknown and has no effect"));
                continue;
            }
            chosen.apply(name, text.trim()).map_err(bad)?;
        }
        if let Err(problem) = quantity::check(&chosen.settings.resources) {
            // The operator's own were checked when they were read, so the annotations made it so.
            let name = [names::MEMORY_REQUEST, names::MEMORY_LIMIT, names::CPU_REQUEST, names::CPU_LIMIT]
                .into_iter()
                .find(|name| annotations.contains_key(*name) && problem.contains(resource(name)))
                .unwrap_or(names::MEMORY_REQUEST);
            return Err(Skip::BadAnnotation { name: name.to_owned(), problem });
        }
        Ok(chosen)
    }

    fn apply(&mut self, name: &str, text: &str) -> Result<(), String> {
        let settings = &mut self.settings;
        match name {
            names::PORTS => settings.ports = ports(text)?,
            names::POLICY => settings.policy = word(text, Policy::from_word, Policy::WORDS)?,
            names::MODE => settings.mode = word(text, Mode::from_word, Mode::WORDS)?,
            names::LOG_LEVEL => settings.log_level = word(text, LogLevel::from_word, LogLevel::WORDS)?,
            names::PEERS => settings.peers = word(text, Peers::from_word, Peers::WORDS)?,
            names::OTLP_ENDPOINT => {
                endpoint(text)?;
                text.clone_into(&mut settings.otlp.endpoint);
            }
            names::OTLP_PROTOCOL => {
                settings.otlp.protocol = word(text, OtlpProtocol::from_word, OtlpProtocol::WORDS)?;
            }
            names::CPU_REQUEST | names::MEMORY_REQUEST => {
                set_quantity(&mut settings.resources.requests, name, text)?;
            }
            names::CPU_LIMIT | names::MEMORY_LIMIT => {
                set_quantity(&mut settings.resources.limits, name, text)?;
            }
            // INJECT, which is read before.
            _ => {}
        }
        Ok(())
    }
}

fn resource(annotation: &str) -> &'static str {
    if annotation.contains("/cpu-") { "cpu" } else { "memory" }
}

fn set_quantity(quantities: &mut BTreeMap<String, String>, name: &str, text: &str) -> Result<(), String> {
    let resource = resource(name);
    if quantity::parse(text).is_none() {
        return Err(format!("`{text}` is no quantity of {resource}; write 100m, 0.5, 64Mi or the like"));
    }
    quantities.insert(resource.to_owned(), text.to_owned());
    let resources = Resources { requests: quantities.clone(), limits: BTreeMap::new() };
    quantity::check(&resources)
}

fn word<T>(text: &str, from_word: fn(&str) -> Option<T>, words: &[&str]) -> Result<T, String> {
    from_word(text).ok_or_else(|| format!("`{text}` is none of {}", words.join(", ")))
}

fn ports(text: &str) -> Result<Vec<u16>, String> {
    let ports: Result<Vec<u16>, String> = text
        .split(',')
        .map(|port| match port.trim().parse() {
            Ok(port) if port > 0 => Ok(port),
            _ => Err(format!("`{}` is no port from 1 to 65535; write 8080,9090", port.trim())),
        })
        .collect();
    match ports {
        Ok(ports) if ports.len() > PORTS_MAX => Err(format!("more than {PORTS_MAX} ports")),
        other => other,
    }
}

/// What stands for the address of the pod's node in an endpoint.
pub(crate) const NODE_IP: &str = "$(NODE_IP)";

/// Whether a text can be an OTLP endpoint. The error says why not.
pub(crate) fn endpoint(text: &str) -> Result<(), String> {
    let example = "write http://HOST:PORT or https://HOST:PORT";
    let rest = text
        .strip_prefix("http://")
        .or_else(|| text.strip_prefix("https://"))
        .ok_or_else(|| format!("`{text}` has no scheme; {example}"))?;
    let rest = rest.replace(NODE_IP, "node");
    if let Some(letter) = rest
        .chars()
        .find(|letter| letter.is_whitespace() || letter.is_control() || "$\"<>\\^`{|}".contains(*letter))
    {
        return Err(format!("{letter:?} cannot be in a URL; {example}"));
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        // The colons of an IPv6 address stand in brackets.
        Some((host, port)) if !port.contains(']') => (host, Some(port)),
        _ => (authority, None),
    };
    if host.is_empty() || host.contains('@') {
        return Err(format!("`{text}` has no host, or a password; {example}"));
    }
    if port.is_some_and(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Err(format!("`{text}` has no port from 1 to 65535; {example}"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints() {
        for good in [
            "http://otel-collector.observability:4317",
            "https://[2001:db8::1]:4318/v1",
            "http://$(NODE_IP):4317",
            "http://collector",
        ] {
            assert_eq!(endpoint(good), Ok(()), "{good}");
        }
        for bad in [
            "",
            "collector:4317",
            "http://",
            "http://:4317",
            "http://a:0",
            "http://a:99999",
            "http://a b",
            "http://$(X):1",
        ] {
            assert!(endpoint(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn lists_of_ports() {
        assert_eq!(ports("8080, 9090"), Ok(vec![8080, 9090]));
        for bad in ["", "0", "8080,", "http", "65536", "8080-8090"] {
            assert!(ports(bad).is_err(), "{bad}");
        }
    }
}
