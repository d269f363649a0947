//! What a probe found: one line for people and scripts, one object for programs.

use std::fmt;
use std::str::FromStr;

use ackbeat_liveness::HeartbeatProfile;
use serde::{Deserialize, Serialize};

const LINE_BEGINS: &str = "HEARTBEAT_TOLERANCE";
/// What stands in the line where a value is not known.
const NONE: &str = "none";

macro_rules! results {
    ($(#[$meta:meta])* $name:ident { $($(#[$variant_meta:meta])* $variant:ident = $word:literal),+ $(,)? }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
        pub enum $name { $($(#[$variant_meta])* #[serde(rename = $word)] $variant),+ }
        impl $name {
            /// Every value.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
            /// The word for it.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }
    };
}

results! {
    /// How it ended.
    WireResult {
        /// The host closed the muted connection.
        Killed = "KILLED",
        /// The muted connection was open when the time was over.
        SurvivedMuted = "SURVIVED_MUTED",
        /// The host closed a connection that answered but read slowly.
        KilledSlowReader = "KILLED_SLOW_READER",
        /// A connection that answered but read slowly was open when the time was over.
        SurvivedSlowReader = "SURVIVED_SLOW_READER",
        /// The host closed while everything was answered and read: nothing was measured.
        ClosedBeforeMute = "CLOSED_BEFORE_MUTE",
        /// `--timeout` ran out before the mute: nothing was measured.
        NeverMuted = "NEVER_MUTED",
    }
}

impl WireResult {
    /// Whether the host killed what was probed.
    #[must_use]
    pub const fn is_kill(self) -> bool {
        matches!(self, Self::Killed | Self::KilledSlowReader)
    }
}

/// Who sends the heartbeat that the other side must answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// The host.
    Host,
    /// The client, which is the probe.
    Client,
}

/// How TCP ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// The host's FIN.
    Fin,
    /// The host's RST.
    Rst,
}

/// The host's end of the connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Close {
    /// Whether there was a Close frame (RFC 6455 section 5.5.1).
    pub frame: bool,
    /// Its reason.
    pub reason: Option<String>,
    /// How TCP ended; `None` if it had not, two seconds after the Close frame.
    pub end: Option<End>,
}

/// What a slow reader can know about what waited for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SlowRead {
    /// Bytes of WebSocket frames that were read.
    pub bytes_read: u64,
    /// From the opening handshake to the end, in milliseconds.
    pub read_ms: u64,
    /// How long there was more to read than was allowed, in milliseconds. 0: the host never sent faster than it was read,
    /// so nothing was measured.
    pub behind_ms: u64,
    /// Heartbeats that were answered.
    pub pongs: u64,
}

/// The line. A value that is not known is `none`, never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Heartbeats that came from the host, answered or not: its Pings, or its answers where the client asks.
    pub pings: u64,
    /// Median of the times between them, in milliseconds. `None` with fewer than two.
    pub median_gap_ms: Option<u64>,
    /// From the last heartbeat that the probe sent (a Pong, an answer, or its own where the client asks) to the host's
    /// close: its Close frame, or else the end of TCP. In milliseconds. `None` without either.
    pub last_pong_to_close_ms: Option<u64>,
    /// From the moment of the mute to the host's close, or to the end of the probe if there was none. In milliseconds. The
    /// mute begins when the last answer has left, or when the next heartbeat did not come in time. `None` if there was
    /// no mute.
    pub since_mute_ms: Option<u64>,
    /// Status code of the host's Close frame. 1005 if it had none (RFC 6455 section 7.4.1), `None` if there was no Close
    /// frame.
    pub close_code: Option<u16>,
    /// Text frames (opcode 1) that came, heartbeats among them.
    pub text_frames: u64,
    /// Members of a slow reader's line.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub slow_read: Option<SlowRead>,
    /// How it ended.
    pub result: WireResult,
}

impl fmt::Display for Line {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = |value: Option<u64>| value.map_or_else(|| NONE.to_owned(), |value| value.to_string());
        write!(
            formatter,
            "{LINE_BEGINS} pings={} median_gap_ms={} last_pong_to_close_ms={} since_mute_ms={} close_code={} text_frames={}",
            self.pings,
            known(self.median_gap_ms),
            known(self.last_pong_to_close_ms),
            known(self.since_mute_ms),
            known(self.close_code.map(u64::from)),
            self.text_frames,
        )?;
        if let Some(slow) = self.slow_read {
            write!(
                formatter,
                " bytes_read={} read_ms={} behind_ms={} pongs={}",
                slow.bytes_read, slow.read_ms, slow.behind_ms, slow.pongs
            )?;
        }
        write!(formatter, " result={}", self.result.as_str())
    }
}

/// A line that is none of the probe's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// It begins with something else.
    #[error("the line does not begin with HEARTBEAT_TOLERANCE")]
    Beginning,
    /// A member is not where it belongs, or has no such value.
    #[error("{0} is missing or has no such value")]
    Member(&'static str),
    /// There is more than a line has.
    #[error("the line goes on after its result")]
    Longer,
}

/// Reads `NAME=VALUE` words one by one.
struct Members<'a>(std::iter::Peekable<std::str::Split<'a, char>>);

impl Members<'_> {
    fn text(&mut self, name: &'static str) -> Result<&str, LineError> {
        let word = self.0.next().ok_or(LineError::Member(name))?;
        word.strip_prefix(name).and_then(|rest| rest.strip_prefix('=')).ok_or(LineError::Member(name))
    }

    fn value<T: FromStr>(&mut self, name: &'static str) -> Result<T, LineError> {
        self.text(name)?.parse().map_err(|_| LineError::Member(name))
    }

    fn known<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>, LineError> {
        match self.text(name)? {
            NONE => Ok(None),
            text => text.parse().map(Some).map_err(|_| LineError::Member(name)),
        }
    }
}

