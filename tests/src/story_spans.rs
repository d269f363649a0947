//! The spans that the main story leaves, and what each must say.

use std::ops::RangeInclusive;
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::expectations::Expectations;
use crate::sidecar::Sidecar;
use crate::spans::{self, Span};
use crate::story::{Cast, POLITE_CODE, POLITE_REASON};

/// The post-mortem's window, the export, and a busy machine.
const SPAN_DEADLINE: Duration = Duration::from_secs(60);

/// The spans of the story's ends.
pub struct Ends {
    /// The slow reader's close.
    pub slow: Span,
    /// The close of the one whose path was cut.
    pub cut: Span,
    /// The polite one's close.
    pub polite: Span,
    /// The connection of the one that nobody killed.
    pub healthy: Span,
    /// Every span of the sidecar's life.
    pub all: Vec<Span>,
    log: Vec<String>,
    ports: [u16; 4],
}

/// Waits for the spans of the three closes, lets the healthy client leave, and stops the sidecar.
///
/// # Errors
/// If a span does not come, or the sidecar does not stop.
pub fn collect(sidecar: Sidecar, cast: &Cast) -> Result<Ends> {
    let ports = [cast.slow.port(), cast.cut.port(), cast.polite.port(), cast.healthy.port()];
    let slow = sidecar.wait_for_host_close(ports[0], SPAN_DEADLINE)?;
    let cut = sidecar.wait_for_host_close(ports[1], SPAN_DEADLINE)?;
    let polite = sidecar.wait_for_host_close(ports[2], SPAN_DEADLINE)?;
    cast.healthy.close(1000, "");
    let healthy = sidecar.wait_for_connection(ports[3], SPAN_DEADLINE)?;
    let (all, log) = sidecar.stop_with_log()?;
    Ok(Ends { slow, cut, polite, healthy, all, log, ports })
}

impl Ends {
    /// What each must say where everything is seen. `interval_ms` is what the watchdog's interval may be learned as.
    ///
    /// # Errors
    /// Names everything that is not as it must be of the first span of which something is not.
    pub fn check(&self, host_pid: u32, interval_ms: RangeInclusive<i64>) -> Result<()> {
        let [slow_port, cut_port, polite_port, healthy_port] = self.ports;
        Expectations::of(&self.slow)
            .text("ackbeat.close.kind", &["heartbeat_kill"])
            .text("ackbeat.close.initiator", &["host"])
            .text("ackbeat.close.method", &["fin"])
            .text("ackbeat.close.ws_frame", &["none"])
            .absent("ackbeat.close.ws_code")
            .number("ackbeat.heartbeat.missed", 2..=2)
            .number("ackbeat.heartbeat.interval_ms", interval_ms.clone())
            .text("ackbeat.heartbeat.ping_location", &["not_sent"])
            .flag("ackbeat.heartbeat.inferred", true)
            .text("ackbeat.verdict", &["congested", "stalled"])
            .text("ackbeat.postmortem", &["app_progress", "answered"])
            .text("ackbeat.kill.assessment", &["false_kill"])
            .flag("ackbeat.false_kill", true)
            .flag("ackbeat.kill.justified", false)
            .number("process.pid", i64::from(host_pid)..=i64::from(host_pid))
            .text("ackbeat.mode", &["ebpf"])
            .error(true)
            .check("the slow reader")
            .with_context(|| self.tree(slow_port))?;
        Expectations::of(&self.cut)
            .text("ackbeat.close.kind", &["heartbeat_kill"])
            .text("ackbeat.close.initiator", &["host"])
            .text("ackbeat.close.ws_frame", &["none"])
            .number("ackbeat.heartbeat.missed", 2..=2)
            .number("ackbeat.heartbeat.interval_ms", interval_ms)
            .text("ackbeat.verdict", &["unreachable"])
            .text("ackbeat.postmortem", &["no_answer"])
            .text("ackbeat.kill.assessment", &["justified"])
            .flag("ackbeat.false_kill", false)
            .error(false)
            .check("the client whose path was cut")
            .with_context(|| self.tree(cut_port))?;
        Expectations::of(&self.polite)
            .text("ackbeat.close.kind", &["planned_restart"])
            .flag("ackbeat.close.final", false)
            .text("ackbeat.close.initiator", &["host"])
            .text("ackbeat.close.method", &["fin"])
            .number("ackbeat.close.ws_code", i64::from(POLITE_CODE)..=i64::from(POLITE_CODE))
            .text("ackbeat.close.ws_reason", &[POLITE_REASON])
            .text("ackbeat.close.ws_frame", &["both"])
            .absent("ackbeat.kill.assessment")
            .error(false)
            .check("the polite client")
            .with_context(|| self.tree(polite_port))?;
        Expectations::of(&self.healthy)
            .text("ackbeat.close.initiator", &["peer"])
            .only_verdict("alive")
            .check("the healthy client")
            .with_context(|| self.tree(healthy_port))?;
        ensure!(spans::host_close(&self.all, healthy_port).is_none(), "nobody killed the healthy client");
        self.check_parents()
    }

