//! All sockets and groups, and what is suspected of them.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;

use super::census::{Census, CensusSocket, Owner, SOCKETS_MAX};
use super::group::{Group, GroupKey, GroupView, Suspicion, Tally, is_share};
use super::output::{LeakChange, LeakCounters, LeakSign, Pair};
use super::pairs::{Closes, Dialled, Served};
use super::reap;
use super::settings::LeakSettings;
use crate::{CloseRecord, ConnectionId, Output, Role, TcpState, Timestamp};

/// Ports that are told apart at most; sockets of others are counted ([`LeakCounters::groups_left_out`]).
pub const GROUPS_MAX: usize = 256;
/// A port without sockets is forgotten after this, in milliseconds: its maximum is of the last hour.
const GROUP_KEPT_MS: u64 = 3_600_000;
/// A census that comes so many intervals late saw nothing of what was in between.
const PAUSE_INTERVALS: u64 = 3;
/// So many orphans that were passed over are no accident.
const ORPHANS_MIN: u32 = 3;
/// So many censuses in a row clear a suspicion.
const CALM_CENSUSES: u8 = 3;
/// Sockets in `CLOSE_WAIT` that one census may tell of; the others wait for the next.
const CLOSE_WAITS_AT_ONCE: usize = 64;
/// Pairs that a suspicion names.
const PAIRS_MAX: usize = 8;

/// One socket.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) socket: CensusSocket,
    pub(super) first_seen_at: Timestamp,
    /// Since when it has been in its state, at the latest.
    state_since: Timestamp,
    /// It is told as a leak.
    is_leaked: bool,
    served: Option<Served>,
    /// Another one was dialled although this one lay idle.
    is_passed_over: bool,
    /// When it was last asked to be destroyed.
    pub(super) asked_at: Option<Timestamp>,
}

/// What censuses add up to. It is fed by the engine ([`Input::Census`](crate::Input::Census)), and bounded: at most
/// [`SOCKETS_MAX`] sockets of some 300 bytes, [`GROUPS_MAX`] groups and 1,024 closed connections. A census is one pass over
/// the sockets.
#[derive(Debug, Default)]
pub struct LeakWatch {
    settings: LeakSettings,
    sockets: BTreeMap<ConnectionId, Known>,
    groups: BTreeMap<GroupKey, Group>,
    owners: Vec<Owner>,
    closes: Closes,
    last_at: Option<Timestamp>,
    counters: LeakCounters,
}

impl LeakWatch {
    /// Puts these thresholds in force.
    pub fn set_settings(&mut self, settings: LeakSettings) {
        self.settings = settings;
    }

    /// The thresholds in force.
    #[must_use]
    pub const fn settings(&self) -> &LeakSettings {
        &self.settings
    }

    /// When the last census was taken; `None` before the first.
    #[must_use]
    pub const fn last_census_at(&self) -> Option<Timestamp> {
        self.last_at
    }

    /// Totals.
    #[must_use]
    pub fn counters(&self) -> LeakCounters {
        LeakCounters { closes_left_out: self.closes.left_out, ..self.counters }
    }

    /// Processes that own most of the sockets, as the last census told.
    #[must_use]
    pub fn owners(&self) -> &[Owner] {
        &self.owners
    }

    /// Sockets that are suspected by themselves, in the order of their cookies, and since when.
    pub fn leaked_sockets(&self) -> impl Iterator<Item = (&CensusSocket, Timestamp)> {
        self.sockets.values().filter(|known| known.is_leaked).map(|known| (&known.socket, known.state_since))
    }

    /// Pairs of which the dialled socket is an orphan, in the order of their cookies.
    pub fn pairs(&self) -> impl Iterator<Item = (GroupKey, Pair)> {
        self.sockets.values().filter_map(|known| Some((GroupKey::of(&known.socket), known.pair()?)))
    }

