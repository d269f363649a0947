//! One probe, from the open WebSocket to its report.

mod counts;
mod pace;

use std::future::{Future, pending};
use std::io;
use std::pin::Pin;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::sleep_until;
use tokio_tungstenite::tungstenite::Message;

use counts::Counts;
use pace::Pace;

use super::connect::{Opened, Transport};
use super::frames::{Frame, FrameReader};
use super::heartbeats::{Heartbeats, Meaning};
use super::report::{Close, End, WireResult};
use super::writer::{self, Outgoing, QUEUE, Sent};
use super::{Options, ProbeError, Progress, Report};

/// Read at a time, in bytes.
const READ_BYTES: usize = 64 * 1024;
/// The end of TCP is waited for this long after a Close frame.
const END_AFTER_CLOSE: Duration = Duration::from_secs(2);
/// What a slow reader has left over is read within this time at most …
const DRAIN_MAX: Duration = Duration::from_secs(30);
/// … and if nothing came for this long, nothing more will.
const DRAIN_IDLE: Duration = Duration::from_secs(2);

/// What the probe does now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Heartbeats are answered.
    Answering,
    /// Nothing is answered; the mute began then.
    Muted,
    /// Everything is answered, slowly.
    SlowReading,
    /// The rest is read at full speed.
    Draining,
    /// The host has sent a Close frame.
    Closing,
}

/// The host's close.
#[derive(Debug, Default)]
struct Closing {
    at: Option<Instant>,
    has_frame: bool,
    code: Option<u16>,
    reason: Option<String>,
    end: Option<End>,
}

/// The writer, as far as it has got.
type Writing = Pin<Box<dyn Future<Output = Result<(), ProbeError>> + Send>>;

/// A probe that goes on.
pub(super) struct Session<'a> {
    options: &'a Options,
    opened: Described,
    reader: ReadHalf<Box<dyn Transport>>,
    first_bytes: Vec<u8>,
    to_writer: mpsc::Sender<Outgoing>,
    sent: mpsc::Receiver<Sent>,
    muted: writer::Mute,
    /// Until it has ended. Part of the session's own task: on another one a host's answer could be read before the
    /// session is told what it answers.
    writing: Option<Writing>,
    frames: FrameReader,
    heartbeats: Heartbeats,
    counts: Counts,
    pace: Option<Pace>,
    phase: Phase,
    phase_began_at: Instant,
    open_at: Instant,
    last_own_at: Instant,
    last_read_at: Instant,
    muted_at: Option<Instant>,
    /// The user's messages, until they may be sent.
    to_send: Vec<Message>,
    closing: Closing,
}

/// What the report repeats of the opening.
struct Described {
    url: String,
    address: String,
    began_at: Instant,
    times: super::connect::Times,
}

impl<'a> Session<'a> {
    pub(super) fn new(options: &'a Options, opened: Opened) -> Self {
        let Opened { stream, first_bytes, address, began_at, times, target } = opened;
        let (reader, write_half): (_, WriteHalf<_>) = tokio::io::split(stream);
        let (to_writer, queue) = mpsc::channel(QUEUE);
        let (told, sent) = mpsc::channel(QUEUE);
        let mute_after = options.slow_read.is_none().then_some(options.mute_after);
        let muted = writer::Mute::default();
        let writing = Box::pin(writer::write(write_half, queue, told, mute_after, muted.clone()));
        let now = Instant::now();
        Self {
            options,
            opened: Described { url: target.shown(), address: address.to_string(), began_at, times },
            reader,
            first_bytes,
            to_writer,
            sent,
            muted,
            writing: Some(writing),
            frames: FrameReader::default(),
            heartbeats: Heartbeats::new(options, &target),
            counts: Counts::default(),
            pace: options.slow_read.map(|bytes_per_second| Pace::new(bytes_per_second, now)),
            phase: Phase::Answering,
            phase_began_at: now,
            open_at: now,
            last_own_at: now,
            last_read_at: now,
            muted_at: None,
            to_send: options.send.iter().map(Message::text).collect(),
            closing: Closing::default(),
        }
    }

