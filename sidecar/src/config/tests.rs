use std::collections::BTreeSet;
use std::path::Path;

use super::reference::{SETTINGS, render};
use super::*;

fn from_yaml(text: &str) -> Result<Layer, ConfigError> {
    layer::parse(text, Path::new("ackbeat.yaml"))
}

fn no_environment() -> Environment {
    Environment::from_variables(Vec::<(String, String)>::new())
}

#[test]
fn the_defaults_need_nothing() {
    let settings = Settings::load(Layer::default(), None, &no_environment()).unwrap();
    assert_eq!(settings.ports, Ports::Listening);
    assert_eq!(settings.mode, ModeChoice::Auto);
    assert_eq!(settings.policy, Policy::default_policy());
    assert_eq!(settings.recording.max_bytes, 256 * 1024 * 1024);
}

#[test]
fn an_unknown_key_is_refused_by_name_and_line() {
    let message = from_yaml("mode: ebpf\nportss: [1]\n").unwrap_err().to_string();
    assert!(message.contains("portss") && message.contains("line 2"), "{message}");
    let message = from_yaml("thresholds:\n  fresh: 1\n").unwrap_err().to_string();
    assert!(message.contains("fresh") && message.contains("line 2"), "{message}");
}

#[test]
fn a_wrong_value_is_refused_by_name() {
    for (text, named) in [
        ("mode: turbo\n", "turbo"),
        ("ports: [70000]\n", "\"ports\""),
        ("ports:\n- 1\n- 70000\n", "\"ports\""),
        ("thresholds: {fresh_ms: soon}\n", "\"thresholds\""),
        ("thresholds:\n  # a word\n  fresh_ms: soon\n", "\"thresholds.fresh_ms\""),
        ("mode: ebpf\nshutdown:\n  drain_ms: -1\n", "\"shutdown.drain_ms\""),
    ] {
        let message = from_yaml(text).unwrap_err().to_string();
        assert!(message.contains(named), "{text:?}: {message}");
    }
    let zero = from_yaml("ports: []\n").unwrap();
    assert!(Settings::resolve(zero).unwrap_err().to_string().starts_with("ports"));
    let fast_sampler = from_yaml("thresholds: {sample_interval_ms: 1}\n").unwrap();
    let message = Settings::resolve(fast_sampler).unwrap_err().to_string();
    assert!(message.contains("thresholds.sample_interval_ms"), "{message}");
}

#[test]
fn environment_variables_are_refused_by_name_too() {
    let load = |name: &str, value: &str| {
        Settings::load(Layer::default(), None, &Environment::from_variables([(name, value)]))
    };
    let message = load("ACKBEAT_THRESHOLD_FRESH_MS", "1").unwrap_err().to_string();
    assert!(message.contains("ACKBEAT_THRESHOLD_FRESH_MS"), "{message}");
    let message = load("ACKBEAT_MODE", "turbo").unwrap_err().to_string();
    assert!(message.contains("ACKBEAT_MODE") && message.contains("sock-diag"), "{message}");
    let message = load("ACKBEAT_PORTS", "80,x").unwrap_err().to_string();
    assert!(message.contains("ACKBEAT_PORTS"), "{message}");
    for service_link in
        ["ACKBEAT_SERVICE_HOST", "ACKBEAT_PORT", "ACKBEAT_PORT_4317_TCP_ADDR", "ACKBEAT_SERVICE_PORT_HTTP"]
    {
        assert!(load(service_link, "tcp://10.0.0.1:80").is_ok(), "{service_link}");
    }
}

#[test]
fn the_command_line_beats_the_environment_beats_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ackbeat.yaml");
    std::fs::write(
        &path,
        "mode: ebpf\npolicy: fast\nports: [1]\nthresholds: {fresh_ms: 11, silent_after_ms: 12}\n",
    )
    .unwrap();
    let environment = Environment::from_variables([
        ("ACKBEAT_CONFIG", path.to_str().unwrap()),
        ("ACKBEAT_POLICY", "default"),
        ("ACKBEAT_PORTS", "2, 3"),
        ("ACKBEAT_THRESHOLDS_FRESH_MS", "21"),
        ("ACKBEAT_LOG_FORMAT", ""),
    ]);
    let command_line = Layer { ports: Some(vec![4]), ..Layer::default() };
    let settings = Settings::load(command_line, None, &environment).unwrap();
    assert_eq!(settings.ports, Ports::Listed(vec![4]));
    assert_eq!(settings.policy_name, PolicyName::Default);
    assert_eq!(settings.mode, ModeChoice::Ebpf);
    assert_eq!((settings.policy.fresh_ms, settings.policy.silent_after_ms), (21, 12));
    assert_eq!(settings.policy.stalled_after_ms, Policy::default_policy().stalled_after_ms);
}

#[test]
fn a_missing_file_is_named() {
    let message = Settings::load(Layer::default(), Some(Path::new("/nowhere/a.yaml")), &no_environment())
        .unwrap_err()
        .to_string();
    assert!(message.contains("/nowhere/a.yaml"), "{message}");
}

#[test]
fn a_file_of_comments_sets_nothing() {
    assert_eq!(from_yaml("# nothing yet\n").unwrap(), Layer::default());
}

/// Every key that the structs have, found by filling each one in.
fn keys_of_the_structs() -> BTreeSet<String> {
    let full = Layer {
        ports: Some(vec![1]),
        mode: Some(ModeChoice::Auto),
        policy: Some(PolicyName::Default),
        thresholds: Some(ThresholdsLayer::default()),
        recording: Some(RecordingLayer::default()),
        log: Some(LogLayer::default()),
        export: Some(ExportLayer::default()),
        shutdown: Some(ShutdownLayer::default()),
    };
    let mut keys = BTreeSet::new();
    let tree = serde_json::to_value(full).unwrap();
    for (section, value) in tree.as_object().unwrap() {
        match value.as_object() {
            Some(inner) => keys.extend(inner.keys().map(|key| format!("{section}.{key}"))),
            None => {
                keys.insert(section.clone());
            }
        }
    }
    keys
}

#[test]
fn the_table_holds_every_setting_and_nothing_else() {
    let table: BTreeSet<String> = SETTINGS.iter().map(|setting| setting.key.to_owned()).collect();
    assert_eq!(table, keys_of_the_structs());
    assert_eq!(table.len(), SETTINGS.len(), "a key stands twice");
}

#[test]
fn every_setting_can_come_from_the_environment() {
    for setting in SETTINGS {
        let value = match setting.kind {
            reference::ValueKind::Word(words) => words[0],
            reference::ValueKind::Bool => "true",
            reference::ValueKind::Path => "/tmp/x",
            _ => "77",
        };
        let environment = Environment::from_variables([(setting.variable(), value)]);
        let layer = environment.layer().unwrap();
        assert_ne!(layer, Layer::default(), "{} was read and lost", setting.variable());
    }
}

#[test]
fn the_page_is_the_table() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("CONFIGURATION.md");
    if std::env::var_os("UPDATE_REFERENCE").is_some() {
        std::fs::write(&path, render()).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    assert!(page == render(), "CONFIGURATION.md is stale: UPDATE_REFERENCE=1 cargo test -p ackbeat config");
}