    /// The groups.
    pub fn groups(&self) -> impl Iterator<Item = GroupView> {
        self.groups.iter().map(|(key, group)| {
            let tally = &group.tally;
            let of_sign = |sign, suspicion: Option<Suspicion>| Some((sign, suspicion?.since));
            GroupView {
                key: *key,
                established: tally.established,
                settled: tally.settled,
                maximum: group.maximum(),
                flat_since: group.flat_since,
                idle: tally.idle,
                idle_histogram: tally.histogram,
                idle_unknown: tally.idle_unknown,
                close_wait: tally.close_wait,
                fin_wait2: tally.fin_wait2,
                orphans: tally.orphans,
                quota: self.settings.quota(key),
                pid: tally.pid(),
                suspected: [
                    of_sign(LeakSign::FlatCount, group.flat),
                    of_sign(LeakSign::Orphans, group.orphaned),
                ]
                .into_iter()
                .flatten()
                .collect(),
            }
        })
    }

    /// A connection that the engine watched is over.
    pub(crate) fn on_closed(&mut self, record: &CloseRecord) {
        // Without censuses nothing is compared with it.
        if self.last_at.is_some() {
            let pid = self.sockets.get(&record.connection).and_then(|known| known.socket.pid);
            self.closes.on_closed(record, pid);
        }
    }

    /// A census was taken.
    pub(crate) fn on_census(&mut self, census: Census, outputs: &mut VecDeque<Output>) {
        let at = census.at;
        let interval_ms = self.settings.census_interval_ms.max(1);
        let is_after_pause =
            self.last_at.is_some_and(|last_at| at.ms_since(last_at) > PAUSE_INTERVALS * interval_ms);
        let last_at = self.last_at.replace(at);
        self.counters.censuses += 1;
        self.counters.sockets_left_out = self.counters.sockets_left_out.saturating_add(census.left_out);
        self.owners = census.owners;
        self.remove_gone(at, census.whole, &census.gone, &census.changed, outputs);
        for socket in census.changed.into_iter().take(SOCKETS_MAX) {
            self.learn(at, socket, outputs);
        }
        self.find_pairs(at);
        self.tally(at, last_at, is_after_pause);
        self.tell_close_waits(at, outputs);
        self.judge_groups(at, outputs);
        self.ask_for_reaps(at, outputs);
        self.closes.forget(at);
        self.count_standing();
    }

    fn remove_gone(
        &mut self,
        at: Timestamp,
        whole: bool,
        gone: &[ConnectionId],
        changed: &[CensusSocket],
        outputs: &mut VecDeque<Output>,
    ) {
        let gone: Vec<ConnectionId> = if whole {
            let there: BTreeSet<ConnectionId> = changed.iter().map(|socket| socket.connection).collect();
            self.sockets.keys().copied().filter(|known| !there.contains(known)).collect()
        } else {
            gone.to_vec()
        };
        for connection in gone {
            if let Some(known) = self.sockets.remove(&connection)
                && known.is_leaked
            {
                outputs.push_back(self.of_socket(at, &known, false));
            }
        }
    }

    fn learn(&mut self, at: Timestamp, socket: CensusSocket, outputs: &mut VecDeque<Output>) {
        // A FIN has an ACK: it had come by the last of them.
        let state_since = socket.last_ack_at.unwrap_or(at).min(at);
        match self.sockets.remove(&socket.connection) {
            Some(mut known) => {
                let is_other_state = known.socket.state != socket.state;
                if (is_other_state || socket.busy) && core::mem::take(&mut known.is_leaked) {
                    outputs.push_back(self.of_socket(at, &known, false));
                }
                if is_other_state {
                    known.state_since = state_since;
                }
                if socket.busy {
                    // Used again: it was no orphan.
                    (known.served, known.is_passed_over) = (None, false);
                }
                known.socket = socket;
                self.sockets.insert(known.socket.connection, known);
            }
            None if self.sockets.len() < SOCKETS_MAX => {
                let known = Known {
                    first_seen_at: at,
                    state_since,
                    is_leaked: false,
                    served: None,
                    is_passed_over: false,
                    asked_at: None,
                    socket,
                };
                self.sockets.insert(known.socket.connection, known);
            }
            None => self.counters.sockets_left_out = self.counters.sockets_left_out.saturating_add(1),
        }
    }

