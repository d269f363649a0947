//! Leaks: what is suspected, what never is, and what may be reaped. Compressed time: each step is a census.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};

use ackbeat_liveness::leak::{
    Census, CensusSocket, Certainty, Changes, LeakChange, LeakSettings, LeakSign, Owner, REAPS_AT_ONCE,
    ReapMode, ReapWanted, SOCKETS_MAX,
};
use ackbeat_liveness::{
    ConnectionId, Endpoints, Engine, Input, Opened, Output, Policy, Role, Snapshot, TcpState, Timestamp,
    Transition,
};
use proptest::prelude::*;

const RELAY: u16 = 8_080;
const INTERVAL_MS: u64 = 10_000;

/// A pod whose sockets are counted.
struct Pod {
    engine: Engine,
    changes: Changes,
    sockets: BTreeMap<u64, CensusSocket>,
    now_ms: u64,
    told: Vec<LeakChange>,
    reaps: Vec<ReapWanted>,
    censuses: Vec<Census>,
}

impl Pod {
    fn new(settings: LeakSettings) -> Self {
        let mut engine = Engine::new(Policy::default_policy());
        engine.set_leak_settings(settings);
        Self {
            engine,
            changes: Changes::default(),
            sockets: BTreeMap::new(),
            now_ms: 10_000_000,
            told: Vec::new(),
            reaps: Vec::new(),
            censuses: Vec::new(),
        }
    }

    fn now(&self) -> Timestamp {
        Timestamp::from_ms(self.now_ms)
    }

    /// Opens a socket and passes a byte each way.
    fn open(&mut self, number: u64, role: Role) {
        let address = |last| IpAddr::V4(Ipv4Addr::new(10, 0, 0, last));
        let own = 40_000 + u16::try_from(number % 20_000).unwrap();
        let endpoints = match role {
            Role::Client => Endpoints {
                local_address: address(1),
                local_port: own,
                peer_address: address(7),
                peer_port: RELAY,
            },
            Role::Server => Endpoints {
                local_address: address(1),
                local_port: 80,
                peer_address: address(9),
                peer_port: own,
            },
        };
        let socket = CensusSocket {
            connection: ConnectionId(number),
            endpoints,
            role,
            state: TcpState::Established,
            busy: false,
            last_send_at: Some(self.now()),
            last_inbound_at: Some(self.now()),
            last_ack_at: Some(self.now()),
            send_queue_bytes: Some(0),
            unread_bytes: Some(0),
            bytes_acked: Some(1),
            bytes_received: Some(1),
            pid: Some(7),
        };
        self.sockets.insert(number, socket);
    }

    fn carry(&mut self, number: u64) {
        let now = self.now();
        let socket = self.sockets.get_mut(&number).unwrap();
        (socket.last_send_at, socket.last_inbound_at, socket.last_ack_at) = (Some(now), Some(now), Some(now));
        socket.bytes_received = socket.bytes_received.map(|bytes| bytes + 100);
    }

    /// A connection of the pod's listener that the engine watches too; its peer closes it at once after its last byte.
    fn serve_and_leave(&mut self, number: u64) {
        self.open(number, Role::Server);
        let socket = self.sockets[&number].clone();
        let opened = Opened {
            connection: socket.connection,
            at: self.now(),
            endpoints: socket.endpoints,
            role: Role::Server,
            preexisting: false,
            frames_visible: true,
        };
        self.feed(Input::Opened(opened));
    }

    fn peer_leaves(&mut self, number: u64) {
        let socket = self.sockets.remove(&number).unwrap();
        let at = self.now();
        let snapshot = |state| Snapshot {
            last_send_at: socket.last_send_at,
            last_inbound_at: socket.last_inbound_at,
            last_ack_at: Some(at),
            send_queue_bytes: Some(0),
            unread_bytes: Some(0),
            ..Snapshot::unavailable(socket.connection, at, state)
        };
        let states = [TcpState::Established, TcpState::CloseWait, TcpState::LastAck, TcpState::Close]
            .windows(2)
            .map(|pair| (pair[0], pair[1]));
        for (old_state, new_state) in states {
            self.feed(Input::Transition(Transition {
                old_state,
                new_state,
                process: None,
                snapshot: snapshot(new_state),
            }));
        }
        while let Some(due) = self.engine.poll_timeout().filter(|due| *due <= at.plus_ms(60_000)) {
            self.engine.handle_timeout(due);
            self.hear();
        }
    }

