use super::*;
use proptest::prelude::*;

const CLOCK_TICK_NS: u64 = 4_000_000;

fn clock() -> JiffiesClock {
    JiffiesClock::from_tick_ns(CLOCK_TICK_NS).unwrap()
}

fn mapped(last: u8) -> [u8; 16] {
    [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, last]
}

fn taken() -> abi::Snapshot {
    abi::Snapshot {
        flow: abi::FlowKey {
            local_address: mapped(1),
            peer_address: mapped(2),
            local_port: 8080,
            peer_port: 40_000,
            padding: 0,
        },
        cookie: 9,
        time_ns: 10_000_000_000,
        jiffies: 5_000,
        available: u64::MAX,
        write_seq: 100,
        snd_nxt: 50,
        snd_una: u32::MAX - 9,
        rcv_nxt: 7,
        copied_seq: 5,
        rcv_tstamp: 4_750,
        srtt_eighth_us: 8_000,
        rto_jiffies: 51,
        state: 1,
        ip_version: 4,
        ..abi::Snapshot::default()
    }
}

fn transition(old_state: u8, new_state: u8, flags: u8, sk_err: u32) -> abi::Lifecycle {
    let mut comm = [0; abi::COMM_BYTES];
    comm[..4].copy_from_slice(b"node");
    abi::Lifecycle {
        header: abi::Header { cookie: 9, ..abi::Header::default() },
        old_state,
        new_state,
        task_flags: flags,
        process_id: 77,
        thread_id: 78,
        comm,
        snapshot: abi::Snapshot { state: new_state, sk_err, ..taken() },
        ..abi::Lifecycle::default()
    }
}

#[test]
fn processes_that_are_told_to_stop_and_ancestors_are_named() {
    let told = abi::Termination {
        header: abi::Header { time_ns: 5_000_000, ..abi::Header::default() },
        process_id: 77,
        padding: 0,
    };
    let expected = Input::Terminating { at: Timestamp::from_ms(5), process: Some(77) };
    assert_eq!(record(clock(), &Record::Termination(told)), Ok(Meaning::Inputs(vec![expected])));
    // Bits of the context are known, and a task acted: FIN_WAIT1 from ESTABLISHED.
    let mut closed = transition(1, 4, task_flags::CONTEXT_KNOWN, 0);
    closed.ancestors = [12, 11, 1];
    let Ok(Meaning::Inputs(inputs)) = record(clock(), &Record::Lifecycle(closed)) else { panic!("no input") };
    let Some(Input::Transition(found)) = inputs.first() else { panic!("no transition: {inputs:?}") };
    assert_eq!(found.process.as_ref().map(|process| process.ancestors.as_slice()), Some(&[12, 11][..]));
}

fn close_frame(payload: &[u8], mask: Option<[u8; 4]>) -> Frame {
    frame(&wire_frame(8, payload, mask)).unwrap()
}

fn wire_frame(opcode: u8, payload: &[u8], mask: Option<[u8; 4]>) -> abi::Frame {
    let mut found = abi::Frame {
        header: abi::Header { cookie: 9, ..abi::Header::default() },
        flow: taken().flow,
        seq_start: 1,
        seq_end: 2,
        mask: mask.unwrap_or_default(),
        direction: 1,
        opcode,
        masked: u8::from(mask.is_some()),
        payload_bytes: u8::try_from(payload.len()).unwrap(),
        payload: [0; abi::CONTROL_PAYLOAD_MAX_BYTES],
        padding: [0; 3],
    };
    for (index, byte) in payload.iter().enumerate() {
        found.payload[index] = byte ^ found.mask[index % 4];
    }
    found
}

#[test]
fn differences_wrap_and_ticks_become_moments() {
    let sample = snapshot(clock(), &taken()).unwrap();
    assert_eq!(sample.send_queue_bytes, Some(110));
    assert_eq!(sample.unsent_bytes, Some(50));
    assert_eq!(sample.unread_bytes, Some(2));
    assert_eq!(sample.last_ack_at, Some(Timestamp::from_ms(9_000)));
    assert_eq!(sample.srtt_us, Some(1_000));
    assert_eq!(sample.rto_ms, Some(204));
    assert_eq!(sample.last_send_at, None);
}

#[test]
fn a_member_that_the_kernel_lacks_is_none() {
    let without = abi::Snapshot { available: !(Member::SndUna.bit() | Member::Srtt.bit()), ..taken() };
    let sample = snapshot(clock(), &without).unwrap();
    assert_eq!((sample.snd_una, sample.send_queue_bytes, sample.srtt_us), (None, None, None));
    assert_eq!(sample.unsent_bytes, Some(50));
}

/// `rcv_nxt` counts the peer's FIN, which is nothing that waits to be read.
#[test]
fn the_peers_fin_is_no_unread_byte() {
    for state in [8, 9, 11] {
        let sample = snapshot(clock(), &abi::Snapshot { state, ..taken() }).unwrap();
        assert_eq!(sample.unread_bytes, Some(1), "state {state}");
        let meaning = record(clock(), &Record::Lifecycle(transition(state, 7, 0, 0))).unwrap();
        let Meaning::Inputs(inputs) = meaning else { panic!("{meaning:?}") };
        let [Input::Transition(closed)] = inputs.as_slice() else { panic!("{inputs:?}") };
        assert_eq!(closed.snapshot.unread_bytes, Some(1), "state {state}");
    }
    let read = abi::Snapshot { state: 8, rcv_nxt: 7, copied_seq: 7, ..taken() };
    assert_eq!(snapshot(clock(), &read).unwrap().unread_bytes, Some(0));
}