    fn find_pairs(&mut self, at: Timestamp) {
        for known in self.sockets.values_mut() {
            let socket = &known.socket;
            if known.served.is_some()
                || socket.role != Role::Client
                || socket.state != TcpState::Established
                || socket.busy
                || socket.idle_since() == Some(at)
            {
                continue;
            }
            let Some(last_send_at) = socket.last_send_at else { continue };
            let dialled = Dialled {
                last_send_at,
                last_inbound_at: socket.last_inbound_at,
                pid: socket.pid,
                remote: (socket.endpoints.peer_address.to_canonical(), socket.endpoints.peer_port),
            };
            known.served = self.closes.served_by(&dialled);
        }
    }

    fn tally(&mut self, at: Timestamp, last_at: Option<Timestamp>, is_after_pause: bool) {
        let mut tallies: BTreeMap<GroupKey, Tally> = BTreeMap::new();
        for known in self.sockets.values() {
            let key = GroupKey::of(&known.socket);
            if !tallies.contains_key(&key) && tallies.len() >= GROUPS_MAX {
                self.counters.groups_left_out = self.counters.groups_left_out.saturating_add(1);
                continue;
            }
            let tally = tallies.entry(key).or_default();
            known.add_to(tally, at, &self.settings);
        }
        // One that lay idle at the census before, and its process dialled another all the same. Each process has a pool of its
        // own, so what another one dials says nothing.
        let dialled: BTreeSet<(GroupKey, Option<u32>)> = self
            .sockets
            .values()
            .filter(|known| known.first_seen_at == at && known.socket.state == TcpState::Established)
            .map(|known| (GroupKey::of(&known.socket), known.socket.pid))
            .collect();
        for known in self.sockets.values_mut() {
            let Some(served) = known.served else { continue };
            let has_new = dialled.contains(&(GroupKey::of(&known.socket), known.socket.pid));
            known.is_passed_over |= has_new
                && last_at
                    .is_some_and(|last_at| served.closed_at < last_at && known.first_seen_at <= last_at);
            if known.is_orphan(at, &self.settings)
                && let Some(tally) = tallies.get_mut(&GroupKey::of(&known.socket))
            {
                tally.orphans += 1;
                tally.oldest_orphan =
                    Some(tally.oldest_orphan.map_or(served.closed_at, |oldest| oldest.min(served.closed_at)));
            }
        }
        for (key, group) in &mut self.groups {
            group.on_tally(at, tallies.remove(key).unwrap_or_default(), is_after_pause);
        }
        self.groups.retain(|_, group| {
            let is_suspected = group.flat.is_some() || group.orphaned.is_some();
            is_suspected || at.ms_since(group.used_at) <= GROUP_KEPT_MS
        });
        for (key, tally) in tallies {
            if self.groups.len() >= GROUPS_MAX {
                // Ports without a socket now make room for those that have some.
                let Some(empty) = self.empty_group() else {
                    self.counters.groups_left_out =
                        self.counters.groups_left_out.saturating_add(u64::from(tally.established));
                    continue;
                };
                self.groups.remove(&empty);
            }
            let mut group = Group::new(at);
            group.on_tally(at, tally, false);
            self.groups.insert(key, group);
        }
    }

    fn empty_group(&self) -> Option<GroupKey> {
        let is_empty =
            |group: &Group| group.tally.established == 0 && group.flat.is_none() && group.orphaned.is_none();
        self.groups
            .iter()
            .filter(|(_, group)| is_empty(group))
            .min_by_key(|(_, group)| group.used_at)
            .map(|(key, _)| *key)
    }

