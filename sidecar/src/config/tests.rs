use std::collections::BTreeSet;
use std::path::Path;

use super::reference::{SETTINGS, render};
use super::*;
use crate::heartbeat::{AskedBy, Custom, Match};

fn from_yaml(text: &str) -> Result<Layer, ConfigError> {
    file::parse(text, Path::new("ackbeat.yaml"))
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
    for (text, key, expected) in [
        ("mode: turbo\n", "mode", "\"turbo\" is not one of auto, best-effort, ebpf, sock-diag"),
        ("ports: [70000]\n", "ports", "a list of ports from 1 to 65535"),
        ("ports:\n- 1\n- 70000\n", "ports", "a list of ports from 1 to 65535"),
        ("ports: 80\n", "ports", "80 is not a list of ports from 1 to 65535"),
        (
            "thresholds: {fresh_ms: soon}\n",
            "thresholds.fresh_ms",
            "\"soon\" is not a whole number of milliseconds",
        ),
        (
            "thresholds:\n  # a word\n  fresh_ms: soon\n",
            "thresholds.fresh_ms",
            "a whole number of milliseconds",
        ),
        ("thresholds: 5\n", "thresholds", "5 is not a mapping of settings"),
        (
            "mode: ebpf\nshutdown:\n  drain_ms: -1\n",
            "shutdown.drain_ms",
            "-1 is not a whole number of milliseconds",
        ),
        (
            "thresholds: {unreachable_retransmits: 256}\n",
            "thresholds.unreachable_retransmits",
            "from 1 to 255",
        ),
        ("export: {own_spans: 3}\n", "export.own_spans", "3 is not true or false"),
        ("log: [info]\n", "log", "is not a mapping of settings"),
        ("kubernetes: {peers: all}\n", "kubernetes.peers", "is not one of off, namespace, cluster"),
        ("kubernetes: {events: on}\n", "kubernetes.events", "is not one of auto, off"),
    ] {
        let message = from_yaml(text).unwrap_err().to_string();
        assert!(message.contains(&format!("key \"{key}\": ")), "{text:?}: {message}");
        assert!(message.contains(expected), "{text:?}: {message}");
        assert!(message.contains("line "), "{text:?}: {message}");
    }
    for (text, named) in [
        ("ports: []\n", "ports"),
        ("recording: {file: ''}\n", "recording.file"),
        ("recording: {max_bytes: 4095}\n", "recording.max_bytes"),
        ("thresholds: {sample_interval_ms: 1}\n", "thresholds.sample_interval_ms"),
        ("shutdown: {flush_ms: 86400001}\n", "shutdown.flush_ms"),
    ] {
        let message = Settings::resolve(from_yaml(text).unwrap()).unwrap_err().to_string();
        assert!(message.starts_with(&format!("{named}: ")), "{text:?}: {message}");
    }
}

#[test]
fn a_file_that_is_no_mapping_is_told_without_a_librarys_words() {
    for text in ["- 80\n- 90\n", "just a word\n", "7\n"] {
        let message = from_yaml(text).unwrap_err().to_string();
        assert!(message.contains("not a mapping of settings"), "{text:?}: {message}");
    }
    let message = from_yaml("mode: ebpf\npolicy: fast\nmode: auto\n").unwrap_err().to_string();
    assert!(message.ends_with("line 3, column 1: key \"mode\" stands twice"), "{message}");
    let message = from_yaml("mode: [ebpf\n").unwrap_err().to_string();
    assert!(message.contains("ackbeat.yaml"), "{message}");
}

#[test]
fn every_threshold_has_an_upper_bound() {
    for setting in SETTINGS.iter().filter(|setting| setting.key.starts_with("thresholds.")) {
        let (_, name) = setting.key.split_once('.').unwrap();
        let end = *ThresholdsLayer::range(name).unwrap().end();
        for (value, fits) in [(end, true), (end.saturating_add(1), false)] {
            let environment = Environment::from_variables([(setting.variable(), value.to_string())]);
            let loaded = Settings::load(Layer::default(), None, &environment);
            assert_eq!(loaded.is_ok(), fits, "{} = {value}", setting.key);
            let written =
                from_yaml(&format!("thresholds: {{{name}: {value}}}\n")).and_then(Settings::resolve);
            assert_eq!(written.is_ok(), fits, "{} = {value}", setting.key);
            if let (Err(from_environment), Err(from_file)) = (loaded, written) {
                assert!(from_environment.to_string().contains(&setting.variable()), "{from_environment}");
                assert!(from_file.to_string().contains(setting.key), "{from_file}");
            }
        }
    }
    for policy in [Policy::default_policy(), Policy::fast_policy()] {
        assert_eq!(ThresholdsLayer::check(&policy), Ok(()));
    }
    let endless = Policy { silent_after_ms: u64::MAX, ..Policy::default_policy() };
    let message = ThresholdsLayer::check(&endless).unwrap_err().to_string();
    assert_eq!(message, format!("thresholds.silent_after_ms: {} is not from 0 to 86400000", u64::MAX));
}

