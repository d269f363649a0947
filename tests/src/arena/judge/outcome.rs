//! What a contestant's decisions about one run are worth, measured against what was true.

use ackbeat_liveness::{Timestamp, Verdict};
use serde::{Deserialize, Serialize};

use crate::arena::row::Row;
use crate::arena::truth::{State, Subject, Truth};

/// What one contestant decided about one connection, whoever ran it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Account {
    /// Name of the contestant.
    pub contestant: String,
    /// Why it could not judge this connection; `None` if it could. That is not the same as *did not kill*.
    pub not_judged: Option<String>,
    /// When it would have killed first, and why.
    pub kill: Option<(Timestamp, String)>,
    /// What it said before the first of [`Self::verdicts`]; `None` for contestants without verdicts.
    pub first_verdict: Option<Verdict>,
    /// When it said what; empty for contestants that only kill.
    pub verdicts: Vec<(Timestamp, Verdict)>,
}

/// How right a kill was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KillKind {
    /// The peer was there.
    False,
    /// Its host was there, its application was not: neither false nor due.
    OfHung,
    /// It was gone.
    Right,
    /// It was gone politely, and the host had kept the socket.
    OfLeaked,
}

/// A kill, measured against what was true.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JudgedKill {
    /// How right it was.
    pub kind: KillKind,
    /// When, in milliseconds since the subject began.
    pub after_ms: f64,
    /// The contestant's own reason.
    pub reason: String,
}

/// How long something took after the peer was gone, from two beginnings.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Detection {
    /// Milliseconds since the peer was gone.
    pub from_gone_ms: f64,
    /// Milliseconds since the first segment that stays unanswered was sent; `None` where the recording does not show
    /// one (nothing was sent, or only window probes were).
    pub from_unanswered_ms: Option<f64>,
}

/// A verdict and how long it was shown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shown {
    /// The verdict's word.
    pub verdict: String,
    /// From when on, in milliseconds since the subject began.
    pub from_ms: f64,
    /// For how long.
    pub for_ms: f64,
}

/// A verdict against a peer that was there, from its beginning on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mistake {
    /// The verdict's word: `unreachable` or `silent`.
    pub verdict: String,
    /// From when on, in milliseconds since the subject began.
    pub from_ms: f64,
    /// For how long the peer was there while it was said.
    pub for_ms: f64,
}

/// One contestant's result in one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// Number of the scenario.
    pub row: u8,
    /// Its variant.
    pub variant: String,
    /// Seed of the stage.
    pub seed: u64,
    /// Which of the stage's subjects.
    pub subject: String,
    /// The contestant.
    pub contestant: String,
    /// Why it did not judge; the rest says nothing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_judged: Option<String>,
    /// Its first kill, if it was made while there was something to judge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill: Option<JudgedKill>,
    /// When it killed a peer that was gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kill_detection: Option<Detection>,
    /// When it first said `unreachable` of a peer that was gone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unreachable_detection: Option<Detection>,
    /// Everything it said, in order, up to the subject's end.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verdicts: Vec<Shown>,
    /// Verdicts among them that the scenario does not allow.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub outside: Vec<String>,
    /// Whether it said one of the verdicts that the scenario wants after the subject is hung or gone; `None` where none
    /// is asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wanted_seen: Option<bool>,
    /// How long it called a peer that was alive `unreachable` or `silent`, in milliseconds (the *mistake duration* of
    /// Chen, Toueg and Aguilera). During an outage `unreachable` is no mistake.
    #[serde(default)]
    pub mistake_ms: f64,
    /// Of that, what was begun while the peer was there and the path to it too. What was right when it was said and is held
    /// for a while after an outage is not among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<Mistake>,
    /// How long it was there, and the path to it too, in milliseconds.
    #[serde(default)]
    pub alive_ms: f64,
    /// It was alive (or behind an outage) from its beginning to its end: a run that counts for the false-kill rate.
    pub lived: bool,
    /// It was gone at some time: a run that counts for the detection time.
    pub was_gone: bool,
}

impl Outcome {
    /// Whether it killed a peer that was there.
    #[must_use]
    pub fn is_false_kill(&self) -> bool {
        self.kill.as_ref().is_some_and(|kill| kill.kind == KillKind::False)
    }

    /// Whether it judged at all.
    #[must_use]
    pub const fn is_judged(&self) -> bool {
        self.not_judged.is_none()
    }
}

/// Milliseconds between two moments in nanoseconds.
#[must_use]
pub fn ms_between(from_ns: u64, to_ns: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a microsecond more or less in a hundred days does not matter"
    )]
    if to_ns >= from_ns { (to_ns - from_ns) as f64 / 1e6 } else { -((from_ns - to_ns) as f64) / 1e6 }
}

