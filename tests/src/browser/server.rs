//! Serves the page, takes its events and hands out its commands.

use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::{Mutex, Notify, mpsc};

use super::clock::PageClock;
use super::{Command, PageEvent, Told};
use crate::clock::monotonic_ns;
use crate::journal::Journal;
use crate::namespace::{Namespace, spawn_thread};

const PAGE: &str = include_str!("page.html");
/// The page asks again after this time without a command.
const COMMAND_PATIENCE: Duration = Duration::from_secs(5);
/// The server must listen within this time.
const START_DEADLINE: Duration = Duration::from_secs(20);

struct Shared {
    events: Journal<PageEvent>,
    commands: Mutex<mpsc::UnboundedReceiver<Command>>,
    clock: std::sync::Mutex<PageClock>,
    stop: Notify,
}

/// A running server. Dropping it ends it.
pub(super) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Option<()>>>,
}

fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(hyper::header::CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind));
    response
}

async fn respond(
    shared: Arc<Shared>,
    request: Request<Incoming>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let received_ns = monotonic_ns();
    Ok(match (request.method().clone(), request.uri().path().to_owned().as_str()) {
        (Method::GET, "/") => answer(StatusCode::OK, "text/html", PAGE),
        (Method::POST, "/event") => {
            let told = match request.into_body().collect().await {
                Ok(body) => serde_json::from_slice::<Told>(&body.to_bytes()).map_err(anyhow::Error::from),
                Err(error) => Err(error.into()),
            };
            match told {
                Ok(told) => {
                    let clock = {
                        let mut clock =
                            shared.clock.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                        clock.reading(told.at_ms, received_ns);
                        *clock
                    };
                    shared.events.push(told.on(&clock));
                    answer(StatusCode::NO_CONTENT, "text/plain", "")
                }
                Err(error) => answer(StatusCode::BAD_REQUEST, "text/plain", format!("{error:#}")),
            }
        }
        (Method::GET, "/command") => {
            let mut commands = shared.commands.lock().await;
            match tokio::time::timeout(COMMAND_PATIENCE, commands.recv()).await {
                Ok(Some(command)) => match serde_json::to_vec(&command) {
                    Ok(body) => answer(StatusCode::OK, "application/json", body),
                    Err(error) => answer(StatusCode::BAD_REQUEST, "text/plain", error.to_string()),
                },
                Ok(None) | Err(_) => answer(StatusCode::NO_CONTENT, "text/plain", ""),
            }
        }
        _ => answer(StatusCode::NOT_FOUND, "text/plain", ""),
    })
}

async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    loop {
        let accepted = tokio::select! {
            () = shared.stop.notified() => return,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else { continue };
        let for_connection = Arc::clone(&shared);
        tokio::spawn(async move {
            let service = service_fn(|request| respond(Arc::clone(&for_connection), request));
            // The browser ends its connections as it likes.
            let _ = hyper::server::conn::http1::Builder::new()
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

impl Server {
    /// Starts it on the loopback of `namespace`.
    pub(super) fn start(
        namespace: Option<&Namespace>,
        events: Journal<PageEvent>,
        commands: mpsc::UnboundedReceiver<Command>,
    ) -> Result<Self> {
        let shared = Arc::new(Shared {
            events,
            commands: Mutex::new(commands),
            clock: std::sync::Mutex::default(),
            stop: Notify::new(),
        });
        let (listens, listening) = std::sync::mpsc::channel();
        let for_thread = Arc::clone(&shared);
        let work = move || {
            let outcome =
                tokio::runtime::Builder::new_current_thread().enable_all().build().and_then(|runtime| {
                    runtime.block_on(async {
                        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
                        // Whoever starts it waits for exactly this.
                        let _ = listens.send(Ok(listener.local_addr()?));
                        serve(for_thread, listener).await;
                        Ok(())
                    })
                });
            if let Err(error) = outcome {
                let _ = listens.send(Err(error));
            }
        };
        let thread = spawn_thread(namespace, "page-server", work)?;
        let address = listening
            .recv_timeout(START_DEADLINE)
            .map_err(|_nothing| anyhow!("the page's server did not say whether it listens"))?
            .context("the page's server cannot listen")?;
        Ok(Self { address, shared, thread: Some(thread) })
    }

    pub(super) const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stop.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has been printed already.
            let _ = thread.join();
        }
    }
}