    /// What each must say on a machine that may stand still for a part of a second again and again: a tick that came late
    /// teaches no interval, so how the kill is named is left open.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_in_small(&self, host_pid: u32) -> Result<()> {
        let [slow_port, cut_port, polite_port, healthy_port] = self.ports;
        Expectations::of(&self.slow)
            .text("ackbeat.close.kind", &["heartbeat_kill", "abort"])
            .text("ackbeat.close.initiator", &["host"])
            .text("ackbeat.close.method", &["fin"])
            .text("ackbeat.close.ws_frame", &["none"])
            .text("ackbeat.verdict", &["congested", "stalled"])
            .text("ackbeat.postmortem", &["app_progress", "answered"])
            .text("ackbeat.kill.assessment", &["false_kill"])
            .flag("ackbeat.false_kill", true)
            .number("process.pid", i64::from(host_pid)..=i64::from(host_pid))
            .text("ackbeat.mode", &["ebpf"])
            .error(true)
            .check("the slow reader")
            .with_context(|| self.tree(slow_port))?;
        Expectations::of(&self.cut)
            .text("ackbeat.close.kind", &["heartbeat_kill"])
            .text("ackbeat.close.initiator", &["host"])
            .text("ackbeat.close.ws_frame", &["none"])
            .number("ackbeat.heartbeat.missed", 2..=2)
            .text("ackbeat.verdict", &["unreachable"])
            .text("ackbeat.postmortem", &["no_answer"])
            .text("ackbeat.kill.assessment", &["justified"])
            .flag("ackbeat.false_kill", false)
            .error(false)
            .check("the client whose path was cut")
            .with_context(|| self.tree(cut_port))?;
        Expectations::of(&self.polite)
            .text("ackbeat.close.initiator", &["host"])
            .number("ackbeat.close.ws_code", i64::from(POLITE_CODE)..=i64::from(POLITE_CODE))
            .text("ackbeat.close.ws_frame", &["both"])
            .error(false)
            .check("the polite client")
            .with_context(|| self.tree(polite_port))?;
        Expectations::of(&self.healthy)
            .text("ackbeat.close.initiator", &["peer"])
            .check("the healthy client")
            .with_context(|| self.tree(healthy_port))?;
        ensure!(spans::host_close(&self.all, healthy_port).is_none(), "nobody killed the healthy client");
        self.check_parents()
    }

    /// Whether the sidecar said that it stood still meanwhile: then nobody was judged by that time.
    #[must_use]
    pub fn stood_still(&self) -> bool {
        self.log.iter().any(|line| line.contains("stood still"))
    }

    /// What each must say where the kernel's accounting is all there is: no heartbeat, and nobody is accused for that. Who
    /// closed may be unknown too, and then no kill is assessed.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_without_heartbeats(&self, mode: &str) -> Result<()> {
        let [slow_port, cut_port, ..] = self.ports;
        Expectations::of(&self.slow)
            .text("ackbeat.close.initiator", &["host"])
            .text("ackbeat.mode", &[mode])
            .text("ackbeat.heartbeat.source", &["none"])
            .absent("ackbeat.heartbeat.missed")
            .absent("ackbeat.heartbeat.interval_ms")
            .text("ackbeat.verdict", &["alive", "congested", "stalled"])
            .text("ackbeat.postmortem", &["app_progress", "answered"])
            .text("ackbeat.kill.assessment", &["false_kill", "premature", "unknown"])
            .flag("ackbeat.kill.justified", false)
            .check("the slow reader")
            .with_context(|| self.tree(slow_port))?;
        Expectations::of(&self.cut)
            .text("ackbeat.close.initiator", &["host"])
            .text("ackbeat.mode", &[mode])
            .text("ackbeat.verdict", &["unreachable"])
            .text("ackbeat.postmortem", &["no_answer"])
            .text("ackbeat.kill.assessment", &["justified", "unknown"])
            .check("the client whose path was cut")
            .with_context(|| self.tree(cut_port))?;
        self.check_parents()
    }

    fn check_parents(&self) -> Result<()> {
        for close in [&self.slow, &self.cut, &self.polite] {
            let parent = self.all.iter().find(|span| Some(&span.span_id) == close.parent_span_id.as_ref());
            let parent = parent.context("a close has no connection")?;
            ensure!(
                parent.is_connection() && parent.trace_id == close.trace_id,
                "a close is its connection's child"
            );
        }
        Ok(())
    }

    fn tree(&self, port: u16) -> String {
        spans::tree(&self.all, port)
    }
}
