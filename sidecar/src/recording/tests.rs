use std::io::BufReader;
use std::path::Path;

use ackbeat_liveness::{
    ConnectionId, Deployment, Direction, Endpoints, Frame, FrameKind, HeartbeatProfile, Input, Opened,
    Output, Policy, Role, Seq, Snapshot, Synchronization, TcpState, Timestamp, Upgrade, Verdict,
};

use super::*;

fn header() -> Header {
    Header {
        ackbeat_recording: FORMAT,
        version: "0.1.0".to_owned(),
        mode: "ebpf".to_owned(),
        policy: "default".to_owned(),
        thresholds: Policy::default_policy(),
        leaks: ackbeat_liveness::leak::LeakSettings::default(),
        deployment: Deployment::default(),
        ticks: true,
        began_at: Timestamp::from_ms(1),
        began_unix_ns: 5,
        segment: None,
    }
}

fn outstanding(ms: u64) -> Input {
    Input::Outstanding { connection: ConnectionId(u64::MAX), at: Timestamp::from_ms(ms) }
}

fn read(text: &str) -> Result<Vec<Line>, ReadError> {
    let lines = Box::new(BufReader::new(std::io::Cursor::new(text.to_owned())));
    let mut reader = Reader::new(Path::new("night.jsonl"), lines)?;
    let mut all = Vec::new();
    while let Some(line) = reader.next_line()? {
        all.push(line);
    }
    if reader.is_cut_off() {
        all.push(Line::Gap(u64::MAX));
    }
    Ok(all)
}

fn header_line() -> String {
    format!("{}\n", serde_json::to_string(&header()).unwrap())
}

#[test]
fn files_that_were_joined_are_refused_with_the_way_out() {
    let error = read(&format!("{0}{0}", header_line())).unwrap_err().to_string();
    assert!(error.contains("line 2") && error.contains("name the files one by one"), "{error}");
}

#[test]
fn a_gap_that_was_damaged_overflows_nothing() {
    let mut summary = replay::Summary::default();
    for _ in 0..2 {
        summary.count(&Line::Gap(u64::MAX));
    }
    assert_eq!(summary.missing, u64::MAX);
}

#[test]
fn what_is_recorded_is_what_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.jsonl");
    let mut recorder = Recorder::begin(&path, 1 << 20, &header()).unwrap();
    recorder.input(&outstanding(2));
    recorder.tick(Timestamp::from_ms(3), Timestamp::from_ms(4));
    recorder.shut_down(Timestamp::from_ms(5));
    assert_eq!(recorder.finish(), 0);
    let lines = read(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let tick = Tick { due: Timestamp::from_ms(3), at: Timestamp::from_ms(4) };
    assert_eq!(
        lines,
        [Line::Input(Box::new(outstanding(2))), Line::Tick(tick), Line::ShutDown(Timestamp::from_ms(5))]
    );
}

#[test]
fn a_recording_that_was_there_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.jsonl");
    std::fs::write(&path, "the last run").unwrap();
    Recorder::begin(&path, 1 << 20, &header()).unwrap().finish();
    assert_eq!(std::fs::read_to_string(directory.path().join("night.jsonl.1")).unwrap(), "the last run");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("{\"ackbeat_recording\":1,"));
}

/// Reads files as one recording: the inputs, and what is missing.
fn inputs_of(paths: &[&Path]) -> (Vec<Input>, u64) {
    let mut reader = Reader::open_segments(paths).unwrap();
    let (mut inputs, mut missing) = (Vec::new(), 0);
    while let Some(line) = reader.next_line().unwrap() {
        match line {
            Line::Input(input) => inputs.push(*input),
            Line::Gap(count) => missing += count,
            Line::Tick(_) | Line::ShutDown(_) | Line::Rules(_) => {}
        }
    }
    (inputs, missing)
}

fn opened(connection: u64, ms: u64) -> Opened {
    Opened {
        connection: ConnectionId(connection),
        at: Timestamp::from_ms(ms),
        endpoints: Endpoints {
            local_address: [10, 0, 0, 2].into(),
            local_port: 8_080,
            peer_address: [10, 0, 0, 1].into(),
            peer_port: 40_000,
        },
        role: Role::Server,
        preexisting: false,
        frames_visible: true,
    }
}