    fn tell_close_waits(&mut self, at: Timestamp, outputs: &mut VecDeque<Output>) {
        let due: Vec<ConnectionId> = self
            .sockets
            .values()
            .filter(|known| !known.is_leaked && known.is_left_in_close_wait(at, &self.settings))
            .map(|known| known.socket.connection)
            .take(CLOSE_WAITS_AT_ONCE)
            .collect();
        for connection in due {
            if let Some(mut known) = self.sockets.remove(&connection) {
                known.is_leaked = true;
                outputs.push_back(self.of_socket(at, &known, true));
                self.count_suspected(LeakSign::CloseWait);
                self.sockets.insert(connection, known);
            }
        }
    }

    fn judge_groups(&mut self, at: Timestamp, outputs: &mut VecDeque<Output>) {
        let mut changes = Vec::new();
        for (key, group) in &mut self.groups {
            let quota = self.settings.quota(key);
            let (count_min, flat_after_ms) =
                (u32::from(self.settings.count_min), self.settings.flat_after_ms);
            let tally = group.tally;
            let is_flat = group.is_flat(at, count_min, flat_after_ms, quota);
            let holds_flat = |was: &Suspicion| {
                is_share(tally.settled, was.count, 90) && is_share(tally.idle, tally.settled, 75)
            };
            // Both have been there since then: the count, and the silence.
            let since = group.flat_since.max(tally.idle_since.unwrap_or(group.flat_since));
            if let Some(suspected) = turn(&mut group.flat, is_flat, holds_flat, tally.settled, since) {
                changes.push((*key, LeakSign::FlatCount, suspected));
            }
            let is_orphaned = tally.orphans >= ORPHANS_MIN;
            let holds_orphaned = |_: &Suspicion| tally.orphans > 0;
            let since = tally.oldest_orphan.unwrap_or(at);
            if let Some(suspected) =
                turn(&mut group.orphaned, is_orphaned, holds_orphaned, tally.orphans, since)
            {
                changes.push((*key, LeakSign::Orphans, suspected));
            }
        }
        for (key, sign, turned) in changes {
            if turned.is_suspected {
                self.count_suspected(sign);
            }
            let change = self.change(at, sign, key, turned.is_suspected, turned.since);
            outputs.push_back(Output::Leak(Box::new(change)));
        }
    }

    fn ask_for_reaps(&mut self, at: Timestamp, outputs: &mut VecDeque<Output>) {
        let (settings, groups) = (&self.settings, &self.groups);
        let full = |key: &GroupKey| {
            let quota = settings.quota(key)?;
            let count = groups.get(key)?.tally.established;
            (count >= quota).then_some((quota, count))
        };
        for wanted in reap::pick(settings, at, self.sockets.values_mut(), full) {
            self.counters.reaps_wanted += 1;
            outputs.push_back(Output::ReapWanted(wanted));
        }
    }

    fn count_suspected(&mut self, sign: LeakSign) {
        if let Some(count) = self.counters.suspected.get_mut(sign as usize) {
            *count += 1;
        }
    }

    fn count_standing(&mut self) {
        let groups =
            |suspicion: fn(&Group) -> bool| self.groups.values().filter(|group| suspicion(group)).count();
        self.counters.suspected_now = [
            groups(|group| group.flat.is_some()) as u64,
            self.sockets.values().filter(|known| known.is_leaked).count() as u64,
            groups(|group| group.orphaned.is_some()) as u64,
        ];
    }

    /// What is told of a socket.
    fn of_socket(&self, at: Timestamp, known: &Known, suspected: bool) -> Output {
        let key = GroupKey::of(&known.socket);
        let mut change = self.change(at, LeakSign::CloseWait, key, suspected, known.state_since);
        change.connection = Some(known.socket.connection);
        change.endpoints = Some(known.socket.endpoints);
        change.pairs = Vec::new();
        (change.pid, change.owner) = (known.socket.pid, self.owner(known.socket.pid));
        change.idle_ms = known.socket.idle_since().map(|since| at.ms_since(since));
        Output::Leak(Box::new(change))
    }

