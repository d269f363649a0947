//! The peer, or the way to it, is slow: a Ping is long on its way, and every byte of it gets on.

use std::time::Duration;

use anyhow::Result;

use crate::arena::row::{ONLY, Row};
use crate::arena::stage::{INTERVAL, Stage, StageOptions};
use crate::client::{Client, Pace, Seen};
use crate::journal::wait_until;
use crate::mux::Ask;

/// How long a Ping is on its way behind the data that is queued before it.
const PING_ON_ITS_WAY: Duration = Duration::from_secs(43);
/// It must have been read within this time.
const PING_DEADLINE: Duration = Duration::from_secs(120);
/// Payload of each message that the host queues at once.
const MESSAGE_BYTES: usize = 16 * 1024;
/// Long enough for a detector that counts two Pings, one every 30 s, to find them unanswered.
const UNTIL_EVERYBODY_JUDGED: Duration = Duration::from_secs(95);

const NEVER_ACCUSED: &[&str] = &["alive", "congested", "stalled"];

/// A reader whose acknowledgements come evenly.
pub(super) const READER_20_KB: Row = Row {
    number: 2,
    title: "reader 20 kB/s while the host saturates",
    play: |stage| saturate(stage, 20_000, 2_000),
    ..READER
};

/// A reader that would keep up with a modest host.
pub(super) const READER_200_KB: Row =
    Row { number: 3, title: "reader 200 kB/s", play: |stage| saturate(stage, 200_000, 16 * 1024), ..READER };

/// A reader so slow that its kernel seldom has something to acknowledge.
pub(super) const READER_5_KB: Row = Row {
    number: 4,
    title: "reader 5 kB/s in 500-byte reads",
    play: |stage| saturate(stage, 5_000, 500),
    ..READER
};

const READER: Row = Row {
    number: 0,
    title: "",
    truth: "alive",
    expected: "congested",
    allowed: NEVER_ACCUSED,
    wanted: &[],
    variants: ONLY,
    options: |_| StageOptions::default(),
    play: |_| Ok(()),
    about_s: 60,
    subjects: 5,
    weight: 1,
    quick: None,
};

/// Lets each peer's host queue so much at once that the next Ping is read 43 s later, and go on twice as fast as the
/// peer reads. Lasts until those Pings are read.
fn saturate(stage: &mut Stage, bytes_per_second: u32, read_bytes: usize) -> Result<()> {
    let pace = Pace::Slow { bytes_per_second, read_bytes };
    let options = stage.peer_options().paced(pace);
    let clients = stage.connect_subjects_as(|_number| ("reader", options.clone()))?;
    let rate = usize::try_from(bytes_per_second)?;
    let ahead_bytes = rate * usize::try_from(PING_ON_ITS_WAY.as_secs())?;
    let mut pings_before = Vec::new();
    for client in &clients {
        stage.pass_up_to(INTERVAL / stage.row.subjects);
        pings_before.push(pings(client));
        queue(client, ahead_bytes);
        client.ask(&Ask::Steady { bytes: 2 * rate, period_ms: 1_000 });
    }
    for (client, before) in clients.iter().zip(pings_before) {
        // One may have been on its way when the data was asked for: two more are behind data certainly.
        wait_until("a Ping behind the data", PING_DEADLINE, || Ok(pings(client) > before + 1))?;
    }
    stage.pass(Duration::from_secs(3));
    stage.clients.extend(clients);
    Ok(())
}

/// Lets the host queue `bytes` bytes at once, in messages.
fn queue(client: &Client, bytes: usize) {
    for _ in 0..bytes.div_ceil(MESSAGE_BYTES) {
        client.ask(&Ask::Bytes { bytes: MESSAGE_BYTES });
    }
}

/// Pings that a client has read.
fn pings(client: &Client) -> usize {
    client.events.read(|events| events.iter().filter(|event| event.what == Seen::Ping).count())
}

/// One message from the peer that takes longer than any patience.
pub(super) const UPSTREAM_64_MB: Row = Row {
    number: 7,
    title: "one 64 MB message from the peer at 1.5 MB/s, its Pong behind it",
    play: upstream,
    subjects: 2,
    weight: 2,
    about_s: 58,
    ..READER
};

const UPSTREAM_BYTES: usize = 64_000_000;
const UPSTREAM_BYTES_PER_SECOND: u32 = 1_500_000;

fn upstream(stage: &mut Stage) -> Result<()> {
    let mut options = stage.peer_options();
    options.upstream_bytes_per_second = Some(UPSTREAM_BYTES_PER_SECOND);
    let clients = stage.connect_subjects_as(|_number| ("uploader", options.clone()))?;
    for client in &clients {
        stage.pass_up_to(INTERVAL);
        client.send_bytes(UPSTREAM_BYTES);
    }
    for client in &clients {
        client.wait_for("upload", PING_DEADLINE, |seen| matches!(seen, Seen::Sent { .. }))?;
    }
    // The Pongs behind it.
    stage.pass(2 * INTERVAL);
    stage.clients.extend(clients);
    Ok(())
}

/// A modem's link with a queue before it.
pub(super) const LINK_50_KBIT: Row = Row {
    number: 8,
    title: "link 50 kbit/s with 2 MB queued",
    play: modem,
    subjects: 1,
    about_s: 105,
    ..READER
};

fn modem(stage: &mut Stage) -> Result<()> {
    let clients = stage.connect_subjects()?;
    // How much the device before the link holds: 2.6 s to 21 s of the link's time.
    let buffer_kilobytes = stage.random.u32(16..=128);
    stage.figure("link_buffer_kilobytes", f64::from(buffer_kilobytes));
    stage.network.slow_link(50, buffer_kilobytes)?;
    stage.pass_up_to(INTERVAL);
    for client in &clients {
        queue(client, 2_000_000);
    }
    stage.clients.extend(clients);
    stage.pass(UNTIL_EVERYBODY_JUDGED);
    Ok(())
}
