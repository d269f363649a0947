//! When to send a Ping, and when to close.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use crate::{NoAnswer, Sidecar, Verdict};

/// Intervals without a Pong after which a connection is closed where the sidecar cannot be asked.
const WINDOW_INTERVALS: u32 = 3;

/// A Close frame to send (RFC 6455 section 5.5.1).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct CloseFrame {
    /// Status code (RFC 6455 section 7.4).
    pub code: u16,
    /// Reason, at most 123 bytes.
    pub reason: String,
}

impl CloseFrame {
    /// What to close with where the sidecar suggests nothing: 1011, an unexpected condition.
    #[must_use]
    pub fn heartbeat_timeout() -> Self {
        Self { code: 1011, reason: "heartbeat timeout".to_owned() }
    }

    /// Whether a server may send it.
    fn is_sendable(&self) -> bool {
        let code = matches!(self.code, 1000..=1003 | 1007..=1014 | 3000..=4999);
        code && self.reason.len() <= 123
    }
}

/// How a heartbeat behaves.
#[derive(Clone, Debug)]
pub struct HeartbeatOptions {
    /// From one Ping to the next.
    pub interval: Duration,
    /// Pings without a Pong from which on the sidecar is asked, once an interval.
    pub missed: u32,
}

impl Default for HeartbeatOptions {
    fn default() -> Self {
        Self { interval: Duration::from_secs(2), missed: 2 }
    }
}

/// What a server does next for a connection.
#[derive(Debug)]
pub enum Next {
    /// Send a Ping, unless the last one still waits to be written.
    Ping,
    /// Close with this frame, and drop the socket if the peer does not answer it soon.
    Close {
        /// The frame.
        frame: CloseFrame,
        /// Who decided.
        by: Decider,
    },
    /// The sidecar cannot be asked, or not about this connection: [the window](Decider::Window) decides from now on. Told once
    /// for each connection, until the sidecar answers again.
    Fallback(NoAnswer),
    /// The sidecar answers again.
    Recovered,
}

/// Who decided to close.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decider {
    /// The sidecar.
    Verdict(Verdict),
    /// Three intervals without a Pong, because the sidecar could not be asked.
    Window,
}

/// One connection's heartbeat.
#[derive(Debug)]
pub struct Heartbeat {
    sidecar: Arc<Sidecar>,
    options: HeartbeatOptions,
    peer: SocketAddr,
    local: SocketAddr,
    ticks: tokio::time::Interval,
    ticked_at: Instant,
    heard_at: Instant,
    unanswered: u32,
    /// A question under way, and when the peer had been heard as it was asked.
    question: Option<(JoinHandle<Result<Verdict, NoAnswer>>, Instant)>,
    fell_back: bool,
    ping_due: bool,
}

impl Heartbeat {
    /// Of the connection between `local`, this side, and `peer`, from now on. Must be made within a tokio runtime.
    #[must_use]
    pub fn new(
        sidecar: Arc<Sidecar>,
        options: HeartbeatOptions,
        peer: SocketAddr,
        local: SocketAddr,
    ) -> Self {
        let now = Instant::now();
        let mut ticks = interval_at(now + options.interval, options.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Self {
            sidecar,
            options,
            peer,
            local,
            ticks,
            ticked_at: now,
            heard_at: now,
            unanswered: 0,
            question: None,
            fell_back: false,
            ping_due: false,
        }
    }

    /// A Pong came.
    pub fn heard(&mut self) {
        self.heard_at = Instant::now();
        self.unanswered = 0;
    }

    /// Ticks since the last Pong, as a server that counts would have them.
    #[must_use]
    pub const fn missed(&self) -> u32 {
        self.unanswered
    }

    /// Waits for what is to be done next. Cancel safe: a question that is under way goes on.
    pub async fn next(&mut self) -> Next {
        loop {
            if std::mem::take(&mut self.ping_due) {
                return Next::Ping;
            }
            let next = match &mut self.question {
                Some((question, heard_at)) => {
                    let heard_at = *heard_at;
                    tokio::select! {
                        answer = question => {
                            self.question = None;
                            // A question that was not asked to its end is one without an answer.
                            let answer = answer.unwrap_or_else(|error| Err(NoAnswer::NotThere(error.to_string())));
                            self.answered(answer, heard_at)
                        }
                        _ = self.ticks.tick() => {
                            self.tick();
                            None
                        }
                    }
                }
                None => {
                    self.ticks.tick().await;
                    self.tick();
                    None
                }
            };
            if let Some(next) = next {
                return next;
            }
        }
    }

    fn tick(&mut self) {
        let now = Instant::now();
        // Time in which this process itself stood still is not the peer's: its Pong may lie unread.
        if now.duration_since(self.ticked_at) > self.options.interval * 3 / 2 {
            self.heard_at = now;
        }
        self.ticked_at = now;
        let is_late = self.unanswered >= self.options.missed;
        self.unanswered += 1;
        self.ping_due = true;
        if is_late && self.question.is_none() {
            let (sidecar, peer, local) = (Arc::clone(&self.sidecar), self.peer, self.local);
            let question = tokio::spawn(async move { sidecar.verdict(peer, local).await });
            self.question = Some((question, self.heard_at));
        }
    }

    fn answered(&mut self, answer: Result<Verdict, NoAnswer>, heard_at: Instant) -> Option<Next> {
        match answer {
            // A Pong that came meanwhile knows better.
            Ok(verdict) if verdict.kill_justified && heard_at == self.heard_at => {
                let suggested = verdict.suggested_close.clone().filter(CloseFrame::is_sendable);
                let frame = suggested.unwrap_or_else(CloseFrame::heartbeat_timeout);
                let (sidecar, peer, local) = (Arc::clone(&self.sidecar), self.peer, self.local);
                let told = frame.clone();
                // The close goes on, whatever becomes of the report.
                tokio::spawn(async move { sidecar.report_close(peer, local, &told).await });
                Some(Next::Close { frame, by: Decider::Verdict(verdict) })
            }
            Ok(_) => std::mem::take(&mut self.fell_back).then_some(Next::Recovered),
            Err(error) => {
                let next = self.judge_by_window();
                if next.is_none() && !std::mem::replace(&mut self.fell_back, true) {
                    return Some(Next::Fallback(error));
                }
                next
            }
        }
    }

    fn judge_by_window(&self) -> Option<Next> {
        let window = self.options.interval * WINDOW_INTERVALS;
        (self.heard_at.elapsed() >= window)
            .then(|| Next::Close { frame: CloseFrame::heartbeat_timeout(), by: Decider::Window })
    }
}

impl Drop for Heartbeat {
    fn drop(&mut self) {
        if let Some((question, _)) = &self.question {
            question.abort();
        }
    }
}
