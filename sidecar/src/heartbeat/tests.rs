use ackbeat_abi::patterns::{Pattern, Patterns};
use ackbeat_liveness::{ConnectionId, Seq, Timestamp};
use proptest::prelude::*;

use super::*;

use Direction::{Egress, Ingress};
use FrameKind::{Ping, Pong};
use HeartbeatProfile::{EngineIo, Json, Phoenix, PingPong, SignalR};

fn text(direction: Direction, payload: &str) -> Message<'_> {
    Message { direction, binary: false, payload: payload.as_bytes() }
}

fn said(profile: HeartbeatProfile, payload: &str) -> Option<(FrameKind, String)> {
    let decision = decide(profile, &text(Ingress, payload))?;
    assert_eq!(decision.profile, profile);
    Some((decision.kind, String::from_utf8(decision.id).unwrap()))
}

/// The words of each profile, as its clients and servers write them: question or answer, and what both have in common.
const HEARTBEATS: &[(HeartbeatProfile, Direction, &str, FrameKind, &str)] = &[
    (PingPong, Egress, "ping", Ping, ""),
    (PingPong, Ingress, "pong", Pong, ""),
    (Json, Ingress, r#"{"type":"ping"}"#, Ping, ""),
    (Json, Egress, r#"{"type":"pong"}"#, Pong, ""),
    (Json, Ingress, r#"{"id":7,"payload":{"type":"pong"},"type":"ping"}"#, Ping, ""),
    (Json, Ingress, "{\n  \"type\" : \"ping\",\n  \"at\" : 1700000000\n}", Ping, ""),
    (EngineIo, Egress, "2", Ping, ""),
    (EngineIo, Ingress, "3", Pong, ""),
    (Phoenix, Ingress, r#"[null,"5","phoenix","heartbeat",{}]"#, Ping, "5"),
    (Phoenix, Egress, r#"[null,"5","phoenix","phx_reply",{"response":{},"status":"ok"}]"#, Pong, "5"),
    (Phoenix, Ingress, r#"{"topic":"phoenix","event":"heartbeat","payload":{},"ref":"1"}"#, Ping, "1"),
    (
        Phoenix,
        Egress,
        r#"{"event":"phx_reply","payload":{"response":{},"status":"ok"},"ref":"1","topic":"phoenix"}"#,
        Pong,
        "1",
    ),
    (Phoenix, Ingress, r#"{"topic":"phoenix","event":"heartbeat","payload":{},"ref":12}"#, Ping, "12"),
    (SignalR, Ingress, "{\"type\":6}\u{1e}", Ping, ""),
    (SignalR, Egress, "{\"type\":6}\u{1e}", Ping, ""),
];

/// What looks like a heartbeat and is none.
const OTHERS: &[&str] = &[
    "",
    "pin",
    "Ping",
    "ping\n",
    "pings",
    "2probe",
    "3probe",
    "42[\"ping\"]",
    "4",
    "23",
    r#"{"type":"message","text":"\"ping\""}"#,
    r#"{"type":"message","text":"ping"}"#,
    r#"{"event":"ping","type":1}"#,
    r#"{"inner":{"type":"ping"}}"#,
    r#"{"type":"ping","type":"pong"}"#,
    r#"{"type":"ping""#,
    r#"["type","ping"]"#,
    r#"["ping"]"#,
    r#"[null,"5","phoenix","heartbeat",{},1]"#,
    r#"[null,null,"phoenix","heartbeat",{}]"#,
    r#"["3","5","room:phoenix","phx_reply",{"response":{},"status":"ok"}]"#,
    r#"["3","5","room:lobby","heartbeat",{}]"#,
    r#"{"topic":"room:lobby","event":"phx_reply","payload":{"status":"phoenix"},"ref":"1"}"#,
    r#"{"type":6}"#,
    "{\"type\":7}\u{1e}",
    "{\"type\":6}\u{1e}{\"type\":6}\u{1e}",
    "{\"type\": 6}\u{1e}",
];

#[test]
fn every_profile_knows_its_own_words_and_no_others() {
    for (profile, _, payload, kind, id) in HEARTBEATS {
        assert_eq!(said(*profile, payload), Some((*kind, (*id).to_owned())), "{payload}");
        for other in BUILT_IN.into_iter().filter(|other| other != profile) {
            assert_eq!(said(other, payload), None, "{payload} in the words of {other}");
        }
    }
    for payload in OTHERS {
        for profile in BUILT_IN {
            assert_eq!(said(profile, payload), None, "{payload} in the words of {profile}");
        }
    }
    for payload in [b"\x02\x91\x06".as_slice(), b"2", b"ping"] {
        let message = Message { direction: Ingress, binary: true, payload };
        let found: Vec<_> = BUILT_IN.iter().filter_map(|profile| decide(*profile, &message)).collect();
        let profiles: Vec<_> = found.iter().map(|decision| decision.profile).collect();
        assert_eq!(profiles, if payload.len() == 3 { vec![SignalR] } else { vec![] });
    }
}

/// What the kernel would do, in plain words.
fn fits(patterns: &Patterns, message: &Message<'_>) -> bool {
    let opcode = if message.binary { 2 } else { 1 };
    let direction = match message.direction {
        Ingress => abi::Direction::Ingress,
        Egress => abi::Direction::Egress,
    };
    let payload = message.payload;
    let fits_one = |pattern: &Pattern| {
        let start: Vec<u8> = pattern.start.iter().flat_map(|part| part.to_be_bytes()).collect();
        let start_mask: Vec<u8> = pattern.start_mask.iter().flat_map(|part| part.to_be_bytes()).collect();
        let words = (0..patterns.word_count as usize).filter(|index| pattern.words & (1 << index) != 0);
        pattern.looks_in(direction)
            && pattern.opcode == opcode
            && (usize::from(pattern.length_min_bytes)..=usize::from(pattern.length_max_bytes))
                .contains(&payload.len())
            && payload
                .iter()
                .zip(start.iter().zip(&start_mask))
                .all(|(byte, (want, mask))| byte & mask == *want)
            && words.map(|index| patterns.words[index]).all(|word| {
                let bytes = word.value.to_be_bytes();
                let text = &bytes[word.mask.leading_zeros() as usize / 8..];
                payload.windows(text.len()).any(|window| window == text)
            })
    };
    patterns.patterns[..patterns.count as usize].iter().any(fits_one)
}

fn custom(question: &str, answer: Option<&str>, matching: Match, asked_by: AskedBy) -> Custom {
    Custom { question: question.to_owned(), answer: answer.map(str::to_owned), matching, asked_by }
}

#[test]
fn the_kernel_hands_over_every_heartbeat_and_not_all_the_rest() {
    let long = "q".repeat(125);
    let everything =
        Selection::auto(Some(custom(&long, Some("a"), Match::Exact, AskedBy::Either))).patterns().unwrap();
    for (profile, direction, payload, ..) in HEARTBEATS {
        let message = text(*direction, payload);
        assert!(fits(&everything, &message), "{payload}");
        let alone = Selection::listed(&[*profile], None).patterns().unwrap();
        assert!(fits(&alone, &message), "{payload}");
        let others: Vec<_> = BUILT_IN.into_iter().filter(|other| other != profile).collect();
        assert!(!fits(&Selection::listed(&others, None).patterns().unwrap(), &message), "{payload}");
    }
    assert!(fits(&everything, &Message { direction: Egress, binary: true, payload: b"\x02\x91\x06" }));
    assert!(fits(&everything, &text(Egress, &long)));
    let handed_over: Vec<_> =
        OTHERS.iter().filter(|payload| fits(&everything, &text(Ingress, payload))).collect();
    // These have all the words, and are told apart by whoever reads JSON.
    assert_eq!(
        handed_over,
        [
            r#"{"type":"message","text":"ping"}"#,
            r#"{"event":"ping","type":1}"#,
            r#"{"inner":{"type":"ping"}}"#,
            r#"{"type":"ping","type":"pong"}"#,
            r#"{"type":"ping""#,
            r#"[null,"5","phoenix","heartbeat",{},1]"#,
            r#"[null,null,"phoenix","heartbeat",{}]"#,
        ]
        .iter()
        .collect::<Vec<_>>()
    );
    assert_eq!(Selection::off().patterns().unwrap(), Patterns::default());
}

#[test]
fn what_the_settings_describe_is_told_apart_by_direction_where_it_must() {
    let heartbeat = custom("hb", Some("hb"), Match::Exact, AskedBy::Host);
    assert_eq!(heartbeat.decide(&text(Egress, "hb")), Some(Ping));
    assert_eq!(heartbeat.decide(&text(Ingress, "hb")), Some(Pong));
    assert_eq!(heartbeat.decide(&text(Ingress, "hb1")), None);
    let prefixed = custom("ask:", Some("tell:"), Match::Prefix, AskedBy::Peer);
    assert_eq!(prefixed.decide(&text(Ingress, "ask:7")), Some(Ping));
    assert_eq!(prefixed.decide(&text(Egress, "tell:7")), Some(Pong));
    assert_eq!(prefixed.decide(&text(Egress, "ask:7")), None);
    assert_eq!(prefixed.decide(&Message { direction: Ingress, binary: true, payload: b"ask:7" }), None);
    let alone = custom("beat", None, Match::Exact, AskedBy::Either);
    assert_eq!(alone.decide(&text(Egress, "beat")), Some(Ping));
    assert_eq!(alone.decide(&text(Ingress, "beat")), Some(Ping));
    for (heartbeat, ambiguous) in [
        (custom("x", Some("x"), Match::Exact, AskedBy::Either), true),
        (custom("x", Some("xy"), Match::Exact, AskedBy::Either), false),
        (custom("x", Some("xy"), Match::Prefix, AskedBy::Either), true),
        (custom("x", Some("xy"), Match::Prefix, AskedBy::Peer), false),
        (custom("x", None, Match::Prefix, AskedBy::Either), false),
    ] {
        assert_eq!(heartbeat.is_ambiguous(), ambiguous, "{heartbeat:?}");
    }
}

fn data_frame(at_ms: u64, direction: Direction, payload: &str) -> DataFrame {
    DataFrame {
        connection: ConnectionId(7),
        at: Timestamp::from_ns(at_ms * 1_000_000),
        direction,
        local_port: 8_080,
        binary: false,
        seq_start: Seq(1),
        seq_end: Seq(9),
        payload: payload.as_bytes().to_vec(),
    }
}

#[test]
fn nothing_is_passed_on_before_it_is_proven() {
    let mut reader = HeartbeatReader::new(Selection::auto(None));
    let mut passed = Vec::new();
    for round in 0..4 {
        let at_ms = round * 1_000;
        let reference = round.to_string();
        passed.extend(reader.read(&data_frame(
            at_ms,
            Ingress,
            &format!("[null,\"{reference}\",\"phoenix\",\"heartbeat\",{{}}]"),
        )));
        passed.extend(reader.read(&data_frame(at_ms + 1, Ingress, r#"{"type":"message","text":"ping"}"#)));
        passed.extend(reader.read(&data_frame(
            at_ms + 2,
            Egress,
            &format!(
                "[null,\"{reference}\",\"phoenix\",\"phx_reply\",{{\"response\":{{}},\"status\":\"ok\"}}]"
            ),
        )));
    }
    let seen: Vec<_> =
        passed.iter().map(|frame| (frame.kind, frame.direction, frame.payload.clone())).collect();
    assert_eq!(
        seen,
        [
            (Ping, Ingress, b"2".to_vec()),
            (Pong, Egress, b"2".to_vec()),
            (Ping, Ingress, b"3".to_vec()),
            (Pong, Egress, b"3".to_vec()),
        ]
    );
    assert!(passed.iter().all(|frame| frame.profile == Phoenix && frame.seq_end == Some(Seq(9))));
    assert_eq!(reader.counters(), ReaderCounters { seen: 12, refused: 8 });
    reader.listener_closed(8_080);
    assert_eq!(reader.read(&data_frame(9_000, Ingress, r#"[null,"9","phoenix","heartbeat",{}]"#)), None);
}

#[test]
fn who_names_a_profile_needs_no_proof() {
    let mut reader = HeartbeatReader::new(Selection::listed(&[PingPong], None));
    let frame = reader.read(&data_frame(0, Egress, "ping")).unwrap();
    assert_eq!((frame.kind, frame.profile, frame.direction), (Ping, PingPong, Egress));
    assert!(frame.payload.is_empty());
    assert_eq!(reader.read(&data_frame(0, Egress, "2")), None, "not a profile that was named");
    assert!(!format!("{:?}", data_frame(0, Egress, "secret")).contains("secret"));
}

proptest! {
    /// Whatever comes is decided about, and nothing that is decided to be a heartbeat would be kept back by the kernel.
    #[test]
    fn anything_is_survived(payload in proptest::collection::vec(any::<u8>(), 0..126), binary in any::<bool>()) {
        let selection = Selection::auto(Some(custom("b", Some("a"), Match::Prefix, AskedBy::Either)));
        let message = Message { direction: Ingress, binary, payload: &payload };
        if selection.decide(&message).is_some() {
            prop_assert!(fits(&selection.patterns().unwrap(), &message));
        }
    }

    #[test]
    fn broken_json_is_survived(cut in 0_usize..80, at in 0_usize..80, byte in any::<u8>(), which in 0..HEARTBEATS.len()) {
        let mut payload = HEARTBEATS[which].2.as_bytes().to_vec();
        if let Some(place) = payload.get_mut(at) {
            *place = byte;
        }
        payload.truncate(cut.max(1));
        for profile in BUILT_IN {
            let _ = decide(profile, &Message { direction: Ingress, binary: false, payload: &payload });
        }
    }
}
