//! Fixed intervals resonate, full jitter does not.

use proptest::prelude::*;

use crate::fleet::{Experiment, Retry, play};
use crate::world::World;

fn experiment(retry: Retry, clients: u32, outages: u64, seed: u64) -> Experiment {
    Experiment { retry, clients, outages, loss: 0.15, seed }
}

#[test]
fn a_fixed_interval_is_found_within_a_tenth_of_a_second() {
    for (clients, outages) in [(12, 30), (24, 8), (24, 30), (60, 8), (300, 8)] {
        for seed in 0..12 {
            let mut world = World::new();
            play(&mut world, experiment(Retry::Fixed(3_000), clients, outages, seed));
            let found = world.port().resonance;
            let period_ms = found.map(|found| found.period_ms);
            assert!(
                period_ms.is_some_and(|ms| (2_900.0..=3_100.0).contains(&ms)),
                "{clients} clients, {outages} outages, seed {seed}: {found:?}"
            );
        }
    }
}

#[test]
fn full_jitter_has_no_period_whatever_the_seed() {
    for (clients, outages, seeds) in [(6, 30, 100), (24, 8, 300), (24, 30, 100), (100, 12, 40)] {
        for seed in 0..seeds {
            let mut world = World::new();
            play(&mut world, experiment(Retry::FullJitter, clients, outages, seed));
            let found = world.port().resonance;
            assert_eq!(found, None, "{clients} clients, {outages} outages, seed {seed}");
            assert!(
                world.ended.iter().all(|storm| storm.resonance.is_none()),
                "{clients}, {outages}, {seed}"
            );
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn other_intervals_are_found_between_the_bins_too(period_ms in 1_700_u64..7_000, seed: u64) {
        let mut world = World::new();
        play(&mut world, experiment(Retry::Fixed(period_ms), 40, 16, seed));
        let found = world.port().resonance;
        let error = found.map(|found| (found.period_ms - f64::from(u32::try_from(period_ms).unwrap())).abs());
        prop_assert!(error.is_some_and(|error| error < 100.0), "{period_ms}: {found:?}");
    }

    #[test]
    fn full_jitter_has_no_period_in_any_network(
        seed: u64, clients in 1_u32..200, outages in 1_u64..16, loss in 0.0..0.4_f64,
    ) {
        let mut world = World::new();
        play(&mut world, Experiment { loss, ..experiment(Retry::FullJitter, clients, outages, seed) });
        prop_assert_eq!(world.port().resonance, None);
    }
}