#[test]
fn a_file_without_an_end_is_not_read_to_its_end() {
    let message = Settings::load(Layer::default(), Some(Path::new("/dev/zero")), &no_environment())
        .unwrap_err()
        .to_string();
    assert!(message.contains("/dev/zero") && message.contains("1048576 bytes"), "{message}");
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
    // Not the link of a Service, but a slip of the pen.
    let message = load("ACKBEAT_PORT", "8080").unwrap_err().to_string();
    assert!(message.contains("ACKBEAT_PORT"), "{message}");
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
fn the_page_of_metrics_is_where_the_setting_says_and_else_where_the_variables_do() {
    let by_variables: SocketAddr = "0.0.0.0:9999".parse().unwrap();
    for (text, page_at) in [
        ("", Some(by_variables)),
        ("metrics: {listen: off}\n", None),
        ("metrics: {listen: '[::1]:7'}\n", Some("[::1]:7".parse().unwrap())),
    ] {
        let settings = Settings::resolve(from_yaml(text).unwrap()).unwrap();
        assert_eq!(settings.metrics.page_at(Some(by_variables)), page_at, "{text:?}");
    }
    let settings = Settings::resolve(from_yaml("metrics: {listen: '127.0.0.1:7'}\n").unwrap()).unwrap();
    // Ackbeat's own setting is stronger than a list of exporters that leaves the page out.
    assert_eq!(settings.metrics.page_at(None), Some("127.0.0.1:7".parse().unwrap()));
    let message = from_yaml("metrics: {listen: 9464}\n").and_then(Settings::resolve).unwrap_err().to_string();
    assert!(message.contains("metrics.listen") && message.contains("127.0.0.1"), "{message}");
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
        peer_is_proxy: Some(ProxyChoice::Auto),
        close: Some(CloseLayer::default()),
        heartbeat: Some(HeartbeatLayer { custom: Some(CustomLayer::default()), ..HeartbeatLayer::default() }),
        probe: Some(ProbeLayer::default()),
        leaks: Some(LeaksLayer::default()),
        api: Some(ApiLayer::default()),
        metrics: Some(MetricsLayer::default()),
        kubernetes: Some(KubernetesLayer::default()),
        recording: Some(RecordingLayer::default()),
        log: Some(LogLayer::default()),
        export: Some(ExportLayer::default()),
        security: Some(SecurityLayer::default()),
        shutdown: Some(ShutdownLayer::default()),
    };
    let mut keys = BTreeSet::new();
    collect(&serde_json::to_value(full).unwrap(), "", &mut keys);
    keys
}

fn collect(tree: &serde_json::Value, above: &str, keys: &mut BTreeSet<String>) {
    for (name, value) in tree.as_object().unwrap() {
        let key = format!("{above}{name}");
        if value.is_object() {
            collect(value, &format!("{key}."), keys);
        } else {
            keys.insert(key);
        }
    }
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
            reference::ValueKind::Quotas => "remote:8080=64, local:[fd00::1]:90=5",
            reference::ValueKind::Profiles => "json, engine.io",
            reference::ValueKind::Listen => "127.0.0.1:9000",
            reference::ValueKind::Bytes => "8192",
            reference::ValueKind::CloseCodes => "1008, 4003",
            reference::ValueKind::Milliseconds => "777",
            _ => "77",
        };
        let environment = Environment::from_variables([(setting.variable(), value)]);
        let layer = environment.layer().unwrap();
        assert_ne!(layer, Layer::default(), "{} was read and lost", setting.variable());
    }
}