fn lost_place(connection: u64, direction: Direction, ms: u64) -> Synchronization {
    Synchronization {
        connection: ConnectionId(connection),
        at: Timestamp::from_ms(ms),
        direction,
        synchronized: false,
        reason: Some("hole".to_owned()),
    }
}

#[test]
fn a_recording_that_is_full_goes_on_in_a_new_segment_and_keeps_the_newest() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.jsonl");
    let kept = directory.path().join("night.jsonl.1");
    let mut recorder = Recorder::begin(&path, 8_192, &header()).unwrap();
    recorder.input(&Input::Opened(opened(7, 1)));
    recorder.input(&Input::Opened(opened(8, 2)));
    recorder.input(&Input::Upgrade(Upgrade {
        connection: ConnectionId(7),
        at: Timestamp::from_ms(3),
        path: Some("/events".to_owned()),
        traceparent: None,
        forwarding_headers: vec!["via".to_owned()],
    }));
    recorder.input(&Input::Synchronization(lost_place(7, Direction::Egress, 4)));
    recorder.forget(ConnectionId(8));
    for ms in 5..1_000 {
        recorder.input(&outstanding(ms));
    }
    assert_eq!(recorder.finish(), 0, "what a newer segment replaced is not lost");

    let sizes = [&path, &kept].map(|path| std::fs::metadata(path).unwrap().len());
    assert!(sizes.iter().all(|bytes| *bytes <= 4_096), "{sizes:?}");
    let reader = Reader::open(&path).unwrap();
    let segment = reader.header().segment.unwrap();
    assert_eq!((segment.run_began_unix_ns, segment.left_out), (5, 0));
    assert!(segment.number > 2, "{segment:?}");

    // By itself it begins with the connection that is open, as found then.
    let began_at = reader.header().began_at;
    assert!(began_at > Timestamp::from_ms(500), "{began_at:?}");
    let (alone, _) = inputs_of(&[&path]);
    let Some([Input::Opened(found), Input::Upgrade(upgrade), Input::Synchronization(place)]) = alone.get(..3)
    else {
        panic!("{alone:?}");
    };
    assert_eq!(*found, Opened { at: began_at, preexisting: true, ..opened(7, 1) });
    assert_eq!((upgrade.at, upgrade.path.as_deref()), (began_at, Some("/events")));
    assert_eq!(*place, Synchronization { at: began_at, ..lost_place(7, Direction::Egress, 4) });
    assert_eq!(alone.last(), Some(&outstanding(999)));

    // Both together are what was recorded, without a break.
    let (both, missing) = inputs_of(&[&kept, &path]);
    let recorded: Vec<Input> = both.into_iter().skip(3).collect();
    let first = recorded.first().unwrap().at().ms_since(Timestamp::default());
    assert_eq!(recorded, (first..1_000).map(outstanding).collect::<Vec<_>>());
    assert_eq!(missing, 0);
}

#[test]
fn segments_that_do_not_follow_each_other_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.jsonl");
    let kept = directory.path().join("night.jsonl.1");
    let mut recorder = Recorder::begin(&path, 4_096, &header()).unwrap();
    for ms in 0..200 {
        recorder.input(&outstanding(ms));
    }
    recorder.finish();
    for wrong in [[&path, &kept], [&path, &path]] {
        let message = Reader::open_segments(&wrong).err().unwrap().to_string();
        assert!(message.contains("oldest first"), "{message}");
    }
    assert!(Reader::open_segments::<&Path>(&[]).is_err());
}

#[test]
fn connections_for_which_a_segment_has_no_room_are_counted() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.jsonl");
    let mut recorder = Recorder::begin(&path, 8_192, &header()).unwrap();
    for connection in 0..200 {
        recorder.input(&Input::Opened(opened(connection, 1)));
    }
    assert_eq!(recorder.finish(), 0);
    let segment = Reader::open(&path).unwrap().header().segment.unwrap();
    assert!(segment.left_out > 0 && segment.left_out < 200, "{segment:?}");
    assert!(std::fs::metadata(&path).unwrap().len() <= 4_096);
}