#[test]
fn an_open_is_an_opened_and_a_sample() {
    let meaning = record(clock(), &Record::Lifecycle(transition(3, 1, 0, 0))).unwrap();
    let Meaning::Inputs(inputs) = meaning else { panic!("{meaning:?}") };
    let [Input::Opened(opened), Input::Sample(_)] = inputs.as_slice() else { panic!("{inputs:?}") };
    assert_eq!(opened.endpoints.local_address.to_string(), "192.0.2.1");
    assert_eq!(opened.endpoints.peer_port, 40_000);
    assert!(!opened.preexisting);
}

#[test]
fn listeners_are_no_connections() {
    let listening = record(clock(), &Record::Lifecycle(transition(7, 10, 0, 0)));
    assert_eq!(listening, Ok(Meaning::Listening { port: 8080 }));
    let closed = record(clock(), &Record::Lifecycle(transition(10, 7, 0, 0)));
    assert_eq!(closed, Ok(Meaning::ListenerClosed { port: 8080 }));
}

/// Who acted, for each way a transition can come about.
#[test]
fn the_process_is_named_only_where_it_acted() {
    use task_flags::{CONTEXT_KNOWN as KNOWN, EXITING, INTERRUPT};
    /// Name, old state, new state, flags, error of the socket; whether the task that acted was exiting.
    type Row = (&'static str, u8, u8, u8, u32, Option<bool>);
    let rows: [Row; 14] = [
        ("close()", 1, 4, KNOWN, 0, Some(false)),
        ("close() by exit", 1, 4, KNOWN | EXITING, 0, Some(true)),
        ("close(), context unknown", 1, 4, 0, 0, Some(false)),
        ("close() after the peer's", 8, 9, KNOWN, 0, Some(false)),
        ("close() with unread data", 1, 7, KNOWN, 0, Some(false)),
        ("the peer's reset", 1, 7, KNOWN | INTERRUPT, 104, None),
        ("the peer's reset, in the backlog", 1, 7, KNOWN, 104, None),
        ("a timeout", 1, 7, KNOWN | INTERRUPT, 110, None),
        ("CLOSE, context unknown", 1, 7, 0, 0, None),
        ("the peer's FIN, in the backlog", 1, 8, KNOWN, 0, None),
        ("the last ACK", 9, 7, KNOWN | INTERRUPT, 0, None),
        ("the last ACK, in the backlog", 9, 7, KNOWN, 0, None),
        ("our FIN was acknowledged", 4, 5, KNOWN | INTERRUPT, 0, None),
        ("ss --kill", 1, 7, KNOWN, 103, Some(false)),
    ];
    for (name, old_state, new_state, flags, error, expected) in rows {
        let found = transition(old_state, new_state, flags, error);
        let acted = process(&found, tcp_state(old_state).unwrap(), tcp_state(new_state).unwrap());
        assert_eq!(acted.as_ref().map(|process| process.exiting), expected, "{name}");
        if let Some(process) = acted {
            assert_eq!((process.pid, process.command.as_str()), (77, "node"), "{name}");
        }
    }
}

#[test]
fn a_close_frame_gives_code_and_reason() {
    let closed = close_frame(b"\x03\xe9going away", Some([1, 2, 3, 4]));
    assert_eq!((closed.close_code, closed.close_reason.as_deref()), (Some(1001), Some("going away")));
    assert!(closed.payload.is_empty());
    let bare = close_frame(b"", None);
    assert_eq!((bare.close_code, bare.close_reason), (None, None));
    let half = close_frame(b"\x03", None);
    assert_eq!((half.close_code, half.close_reason), (None, None));
    let code_only = close_frame(b"\x03\xe8", None);
    assert_eq!((code_only.close_code, code_only.close_reason), (Some(1000), None));
    let broken = close_frame(b"\x03\xe8\xff", None);
    assert_eq!(broken.close_reason.as_deref(), Some("\u{fffd}"));
}

#[test]
fn a_data_frame_is_unmasked_and_left_to_the_profiles() {
    for (opcode, mask) in [(1, Some([1, 2, 3, 4])), (2, None)] {
        let meaning = record(clock(), &Record::Frame(wire_frame(opcode, b"hello", mask))).unwrap();
        let Meaning::Data(found) = meaning else { panic!("{meaning:?}") };
        assert_eq!((found.payload.as_slice(), found.binary), (b"hello".as_slice(), opcode == 2));
        assert_eq!((found.local_port, found.connection, found.seq_end), (8080, ConnectionId(9), Seq(2)));
    }
    let refused = record(clock(), &Record::Frame(wire_frame(3, b"", None)));
    assert_eq!(refused, Err(Rejection::UnknownOpcode(3)));
}

#[test]
fn every_loss_reason_has_its_own_word() {
    let mut words: Vec<&str> = LossReason::ALL.iter().map(|reason| loss_reason(reason.number())).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(words.len(), LossReason::ALL.len());
    assert!(!words.contains(&"unknown"));
}

proptest! {
    /// Whatever decodes either has a meaning or is refused; nothing panics.
    #[test]
    fn any_record_is_survived(kind in 1_u32..=6, mut bytes in proptest::collection::vec(any::<u8>(), 4200)) {
        let size = [0, size_of::<abi::Lifecycle>(), size_of::<abi::Reset>(), size_of::<abi::Frame>(),
            size_of::<abi::Synchronization>(), size_of::<abi::Outstanding>(), size_of::<abi::UpgradeHead>()];
        bytes[0..4].copy_from_slice(&kind.to_ne_bytes());
        bytes[4..8].copy_from_slice(&u32::try_from(size[kind as usize]).unwrap().to_ne_bytes());
        if let Ok(decoded) = Record::decode(&bytes) {
            let _ = record(clock(), &decoded);
        }
        let (snapshots, _) = abi::decode_snapshots(&bytes);
        for found in snapshots {
            let _ = snapshot(clock(), &found);
        }
    }
}