    pub(super) async fn run(mut self, watch: &mut dyn FnMut(Progress)) -> Result<Report, ProbeError> {
        let result = self.until_the_end(watch).await?;
        while let Ok(sent) = self.sent.try_recv() {
            self.was_sent(sent, watch);
        }
        Ok(self.report(result))
    }

    async fn until_the_end(&mut self, watch: &mut dyn FnMut(Progress)) -> Result<WireResult, ProbeError> {
        self.begin(watch);
        let first_bytes = std::mem::take(&mut self.first_bytes);
        let mut result = self.take(&first_bytes)?;
        let mut buffer = vec![0; READ_BYTES];
        loop {
            let deadline = self.deadline();
            let own_at = self.own_heartbeat_at();
            let (read_at, allowed) =
                self.pace.as_ref().map_or((None, READ_BYTES), |pace| (Some(pace.next_at()), pace.allowed()));
            let into = buffer.get_mut(..allowed).unwrap_or_default();
            let reader = &mut self.reader;
            let paced_read = async {
                if let Some(at) = read_at {
                    sleep_until(at.into()).await;
                }
                let began = Instant::now();
                (reader.read(into).await, began)
            };
            let writing = &mut self.writing;
            let written = async {
                match writing {
                    Some(writing) => writing.await,
                    None => pending().await,
                }
            };
            // In this order: what left is known before what it caused, and no flood keeps the probe from its end.
            tokio::select! {
                biased;
                written = written => {
                    self.writing = None;
                    written?;
                }
                Some(sent) = self.sent.recv() => self.was_sent(sent, watch),
                () = sleep_until(deadline.into()) => {
                    if let Some(over) = self.phase_is_over(result, watch) {
                        return Ok(over);
                    }
                }
                () = sleep_until(own_at.unwrap_or(deadline).into()), if own_at.is_some() => self.ask(),
                (read, began) = paced_read => {
                    let now = Instant::now();
                    self.last_read_at = now;
                    match read {
                        Ok(bytes @ 1..) => {
                            if let Some(pace) = &mut self.pace {
                                pace.has_read(bytes, began, now);
                            }
                            self.counts.bytes_read += bytes as u64;
                            let kept = result;
                            let bytes = buffer.get(..bytes).unwrap_or_default();
                            result = self.take(bytes)?.or(kept);
                        }
                        read => return self.ended(read, now, result),
                    }
                }
            }
        }
    }

    /// The first phase, and what is said first.
    fn begin(&mut self, watch: &mut dyn FnMut(Progress)) {
        if let Some(greeting) = self.heartbeats.greeting() {
            self.say(greeting);
        }
        if !self.heartbeats.waits_for_host() {
            self.send_messages();
        }
        self.counts.bytes_read += self.first_bytes.len() as u64;
        if self.options.slow_read.is_some() {
            self.enter(Phase::SlowReading);
            watch(Progress::SlowRead { patience_ms: self.kill_patience_ms() });
        } else if self.options.mute_after == 0 {
            self.mute(self.open_at, watch);
        }
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.phase_began_at = Instant::now();
    }

    fn mute(&mut self, at: Instant, watch: &mut dyn FnMut(Progress)) {
        self.muted.begin();
        self.enter(Phase::Muted);
        self.muted_at = Some(at);
        watch(Progress::Muted {
            pongs: self.counts.pongs,
            median_gap_ms: self.counts.median_gap_ms(),
            patience_ms: self.kill_patience_ms(),
        });
    }

    /// How far apart heartbeats are, as far as is known.
    fn interval(&self) -> Option<Duration> {
        let announced = self.heartbeats.announced().map(|announced| announced.interval + announced.timeout);
        self.counts.median_gap().into_iter().chain(announced).chain(self.heartbeats.own_interval()).max()
    }

    fn kill_patience(&self) -> Duration {
        self.options.kill_patience(self.interval())
    }

    fn kill_patience_ms(&self) -> u64 {
        super::connect::milliseconds(self.kill_patience())
    }

