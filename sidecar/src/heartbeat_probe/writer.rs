//! What leaves. This alone knows when the mute begins, so that no answer can follow it.

use std::io::Cursor;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::protocol::Role;
use tokio_tungstenite::tungstenite::{Message, WebSocket};

use super::ProbeError;

/// Messages that wait at most. A host that does not read blocks the writer; the reader goes on.
pub(super) const QUEUE: usize = 64;

/// What is to be sent.
#[derive(Debug)]
pub(super) enum Outgoing {
    /// An answer to a heartbeat, or an own heartbeat: counts, and is held back after the mute.
    Heartbeat(Message),
    /// Anything else, in this order.
    Other(Vec<Message>),
}

/// A mute that begins although answers are left: the host no longer asks.
#[derive(Clone, Debug, Default)]
pub(super) struct Mute(Arc<AtomicBool>);

impl Mute {
    pub(super) fn begin(&self) {
        self.0.store(true, Ordering::SeqCst);
    }

    fn has_begun(&self) -> bool {
        self.0.load(Ordering::SeqCst)
    }
}

/// A heartbeat that has left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// When its last byte was handed to the kernel.
    pub(super) at: Instant,
    /// It was the last one.
    pub(super) is_last: bool,
}

/// Sends until `queue` ends or the connection breaks, which the reader sees too. Of heartbeats it sends the first
/// `mute_after`, if that is given, and none after `mute`, and tells `sent` of each.
pub(super) async fn write(
    mut stream: impl AsyncWrite + Unpin,
    mut queue: mpsc::Receiver<Outgoing>,
    sent: mpsc::Sender<Sent>,
    mute_after: Option<u64>,
    mute: Mute,
) -> Result<(), ProbeError> {
    let mut heartbeats: u64 = 0;
    while let Some(outgoing) = queue.recv().await {
        let (messages, is_heartbeat) = match outgoing {
            Outgoing::Heartbeat(_)
                if mute.has_begun() || mute_after.is_some_and(|limit| heartbeats >= limit) =>
            {
                continue;
            }
            Outgoing::Heartbeat(message) => (vec![message], true),
            Outgoing::Other(messages) => (messages, false),
        };
        let mut bytes = Vec::new();
        for message in messages {
            bytes.append(&mut encode(message)?);
        }
        if stream.write_all(&bytes).await.is_err() || stream.flush().await.is_err() {
            return Ok(());
        }
        if is_heartbeat {
            heartbeats += 1;
            let is_last = mute_after == Some(heartbeats);
            if sent.send(Sent { at: Instant::now(), is_last }).await.is_err() {
                return Ok(());
            }
        }
    }
    Ok(())
}

/// A message as a masked frame.
pub(super) fn encode(message: Message) -> Result<Vec<u8>, ProbeError> {
    let mut bytes = Cursor::new(Vec::new());
    let mut socket = WebSocket::from_raw_socket(&mut bytes, Role::Client, None);
    socket.send(message).map_err(|error| ProbeError::Encode(Box::new(error)))?;
    drop(socket);
    Ok(bytes.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_an_answer_leaves_after_the_mute_however_much_waits() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let (to_writer, queue) = mpsc::channel(QUEUE);
            let (sent, mut told) = mpsc::channel(QUEUE);
            for number in 0..10_u8 {
                to_writer.send(Outgoing::Heartbeat(Message::Pong(vec![number].into()))).await.unwrap();
            }
            to_writer.send(Outgoing::Other(vec![Message::text("x")])).await.unwrap();
            drop(to_writer);
            let mut wire = Vec::new();
            write(&mut wire, queue, sent, Some(3), Mute::default()).await.unwrap();
            // Three Pongs of 2 + 4 + 1 bytes each and one text message of as many.
            assert_eq!(wire.len(), 4 * 7);
            assert_eq!([0, 7, 14, 21].map(|at: usize| wire[at]), [0x8A, 0x8A, 0x8A, 0x81]);
            let mut last = Vec::new();
            while let Some(sent) = told.recv().await {
                last.push(sent.is_last);
            }
            assert_eq!(last, [false, false, true]);
        });
    }

    #[test]
    fn a_close_is_a_frame_too() {
        let bytes = encode(Message::Close(None)).unwrap();
        assert_eq!((bytes.len(), bytes[0], bytes[1]), (6, 0x88, 0x80));
    }
}
