//! A page in a real browser.

use std::time::Duration;

use anyhow::Result;

use crate::arena::cannot_run::CannotRun;
use crate::arena::row::{Row, Variant};
use crate::arena::stage::{INTERVAL, Stage, StageOptions};
use crate::arena::truth::State;
use crate::browser::{self, Browser, Command, Seen};
use crate::mux::{Ask, BURST_BYTES};
use crate::network::IpVersion;

/// After its main thread is free again, the page must have the whole burst within this time.
const BURST_DEADLINE: Duration = Duration::from_secs(90);

/// Report A where it happened.
pub(super) const BUSY_PAGE: Row = Row {
    number: 6,
    title: "a real page's main thread blocked while the 28 MB burst arrives",
    truth: "alive",
    expected: "never kill",
    allowed: &["alive", "congested", "stalled"],
    wanted: &[],
    variants: &[Variant { name: "7s", value: 7.0 }, Variant { name: "20s", value: 20.0 }],
    options: |_| StageOptions::default(),
    play: block_page,
    about_s: 30,
    subjects: 1,
    weight: 3,
    quick: None,
};

fn block_page(stage: &mut Stage) -> Result<()> {
    if let Some(reason) = browser::cannot_run() {
        return Err(CannotRun(reason).into());
    }
    stage.connect_siblings(2)?;
    let page = Browser::connect(Some(&stage.network.client), &stage.host)?;
    let port = page.port();
    stage.declare("page", (stage.network.client_address(IpVersion::V4), port).into());
    stage.pass_up_to(INTERVAL);
    let block = Duration::from_secs_f64(stage.variant.value);
    // From the first snapshot on.
    page.command(Command::BlockAtNextMessage { block_ms: u64::try_from(block.as_millis())? });
    page.ask(&Ask::Follow);
    let blocked = page.wait_for("blocked main thread", block + BURST_DEADLINE, |seen| {
        matches!(seen, Seen::Blocked { .. })
    })?;
    if let Seen::Blocked { from_ns, to_ns } = blocked.what {
        let blocked = Duration::from_nanos(to_ns.saturating_sub(from_ns));
        stage.figure("blocked_s", blocked.as_secs_f64());
    }
    page.wait_for(
        "last snapshot",
        BURST_DEADLINE,
        |seen| matches!(seen, Seen::Message { bytes_received, .. } if *bytes_received >= BURST_BYTES),
    )?;
    stage.pass(3 * INTERVAL);
    // The browser goes with its value.
    stage.now(port, State::Ended)?;
    Ok(())
}