#[test]
fn what_is_deployed_is_told_and_codes_that_are_none_are_refused() {
    let settings = |text: &str| Settings::resolve(from_yaml(text).unwrap());
    assert_eq!(settings("").unwrap().deployment, Deployment::default());
    let told = settings("peer_is_proxy: yes\nclose:\n  final_codes: [4003]\n").unwrap().deployment;
    assert_eq!(told, Deployment { peer_is_proxy: PeerIsProxy::Yes, final_codes: vec![4003] });
    assert!(settings("close:\n  final_codes: []\n").unwrap().deployment.final_codes.is_empty());
    let refused = settings("close:\n  final_codes: [1008, 999]\n").unwrap_err().to_string();
    assert!(refused.contains("close.final_codes") && refused.contains("999"), "{refused}");
}

fn heartbeats(text: &str) -> Result<Selection, ConfigError> {
    from_yaml(text).and_then(Settings::resolve).map(|settings| settings.heartbeats)
}

#[test]
fn heartbeat_profiles_are_off_auto_or_a_list() {
    use ackbeat_liveness::HeartbeatProfile::{EngineIo, Json};
    assert!(heartbeats("mode: auto\n").unwrap().is_off());
    for off in
        ["heartbeat: {profiles: off}\n", "heartbeat: {profiles: \"off\"}\n", "heartbeat:\n  profiles: off\n"]
    {
        assert!(heartbeats(off).unwrap().is_off(), "{off}");
    }
    assert_eq!(heartbeats("heartbeat: {profiles: auto}\n").unwrap(), Selection::auto(None));
    let listed = Selection::listed(&[Json, EngineIo], None);
    assert_eq!(heartbeats("heartbeat: {profiles: [engine.io, json]}\n").unwrap(), listed);
    assert_eq!(heartbeats("heartbeat: {profiles: 'json,engine.io'}\n").unwrap(), listed);
    let environment = Environment::from_variables([
        ("ACKBEAT_HEARTBEAT_PROFILES", "auto"),
        ("ACKBEAT_HEARTBEAT_CUSTOM_QUESTION", " hb"),
        ("ACKBEAT_HEARTBEAT_CUSTOM_ASKED_BY", "host"),
    ]);
    let file = from_yaml("heartbeat: {custom: {question: x, answer: ok, match: prefix}}\n").unwrap();
    let settings = Settings::load(file, None, &environment).unwrap();
    let custom = Custom {
        question: "x".to_owned(),
        answer: Some("ok".to_owned()),
        matching: Match::Prefix,
        asked_by: AskedBy::Host,
    };
    assert_eq!(
        settings.heartbeats,
        Selection::auto(Some(custom)),
        "the command line is stronger, key by key"
    );
}

#[test]
fn heartbeat_settings_that_are_wrong_are_named() {
    for (text, named) in [
        (
            "heartbeat: {profiles: [jason]}\n",
            "key \"heartbeat.profiles\": [\"jason\"] is not off, auto, or a list of",
        ),
        ("heartbeat: {profiles: on}\n", "heartbeat.profiles"),
        ("heartbeat: {profiles: []}\n", "heartbeat.profiles"),
        ("heartbeat: {profiles: [rfc6455]}\n", "heartbeat.profiles"),
        ("heartbeat: {custom: {quest: x}}\n", "unknown key \"heartbeat.custom.quest\""),
        ("thresholds.fresh_ms: 3\n", "`thresholds:` is a section; write `fresh_ms:` indented below it"),
        ("mode: ebpf\n---\nmode: ebpf\n", "several documents"),
        ("heartbeat: {custom: x}\n", "key \"heartbeat.custom\": \"x\" is not a mapping of settings"),
        ("heartbeat: {profiles: auto, custom: {question: ''}}\n", "a text of 1 to 125 bytes"),
        ("heartbeat: {profiles: [custom]}\n", "heartbeat.custom.question"),
        ("heartbeat: {custom: {question: hb}}\n", "unless `heartbeat.profiles` names custom"),
        ("heartbeat: {profiles: auto, custom: {answer: hb}}\n", "heartbeat.custom.question"),
        ("heartbeat: {profiles: auto, custom: {question: hb, answer: hb}}\n", "heartbeat.custom.asked_by"),
        ("heartbeat: {profiles: auto, custom: {question: hb, match: like}}\n", "one of exact, prefix"),
    ] {
        let message = heartbeats(text).unwrap_err().to_string();
        assert!(message.contains(named), "{text:?}: {message}");
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

#[test]
fn every_threshold_has_a_reason() {
    let thresholds = SETTINGS.iter().filter_map(|setting| setting.key.strip_prefix("thresholds."));
    for name in thresholds {
        assert!(!super::reasons::reason(name).is_empty(), "{name} has no reason");
    }
}
