//! How a client behaves, and what it can be told.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How fast a client reads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "pace", rename_all = "snake_case")]
pub enum Pace {
    /// As fast as it can.
    Full,
    /// `read_bytes` at a time, `bytes_per_second` in all.
    Slow {
        /// Bytes a second.
        bytes_per_second: u32,
        /// Bytes of one read.
        read_bytes: usize,
    },
    /// Reads nothing for `busy` after its first read, then as fast as it can: a page whose main thread is busy.
    Busy {
        /// How long.
        busy: Duration,
    },
    /// Reads nothing during the last `pause` of every `period`, and as fast as it can in between: a process whose
    /// garbage collector stops it.
    Pausing {
        /// How long each pause is.
        pause: Duration,
        /// From the end of one pause to the end of the next.
        period: Duration,
    },
    /// Reads a single byte, then nothing for `rest`, again and again.
    Trickle {
        /// From one byte to the next.
        rest: Duration,
    },
}

/// Data that a client sends of its own accord.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Chatter {
    /// From one message to the next; the first comes at once.
    pub period: Duration,
    /// Payload of each binary message.
    pub bytes: usize,
}

/// How a client behaves.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClientOptions {
    /// The host.
    pub host: SocketAddr,
    /// How fast it reads once the WebSocket is open.
    pub pace: Pace,
    /// Answers no Ping once the WebSocket is open, and sends nothing else either.
    pub mute: bool,
    /// Answers no Ping once the WebSocket is open, but sends everything else.
    pub withhold_pongs: bool,
    /// Writes at most this many bytes a second once the WebSocket is open, Pongs behind what was sent before them; as
    /// fast as the kernel takes them if `None`.
    pub upstream_bytes_per_second: Option<u32>,
    /// Data that it sends of its own accord.
    pub chatter: Option<Chatter>,
    /// Size of its receive buffer in bytes; the kernel's own choice if `None`.
    pub receive_buffer_bytes: Option<u32>,
    /// Value of the upgrade request's `traceparent` header (W3C Trace Context).
    pub traceparent: Option<String>,
    /// Value of the upgrade request's `X-Forwarded-For` header, as an ingress adds it.
    #[serde(default)]
    pub forwarded_for: Option<String>,
    /// Speaks engine.io, protocol 4, over the WebSocket: its texts are `message` packets, and it answers each `ping` packet
    /// by a `pong` packet as soon as it has read it; with `withhold_pongs` it does not.
    #[serde(default)]
    pub engine_io: bool,
}

impl ClientOptions {
    /// A healthy client of `host`.
    #[must_use]
    pub const fn new(host: SocketAddr) -> Self {
        Self {
            host,
            pace: Pace::Full,
            mute: false,
            withhold_pongs: false,
            upstream_bytes_per_second: None,
            chatter: None,
            receive_buffer_bytes: None,
            traceparent: None,
            forwarded_for: None,
            engine_io: false,
        }
    }

    /// The same at another pace.
    #[must_use]
    pub const fn paced(mut self, pace: Pace) -> Self {
        self.pace = pace;
        self
    }
}

/// What a running client can be told; one JSON object a line where the client is a process of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "command", rename_all = "snake_case")]
pub enum Command {
    /// Send a text message.
    Send {
        /// Its payload.
        text: String,
    },
    /// Send one binary message.
    SendBytes {
        /// Size of its payload.
        bytes: usize,
    },
    /// Send a Close frame.
    Close {
        /// Its status code (RFC 6455 section 7.4).
        code: u16,
        /// Its reason.
        reason: String,
    },
    /// Send a FIN (`shutdown(SHUT_WR)`), write nothing more, and go on reading. Comes after what was sent before it.
    HalfClose,
    /// Close the socket at once, without a Close frame.
    Abandon,
    /// Write nothing more, whatever is asked or due, and go on reading: what [`ClientOptions::mute`] is from the beginning.
    Mute,
    /// Stop reading, or go on.
    Freeze {
        /// Whether to stop.
        frozen: bool,
    },
}
