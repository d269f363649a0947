//! Why there is an Event, and the sentences in it. Pure.

use std::net::SocketAddr;
use std::time::Duration;

use ackbeat_liveness::CloseRecord;
use opentelemetry::TraceId;

use super::peers::PeerName;

/// Longest text of an Event, in bytes (`noteLengthLimit` of the API server is 1024).
pub const NOTE_MAX_BYTES: usize = 1_000;

/// The reason of an Event, as `kubectl describe pod` shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The host closed connections whose peers were there.
    FalseKill,
    /// Sockets are suspected of being a leak.
    LeakSuspected,
    /// Less is seen than was asked for.
    DegradedMode,
    /// A configuration that was read anew has a mistake.
    ConfigurationRefused,
}

impl Reason {
    /// Every value.
    pub const ALL: [Self; 4] =
        [Self::FalseKill, Self::LeakSuspected, Self::DegradedMode, Self::ConfigurationRefused];

    /// The stable word for it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::FalseKill => "FalseKill",
            Self::LeakSuspected => "LeakSuspected",
            Self::DegradedMode => "DegradedMode",
            Self::ConfigurationRefused => "ConfigurationRefused",
        }
    }

    /// What was done when it came about (`action` of an Event).
    #[must_use]
    pub const fn action(self) -> &'static str {
        match self {
            Self::FalseKill => "Close",
            Self::LeakSuspected => "TakeCensus",
            Self::DegradedMode => "Start",
            Self::ConfigurationRefused => "Reload",
        }
    }

    /// The text of an Event that stands for `count` of its reason within `time`, of which `latest` tells the latest one.
    #[must_use]
    pub fn note(self, latest: &str, count: u64, time: Duration) -> String {
        let seconds = time.as_secs().max(1);
        let text = match (self, count) {
            (Self::FalseKill, 0 | 1) => format!("the host killed a peer that was there, {latest}"),
            (Self::FalseKill, _) => {
                format!(
                    "the host killed {count} peers that were there within {seconds} s, the latest {latest}"
                )
            }
            (_, 0 | 1) => latest.to_owned(),
            _ => format!("{latest} (the latest of {count} within {seconds} s)"),
        };
        one_line(&text)
    }
}

/// Cuts a text to what an Event may hold, and to one line.
fn one_line(text: &str) -> String {
    let mut text: String =
        text.chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
    while text.len() > NOTE_MAX_BYTES {
        text.pop();
    }
    text
}

/// Which peer was killed, and what was known of it.
#[must_use]
pub(super) fn killed(record: &CloseRecord, peer: Option<&PeerName>, trace_id: TraceId) -> String {
    let ends = &record.endpoints;
    let address = SocketAddr::new(ends.peer_address.to_canonical(), ends.peer_port);
    let named = peer.map_or_else(String::new, |peer| format!(" ({peer})"));
    let mut text = format!(
        "{address}{named}: {} on port {}, verdict {} ({})",
        record.kind.as_str(),
        ends.local_port,
        record.assessed.verdict.as_str(),
        record.assessed.rung.as_str()
    );
    if let Some(missed) = record.assessed.heartbeat.missed {
        text.push_str(&format!(", missed {missed}"));
    }
    if let Some(bytes) = record.snapshot.as_ref().and_then(|snapshot| snapshot.send_queue_bytes) {
        text.push_str(&format!(", send queue {bytes} bytes"));
    }
    if let Some(postmortem) = record.postmortem {
        text.push_str(&format!(", post-mortem {}", postmortem.as_str()));
    }
    text.push_str(&format!(", trace {trace_id}"));
    text
}

/// Words for a start with less than was asked for.
pub mod degraded {
    use crate::config::ModeChoice;
    use crate::source::ebpf::MissingSignal;

    /// The kernel programs could not be had, for this reason.
    #[must_use]
    pub fn without_ebpf(mode: ModeChoice, reason: &str) -> String {
        format!(
            "mode {} goes on with sock-diag, without heartbeats, resets and the closing process: {reason}",
            mode.as_str()
        )
    }