    fn feed(&mut self, input: Input) {
        self.engine.handle_input(input);
        self.hear();
    }

    fn hear(&mut self) {
        while let Some(output) = self.engine.poll() {
            match output {
                Output::Leak(change) => self.told.push(*change),
                Output::ReapWanted(wanted) => self.reaps.push(wanted),
                _ => {}
            }
        }
    }

    fn census(&mut self) {
        let owners = vec![Owner { pid: 7, command: "proxy".to_owned(), fd_count: 70 }];
        let census = self.changes.census(self.now(), self.sockets.values().cloned(), owners);
        self.censuses.push(census.clone());
        self.feed(Input::Census(Box::new(census)));
    }

    fn pass(&mut self, censuses: u64) {
        for _ in 0..censuses {
            self.now_ms += INTERVAL_MS;
            self.census();
        }
    }

    fn suspected(&self, sign: LeakSign) -> usize {
        self.told.iter().filter(|change| change.suspected && change.sign == sign).count()
    }
}

fn full_and_idle() -> Pod {
    let mut pod = Pod::new(LeakSettings::default());
    for number in 1..=64 {
        pod.open(number, Role::Client);
    }
    pod
}

#[test]
fn a_count_that_stands_with_nothing_to_do_is_suspected_once_and_cleared_by_traffic() {
    let mut pod = full_and_idle();
    pod.pass(18);
    assert_eq!(pod.told, [], "three minutes have not passed since the first census");
    pod.pass(3);
    let [change] = pod.told.as_slice() else { panic!("{:?}", pod.told) };
    assert_eq!((change.sign, change.count, change.idle, change.maximum), (LeakSign::FlatCount, 64, 64, 64));
    assert_eq!(change.owner.as_ref().unwrap().command, "proxy");
    assert!(change.idle_ms.unwrap() >= 180_000 && change.suspected);
    pod.pass(180);
    assert_eq!(pod.told.len(), 1, "it is told once");
    // A few that carry something clear nothing; half of them do, and not at once.
    for number in 1..=6 {
        pod.carry(number);
    }
    pod.pass(10);
    assert_eq!(pod.told.len(), 1);
    for number in 1..=32 {
        pod.carry(number);
    }
    pod.pass(2);
    assert_eq!(pod.told.len(), 1);
    pod.pass(1);
    assert!(!pod.told[1].suspected && pod.told.len() == 2, "{:?}", pod.told);
    assert_eq!(pod.engine.leaks().counters().suspected_now, [0, 0, 0]);
}

#[test]
fn a_busy_pool_of_64_is_not_accused_in_half_an_hour() {
    let mut pod = full_and_idle();
    // Each of them is used once in two minutes; none is new, none is closed.
    for round in 0..180_u64 {
        for number in (1..=64).filter(|number| number % 12 == round % 12) {
            pod.carry(number);
        }
        pod.pass(1);
    }
    assert_eq!(pod.told, []);
    let group = pod.engine.leaks().groups().next().unwrap();
    assert_eq!((group.settled, group.maximum, group.idle), (64, 64, 0));
    assert!(pod.now().ms_since(group.flat_since) >= 1_700_000, "its count has been flat all the while");
}

#[test]
fn a_count_below_its_maximum_is_flat_for_another_reason() {
    let mut pod = full_and_idle();
    pod.pass(2);
    for number in 1..=32 {
        pod.sockets.remove(&number);
    }
    pod.pass(60);
    assert_eq!(pod.told, [], "half an hour after a peak of 64, 32 are no maximum");
    // After an hour they are.
    pod.pass(350);
    assert_eq!(pod.suspected(LeakSign::FlatCount), 1);
}

