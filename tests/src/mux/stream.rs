//! The host's side of a TCP stream, which may overlook that the peer has finished.

use std::cell::Cell;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// A stream that does not give its reader the peer's FIN, where it is told so.
pub(super) struct HostStream {
    stream: TcpStream,
    hides_fin: bool,
    /// The peer's FIN was read.
    has_peer_finished: Rc<Cell<bool>>,
}

impl HostStream {
    pub(super) fn new(stream: TcpStream, hides_fin: bool, has_peer_finished: Rc<Cell<bool>>) -> Self {
        Self { stream, hides_fin, has_peer_finished }
    }
}

impl AsyncRead for HostStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        if self.hides_fin && self.has_peer_finished.get() {
            return Poll::Pending;
        }
        let (before, has_room) = (buffer.filled().len(), buffer.remaining() > 0);
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if has_room && buffer.filled().len() == before {
            self.has_peer_finished.set(true);
            if self.hides_fin {
                // Nothing will ever come: nobody needs to be woken.
                return Poll::Pending;
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for HostStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