/// Measures one account of one subject against the truth.
#[must_use]
pub fn judge(
    row: &Row,
    truth: &Truth,
    subject: &Subject,
    account: &Account,
    first_unanswered: Option<Timestamp>,
) -> Outcome {
    let began_ns = subject.states.first().map_or(truth.began_at_ns, |change| change.at_ns);
    let ended_ns = subject.first(State::Ended).unwrap_or(truth.ended_at_ns).min(truth.ended_at_ns);
    let gone_ns = subject.first(State::Gone);
    let detection = |at: Timestamp| {
        gone_ns.filter(|gone| at.as_ns() >= *gone).map(|gone| Detection {
            from_gone_ms: ms_between(gone, at.as_ns()),
            from_unanswered_ms: first_unanswered
                .map(|first| ms_between(first.as_ns(), at.as_ns()))
                .filter(|ms| *ms >= 0.0),
        })
    };
    let kill = account.kill.as_ref().filter(|(at, _)| at.as_ns() < ended_ns).and_then(|(at, reason)| {
        let kind = match subject.state_at(at.as_ns())? {
            State::Alive | State::Outage => KillKind::False,
            State::Hung => KillKind::OfHung,
            State::Gone => KillKind::Right,
            State::Leaked => KillKind::OfLeaked,
            State::Ended => return None,
        };
        Some(JudgedKill { kind, after_ms: ms_between(began_ns, at.as_ns()), reason: reason.clone() })
    });
    let right_kill_at = kill.as_ref().filter(|kill| kill.kind == KillKind::Right);
    let said = said(account, began_ns, ended_ns);
    let unreachable = said.iter().find(|said| {
        said.verdict == Verdict::Unreachable && gone_ns.is_some_and(|gone| said.until_ns > gone)
    });
    let after_ns = subject
        .states
        .iter()
        .find(|change| matches!(change.state, State::Hung | State::Gone | State::Leaked | State::Outage))
        .map_or(began_ns, |change| change.at_ns);
    // Of a peer that was away and is there again; nobody accuses it by saying that it is behind.
    let recovered_ns = subject
        .states
        .iter()
        .skip_while(|change| change.state == State::Alive)
        .find(|change| change.state == State::Alive)
        .map(|change| change.at_ns);
    let mut outside: Vec<String> = Vec::new();
    for said in &said {
        let word = said.verdict.as_str();
        let is_allowed = row.allowed.is_empty()
            || row.allowed.contains(&word)
            || said.verdict == Verdict::Closed
            // What it owed comes in one go: for a moment it is behind.
            || is_of_the_living(said.verdict) && recovered_ns.is_some_and(|at| said.from_ns >= at);
        if !is_allowed && !outside.iter().any(|known| known == word) {
            outside.push(word.to_owned());
        }
    }
    let has_verdicts = account.first_verdict.is_some() || !account.verdicts.is_empty();
    Outcome {
        row: row.number,
        variant: truth.variant.clone(),
        seed: truth.seed,
        subject: subject.name.clone(),
        contestant: account.contestant.clone(),
        not_judged: account.not_judged.clone(),
        kill_detection: right_kill_at.and(account.kill.as_ref()).and_then(|(at, _)| detection(*at)),
        kill,
        unreachable_detection: unreachable.and_then(|said| {
            // Said before already: known at once.
            detection(Timestamp::from_ns(said.from_ns.max(gone_ns.unwrap_or_default())))
        }),
        outside,
        wanted_seen: (has_verdicts && !row.wanted.is_empty()).then(|| {
            said.iter().any(|said| said.until_ns > after_ns && row.wanted.contains(&said.verdict.as_str()))
        }),
        mistake_ms: said
            .iter()
            .filter(|said| is_accusing(said.verdict))
            .map(|said| alive_ms(subject, said.from_ns, said.until_ns))
            .sum(),
        mistakes: said
            .iter()
            .filter(|said| is_accusing(said.verdict) && subject.state_at(said.from_ns) == Some(State::Alive))
            .map(|said| Mistake {
                verdict: said.verdict.as_str().to_owned(),
                from_ms: ms_between(began_ns, said.from_ns),
                for_ms: alive_ms(subject, said.from_ns, said.until_ns),
            })
            .collect(),
        alive_ms: alive_ms(subject, began_ns, ended_ns),
        verdicts: said
            .iter()
            .map(|said| Shown {
                verdict: said.verdict.as_str().to_owned(),
                from_ms: ms_between(began_ns, said.from_ns),
                for_ms: ms_between(said.from_ns, said.until_ns),
            })
            .collect(),
        lived: subject
            .states
            .iter()
            .all(|change| matches!(change.state, State::Alive | State::Outage | State::Ended)),
        was_gone: gone_ns.is_some(),
    }
}