    /// When the phase is over, or the whole time.
    fn deadline(&self) -> Instant {
        let of_the_phase = match self.phase {
            Phase::Answering => {
                let last = [self.counts.last_ping_at(), self.counts.last_pong_at];
                let last = last.into_iter().flatten().chain([self.open_at]).max();
                last.unwrap_or(self.open_at) + self.options.ping_patience(self.interval())
            }
            Phase::Muted | Phase::SlowReading => self.phase_began_at + self.kill_patience(),
            Phase::Draining => {
                (self.phase_began_at + DRAIN_MAX).min(self.last_read_at.max(self.phase_began_at) + DRAIN_IDLE)
            }
            Phase::Closing => self.phase_began_at + END_AFTER_CLOSE,
        };
        match (self.options.timeout, self.phase) {
            // The way to the end of what was left over is a time of its own.
            (None, _) | (_, Phase::Draining | Phase::Closing) => of_the_phase,
            (Some(timeout), _) => of_the_phase.min(self.opened.began_at + timeout),
        }
    }

    /// What the end of the time means.
    fn phase_is_over(
        &mut self,
        result: Option<WireResult>,
        watch: &mut dyn FnMut(Progress),
    ) -> Option<WireResult> {
        let is_timeout =
            self.options.timeout.is_some_and(|timeout| self.opened.began_at.elapsed() >= timeout);
        match self.phase {
            Phase::Answering if is_timeout => Some(WireResult::NeverMuted),
            Phase::Answering => {
                self.mute(Instant::now(), watch);
                None
            }
            Phase::Muted => Some(WireResult::SurvivedMuted),
            Phase::SlowReading => {
                self.close_pace();
                self.enter(Phase::Draining);
                watch(Progress::Drain);
                None
            }
            Phase::Draining => Some(WireResult::SurvivedSlowReader),
            Phase::Closing => result.or(Some(WireResult::ClosedBeforeMute)),
        }
    }

    /// Reads at full speed from here on.
    fn close_pace(&mut self) {
        if let Some(pace) = self.pace.take() {
            self.counts.behind += pace.behind();
        }
    }

    /// What a close means now.
    const fn result_of_a_close(&self) -> WireResult {
        match self.phase {
            Phase::Answering | Phase::Closing => WireResult::ClosedBeforeMute,
            Phase::Muted => WireResult::Killed,
            Phase::SlowReading | Phase::Draining => WireResult::KilledSlowReader,
        }
    }

    /// The end of the stream.
    fn ended(
        &mut self,
        read: io::Result<usize>,
        now: Instant,
        result: Option<WireResult>,
    ) -> Result<WireResult, ProbeError> {
        let end = match read.map_err(|error| (error.kind(), error)) {
            // A TLS host that is killed, or kills, sends no close_notify (RFC 8446 section 6.1).
            Ok(_) | Err((io::ErrorKind::UnexpectedEof, _)) => End::Fin,
            Err((
                io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe,
                _,
            )) => End::Rst,
            Err((_, error)) => return Err(ProbeError::Read(error)),
        };
        self.closing.end = Some(end);
        self.closing.at.get_or_insert(now);
        Ok(result.unwrap_or_else(|| self.result_of_a_close()))
    }

    /// A heartbeat has left.
    fn was_sent(&mut self, sent: Sent, watch: &mut dyn FnMut(Progress)) {
        if self.closing.at.is_some_and(|at| at < sent.at) {
            return;
        }
        self.counts.pongs += 1;
        self.counts.last_pong_at = Some(sent.at);
        match self.phase {
            Phase::Answering if sent.is_last => self.mute(sent.at, watch),
            // It was on its way when the mute began.
            Phase::Muted => self.muted_at = Some(sent.at),
            _ => {}
        }
    }

    /// The time of the next own heartbeat.
    fn own_heartbeat_at(&self) -> Option<Instant> {
        if !matches!(self.phase, Phase::Answering | Phase::SlowReading) || self.is_enough_queued() {
            return None;
        }
        Some(self.last_own_at + self.heartbeats.own_interval()?)
    }

    fn ask(&mut self) {
        self.last_own_at = Instant::now();
        let message = self.heartbeats.own();
        self.send_heartbeat(message);
    }

    const fn is_enough_queued(&self) -> bool {
        self.options.slow_read.is_none() && self.counts.queued >= self.options.mute_after
    }

