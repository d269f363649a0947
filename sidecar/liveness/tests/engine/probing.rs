//! Own window probes: when one is wanted, and what silence proves.

use ackbeat_liveness::*;

use crate::world::{Peer, Told, World};

const ID: u64 = 7;

fn allowed(mut world: World) -> World {
    world.engine.set_window_probes(Some(WindowProbes::default()));
    world
}

/// A peer that has not read for a while; its window is closed.
fn stalled(mut world: World) -> World {
    world.open_websocket(ID, Peer::Stopped);
    world.run_ms(1_000);
    world.write(ID, 2_000_000);
    world.run_ms(15_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Stalled);
    world
}

/// How long it takes from a cut to the verdict `unreachable`.
fn known_after_ms(world: &mut World, patience_ms: u64) -> Option<u64> {
    let cut_at = world.at();
    let before = world.outputs.len();
    world.socket(ID).peer = Peer::Gone;
    world.run_ms(patience_ms);
    world.outputs[before..].iter().find_map(|output| match output {
        Output::VerdictChanged(change) if change.to == Verdict::Unreachable && !change.is_turn() => {
            Some(change.at.ms_since(cut_at))
        }
        _ => None,
    })
}

fn wanted(world: &World) -> Vec<Timestamp> {
    world
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::ProbeWanted(wanted) => Some(wanted.at),
            _ => None,
        })
        .collect()
}

#[test]
fn cut_behind_a_closed_window_is_known_within_five_seconds() {
    let mut world = stalled(allowed(World::new()));
    assert!(world.engine.counters().probes_sent >= 5);
    let known_ms = known_after_ms(&mut world, 20_000).expect("unreachable");
    assert!((2_500..=5_000).contains(&known_ms), "{known_ms}");
    // From there on the policy's own time runs, from the last sign of life.
    assert!(world.assessed(ID).kill_justified);
    let (justified_at, _) = world.justifications(ID).into_iter().find(|(_, is)| *is).unwrap();
    let heard_at = Timestamp::from_ms(world.socket(ID).last_ack);
    assert_eq!(justified_at.ms_since(heard_at) / 10, Policy::default_policy().unreachable_after_ms / 10);
}

#[test]
fn without_own_probes_it_is_known_late() {
    let mut world = stalled(World::new());
    assert_eq!(known_after_ms(&mut world, 20_000), None);
    assert_eq!((wanted(&world).len(), world.engine.counters().probes_wanted), (0, 0));
}

#[test]
fn peer_that_only_does_not_read_stays_stalled() {
    let mut world = stalled(allowed(World::new()));
    world.run_ms(40_000);
    assert!(!world.verdicts(ID).contains(&Verdict::Unreachable));
    let assessed = world.assessed(ID);
    assert_eq!(assessed.verdict, Verdict::Stalled);
    assert!(assessed.last_ack_age_ms.unwrap() <= 1_300, "the evidence stays young");
    let wanted = wanted(&world);
    assert!(wanted.windows(2).all(|pair| pair[1].ms_since(pair[0]) >= 1_000), "{wanted:?}");
    world.socket(ID).peer = Peer::Healthy;
    world.run_ms(3_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Alive);
    let sent = world.engine.counters().probes_sent;
    world.run_ms(10_000);
    assert_eq!(world.engine.counters().probes_sent, sent, "a window that is open needs none");
}

/// RFC 7323 section 3.2: a segment without a timestamp may be dropped. The kernel's own probes have one and are answered, but
/// they come a minute apart by then.
#[test]
fn peer_that_never_answers_own_probes_is_not_accused_and_left_alone() {
    let mut world = World::new();
    world.probes_answered = false;
    let mut world = stalled(allowed(world));
    world.run_ms(240_000);
    assert!(!world.verdicts(ID).contains(&Verdict::Unreachable));
    assert_eq!(world.assessed(ID).verdict, Verdict::Stalled);
    let sent = world.engine.counters().probes_sent;
    assert!((1..=24).contains(&sent), "{sent}");
    world.run_ms(240_000);
    assert_eq!(world.engine.counters().probes_sent, sent, "asked in vain often enough");
}

#[test]
fn peer_that_stops_answering_own_probes_alone_is_accused_once_at_most() {
    let mut world = stalled(allowed(World::new()));
    world.probes_answered = false;
    world.run_ms(400_000);
    let accusations =
        world.verdicts(ID).into_iter().filter(|verdict| *verdict == Verdict::Unreachable).count();
    assert!(accusations <= 1, "{:?}", world.verdicts(ID));
    assert_eq!(world.assessed(ID).verdict, Verdict::Stalled, "it lives, and is not accused a second time");
}

/// Answers would keep the kernel from giving up a socket that nobody owns any more.
#[test]
fn socket_that_its_host_has_closed_is_never_probed() {
    let mut world = stalled(allowed(World::new()));
    world.close(ID);
    let sent = world.engine.counters().probes_sent;
    assert!(sent > 0);
    world.run_ms(30_000);
    assert_eq!(world.engine.counters().probes_sent, sent);
}