#[test]
fn payloads_stay_out_and_a_pong_still_repeats_its_ping() {
    let frame = |kind, direction, payload: &[u8]| {
        Input::Frame(Frame {
            connection: ConnectionId(7),
            at: Timestamp::from_ms(2),
            direction,
            kind,
            profile: HeartbeatProfile::Rfc6455,
            seq_start: Some(Seq(1)),
            seq_end: Some(Seq(9)),
            payload: payload.to_vec(),
            close_code: (kind == FrameKind::Close).then_some(1_001),
            close_reason: (kind == FrameKind::Close).then(|| "going away".to_owned()),
        })
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.jsonl");
    let mut recorder = Recorder::begin(&path, 1 << 20, &header()).unwrap();
    recorder.input(&frame(FrameKind::Ping, Direction::Egress, b"secret"));
    recorder.input(&frame(FrameKind::Pong, Direction::Ingress, b"secret"));
    recorder.input(&frame(FrameKind::Pong, Direction::Ingress, b"secreT"));
    recorder.input(&frame(FrameKind::Ping, Direction::Egress, b""));
    recorder.input(&frame(FrameKind::Close, Direction::Egress, b""));
    recorder.finish();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(!text.contains(&serde_json::to_string(b"secret").unwrap()), "{text}");
    assert!(text.contains("going away"), "{text}");
    let (inputs, _) = inputs_of(&[&path]);
    let payloads: Vec<&[u8]> = inputs
        .iter()
        .map(|input| match input {
            Input::Frame(frame) => frame.payload.as_slice(),
            other => panic!("{other:?}"),
        })
        .collect();
    let [ping, pong, other, empty, _] = payloads.as_slice() else { panic!("{payloads:?}") };
    assert_eq!(ping, pong);
    assert_ne!(ping, other);
    assert!(empty.is_empty());
}

#[test]
fn a_device_that_is_full_ends_the_recording_and_counts() {
    let mut recorder = Recorder::begin(Path::new("/dev/null"), 4_096, &header()).unwrap();
    for ms in 0..1_000 {
        recorder.input(&outstanding(ms));
    }
    let lost = recorder.finish();
    assert!(lost > 900 && lost < 1_000, "{lost}");
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("nowhere").join("night.jsonl");
    let error = Recorder::begin(&missing, 1 << 20, &header()).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn a_device_is_written_to_and_stays_what_it_is() {
    let mut recorder = Recorder::begin(Path::new("/dev/null"), 1 << 20, &header()).unwrap();
    recorder.input(&outstanding(2));
    assert_eq!(recorder.finish(), 0);
    let error = Recorder::begin(Path::new("/dev/full"), 1 << 20, &header()).unwrap_err();
    assert!(error.to_string().contains("first line"), "{error}");
    assert!(Path::new("/dev/null").exists() && Path::new("/dev/full").exists());
}

#[test]
fn a_bad_line_is_named_by_its_number() {
    let text = format!(
        "{}{{\"input\":\"outstanding\",\"connection\":1,\"at\":2}}\n\n{{\"input\":\"sneeze\"}}\n",
        header_line()
    );
    let message = read(&text).unwrap_err().to_string();
    assert!(message.contains("line 4") && message.contains("sneeze"), "{message}");
    let message = read("{\"ackbeat_recording\":99}\n").unwrap_err().to_string();
    assert!(message.contains("line 1"), "{message}");
    let newer = header_line().replace("\"ackbeat_recording\":1", "\"ackbeat_recording\":99");
    let message = read(&newer).unwrap_err().to_string();
    assert!(message.contains("format 99"), "{message}");
    let mut endless = header();
    endless.thresholds.fresh_ms = u64::MAX;
    let message = read(&serde_json::to_string(&endless).unwrap()).unwrap_err().to_string();
    assert!(message.contains("thresholds.fresh_ms") && message.contains("86400000"), "{message}");
    assert!(read("").unwrap_err().to_string().contains("empty"));
    assert!(read("not a recording").unwrap_err().to_string().contains("line 1"));
}

#[test]
fn a_line_that_a_killed_sidecar_left_half_written_is_left_out() {
    let whole = format!("{}{}\n", header_line(), serde_json::to_string(&outstanding(2)).unwrap());
    let lines = read(&format!("{whole}{{\"input\":\"outst")).unwrap();
    assert_eq!(lines, [Line::Input(Box::new(outstanding(2))), Line::Gap(u64::MAX)]);
}

/// A socket that owes nothing.
fn reading(connection: u64, ms: u64) -> Snapshot {
    Snapshot {
        connection: ConnectionId(connection),
        at: Timestamp::from_ms(ms),
        state: TcpState::Established,
        write_seq: Some(Seq(6)),
        snd_nxt: Some(Seq(6)),
        snd_una: Some(Seq(6)),
        snd_wnd_bytes: Some(65_536),
        rcv_nxt: Some(Seq(1)),
        copied_seq: Some(Seq(1)),
        send_queue_bytes: Some(0),
        unsent_bytes: Some(0),
        unread_bytes: Some(0),
        last_ack_at: Some(Timestamp::from_ms(ms)),
        last_send_at: Some(Timestamp::from_ms(ms)),
        last_inbound_at: None,
        bytes_acked: Some(6),
        bytes_received: Some(0),
        srtt_us: Some(400),
        rto_ms: Some(204),
        backoff: Some(0),
        retransmits: Some(0),
        probes_out: Some(0),
        packets_out: Some(0),
        total_retransmits: Some(0),
        retransmitting_since: None,
        socket_error: Some(0),
        soft_error: Some(0),
        shutdown: Some(0),
        queued_memory_bytes: None,
    }
}

/// The newest segment by itself, through an engine: a connection that was open all the time is judged again as soon as its
/// heartbeat shows, and one that was closed before is nobody's.
#[test]
fn a_later_segment_makes_sense_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.jsonl");
    let mut recorder = Recorder::begin(&path, 40_000, &header()).unwrap();
    for connection in [7, 8] {
        recorder.input(&Input::Opened(opened(connection, 1)));
        recorder.input(&Input::Upgrade(Upgrade {
            connection: ConnectionId(connection),
            at: Timestamp::from_ms(2),
            path: None,
            traceparent: None,
            forwarding_headers: Vec::new(),
        }));
    }
    recorder.input(&Input::Sample(reading(7, 3)));
    // The driver says so when the engine has told of the close.
    recorder.forget(ConnectionId(8));
    for beat in 1..500_u32 {
        let at = u64::from(beat) * 2_000;
        for (kind, direction, ms) in
            [(FrameKind::Ping, Direction::Egress, at), (FrameKind::Pong, Direction::Ingress, at + 5)]
        {
            recorder.input(&Input::Frame(Frame {
                connection: ConnectionId(7),
                at: Timestamp::from_ms(ms),
                direction,
                kind,
                profile: HeartbeatProfile::Rfc6455,
                seq_start: Some(Seq(beat * 6)),
                seq_end: Some(Seq(beat * 6 + 6)),
                payload: beat.to_be_bytes().to_vec(),
                close_code: None,
                close_reason: None,
            }));
        }
    }
    assert_eq!(recorder.finish(), 0);
    let mut reader = Reader::open(&path).unwrap();
    let began_at = reader.header().began_at;
    assert!(reader.header().segment.is_some_and(|segment| segment.number > 0));
    assert!(reader.header().began_at > Timestamp::from_ms(100_000));
    let mut outputs = Vec::new();
    replay::replay(&mut reader, Policy::default_policy(), |output| outputs.push(output.clone())).unwrap();
    let records: Vec<_> = outputs
        .iter()
        .filter_map(|output| match output {
            Output::Closed(record) => Some(record),
            _ => None,
        })
        .collect();
    let [record] = records.as_slice() else { panic!("{records:#?}") };
    assert_eq!((record.connection, record.preexisting, record.still_open), (ConnectionId(7), true, true));
    assert_eq!(record.opened_at, began_at);
    assert_eq!(record.assessed.verdict, Verdict::Alive, "{record:#?}");
    assert_eq!(record.assessed.heartbeat.interval_ms, Some(2_000));
    assert_eq!(record.assessed.heartbeat.missed, Some(0));
}

#[test]
fn a_file_that_somebody_records_into_is_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("run.jsonl");
    let first = Recorder::begin(&path, 1 << 20, &header()).unwrap();
    let refused = Recorder::begin(&path, 1 << 20, &header()).err().unwrap().to_string();
    assert!(refused.contains("another ackbeat records into it"), "{refused}");
    assert!(!directory.path().join("run.jsonl.1").exists());
    first.finish();
    Recorder::begin(&path, 1 << 20, &header()).unwrap().finish();
    assert!(directory.path().join("run.jsonl.1").exists());
}