/// A verdict from one moment to another.
struct Said {
    verdict: Verdict,
    from_ns: u64,
    until_ns: u64,
}

/// What was said between two moments; nothing of no length.
fn said(account: &Account, began_ns: u64, ended_ns: u64) -> Vec<Said> {
    let first = account.first_verdict.map(|verdict| (began_ns, verdict));
    let changes = account.verdicts.iter().map(|(at, verdict)| (at.as_ns(), *verdict));
    let all: Vec<(u64, Verdict)> = first.into_iter().chain(changes).collect();
    let mut said: Vec<Said> = Vec::new();
    for (place, (from_ns, verdict)) in all.iter().enumerate() {
        let until_ns = all.get(place + 1).map_or(ended_ns, |(at, _)| *at).min(ended_ns);
        let from_ns = (*from_ns).max(began_ns);
        if from_ns >= until_ns {
            continue;
        }
        match said.last_mut() {
            Some(last) if last.verdict == *verdict => last.until_ns = until_ns,
            _ => said.push(Said { verdict: *verdict, from_ns, until_ns }),
        }
    }
    said
}

/// Whether a verdict says that somebody is there.
fn is_of_the_living(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Alive | Verdict::Congested | Verdict::Stalled)
}

/// Whether a verdict says that nobody is there.
fn is_accusing(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Unreachable | Verdict::Silent)
}