#[test]
fn a_pause_of_the_sidecar_opens_a_new_window() {
    let mut pod = full_and_idle();
    pod.pass(10);
    pod.now_ms += 600_000;
    pod.pass(1);
    assert_eq!(pod.told, [], "what was in between nobody saw");
    pod.pass(18);
    assert_eq!(pod.suspected(LeakSign::FlatCount), 1);
}

#[test]
fn every_socket_in_close_wait_is_a_leak_of_its_own() {
    let mut pod = Pod::new(LeakSettings::default());
    for number in 1..=20 {
        pod.open(number, Role::Server);
    }
    pod.pass(1);
    let fin_at = pod.now();
    for socket in pod.sockets.values_mut() {
        (socket.state, socket.last_ack_at) = (TcpState::CloseWait, Some(fin_at));
    }
    pod.pass(5);
    assert_eq!(pod.suspected(LeakSign::CloseWait), 0);
    pod.pass(1);
    assert_eq!(pod.suspected(LeakSign::CloseWait), 20);
    assert!(pod.told.iter().all(|change| change.connection.is_some() && change.since == fin_at));
    pod.sockets.clear();
    pod.pass(1);
    assert_eq!(pod.told.iter().filter(|change| !change.suspected).count(), 20);
}

#[test]
fn a_host_that_writes_to_a_peer_that_has_closed_leaks_nothing() {
    let mut pod = Pod::new(LeakSettings::default());
    pod.open(1, Role::Server);
    pod.sockets.get_mut(&1).unwrap().state = TcpState::CloseWait;
    for _ in 0..60 {
        pod.carry(1);
        pod.pass(2);
    }
    assert_eq!(pod.told, []);
    pod.pass(6);
    assert_eq!(pod.suspected(LeakSign::CloseWait), 1, "it writes no more");
    pod.carry(1);
    pod.pass(1);
    assert!(!pod.told[1].suspected, "and now it does again");
}

/// One request through a proxy: a connection comes, another is dialled for it, its peer leaves, and the dialled one stays.
fn serve_through_proxy(pod: &mut Pod, number: u64) {
    pod.serve_and_leave(1_000 + number);
    pod.open(number, Role::Client);
    pod.pass(1);
    pod.peer_leaves(1_000 + number);
}

#[test]
fn dialled_sockets_that_are_passed_over_are_orphans_long_before_a_quota_is_full() {
    let mut pod = Pod::new(LeakSettings::default());
    for number in 1..=7 {
        serve_through_proxy(&mut pod, number);
    }
    let change = pod.told.iter().find(|change| change.sign == LeakSign::Orphans).expect("orphans");
    assert!(change.count < 16 && change.orphans >= 3, "{change:?}");
    assert!(change.pairs.iter().all(|pair| pair.certainty == Certainty::Likely), "{change:?}");
    assert_eq!(change.pairs[0].downstream.0, 1_000 + change.pairs[0].upstream.0);
}

#[test]
fn a_pool_that_uses_its_sockets_again_has_no_orphans() {
    let mut pod = Pod::new(LeakSettings::default());
    pod.open(1, Role::Client);
    for number in 1..=60 {
        pod.serve_and_leave(1_000 + number);
        pod.carry(1);
        pod.pass(1);
        pod.peer_leaves(1_000 + number);
    }
    assert_eq!(pod.told, []);
}

#[test]
fn a_pool_that_rests_while_another_process_dials_has_no_orphans() {
    let mut pod = Pod::new(LeakSettings::default());
    for number in 1..=4 {
        pod.serve_and_leave(1_000 + number);
        pod.open(number, Role::Client);
        pod.pass(1);
        pod.peer_leaves(1_000 + number);
    }
    pod.pass(1);
    for number in 100..120 {
        pod.open(number, Role::Client);
        pod.sockets.get_mut(&number).unwrap().pid = Some(8);
        pod.pass(1);
    }
    assert_eq!(pod.told.iter().find(|change| change.sign == LeakSign::Orphans), None);
}

