use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::*;

const DEADLINE: Duration = Duration::from_secs(20);

fn source(ports: Ports) -> SockDiagSource {
    SockDiagSource::open(ports).unwrap()
}

/// Passes until `holds` is content with what has come so far.
fn pass_until(source: &mut SockDiagSource, what: &str, holds: impl Fn(&[Input]) -> bool) -> Vec<Input> {
    let start = Instant::now();
    let mut all = Vec::new();
    loop {
        source.sample(&mut all).unwrap();
        if holds(&all) {
            return all;
        }
        assert!(start.elapsed() < DEADLINE, "{what} did not come: {all:#?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn last_sample(inputs: &[Input]) -> Option<&Snapshot> {
    inputs.iter().rev().find_map(|input| match input {
        Input::Sample(snapshot) => Some(snapshot),
        _ => None,
    })
}

fn transitions(inputs: &[Input]) -> Vec<(TcpState, TcpState)> {
    inputs
        .iter()
        .filter_map(|input| match input {
            Input::Transition(transition) => Some((transition.old_state, transition.new_state)),
            _ => None,
        })
        .collect()
}

#[tokio::test]
async fn a_real_connection_is_found_measured_and_seen_to_close() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut source = source(Ports::Listed(vec![port]));
    let mut before = Vec::new();
    source.discover(&mut before).unwrap();
    assert!(matches!(before.as_slice(), [Input::SamplingDone { .. }]), "{before:?}");

    let mut peer = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let (mut host, _) = listener.accept().unwrap();
    let found = pass_until(&mut source, "the connection", |inputs| {
        inputs.iter().any(|input| matches!(input, Input::Opened(_)))
    });
    let opened: Vec<_> = found
        .iter()
        .filter_map(|input| match input {
            Input::Opened(opened) => Some(opened.clone()),
            _ => None,
        })
        .collect();
    // The peer's own socket is in the same namespace, and is not the host's.
    assert_eq!(opened.len(), 1);
    assert_eq!(opened[0].endpoints.local_port, port);
    assert_eq!(opened[0].endpoints.peer_port, peer.local_addr().unwrap().port());
    assert_eq!((opened[0].role, opened[0].preexisting), (Role::Server, true), "its start was not seen");
    assert_eq!(last_sample(&found).unwrap().last_inbound_at, None, "no payload has come yet");

    peer.write_all(b"hello").unwrap();
    let unread = pass_until(&mut source, "the unread bytes", |inputs| {
        last_sample(inputs).is_some_and(|snapshot| snapshot.unread_bytes == Some(5))
    });
    assert!(last_sample(&unread).unwrap().last_inbound_at.is_some());
    host.read_exact(&mut [0; 5]).unwrap();

    // The peer does not read: what is written stays, at least in part, in the host's send queue.
    host.set_nonblocking(true).unwrap();
    while host.write(&[0; 65_536]).is_ok() {}
    let queued = pass_until(&mut source, "the send queue", |inputs| {
        last_sample(inputs).is_some_and(|snapshot| {
            snapshot.send_queue_bytes.is_some_and(|bytes| bytes > 0)
                && snapshot.bytes_acked.is_some_and(|bytes| bytes > 0)
        })
    });
    let snapshot = last_sample(&queued).unwrap();
    assert!(snapshot.unsent_bytes <= snapshot.send_queue_bytes);
    assert!(snapshot.rto_ms.is_some_and(|rto_ms| (1..120_000).contains(&rto_ms)), "{:?}", snapshot.rto_ms);
    assert!(snapshot.snd_wnd_bytes.is_some());

    drop(host);
    let closing = pass_until(&mut source, "the close", |inputs| !transitions(inputs).is_empty());
    assert_eq!(transitions(&closing)[0], (TcpState::Established, TcpState::FinWait1));
}

fn row(cookie: u64, state: TcpState, local_port: u16) -> Row {
    Row::made(ConnectionId(cookie), state, local_port)
}

fn words(inputs: &[Input]) -> Vec<String> {
    inputs
        .iter()
        .map(|input| match input {
            Input::Opened(opened) => format!("opened {} {}", opened.connection.0, opened.preexisting),
            Input::Sample(snapshot) => format!("sample {}", snapshot.connection.0),
            Input::Transition(transition) => format!(
                "{} {:?} -> {:?}",
                transition.snapshot.connection.0, transition.old_state, transition.new_state
            ),
            Input::SamplingDone { .. } => "done".to_owned(),
            other => format!("{other:?}"),
        })
        .collect()
}

#[tokio::test]
async fn states_are_compared_between_passes() {
    let mut source = source(Ports::Listening);
    let mut pass = |rows: &[Row]| {
        let mut inputs = Vec::new();
        source.apply(rows, Timestamp::from_ms(1), Timestamp::from_ms(2), &mut inputs);
        words(&inputs)
    };
    let listener = row(1, TcpState::Listen, 80);
    let old = row(2, TcpState::Established, 80);
    assert_eq!(pass(&[listener.clone(), old.clone()]), ["opened 2 true", "sample 2", "done"]);
    // A dialled connection has a local port on which nothing listens; a half-open one is none yet.
    let others = [row(3, TcpState::Established, 40_000), row(4, TcpState::SynRecv, 80)];
    let rows = [listener.clone(), old, others[0].clone(), others[1].clone()];
    assert_eq!(pass(&rows), ["sample 2", "done"]);
    let closing = row(2, TcpState::FinWait1, 80);
    let new = row(5, TcpState::Established, 80);
    assert_eq!(
        pass(&[listener.clone(), closing, new]),
        ["2 Established -> FinWait1", "opened 5 true", "sample 5", "done"]
    );
    // Gone from the table is told by its absence before `done`.
    assert_eq!(pass(std::slice::from_ref(&listener)), ["done"]);
    // A connection that is over already is not taken up.
    assert_eq!(pass(&[listener, row(6, TcpState::TimeWait, 80)]), ["done"]);
}

#[tokio::test]
async fn a_state_that_was_passed_between_two_passes_is_told() {
    for (state, told) in [
        (TcpState::TimeWait, ["2 Established -> FinWait1", "2 FinWait1 -> TimeWait", "done"]),
        (TcpState::FinWait2, ["2 Established -> FinWait1", "2 FinWait1 -> FinWait2", "done"]),
        (TcpState::LastAck, ["2 Established -> CloseWait", "2 CloseWait -> LastAck", "done"]),
    ] {
        let mut source = source(Ports::Listed(vec![80]));
        let mut inputs = Vec::new();
        let (began_at, at) = (Timestamp::from_ms(1), Timestamp::from_ms(2));
        source.apply(&[row(2, TcpState::Established, 80)], began_at, at, &mut inputs);
        inputs.clear();
        source.apply(&[row(2, state, 80)], began_at, at, &mut inputs);
        assert_eq!(words(&inputs), told);
    }
}

#[test]
fn what_a_socket_without_tcp_info_shows_is_unknown_not_zero() {
    let snapshot = row(1, TcpState::TimeWait, 80).snapshot(Timestamp::from_ms(5));
    assert_eq!((snapshot.send_queue_bytes, snapshot.unread_bytes, snapshot.rto_ms), (None, None, None));
}

#[test]
fn an_error_of_any_number_is_told() {
    for number in [i32::MIN, -1, 0, i32::MAX] {
        // nlmsghdr: length, type NLMSG_ERROR, flags, sequence, port; then nlmsgerr: the number and a request's header.
        let mut message = 36_u32.to_ne_bytes().to_vec();
        message.extend(2_u16.to_ne_bytes());
        message.extend([0; 10]);
        message.extend(number.to_ne_bytes());
        message.extend([0; 16]);
        let result = read_dump_part(&message, 10, &mut Vec::new());
        assert!(number == 0 || result.is_err(), "{number}: {result:?}");
    }
}