#[test]
fn lost_probe_or_two_accuse_nobody() {
    let mut world = stalled(allowed(World::new()));
    for _ in 0..10 {
        world.probes_answered = false;
        world.run_ms(2_000);
        world.probes_answered = true;
        world.run_ms(2_500);
    }
    assert!(!world.verdicts(ID).contains(&Verdict::Unreachable), "{:?}", world.verdicts(ID));
}

#[test]
fn probes_that_are_not_sent_prove_nothing() {
    let mut world = stalled(allowed(World::new()));
    world.probes_sent = false;
    let sent = world.engine.counters().probes_sent;
    assert_eq!(known_after_ms(&mut world, 8_000), None);
    assert_eq!(world.engine.counters().probes_sent, sent);
}

#[test]
fn pause_of_the_sidecar_accuses_nobody() {
    let mut world = stalled(allowed(World::new()));
    // Two are unanswered, then the whole machine stands still for a minute, and the answers with it.
    world.probes_answered = false;
    world.run_ms(2_000);
    world.stopped = true;
    world.now += 60_000;
    world.resume();
    world.run_ms(200);
    world.probes_answered = true;
    world.run_ms(10_000);
    assert!(!world.verdicts(ID).contains(&Verdict::Unreachable), "{:?}", world.verdicts(ID));
    assert_eq!(world.assessed(ID).verdict, Verdict::Stalled);
    // And a peer that is gone is found as fast as before.
    let known_ms = known_after_ms(&mut world, 20_000).expect("unreachable");
    assert!(known_ms <= 5_000, "{known_ms}");
}

#[test]
fn outage_that_heals_is_seen_by_the_next_answer() {
    let mut world = stalled(allowed(World::new()));
    assert!(known_after_ms(&mut world, 8_000).is_some());
    assert!(!world.assessed(ID).kill_justified, "unreachable_after_ms is 10 s");
    world.socket(ID).peer = Peer::Stopped;
    world.run_ms(6_000);
    assert_eq!(world.assessed(ID).verdict, Verdict::Stalled);
}

#[test]
fn sequence_numbers_wrap() {
    let plain = outputs_with_shift(0);
    for shift in [u32::MAX, u32::MAX - 200_000, u32::MAX - 400_000, 0_u32.wrapping_sub(400_300), 1 << 31] {
        assert_eq!(outputs_with_shift(shift), plain, "shift {shift}");
    }
}

/// Verdicts with their times, which no sequence number may change.
fn outputs_with_shift(shift: u32) -> Vec<(Timestamp, Verdict)> {
    let mut world = stalled(allowed(World::shifted(shift)));
    assert!(known_after_ms(&mut world, 20_000).is_some());
    world
        .outputs
        .iter()
        .filter_map(|output| match output {
            Output::VerdictChanged(change) => Some((change.at, change.to)),
            _ => None,
        })
        .collect()
}

#[test]
fn silence_is_answered_by_fewer_and_fewer_probes() {
    let mut world = stalled(allowed(World::new()));
    let before = wanted(&world).len();
    assert!(known_after_ms(&mut world, 300_000).is_some());
    let wanted = wanted(&world);
    let gaps: Vec<u64> = wanted[before..].windows(2).map(|pair| pair[1].ms_since(pair[0]) / 1_000).collect();
    assert_eq!(gaps, [1, 1, 2, 4, 8, 16, 32], "eight, then the kernel's own go on alone");
    assert_eq!(world.assessed(ID).verdict, Verdict::Unreachable, "silence is still silence");
}

#[test]
fn replay_without_leave_to_probe_decides_the_same() {
    let mut world = stalled(allowed(World::new()));
    assert!(known_after_ms(&mut world, 8_000).is_some());
    world.socket(ID).peer = Peer::Stopped;
    world.run_ms(20_000);
    let mut engine = Engine::new(Policy::default_policy());
    let mut outputs = Vec::new();
    for told in &world.told {
        match told {
            Told::Input(input) => engine.handle_input(*input.clone()),
            Told::Timeout(at) => engine.handle_timeout(*at),
        }
        outputs.extend(core::iter::from_fn(|| engine.poll()));
    }
    let live: Vec<&Output> =
        world.outputs.iter().filter(|output| !matches!(output, Output::ProbeWanted(_))).collect();
    assert_eq!(outputs.iter().collect::<Vec<_>>(), live);
    assert_eq!(engine.counters().probes_wanted, 0);
}

#[test]
fn rate_is_bounded_and_what_is_refused_is_counted() {
    let settings = WindowProbes { per_second_max: 10, ..WindowProbes::default() };
    let mut world = World::new();
    world.engine.set_window_probes(Some(settings));
    for id in 1..=40 {
        world.open(id, Peer::Stopped);
        world.write(id, 2_000_000);
    }
    world.run_ms(30_000);
    let wanted = wanted(&world);
    let most = wanted
        .iter()
        .map(|first| wanted.iter().filter(|at| **at >= *first && at.ms_since(*first) < 1_000).count())
        .max();
    assert!(most.is_some_and(|most| (8..=12).contains(&most)), "{most:?} within a second");
    let counters = world.engine.counters();
    assert!(counters.probes_refused > 0);
    assert_eq!(counters.probes_wanted, wanted.len() as u64);
    assert_eq!(counters.probes_sent, counters.probes_wanted);
}