impl FromStr for Line {
    type Err = LineError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut members = Members(text.split(' ').peekable());
        if members.0.next() != Some(LINE_BEGINS) {
            return Err(LineError::Beginning);
        }
        let pings = members.value("pings")?;
        let median_gap_ms = members.known("median_gap_ms")?;
        let last_pong_to_close_ms = members.known("last_pong_to_close_ms")?;
        let since_mute_ms = members.known("since_mute_ms")?;
        let close_code = members.known("close_code")?;
        let text_frames = members.value("text_frames")?;
        let has_slow_read = members.0.peek().is_some_and(|word| word.starts_with("bytes_read="));
        let slow_read = if has_slow_read {
            Some(SlowRead {
                bytes_read: members.value("bytes_read")?,
                read_ms: members.value("read_ms")?,
                behind_ms: members.value("behind_ms")?,
                pongs: members.value("pongs")?,
            })
        } else {
            None
        };
        let word = members.text("result")?;
        let known = WireResult::ALL.iter().find(|result| result.as_str() == word);
        let result = *known.ok_or(LineError::Member("result"))?;
        if members.0.next().is_some() {
            return Err(LineError::Longer);
        }
        Ok(Self {
            pings,
            median_gap_ms,
            last_pong_to_close_ms,
            since_mute_ms,
            close_code,
            text_frames,
            slow_read,
            result,
        })
    }
}

/// Everything that a probe found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The members of the line.
    #[serde(flatten)]
    pub line: Line,
    /// What was probed, without its query.
    pub url: String,
    /// `ADDRESS:PORT` that was connected to.
    pub address: String,
    /// How the heartbeat looked; `None` if there was none.
    pub profile: Option<HeartbeatProfile>,
    /// Who asked.
    pub asks: Who,
    /// Heartbeats that the probe sent: answers, or its own where the client asks.
    pub pongs: u64,
    /// Answers and other messages that found no room because the host did not read.
    pub messages_dropped: u64,
    /// From the first heartbeat that was left unanswered to the host's close, in milliseconds.
    pub first_unanswered_ping_to_close_ms: Option<u64>,
    /// The shortest of the times between the host's heartbeats, in milliseconds.
    pub gap_min_ms: Option<u64>,
    /// The longest of them, in milliseconds.
    pub gap_max_ms: Option<u64>,
    /// The interval that the host announced (engine.io), in milliseconds.
    pub announced_interval_ms: Option<u64>,
    /// The timeout that the host announced (engine.io), in milliseconds.
    pub announced_timeout_ms: Option<u64>,
    /// The TCP connection took this long, in milliseconds, with looking up the name.
    pub connect_ms: u64,
    /// The TLS handshake took this long, in milliseconds.
    pub tls_ms: Option<u64>,
    /// The WebSocket handshake took this long, in milliseconds.
    pub handshake_ms: u64,
    /// The WebSocket was open this long, in milliseconds.
    pub open_ms: u64,
    /// The end that the host made; `None` if it made none.
    pub close: Option<Close>,
    /// Bytes of WebSocket frames that were read.
    pub bytes_read: u64,
    /// Binary frames (opcode 2) that came.
    pub binary_frames: u64,
    /// Ping frames that came and were answered although they are not the heartbeat that is probed.
    pub other_ping_frames: u64,
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn line() -> impl Strategy<Value = Line> {
        let slow = (any::<u64>(), any::<u64>(), any::<u64>(), any::<u64>()).prop_map(
            |(bytes_read, read_ms, behind_ms, pongs)| SlowRead { bytes_read, read_ms, behind_ms, pongs },
        );
        (
            (any::<u64>(), any::<Option<u64>>(), any::<Option<u64>>(), any::<Option<u64>>()),
            any::<Option<u16>>(),
            any::<u64>(),
            prop::option::of(slow),
            prop::sample::select(WireResult::ALL),
        )
            .prop_map(|(times, close_code, text_frames, slow_read, result)| Line {
                pings: times.0,
                median_gap_ms: times.1,
                last_pong_to_close_ms: times.2,
                since_mute_ms: times.3,
                close_code,
                text_frames,
                slow_read,
                result,
            })
    }

    proptest! {
        #[test]
        fn a_line_means_what_it_was_made_from(line in line()) {
            let text = line.to_string();
            prop_assert!(!text.contains('\n'));
            prop_assert_eq!(text.parse::<Line>(), Ok(line));
        }

        #[test]
        fn any_other_text_is_refused_without_a_panic(text in ".{0,120}") {
            prop_assert!(text.parse::<Line>().is_err());
        }

        #[test]
        fn a_line_with_a_word_less_or_more_is_refused(line in line(), at in 0_usize..12) {
            let text = line.to_string();
            let mut words: Vec<&str> = text.split(' ').collect();
            let at = at % words.len();
            let word = words.remove(at);
            prop_assert!(words.join(" ").parse::<Line>().is_err());
            words.insert(at, word);
            words.insert(at, word);
            prop_assert!(words.join(" ").parse::<Line>().is_err());
        }
    }

    #[test]
    fn the_line_is_the_one_that_scripts_know() {
        let text = "HEARTBEAT_TOLERANCE pings=6 median_gap_ms=2000 last_pong_to_close_ms=6005 since_mute_ms=4273 \
                    close_code=none text_frames=0 result=KILLED";
        let line: Line = text.parse().unwrap();
        assert_eq!(line.to_string(), text);
        assert_eq!((line.pings, line.close_code, line.result), (6, None, WireResult::Killed));
    }
}