/// How much of the time between two moments the subject was alive.
fn alive_ms(subject: &Subject, from_ns: u64, until_ns: u64) -> f64 {
    let states = &subject.states;
    states
        .iter()
        .enumerate()
        .filter(|(_, change)| change.state == State::Alive)
        .map(|(place, change)| {
            let until = states.get(place + 1).map_or(u64::MAX, |next| next.at_ns).min(until_ns);
            ms_between(change.at_ns.max(from_ns), until).max(0.0)
        })
        .sum()
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, SocketAddr};

    use super::*;
    use crate::arena::rows;
    use crate::arena::truth::{FORMAT, StateChange};

    const SECOND: u64 = 1_000_000_000;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_ms(seconds * 1_000)
    }

    fn subject(states: &[(u64, State)]) -> Subject {
        let states = states.iter().map(|(at, state)| StateChange { at_ns: at * SECOND, state: *state });
        Subject {
            name: "peer".to_owned(),
            peer: SocketAddr::new(Ipv4Addr::LOCALHOST.into(), 1),
            states: states.collect(),
        }
    }

    fn judged(states: &[(u64, State)], account: &Account, unanswered: Option<u64>) -> Outcome {
        let truth = Truth {
            arena_truth: FORMAT,
            row: 20,
            variant: String::new(),
            seed: 1,
            began_at_ns: 0,
            ended_at_ns: 100 * SECOND,
            subjects: Vec::new(),
            reports: Vec::new(),
            figures: std::collections::BTreeMap::new(),
            outages: Vec::new(),
        };
        let row = rows::row(20).expect("the row");
        judge(row, &truth, &subject(states), account, unanswered.map(at))
    }

    fn killing(seconds: u64) -> Account {
        Account {
            contestant: "ws-2".to_owned(),
            kill: Some((at(seconds), "2 Pings unanswered".to_owned())),
            ..Account::default()
        }
    }

    #[test]
    fn a_kill_is_what_the_peer_was_at_that_moment() {
        let states = [
            (10, State::Alive),
            (20, State::Outage),
            (25, State::Alive),
            (40, State::Hung),
            (50, State::Gone),
        ];
        let kind = |seconds| judged(&states, &killing(seconds), None).kill.map(|kill| kill.kind);
        assert_eq!(kind(12), Some(KillKind::False));
        assert_eq!(kind(22), Some(KillKind::False));
        assert_eq!(kind(41), Some(KillKind::OfHung));
        assert_eq!(kind(51), Some(KillKind::Right));
        let ended = [(10, State::Alive), (20, State::Ended)];
        assert_eq!(judged(&ended, &killing(21), None).kill, None);
        assert_eq!(judged(&ended, &killing(200), None).kill, None);
    }

    #[test]
    fn detection_has_two_beginnings() {
        let states = [(10, State::Alive), (50, State::Gone)];
        let outcome = judged(&states, &killing(56), Some(52));
        let wanted = Detection { from_gone_ms: 6_000.0, from_unanswered_ms: Some(4_000.0) };
        assert_eq!(outcome.kill_detection, Some(wanted));
        assert!(outcome.was_gone && !outcome.lived && outcome.unreachable_detection.is_none());
        assert_eq!(judged(&states, &killing(40), Some(52)).kill_detection, None);
    }

    #[test]
    fn not_judged_is_not_did_not_kill() {
        let account = Account { not_judged: Some("no Ping was seen".to_owned()), ..Account::default() };
        let outcome = judged(&[(10, State::Alive)], &account, None);
        assert!(!outcome.is_judged() && outcome.lived);
        assert!(judged(&[(10, State::Alive)], &Account::default(), None).is_judged());
    }

    #[test]
    fn verdicts_have_durations_and_mistakes_are_measured_while_it_lives() {
        let states = [(10, State::Alive), (20, State::Outage), (25, State::Alive)];
        let account = Account {
            first_verdict: Some(Verdict::Alive),
            verdicts: vec![
                (at(22), Verdict::Unreachable),
                (at(28), Verdict::Alive),
                (at(30), Verdict::Stalled),
                (at(30), Verdict::Alive),
            ],
            ..Account::default()
        };
        let outcome = judged(&states, &account, None);
        let shown: Vec<(&str, f64, f64)> = outcome
            .verdicts
            .iter()
            .map(|shown| (shown.verdict.as_str(), shown.from_ms, shown.for_ms))
            .collect();
        assert_eq!(
            shown,
            [("alive", 0.0, 12_000.0), ("unreachable", 12_000.0, 6_000.0), ("alive", 18_000.0, 72_000.0)]
        );
        // Unreachable was right until the path healed at 25.
        assert!((outcome.mistake_ms - 3_000.0).abs() < 1e-6);
        // From 10 to 20, and from 25 to the end at 100.
        assert!((outcome.alive_ms - 85_000.0).abs() < 1e-6, "{}", outcome.alive_ms);
        assert!(outcome.mistakes.is_empty(), "it was no mistake when it was said: {:?}", outcome.mistakes);
        assert_eq!(outcome.wanted_seen, Some(true));
        assert!(outcome.outside.is_empty() && outcome.lived);
    }

    #[test]
    fn what_is_said_against_a_peer_that_is_there_is_a_mistake_until_it_is_taken_back() {
        let states = [(10, State::Alive), (20, State::Outage), (25, State::Alive)];
        let account = Account {
            first_verdict: Some(Verdict::Alive),
            verdicts: vec![
                (at(12), Verdict::Silent),
                (at(13), Verdict::Alive),
                (at(18), Verdict::Unreachable),
            ],
            ..Account::default()
        };
        let mistakes = judged(&states, &account, None).mistakes;
        let said: Vec<(&str, f64, f64)> = mistakes
            .iter()
            .map(|mistake| (mistake.verdict.as_str(), mistake.from_ms, mistake.for_ms))
            .collect();
        // Until the path is away at 20, and again from 25 to the end at 100.
        assert_eq!(said, [("silent", 2_000.0, 1_000.0), ("unreachable", 8_000.0, 77_000.0)]);
    }

    #[test]
    fn a_verdict_outside_of_what_is_allowed_is_named_once() {
        let account = Account {
            first_verdict: Some(Verdict::Alive),
            verdicts: vec![(at(22), Verdict::Silent), (at(28), Verdict::Alive), (at(30), Verdict::Silent)],
            ..Account::default()
        };
        let outcome = judged(&[(10, State::Alive), (20, State::Gone)], &account, None);
        assert_eq!(outcome.outside, ["silent"]);
        assert_eq!(outcome.wanted_seen, Some(false));
    }

    #[test]
    fn a_peer_that_is_back_may_be_behind() {
        let account = |verdict, from| Account {
            first_verdict: Some(Verdict::Alive),
            verdicts: vec![(at(from), verdict), (at(from + 1), Verdict::Alive)],
            ..Account::default()
        };
        let states = [(10, State::Alive), (20, State::Hung), (40, State::Alive)];
        let outside = |verdict, from| judged(&states, &account(verdict, from), None).outside;
        // The row of these tests does not allow `stalled`.
        assert!(outside(Verdict::Stalled, 40).is_empty());
        assert_eq!(outside(Verdict::Stalled, 12), ["stalled"]);
        assert_eq!(outside(Verdict::Stalled, 39), ["stalled"]);
        assert_eq!(outside(Verdict::Silent, 40), ["silent"]);
    }
}