#[test]
fn without_an_owner_a_pair_is_only_possible() {
    let mut pod = Pod::new(LeakSettings::default());
    pod.serve_and_leave(1_001);
    pod.open(1, Role::Client);
    for socket in pod.sockets.values_mut() {
        socket.pid = None;
    }
    pod.pass(1);
    pod.peer_leaves(1_001);
    pod.pass(1);
    let pairs: Vec<_> = pod.engine.leaks().pairs().collect();
    assert_eq!(pairs.len(), 1);
    assert_eq!(pairs[0].1.certainty, Certainty::Possible);
}

fn reaping(mode: ReapMode) -> Pod {
    let mut pod = Pod::new(LeakSettings {
        reap: mode,
        quotas: vec!["remote:8080=64".parse().unwrap()],
        ..LeakSettings::default()
    });
    for number in 1..=64 {
        pod.open(number, Role::Client);
        pod.now_ms += 1_000;
    }
    pod
}

#[test]
fn only_a_full_quota_is_reaped_oldest_first_eight_at_a_time() {
    let mut pod = reaping(ReapMode::On);
    pod.carry(3);
    pod.pass(53);
    assert_eq!(pod.reaps, [], "none is ten minutes old");
    pod.pass(3);
    let first: Vec<u64> = pod.reaps.iter().take(REAPS_AT_ONCE).map(|wanted| wanted.connection.0).collect();
    assert!(first.contains(&1) && first.iter().all(|number| *number <= 16), "{first:?}");
    assert!(pod.reaps.iter().all(|wanted| wanted.age_ms >= 600_000 && wanted.idle_ms >= 300_000));
    assert!(pod.reaps.len() <= 3 * REAPS_AT_ONCE, "{}", pod.reaps.len());
    // One less than the quota, and nothing is asked for any more.
    pod.sockets.remove(&1);
    pod.reaps.clear();
    pod.pass(200);
    assert_eq!(pod.reaps, []);
}

#[test]
fn what_was_asked_to_go_counts_no_more_until_it_is_asked_again() {
    let mut pod = reaping(ReapMode::On);
    pod.pass(70);
    // Whoever destroys them is late: they are still there, census after census, and no other has to go for them.
    let first: Vec<ReapWanted> = std::mem::take(&mut pod.reaps);
    assert!((1..=REAPS_AT_ONCE).contains(&first.len()), "{first:?}");
    assert!(first.iter().all(|wanted| wanted.at == first[0].at), "{first:?}");
    let asked = |reaps: &[ReapWanted]| reaps.iter().map(|wanted| wanted.connection).collect::<Vec<_>>();
    // They did not go: after `reap_min_idle_ms` they are asked once more.
    pod.pass(30);
    assert!(asked(&pod.reaps).starts_with(&asked(&first)), "{:?}", pod.reaps);
    assert!(pod.reaps.iter().all(|wanted| wanted.at == pod.reaps[0].at), "{:?}", pod.reaps);
}

#[test]
fn what_holds_bytes_is_not_reaped() {
    let mut pod = reaping(ReapMode::On);
    for number in 1..=30 {
        pod.sockets.get_mut(&number).unwrap().send_queue_bytes = Some(1);
        pod.sockets.get_mut(&(number + 30)).unwrap().unread_bytes = Some(1);
    }
    pod.sockets.get_mut(&61).unwrap().unread_bytes = None;
    pod.pass(180);
    let reaped: Vec<u64> = pod.reaps.iter().map(|wanted| wanted.connection.0).collect();
    assert!(!reaped.is_empty() && reaped.iter().all(|number| *number > 61), "{reaped:?}");
}

#[test]
fn a_small_pool_is_not_wiped_at_once() {
    let mut pod = Pod::new(LeakSettings {
        reap: ReapMode::On,
        quotas: vec!["remote:8080=4".parse().unwrap()],
        ..LeakSettings::default()
    });
    for number in 1..=6 {
        pod.open(number, Role::Client);
    }
    pod.pass(59);
    assert_eq!(pod.reaps, []);
    pod.pass(2);
    let asked: Vec<u64> = pod.reaps.iter().map(|wanted| wanted.connection.0).collect();
    assert_eq!(asked[..3], [1, 2, 3], "two over the quota, and one to make room");
    assert!(pod.reaps.iter().filter(|wanted| wanted.at == pod.reaps[0].at).count() == 3);
}

