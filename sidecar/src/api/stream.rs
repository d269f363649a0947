//! `GET /v1/events`: a WebSocket with one message for each event.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{CloseFrame, Message, Utf8Bytes, WebSocket, WebSocketUpgrade, close_code};
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::Response;
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::Api;
use super::counters::ApiCounters;
use super::events::{self, EventKind};
use super::query::Query;
use super::types::{Event, Problem};

/// Readers at once.
pub const READERS_MAX: usize = 64;
/// How long a reader may read nothing of what is ready for it.
const STALL_DEADLINE: Duration = Duration::from_secs(5);
/// A reader that is only there to listen is asked this often whether it is.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Bytes of what a reader may say.
const MESSAGE_MAX_BYTES: usize = 4 * 1024;
/// Bytes of what waits for a reader here; the rest waits among the events that are kept for all.
const WAITING_MAX_BYTES: usize = 64 * 1024;

/// Which events a reader wants.
#[derive(Debug, Default)]
struct Filter {
    kinds: Option<Vec<EventKind>>,
    peer: Option<IpAddr>,
}

impl Filter {
    fn read(raw: Option<&str>) -> Result<Self, Problem> {
        let mut query = Query::new(raw);
        let kinds = query.value("type", "verdict_changed, closed, or both separated by a comma", |text| {
            text.split(',').map(EventKind::of_word).collect()
        })?;
        let peer = query.ip("peer")?;
        query.finish("type, peer")?;
        Ok(Self { kinds, peer })
    }

    fn lets_through(&self, event: &events::Message) -> bool {
        self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind))
            && self.peer.is_none_or(|peer| peer == event.peer)
    }
}

/// Verdict changes and closes from now on: a WebSocket (RFC 6455) with one JSON message for each, of the schema `Event`.
/// A reader that is too slow is told how many it missed, and its stream is closed with 1008.
#[utoipa::path(
    get,
    path = "/v1/events",
    tag = "events",
    params(
        ("type" = Option<String>, Query, description = "Events of these types only, separated by commas",
            pattern = "^(verdict_changed|closed)(,(verdict_changed|closed))*$", example = "closed"),
        ("peer" = inline(Option<super::schema::IpAddress>), Query, description = "Events of this peer only: its IP address", example = "10.0.0.7"),
    ),
    responses(
        (status = 101, description = "The stream begins"),
        (status = 400, description = "A parameter is wrong; `field` names it", body = Problem,
            content_type = "application/problem+json"),
        (status = 403, description = "A page of another origin may not listen", body = Problem,
            content_type = "application/problem+json"),
        (status = 426, description = "It is no WebSocket's opening handshake", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "Too many readers listen already", body = Problem,
            content_type = "application/problem+json"),
    ),
)]
pub(super) async fn events(
    State(api): State<Arc<Api>>,
    RawQuery(raw): RawQuery,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Result<Response, Problem> {
    let filter = Filter::read(raw.as_deref())?;
    is_from_here(&headers)?;
    let upgrade = upgrade.map_err(|rejection| {
        Problem::new(StatusCode::UPGRADE_REQUIRED, format!("events come over a WebSocket: {rejection}"))
    })?;
    let Ok(place) = Arc::clone(&api.readers).try_acquire_owned() else {
        return Err(Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            format!("{READERS_MAX} readers listen already; ask again when one has left"),
        ));
    };
    // Subscribed before the answer: what happens from then on is not missed.
    let Some(receiver) = api.events.subscribe() else {
        return Err(Problem::new(StatusCode::SERVICE_UNAVAILABLE, "the sidecar stops"));
    };
    let counters = Arc::clone(&api.counters);
    Ok(upgrade
        .max_message_size(MESSAGE_MAX_BYTES)
        .max_frame_size(MESSAGE_MAX_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(WAITING_MAX_BYTES)
        .on_upgrade(move |socket| Reader { socket, receiver, filter, counters, _place: place }.serve()))
}

/// A page of another origin could open a WebSocket to here (RFC 6455 section 10.2).
fn is_from_here(headers: &HeaderMap) -> Result<(), Problem> {
    let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
    let origin = origin.to_str().unwrap_or_default();
    let host = headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if origin.split_once("://").is_some_and(|(_, authority)| authority == host) {
        return Ok(());
    }
    Err(Problem::new(StatusCode::FORBIDDEN, "pages of another origin may not listen"))
}

/// Why a stream ended.
enum End {
    /// The reader left, or broke.
    Left,
    /// The reader is too slow: this many events are missing.
    Lagged(u64),
    /// The sidecar stops.
    Stopped,
}

struct Reader {
    socket: WebSocket,
    receiver: Receiver<events::Message>,
    filter: Filter,
    counters: Arc<ApiCounters>,
    _place: OwnedSemaphorePermit,
}

impl Reader {
    async fn serve(mut self) {
        match self.stream().await {
            End::Left => {}
            End::Lagged(events_dropped) => {
                self.counters.count_reader_dropped(events_dropped);
                tracing::debug!(target: "ackbeat::api", events_dropped, "a reader of events was too slow");
                if let Ok(text) = serde_json::to_string(&Event::Lagged { events_dropped }) {
                    let _ = self.send(Message::Text(text.into())).await;
                }
                self.close(close_code::POLICY, "too slow: events are missing").await;
            }
            End::Stopped => self.close(close_code::AWAY, "the sidecar stops").await,
        }
    }

    async fn stream(&mut self) -> End {
        let mut ping = tokio::time::interval(PING_INTERVAL);
        ping.reset();
        let mut is_pinged = false;
        loop {
            tokio::select! {
                event = self.receiver.recv() => match event {
                    Ok(event) if self.filter.lets_through(&event) => {
                        if let Some(end) = self.send(Message::Text(event.text)).await {
                            return end;
                        }
                    }
                    Ok(_) => {}
                    Err(RecvError::Lagged(missing)) => return End::Lagged(missing),
                    Err(RecvError::Closed) => return End::Stopped,
                },
                said = self.socket.recv() => match said {
                    Some(Ok(Message::Close(_)) | Err(_)) | None => return End::Left,
                    // Whatever it says, it is there.
                    Some(Ok(_)) => is_pinged = false,
                },
                _ = ping.tick() => {
                    if is_pinged {
                        return End::Left;
                    }
                    is_pinged = true;
                    if let Some(end) = self.send(Message::Ping(axum::body::Bytes::new())).await {
                        return end;
                    }
                }
            }
        }
    }

    /// Sends a message; gives how the stream ends if it does.
    async fn send(&mut self, message: Message) -> Option<End> {
        match tokio::time::timeout(STALL_DEADLINE, self.socket.send(message)).await {
            Ok(Ok(())) => None,
            Ok(Err(_)) => Some(End::Left),
            // What waits for it is missing, the one that did not get through included.
            Err(_) => Some(End::Lagged(self.receiver.len() as u64 + 1)),
        }
    }

    async fn close(&mut self, code: u16, reason: &'static str) {
        let frame = CloseFrame { code, reason: Utf8Bytes::from_static(reason) };
        let _ = self.send(Message::Close(Some(frame))).await;
        // Until the reader has closed its side: an answer that it has not read yet would be lost with a reset.
        let _ = tokio::time::timeout(STALL_DEADLINE, async {
            while let Some(Ok(_)) = self.socket.recv().await {}
        })
        .await;
    }
}