    /// Sends an answer or an own heartbeat, unless the probe is mute. False if it is.
    fn send_heartbeat(&mut self, message: Message) -> bool {
        if matches!(self.phase, Phase::Muted | Phase::Closing) || self.is_enough_queued() {
            return false;
        }
        match self.to_writer.try_send(Outgoing::Heartbeat(message)) {
            Ok(()) => self.counts.queued += 1,
            Err(_) => self.counts.messages_dropped += 1,
        }
        true
    }

    /// Sends what is no heartbeat. A host that does not read does not get it.
    fn say(&mut self, message: Message) {
        if self.to_writer.try_send(Outgoing::Other(vec![message])).is_err() {
            self.counts.messages_dropped += 1;
        }
    }

    fn send_messages(&mut self) {
        let messages = std::mem::take(&mut self.to_send);
        let count = messages.len() as u64;
        if count > 0 && self.to_writer.try_send(Outgoing::Other(messages)).is_err() {
            self.counts.messages_dropped += count;
        }
    }

    /// Looks at what came. `Some` if the host closed.
    fn take(&mut self, bytes: &[u8]) -> Result<Option<WireResult>, ProbeError> {
        let mut complete = Vec::new();
        self.frames.take(bytes, |frame| complete.push(frame))?;
        let mut result = None;
        for frame in complete {
            if self.phase != Phase::Closing {
                result = self.frame(frame).or(result);
            }
        }
        Ok(result)
    }

    fn frame(&mut self, frame: Frame) -> Option<WireResult> {
        match frame {
            Frame::Ping(payload) if self.heartbeats.counts_ping_frames() => {
                self.heartbeats.ping_frame();
                self.heartbeat_came(1, Some(Message::Pong(payload.into())));
            }
            Frame::Ping(payload) => {
                self.counts.other_ping_frames += 1;
                self.say(Message::Pong(payload.into()));
            }
            Frame::Pong if self.heartbeats.counts_pong_frame() => {
                self.heartbeats.ping_frame();
                self.heartbeat_came(1, None);
            }
            Frame::Text(text) => {
                self.counts.text_frames += 1;
                if let Some(text) = text {
                    let Meaning { heartbeats, answer, message, is_ready } = self.heartbeats.text(&text);
                    if heartbeats > 0 {
                        self.heartbeat_came(heartbeats, answer);
                    }
                    if let Some(message) = message {
                        self.say(message);
                    }
                    if is_ready {
                        self.send_messages();
                    }
                }
            }
            Frame::Binary => self.counts.binary_frames += 1,
            Frame::Pong | Frame::Continuation => {}
            Frame::Close { code, reason } => return Some(self.close_frame(code, reason)),
        }
        None
    }

    fn heartbeat_came(&mut self, count: u64, answer: Option<Message>) {
        let now = Instant::now();
        self.counts.ping(now, count);
        if let Some(answer) = answer
            && !self.send_heartbeat(answer)
        {
            self.counts.first_unanswered_at.get_or_insert(now);
        }
    }

    fn close_frame(&mut self, code: Option<u16>, reason: String) -> WireResult {
        /// RFC 6455 section 7.4.1: a Close frame without a status code.
        const NO_STATUS: u16 = 1005;
        let result = self.result_of_a_close();
        self.close_pace();
        self.closing = Closing {
            at: Some(Instant::now()),
            has_frame: true,
            code: Some(code.unwrap_or(NO_STATUS)),
            reason: (!reason.is_empty()).then_some(reason),
            end: None,
        };
        // The Close that RFC 6455 section 5.5.1 asks for, so that the host ends TCP.
        self.say(Message::Close(None));
        self.enter(Phase::Closing);
        result
    }

    fn report(mut self, result: WireResult) -> Report {
        self.close_pace();
        let now = Instant::now();
        let Self { opened, closing, counts, heartbeats, open_at, muted_at, .. } = self;
        let ended_at = closing.at.unwrap_or(now);
        let close =
            closing.at.map(|_| Close { frame: closing.has_frame, reason: closing.reason, end: closing.end });
        let times = counts::Times { open_at, muted_at, closed_at: closing.at, ended_at };
        let line = counts.line(times, closing.code, result, self.options.slow_read.is_some());
        counts.report(line, times, &opened, &heartbeats, close)
    }
}
