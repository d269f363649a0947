//! Many peers at once, and clients that come back.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{ONLY, Row, Variant};
use crate::arena::stage::{INTERVAL, PathKind, Stage, StageOptions};
use crate::arena::truth::State;
use crate::clock::monotonic_ns;
use crate::crowd::{Crowd, CrowdEvent, CrowdOptions, Happened, Retry, per_second_peak};
use crate::mux::{HostAction, MUX_PATH};
use crate::network::IpVersion;

/// A path to all peers that is away for a short time.
pub(super) const CROWD_OUTAGE: Row = Row {
    number: 33,
    title: "500 peers, 3 s outage, heal",
    truth: "alive",
    expected: "none killed; unreachable may be shown",
    allowed: &["alive", "congested", "unreachable", "unknown"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: crowd_outage,
    about_s: 40,
    subjects: 500,
    weight: 4,
    quick: Some(""),
};

/// How long the path is away.
const SHORT_OUTAGE: Duration = Duration::from_secs(3);

fn crowd_outage(stage: &mut Stage) -> Result<()> {
    let count = stage.row.subjects;
    let options = CrowdOptions {
        host: stage.host.address(),
        path: MUX_PATH,
        count,
        spacing: Duration::from_millis(5),
        attempt_deadline: Duration::from_secs(20),
        patience: None,
        retry: Retry::Never,
        seed: stage.random.u64(..),
    };
    let crowd = Crowd::start(Some(&stage.network.client), options)?;
    let ports = crowd.wait_until_open(count, Duration::from_secs(60))?;
    let client = stage.network.client_address(IpVersion::V4);
    for (number, port) in ports.iter().enumerate() {
        stage.declare(&format!("peer-{}", number + 1), SocketAddr::new(client, *port));
    }
    for port in &ports {
        stage.wait_for_learning(*port)?;
    }
    stage.pass_up_to(INTERVAL);
    let cut_ns = monotonic_ns();
    stage.network.cut_all(&ports)?;
    stage.pass(SHORT_OUTAGE);
    stage.network.heal_all(&ports)?;
    let healed_ns = monotonic_ns();
    stage.outage(cut_ns, healed_ns);
    for port in &ports {
        stage.from(cut_ns, *port, State::Outage)?;
        stage.from(healed_ns, *port, State::Alive)?;
    }
    stage.pass(Duration::from_secs(15));
    let arrivals = stage.host.events.read(|events| {
        let later = events.iter().filter(|event| event.at_ns >= cut_ns && event.what == HostAction::Opened);
        later.map(|event| event.at_ns).collect::<Vec<u64>>()
    });
    stage.figure("arrivals_per_second_peak", f64::from(per_second_peak(arrivals)));
    for port in &ports {
        stage.now(*port, State::Ended)?;
    }
    Ok(())
}

/// Clients on a bad network that come back after each outage.
pub(super) const RECONNECT_STORM: Row = Row {
    number: 34,
    title: "15 % loss, 10 s outage every 40 s, fixed 3 s retry against full-jitter back-off",
    truth: "alive, with outages",
    expected: "no false kill; storm and resonance seen",
    allowed: &["alive", "congested", "unreachable", "unknown", "closed"],
    wanted: &[],
    variants: &[Variant { name: "fixed", value: 3.0 }, Variant { name: "jitter", value: 1.0 }],
    options: |_| StageOptions {
        path: PathKind::Relay { round_trip: Duration::ZERO, loss: LOSS },
        ..StageOptions::default()
    },
    play: reconnect_storm,
    about_s: 330,
    subjects: STORM_CLIENTS,
    weight: 1,
    quick: None,
};

/// Loss each way.
const LOSS: f64 = 0.15;
const STORM_CLIENTS: u32 = 24;
/// How long an outage is, and how long it is from the end of one to the beginning of the next.
const OUTAGE: Duration = Duration::from_secs(10);
///
/// Report C has 2 minutes from one to the next; the period of those who come back is known after several outages, and the
/// time between is only waited for.
const BETWEEN_OUTAGES: Duration = Duration::from_secs(30);
const OUTAGES: usize = 7;

fn reconnect_storm(stage: &mut Stage) -> Result<()> {
    let retry = if stage.variant.name == "fixed" {
        Retry::Every(Duration::from_secs_f64(stage.variant.value))
    } else {
        let base = Duration::from_secs_f64(stage.variant.value);
        Retry::FullJitter { base, cap: Duration::from_secs(30), attempts_max: None }
    };
    let options = CrowdOptions {
        host: stage.host.address(),
        path: MUX_PATH,
        count: STORM_CLIENTS,
        spacing: Duration::from_millis(250),
        // Before TCP itself sends a SYN again (1 s, RFC 6298): what comes back is the client's retry.
        attempt_deadline: Duration::from_millis(800),
        // Two of the host's Pings and half of the next interval.
        patience: Some(Duration::from_secs(5)),
        retry,
        seed: stage.random.u64(..),
    };
    let crowd = Crowd::start(Some(&stage.network.client), options)?;
    crowd.wait_until_open(STORM_CLIENTS, Duration::from_secs(60))?;
    // What is usual must be known before anything can be unusual.
    stage.pass(Duration::from_secs(25));
    stage.pass_up_to(INTERVAL);
    let mut outages = Vec::new();
    for _ in 0..OUTAGES {
        let cut_ns = monotonic_ns();
        stage.relay()?.cut_both();
        stage.pass(OUTAGE);
        stage.relay()?.heal();
        outages.push((cut_ns, monotonic_ns()));
        stage.pass(BETWEEN_OUTAGES);
    }
    let (events, ended_ns) = (crowd.events.all(), monotonic_ns());
    drop(crowd);
    tell(stage, &events, &outages, ended_ns)
}

/// Writes what the clients saw until `until_ns` as truth and figures.
fn tell(stage: &mut Stage, events: &[CrowdEvent], outages: &[(u64, u64)], until_ns: u64) -> Result<()> {
    let client = stage.network.client_address(IpVersion::V4);
    for event in events {
        match event.what {
            Happened::Opened { port } => {
                let name = format!("client-{}", event.member + 1);
                stage.declare_from(event.at_ns, &name, SocketAddr::new(client, port));
                let ended_ns = events
                    .iter()
                    .find(|later| {
                        later.at_ns >= event.at_ns
                            && matches!(later.what, Happened::Ended { port: ended, .. } if ended == port)
                    })
                    .map_or(until_ns, |later| later.at_ns);
                for (cut_ns, healed_ns) in outages {
                    for (at_ns, state) in [(*cut_ns, State::Outage), (*healed_ns, State::Alive)] {
                        if at_ns > event.at_ns && at_ns < ended_ns {
                            stage.from(at_ns, port, state)?;
                        }
                    }
                }
                stage.from(ended_ns, port, State::Ended)?;
            }
            Happened::Attempt | Happened::Failed | Happened::Stopped | Happened::Ended { .. } => {}
        }
    }
    for (cut_ns, healed_ns) in outages {
        stage.outage(*cut_ns, *healed_ns);
    }
    // What follows the first outage; the clients' first attempts are no reconnects.
    let first_ns = outages.first().map_or(0, |(cut_ns, _)| *cut_ns);
    let times = |wanted: fn(&Happened) -> bool| {
        let later = events.iter().filter(move |event| event.at_ns >= first_ns && wanted(&event.what));
        later.map(|event| event.at_ns).collect::<Vec<u64>>()
    };
    let attempts = times(|what| matches!(what, Happened::Attempt));
    let successes = times(|what| matches!(what, Happened::Opened { .. }));
    let count = |times: &Vec<u64>| f64::from(u32::try_from(times.len()).unwrap_or(u32::MAX));
    stage.figure("attempts", count(&attempts));
    stage.figure("successes", count(&successes));
    stage.figure("attempts_per_second_peak", f64::from(per_second_peak(attempts)));
    stage.figure("arrivals_per_second_peak", f64::from(per_second_peak(successes)));
    Ok(())
}
