//! As much of engine.io's protocol 4 as a client needs: packets are text messages that begin with a digit, and binary
//! messages are packets of the type `message`.

use tokio_tungstenite::tungstenite::{self, Message};

use super::Command;

/// Asks for protocol 4 over a WebSocket from the start.
pub(super) const QUERY: &str = "?EIO=4&transport=websocket";
/// Packet type `ping`: in protocol 4 the server asks.
const PING: &str = "2";
/// Packet type `pong`.
const PONG: &str = "3";
/// Packet type `message`.
const MESSAGE: &str = "4";

/// Whether a message is a `ping` packet.
pub(super) fn is_ping(message: Option<&tungstenite::Result<Message>>) -> bool {
    matches!(message, Some(Ok(Message::Text(text))) if text.as_str() == PING)
}

/// The answer.
pub(super) fn pong() -> Message {
    Message::Text(PONG.into())
}

/// The same command, with its text as a packet.
pub(super) fn packet(command: Command) -> Command {
    match command {
        Command::Send { text } => Command::Send { text: format!("{MESSAGE}{text}") },
        other => other,
    }
}
