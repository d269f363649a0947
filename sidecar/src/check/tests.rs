use super::*;

fn finding(purpose: Purpose, kind: Option<MissingKind>) -> Finding {
    Finding {
        name: "thing".to_owned(),
        purpose,
        is_required: true,
        missing: kind.map(|kind| Missing { kind, reason: "because".to_owned(), fix: "do this".to_owned() }),
    }
}

#[test]
fn the_explanation_names_reason_fix_and_the_mode_that_needs_nothing() {
    let findings = Findings(vec![
        finding(Purpose::Ebpf, Some(MissingKind::Privilege)),
        finding(Purpose::SockDiag, None),
    ]);
    let text = findings.explain();
    for part in ["thing", "because", "fix: do this", "--mode sock-diag"] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!findings.is_full());
}

#[test]
fn a_missing_privilege_is_never_papered_over() {
    let without = |kind| Findings(vec![finding(Purpose::Ebpf, Some(kind)), finding(Purpose::SockDiag, None)]);
    assert!(!without(MissingKind::Privilege).allow_fallback());
    assert!(without(MissingKind::Feature).allow_fallback());
    let nothing_works = Findings(vec![
        finding(Purpose::Ebpf, Some(MissingKind::Feature)),
        finding(Purpose::SockDiag, Some(MissingKind::Feature)),
    ]);
    assert!(!nothing_works.allow_fallback());
}

#[test]
fn everything_there_is_full() {
    let findings = Findings(vec![finding(Purpose::Ebpf, None), finding(Purpose::SockDiag, None)]);
    assert!(findings.is_full());
    assert!(findings.explain().contains("in full"));
}
