//! Talks to the API: one connection for the questions, one for the events. Both are made anew when they break.

use std::io;
use std::time::Duration;

use futures::StreamExt as _;
use http::header::{ACCEPT, HOST};
use http::{Request as HttpRequest, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, LengthLimitError, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_tungstenite::client_async_with_config;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::address::ApiAddress;
use super::query::{Query, path_and_query};
use crate::api::types::{Connection, Connections, Event, Problem, Status};

/// From a question to the end of its answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(5);
/// Bytes of an answer at most.
const ANSWER_MAX_BYTES: usize = 64 << 20;
/// Bytes of one event at most.
const EVENT_MAX_BYTES: usize = 1 << 20;
/// Between tries at most; the first comes after a quarter of it.
const PAUSE_MAX: Duration = Duration::from_secs(4);

/// What the API is asked at every interval.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Request {
    pub(super) query: Query,
    /// A connection that is asked for by name.
    pub(super) pinned: Option<Pinned>,
    /// Nothing is asked.
    pub(super) is_paused: bool,
}

/// A connection by its addresses; the cookie tells it from a later one with the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pinned {
    pub(super) connection: u64,
    pub(super) peer: String,
    pub(super) local: String,
}

/// One round of answers.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    /// What was asked.
    pub(super) query: Query,
    pub(super) status: Status,
    pub(super) connections: Connections,
    /// The cookie that was asked for, and what is known under its addresses; `None` where nothing is.
    pub(super) pinned: Option<(u64, Option<Connection>)>,
}

/// News of the event stream.
#[derive(Clone, Debug)]
pub(super) enum EventUpdate {
    /// Events will come.
    Connected,
    /// One came.
    Event(Box<Event>),
    /// None will come until the next [`EventUpdate::Connected`], and why.
    Away(String),
}

/// Why the API did not answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClientError {
    /// There is no connection.
    #[error("no connection: {0}")]
    Connect(io::Error),
    /// HTTP broke.
    #[error("{0}")]
    Http(hyper::Error),
    /// The answer did not come.
    #[error("no answer within {} s", ANSWER_DEADLINE.as_secs())]
    Late,
    /// The answer does not end.
    #[error("an answer of more than {} MiB", ANSWER_MAX_BYTES >> 20)]
    Endless,
    /// The request cannot be written.
    #[error("the request cannot be written: {0}")]
    Request(http::Error),
    /// The server refused.
    #[error("status {status}: {detail}")]
    Refused {
        /// Status.
        status: StatusCode,
        /// What it said.
        detail: String,
    },
    /// The answer is none of this API.
    #[error("the answer to {path} is none of ackbeat's API, or of another version: {cause}")]
    Foreign {
        /// What was asked for.
        path: String,
        /// What is wrong.
        cause: serde_json::Error,
    },
    /// The event stream broke.
    #[error("{0}")]
    WebSocket(Box<tokio_tungstenite::tungstenite::Error>),
}

/// A connection of either kind.
trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

async fn connect(address: &ApiAddress) -> Result<Box<dyn Io>, ClientError> {
    match address {
        ApiAddress::Tcp { host, port } => {
            let host = host.trim_start_matches('[').trim_end_matches(']');
            Ok(Box::new(TcpStream::connect((host, *port)).await.map_err(ClientError::Connect)?))
        }
        ApiAddress::Unix(path) => {
            Ok(Box::new(UnixStream::connect(path).await.map_err(ClientError::Connect)?))
        }
    }
}

/// Asks questions over one connection that is kept.
pub(super) struct Client {
    address: ApiAddress,
    kept: Option<SendRequest<Empty<Bytes>>>,
}

impl Client {
    /// Connects when it is asked first.
    pub(super) const fn new(address: ApiAddress) -> Self {
        Self { address, kept: None }
    }

    /// One round of answers.
    ///
    /// # Errors
    /// [`ClientError`] of the first question that failed.
    pub(super) async fn ask(&mut self, request: &Request) -> Result<Answer, ClientError> {
        let status = self.get("/v1/status").await?;
        let connections = self.get(&request.query.path_and_query()).await?;
        let pinned = match &request.pinned {
            None => None,
            Some(Pinned { connection, peer, local }) => {
                let parameters = [("peer", peer.clone()), ("local", local.clone())];
                let found = match self.get(&path_and_query("/v1/verdict", &parameters)).await {
                    Ok(found) => Some(found),
                    Err(ClientError::Refused { status: StatusCode::NOT_FOUND, .. }) => None,
                    Err(error) => return Err(error),
                };
                Some((*connection, found))
            }
        };
        Ok(Answer { query: request.query.clone(), status, connections, pinned })
    }