    /// They run, and these signals are missing.
    #[must_use]
    pub fn without_signals(missing: &[MissingSignal]) -> String {
        let each: Vec<String> =
            missing.iter().map(|missing| format!("{} ({})", missing.signal, missing.reason)).collect();
        format!("mode ebpf goes on without {}", each.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ModeChoice;
    use crate::kubernetes::PeerKind;
    use crate::source::ebpf::MissingSignal;
    use crate::telemetry::test_records as records;

    const TRACE: TraceId = TraceId::from_bytes([0x0a; 16]);

    #[test]
    fn a_kill_is_told_in_one_sentence() {
        let record = records::false_kill();
        assert_eq!(
            Reason::FalseKill.note(&killed(&record, None, TRACE), 1, Duration::ZERO),
            "the host killed a peer that was there, 10.0.0.2:40001: heartbeat_kill on port 8080, verdict congested (drain), missed \
             2, send queue 4000 bytes, post-mortem app_progress, trace 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
        );
        let peer =
            PeerName { kind: PeerKind::Pod, namespace: "shop".to_owned(), name: "reader-0".to_owned() };
        let mut bare = records::false_kill();
        bare.snapshot = None;
        bare.postmortem = None;
        bare.assessed.heartbeat.missed = None;
        assert_eq!(
            killed(&bare, Some(&peer), TRACE),
            "10.0.0.2:40001 (pod shop/reader-0): heartbeat_kill on port 8080, verdict congested (drain), trace 0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a"
        );
    }

    #[test]
    fn an_event_says_how_many_it_stands_for() {
        let time = Duration::from_millis(61_500);
        assert_eq!(
            Reason::FalseKill.note("[fd00::7]:40000: abort", 37, time),
            "the host killed 37 peers that were there within 61 s, the latest [fd00::7]:40000: abort"
        );
        assert_eq!(
            Reason::LeakSuspected.note("remote 10.0.0.7:80: full", 1, time),
            "remote 10.0.0.7:80: full"
        );
        assert_eq!(
            Reason::LeakSuspected.note("remote 10.0.0.7:80: full", 2, Duration::ZERO),
            "remote 10.0.0.7:80: full (the latest of 2 within 1 s)"
        );
    }

    #[test]
    fn a_degraded_mode_says_what_is_missing_and_why() {
        assert_eq!(
            degraded::without_ebpf(ModeChoice::BestEffort, "the container lacks CAP_BPF, CAP_PERFMON"),
            "mode best-effort goes on with sock-diag, without heartbeats, resets and the closing process: the container lacks \
             CAP_BPF, CAP_PERFMON"
        );
        let missing = |signal, reason: &str| MissingSignal {
            signal,
            reason: reason.to_owned(),
            fix: "a newer kernel".to_owned(),
        };
        assert_eq!(
            degraded::without_signals(&[missing("terminations", "no BTF"), missing("resets", "no hook")]),
            "mode ebpf goes on without terminations (no BTF), resets (no hook)"
        );
    }

    #[test]
    fn a_note_is_one_line_that_the_api_server_takes() {
        let note = Reason::ConfigurationRefused.note(
            &format!("a\nb\u{1b}[31m{}", "é".repeat(900)),
            1,
            Duration::ZERO,
        );
        assert!(note.len() <= NOTE_MAX_BYTES && note.len() > NOTE_MAX_BYTES - 4, "{}", note.len());
        assert!(note.starts_with("a b [31mé"), "{note}");
    }

    #[test]
    fn reasons_and_actions_are_what_the_api_server_takes() {
        for reason in Reason::ALL {
            for word in [reason.as_str(), reason.action()] {
                assert!(
                    word.len() <= 128 && word.chars().all(|letter| letter.is_ascii_alphabetic()),
                    "{word}"
                );
            }
        }
    }
}
