//! The sidecar's processor time and memory beside idle connections, and beside a poll of `ss -tin`.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Bench, CrowdEffort};
use crate::kernel::program::{Programs, Statistics};
use crate::kernel::usage::{Memory, ShareMeter, processor_time_of_children};
use crate::report::result::{Figure, Goal, Guard, Unit};
use crate::sidecar::{Sidecar, Watch};
use crate::traffic::crowd::{Crowd, Ticks};

/// The program that looks at the tracked sockets.
const SAMPLER: &str = "sample_tracked";
/// Polls after each window.
const POLLS: usize = 3;

/// Measures every crowd.
///
/// # Errors
/// A crowd or the sidecar failed.
pub(crate) fn measure(bench: &Bench<'_>) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    for effort in &bench.effort.crowds {
        figures.extend(of_crowd(bench, *effort)?);
    }
    Ok(figures)
}

fn of_crowd(bench: &Bench<'_>, effort: CrowdEffort) -> Result<Vec<Figure>> {
    let CrowdEffort { count, interval, ticks, .. } = effort;
    let seconds = interval.as_secs();
    let mut sidecar = Sidecar::start(bench.ackbeat, &bench.scene.network.host, Watch::EveryPort)?;
    let mut crowd = Crowd::start(&bench.scene.network, count, interval, ticks)?;
    std::thread::sleep(effort.warm_up);
    let (mut shares, mut poll_shares) = (Vec::new(), Vec::new());
    for _ in 0..effort.windows {
        let meter = ShareMeter::start(sidecar.pid())?;
        std::thread::sleep(effort.window);
        shares.push(meter.percent()?);
        let poll = poll(bench)?;
        poll_shares.push(100.0 * poll.as_secs_f64() / interval.as_secs_f64());
    }
    let memory = Memory::of(sidecar.pid())?;
    let (program_share, looked_at) = kernel_programs(&sidecar, effort.window)?;
    sidecar.check()?;
    crowd.check()?;
    let id = |what: &str| format!("idle_{count}_{seconds}s_{}_{what}", words(ticks).0);
    let title =
        |what: &str| format!("{count} idle connections, {seconds} s heartbeat {}: {what}", words(ticks).1);
    let mut share =
        Figure::of(id("cpu"), title("the sidecar's processor time"), Unit::PercentOfProcessor, &shares)?;
    let mut resident =
        Figure::of(id("rss"), title("resident memory"), Unit::Bytes, &[bytes(memory.resident_bytes)])?
            .guard(Guard::Cost);
    if count == 10_000 {
        resident = resident.goal(Goal::AtMost(20e6));
        if seconds == 30 {
            share = share.goal(Goal::AtMost(2.0));
        }
    }
    (bench.say)(&format!(
        "{}: {:.2} %, `ss -tin` {:.2} %, {:.1} MB",
        title("processor time"),
        share.spread.median,
        crate::statistics::Spread::of(&poll_shares).map_or(f64::NAN, |spread| spread.median),
        bytes(memory.resident_bytes) / 1e6,
    ));
    Ok(vec![
        share,
        Figure::of(
            id("ss_cpu"),
            title("a poll of `ss -tin` once a heartbeat"),
            Unit::PercentOfProcessor,
            &poll_shares,
        )?,
        Figure::of_ratios(id("cpu_by_ss"), title("the sidecar / the poll"), &shares, &poll_shares)?
            .guard(Guard::Cost),
        Figure::of(
            id("programs_cpu"),
            title("the kernel programs, whoever they interrupt"),
            Unit::PercentOfProcessor,
            &[program_share],
        )?,
        Figure::of(id("looked_at"), title("sockets sampled a second"), Unit::Count, &[looked_at])?,
        resident,
        Figure::of(
            id("anonymous"),
            title("of which heap and stacks"),
            Unit::Bytes,
            &[bytes(memory.anonymous_bytes)],
        )?,
    ])
}

const fn words(ticks: Ticks) -> (&'static str, &'static str) {
    match ticks {
        Ticks::Together => ("together", "(one timer for all)"),
        Ticks::Spread => ("spread", "(a timer for each)"),
    }
}

#[expect(clippy::cast_precision_loss, reason = "megabytes")]
const fn bytes(bytes: u64) -> f64 {
    bytes as f64
}

/// Processor time of one poll of `ss -tin` in the host's namespace, the mean of some.
fn poll(bench: &Bench<'_>) -> Result<Duration> {
    let before = processor_time_of_children()?;
    for _ in 0..POLLS {
        let status = bench
            .scene
            .network
            .host
            .run(|| Command::new("ss").arg("-tin").stdin(Stdio::null()).stdout(Stdio::null()).status())?
            .context("starting ss failed")?;
        ensure!(status.success(), "ss ended with {status}");
    }
    let polls = u32::try_from(POLLS).context("polls are few")?;
    Ok(processor_time_of_children()?.saturating_sub(before) / polls)
}

/// Share of a processor that the kernel programs take, and how many sockets the sampler looks at in a second.
#[expect(clippy::cast_precision_loss, reason = "nanoseconds of seconds, counts of thousands")]
fn kernel_programs(sidecar: &Sidecar, window: Duration) -> Result<(f64, f64)> {
    let statistics = Statistics::enable()?;
    let (began, before) = (Instant::now(), Programs::of(sidecar.pid())?);
    std::thread::sleep(window);
    let (taken, ran) = (began.elapsed(), Programs::of(sidecar.pid())?.since(&before));
    drop(statistics);
    Ok((
        100.0 * ran.total_ns() as f64 / taken.as_nanos() as f64,
        ran.named(SAMPLER).count as f64 / taken.as_secs_f64(),
    ))
}