    async fn get<T: DeserializeOwned>(&mut self, path: &str) -> Result<T, ClientError> {
        let body = timeout(ANSWER_DEADLINE, self.body(path)).await.unwrap_or(Err(ClientError::Late));
        if body.is_err() {
            // Half an answer may be under way on it.
            self.kept = None;
        }
        serde_json::from_slice(&body?).map_err(|cause| ClientError::Foreign { path: path.to_owned(), cause })
    }

    async fn body(&mut self, path: &str) -> Result<Bytes, ClientError> {
        let answer = self.send(path).await?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_MAX_BYTES).collect().await;
        let body = body.map_err(|error| match error.downcast::<hyper::Error>() {
            Ok(error) => ClientError::Http(*error),
            Err(error) if error.is::<LengthLimitError>() => ClientError::Endless,
            Err(error) => ClientError::Connect(io::Error::other(error)),
        })?;
        let body = body.to_bytes();
        if status == StatusCode::OK {
            return Ok(body);
        }
        let detail = match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => problem.detail,
            Err(_) => "this is not ackbeat's API".to_owned(),
        };
        Err(ClientError::Refused { status, detail })
    }

    /// Sends over the kept connection. One that the server has closed meanwhile is made anew, once.
    async fn send(&mut self, path: &str) -> Result<Response<Incoming>, ClientError> {
        let request = || {
            let request = HttpRequest::get(path)
                .header(HOST, self.address.host())
                .header(ACCEPT, "application/json")
                .body(Empty::new());
            request.map_err(ClientError::Request)
        };
        if let Some(mut kept) = self.kept.take()
            && kept.ready().await.is_ok()
            && let Ok(answer) = kept.send_request(request()?).await
        {
            self.kept = Some(kept);
            return Ok(answer);
        }
        let stream = connect(&self.address).await?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(ClientError::Http)?;
        // It ends with the sender; what went wrong, the sender says.
        tokio::spawn(connection);
        let answer = sender.send_request(request()?).await.map_err(ClientError::Http)?;
        self.kept = Some(sender);
        Ok(answer)
    }
}

/// Asks at every interval, and at once when the request changes. Ends when nobody listens.
pub(super) async fn poll(
    address: ApiAddress,
    interval: Duration,
    mut requests: watch::Receiver<Request>,
    answers: mpsc::Sender<Result<Answer, String>>,
) {
    let mut client = Client::new(address);
    loop {
        let request = requests.borrow_and_update().clone();
        if !request.is_paused {
            let answer = client.ask(&request).await.map_err(|error| error.to_string());
            if answers.send(answer).await.is_err() {
                return;
            }
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            changed = requests.changed() => if changed.is_err() { return },
        }
    }
}

/// Follows the events. Ends when nobody listens.
pub(super) async fn follow(address: ApiAddress, updates: mpsc::Sender<EventUpdate>) {
    let mut pause = PAUSE_MAX / 4;
    loop {
        let mut connected = false;
        let broke = follow_once(&address, &updates, &mut connected).await;
        let reason = match broke {
            Ok(()) => "the server ended the stream".to_owned(),
            Err(error) => error.to_string(),
        };
        if updates.send(EventUpdate::Away(reason)).await.is_err() {
            return;
        }
        pause = if connected { PAUSE_MAX / 4 } else { (pause * 2).min(PAUSE_MAX) };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = updates.closed() => return,
        }
    }
}

async fn follow_once(
    address: &ApiAddress,
    updates: &mpsc::Sender<EventUpdate>,
    connected: &mut bool,
) -> Result<(), ClientError> {
    let web_socket = |error| ClientError::WebSocket(Box::new(error));
    let request = format!("ws://{}/v1/events", address.host()).into_client_request().map_err(web_socket)?;
    let config = WebSocketConfig::default()
        .max_message_size(Some(EVENT_MAX_BYTES))
        .max_frame_size(Some(EVENT_MAX_BYTES));
    let opening = async {
        let stream = connect(address).await?;
        let opened = client_async_with_config(request, stream, Some(config)).await;
        Ok(opened.map_err(web_socket)?.0)
    };
    let mut stream = timeout(ANSWER_DEADLINE, opening).await.unwrap_or(Err(ClientError::Late))?;
    *connected = true;
    if updates.send(EventUpdate::Connected).await.is_err() {
        return Ok(());
    }
    loop {
        let message = tokio::select! {
            message = stream.next() => message,
            () = updates.closed() => return Ok(()),
        };
        let event = match message.transpose().map_err(web_socket)? {
            None => return Ok(()),
            Some(Message::Text(text)) => serde_json::from_str(&text)
                .map_err(|cause| ClientError::Foreign { path: "/v1/events".to_owned(), cause })?,
            Some(_) => continue,
        };
        if updates.send(EventUpdate::Event(Box::new(event))).await.is_err() {
            return Ok(());
        }
    }
}