#[test]
fn what_carries_bytes_is_not_reaped() {
    let mut pod = reaping(ReapMode::On);
    for _ in 0..180 {
        for number in 1..=60 {
            pod.carry(number);
        }
        pod.pass(1);
    }
    assert!(pod.reaps.iter().all(|wanted| wanted.connection.0 > 60), "{:?}", pod.reaps);
    assert!(!pod.reaps.is_empty());
}

#[test]
fn with_reaping_off_nothing_is_ever_asked_for() {
    let mut pod = reaping(ReapMode::Off);
    pod.pass(400);
    assert_eq!((pod.reaps.len(), pod.engine.leaks().counters().reaps_wanted), (0, 0));
    assert_eq!(pod.suspected(LeakSign::FlatCount), 1, "it is told all the same");
}

#[test]
fn a_census_tells_only_what_is_new_and_sometimes_all() {
    let mut pod = full_and_idle();
    pod.pass(70);
    let told: Vec<usize> = pod.censuses.iter().map(|census| census.changed.len()).collect();
    assert_eq!((told[0], told[60]), (64, 64), "whole ones");
    assert!(told[1..60].iter().all(|count| *count == 0), "{told:?}");
    // A watch that begins with the second whole one knows all sockets.
    let mut late = Engine::new(Policy::default_policy());
    for census in &pod.censuses[60..] {
        late.handle_input(Input::Census(Box::new(census.clone())));
    }
    let settled = |engine: &Engine| engine.leaks().groups().next().unwrap().settled;
    assert_eq!((settled(&late), settled(&pod.engine)), (64, 64));
}

#[test]
fn what_is_over_the_bounds_is_counted() {
    let mut pod = Pod::new(LeakSettings::default());
    for number in 1..=SOCKETS_MAX as u64 + 5 {
        pod.open(number, Role::Client);
    }
    for (number, socket) in &mut pod.sockets {
        socket.endpoints.peer_port = 1 + u16::try_from(number % 300).unwrap();
    }
    pod.pass(1);
    let counters = pod.engine.leaks().counters();
    assert_eq!(counters.sockets_left_out, 5);
    assert!(counters.groups_left_out > 0);
    assert_eq!(pod.engine.leaks().groups().count(), 256);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever sockets do: nothing is reaped that is young, used, or of a quota that is not full; never more than eight
    /// with one census; and whoever is cleared was suspected.
    #[test]
    fn reaping_keeps_its_promises(
        steps in proptest::collection::vec((0_u64..24, 0_u8..6, 1_u64..40), 1..120),
    ) {
        let mut pod = Pod::new(LeakSettings {
            reap: ReapMode::On,
            quotas: vec!["remote:8080=8".parse().unwrap()],
            count_min: 2,
            ..LeakSettings::default()
        });
        let mut opened_at = BTreeMap::new();
        for (number, what, censuses) in steps {
            match what {
                0..=2 if !pod.sockets.contains_key(&number) => {
                    opened_at.insert(number, pod.now());
                    pod.open(number, Role::Client);
                }
                3 if pod.sockets.contains_key(&number) => pod.carry(number),
                4 => {
                    pod.sockets.remove(&number);
                }
                _ => {}
            }
            for _ in 0..censuses {
                let (before, established) = (pod.reaps.len(), pod.sockets.len());
                pod.pass(1);
                let asked = &pod.reaps[before..];
                prop_assert!(asked.len() <= REAPS_AT_ONCE);
                prop_assert!(asked.is_empty() || established >= 8);
                for wanted in asked {
                    let socket = &pod.sockets[&wanted.connection.0];
                    let carried_at = socket.idle_since().unwrap();
                    prop_assert!(pod.now().ms_since(opened_at[&wanted.connection.0]) >= 600_000);
                    prop_assert!(pod.now().ms_since(carried_at) >= 300_000);
                }
            }
        }
        let mut standing = BTreeMap::new();
        for change in &pod.told {
            let key = (change.sign, change.group, change.connection);
            let before = standing.insert(key, change.suspected);
            prop_assert_ne!(before.unwrap_or(false), change.suspected);
        }
    }
}