    fn change(
        &self,
        at: Timestamp,
        sign: LeakSign,
        key: GroupKey,
        suspected: bool,
        since: Timestamp,
    ) -> LeakChange {
        let group = self.groups.get(&key);
        let tally = group.map(|group| group.tally).unwrap_or_default();
        let pid = tally.pid();
        LeakChange {
            at,
            suspected,
            sign,
            group: key,
            connection: None,
            endpoints: None,
            since,
            count: tally.established,
            maximum: group.map_or(0, Group::maximum),
            quota: self.settings.quota(&key),
            idle: tally.idle,
            idle_ms: tally.idle_since.map(|since| at.ms_since(since)),
            orphans: tally.orphans,
            pairs: self
                .sockets
                .values()
                .filter(|known| known.is_orphan(at, &self.settings) && GroupKey::of(&known.socket) == key)
                .filter_map(Known::pair)
                .take(PAIRS_MAX)
                .collect(),
            owner: self.owner(pid),
            pid,
        }
    }

    fn owner(&self, pid: Option<u32>) -> Option<Owner> {
        self.owners.iter().find(|owner| Some(owner.pid) == pid).cloned()
    }
}

impl Known {
    /// Counts it.
    fn add_to(&self, tally: &mut Tally, at: Timestamp, settings: &LeakSettings) {
        let socket = &self.socket;
        tally.add_state(socket.state, self.state_since);
        tally.add_owner(socket.pid);
        if socket.state != TcpState::Established {
            return;
        }
        tally.established += 1;
        if self.first_seen_at < at {
            tally.settled += 1;
        }
        let idle_since = if socket.busy { Some(at) } else { socket.idle_since() };
        tally.add_idle(idle_since.map(|since| at.ms_since(since)));
        // What waits to be acknowledged is no idleness, and what the kernel does not say is none either.
        if let Some(since) = idle_since
            && socket.send_queue_bytes == Some(0)
            && self.first_seen_at < at
            && at.ms_since(since) >= settings.idle_after_ms
        {
            tally.idle += 1;
            tally.idle_since = Some(tally.idle_since.map_or(since, |youngest| youngest.max(since)));
        }
    }

    /// The peer has closed, and the host neither closes nor writes: one that writes uses a half-closed connection (RFC 9293
    /// section 3.6).
    fn is_left_in_close_wait(&self, at: Timestamp, settings: &LeakSettings) -> bool {
        let after_ms = settings.close_wait_after_ms;
        self.socket.state == TcpState::CloseWait
            && !self.socket.busy
            && at.ms_since(self.state_since) >= after_ms
            && self.socket.idle_since().is_none_or(|since| at.ms_since(since) >= after_ms)
    }

    fn is_orphan(&self, at: Timestamp, settings: &LeakSettings) -> bool {
        self.is_passed_over
            && self.served.is_some_and(|served| at.ms_since(served.closed_at) >= settings.orphan_after_ms)
    }

    fn pair(&self) -> Option<Pair> {
        let served = self.served?;
        Some(Pair {
            downstream: served.downstream,
            closed_at: served.closed_at,
            upstream: self.socket.connection,
            certainty: served.certainty,
        })
    }
}

/// A suspicion that came or went.
struct Turned {
    is_suspected: bool,
    since: Timestamp,
}

/// Raises a suspicion, or clears it after some censuses in a row that spoke against it.
fn turn(
    suspicion: &mut Option<Suspicion>,
    is_there: bool,
    holds: impl Fn(&Suspicion) -> bool,
    count: u32,
    since: Timestamp,
) -> Option<Turned> {
    match suspicion {
        None => is_there.then(|| {
            *suspicion = Some(Suspicion { since, count, calm: 0 });
            Turned { is_suspected: true, since }
        }),
        Some(standing) if holds(standing) => {
            // It may have grown meanwhile.
            (standing.calm, standing.count) = (0, standing.count.max(count));
            None
        }
        Some(standing) => {
            standing.calm += 1;
            let since = standing.since;
            (standing.calm >= CALM_CENSUSES).then(|| {
                *suspicion = None;
                Turned { is_suspected: false, since }
            })
        }
    }
}
