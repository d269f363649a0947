//! A peer that does as little as it can and still is there.

use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{ONLY, Row};
use crate::arena::stage::{Stage, StageOptions};
use crate::arena::truth::State;
use crate::client::Pace;
use crate::clock::monotonic_ns;
use crate::mux::Ask;

/// A peer that takes one byte every ten seconds from a full pipe.
///
/// Its truth is alive for the first 30 s, in which nobody can tell it from a page that is busy for a while; from then
/// on it counts as hung: a kill is neither false nor due, and a matter of policy (`stalled_after`, `min_progress`). The
/// run is long enough for the default policy to say so. What no detector may ever say is that it is gone.
pub(super) const TRICKLER: Row = Row {
    number: 32,
    title: "trickler: 1 byte per 10 s",
    truth: "alive for 30 s, then hostile (a kill is neither false nor due)",
    expected: "stalled or congested, a kill justified by policy at last; never unreachable or silent",
    allowed: &["alive", "congested", "stalled", "unknown"],
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: trickler,
    about_s: 125,
    subjects: 10,
    weight: 1,
    quick: Some(""),
};

/// From one byte to the next.
const REST: Duration = Duration::from_secs(10);
/// A trickler's receive buffer: what an embedded client has.
const RECEIVE_BUFFER_BYTES: u32 = 16_384;
/// More than the send queue and the trickler's receive queue hold.
const MORE_THAN_FITS_BYTES: usize = 16_000_000;
/// For so long it cannot be told from a busy page.
const BENEFIT_OF_THE_DOUBT: Duration = Duration::from_secs(30);

fn trickler(stage: &mut Stage) -> Result<()> {
    // A trickler answers no Ping: the interval is learned from healthy peers that nobody judges.
    stage.connect_siblings(2)?;
    let mut tricklers = Vec::new();
    for number in 1..=stage.row.subjects {
        let mut options = stage.peer_options().paced(Pace::Trickle { rest: REST });
        options.receive_buffer_bytes = Some(RECEIVE_BUFFER_BYTES);
        let client = stage.connect(&format!("trickler-{number}"), options)?;
        client.ask(&Ask::Bytes { bytes: MORE_THAN_FITS_BYTES });
        tricklers.push((monotonic_ns(), client));
        stage.pass_up_to(Duration::from_secs(2));
    }
    stage.pass(BENEFIT_OF_THE_DOUBT);
    for (began_ns, client) in &tricklers {
        let doubt_ns = u64::try_from(BENEFIT_OF_THE_DOUBT.as_nanos()).unwrap_or(u64::MAX);
        stage.from(began_ns.saturating_add(doubt_ns), client.port(), State::Hung)?;
    }
    stage.clients.extend(tricklers.into_iter().map(|(_, client)| client));
    stage.pass_or(Duration::from_secs(75), Duration::from_secs(10));
    Ok(())
}
