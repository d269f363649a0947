//! Detectors by name.

use ackbeat_detectors::{Need, Spec, SpecError};

#[test]
fn every_spec_reads_what_it_writes() {
    for spec in Spec::all() {
        assert_eq!(spec.to_string().parse::<Spec>().unwrap(), spec);
    }
    let names: Vec<String> = Spec::all().iter().map(ToString::to_string).collect();
    assert_eq!(
        names,
        [
            "ws-2",
            "ws-2-slow",
            "ws-readme",
            "buffered-gate",
            "any-inbound",
            "aiohttp",
            "python-websockets",
            "engine-io",
            "window-3x",
            "idle-probe",
            "idle-probe-fast",
            "user-timeout",
            "user-timeout:timeout_ms=30000",
            "keepalive",
            "phi",
            "queue-moved",
        ]
    );
}

#[test]
fn parameters_are_read_and_shown() {
    let spec: Spec = "ws-2:interval_ms=30000,missed=3".parse().unwrap();
    assert_eq!(
        spec.parameters().map(|(parameter, value)| (parameter.name, value)).collect::<Vec<_>>(),
        [("interval_ms", 30_000), ("missed", 3)]
    );
    assert!(spec.describe().ends_with("kills (interval_ms = 30000, missed = 3)"), "{}", spec.describe());
    assert_eq!(spec.needs(), [Need::Heartbeat]);
    assert!(Spec::all().iter().all(|spec| !spec.source().is_empty() && !spec.describe().contains('\n')));
}

#[test]
fn what_is_unknown_is_named_with_what_there_is() {
    let unknown = "ws-3".parse::<Spec>().unwrap_err();
    assert!(matches!(unknown, SpecError::UnknownDetector { .. }));
    assert!(unknown.to_string().starts_with("there is no detector `ws-3`; there are: ws-2, ws-2-slow, "));
    assert_eq!(
        "ws-2:interval=3".parse::<Spec>().unwrap_err().to_string(),
        "the detector `ws-2` has no parameter `interval`; it has: interval_ms, missed"
    );
    assert_eq!(
        "ws-2:missed=0".parse::<Spec>().unwrap_err().to_string(),
        "`0` is no value for `missed` of the detector `ws-2`: write a whole number from 1 to 86400000"
    );
    for text in ["ws-2:missed=-1", "ws-2:missed=", "ws-2:missed=1e3", "ws-2:missed=99999999999999999999"] {
        assert!(matches!(text.parse::<Spec>(), Err(SpecError::BadValue { .. })), "{text}");
    }
    assert!(matches!("ws-2:".parse::<Spec>(), Err(SpecError::NotAParameter { .. })));
    assert!(matches!("".parse::<Spec>(), Err(SpecError::UnknownDetector { .. })));
}
