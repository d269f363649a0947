//! The listener that serves the page. The API's listener has the same page.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use super::page::{Form, Page};
use crate::api::MetricsPage;
use crate::listening::serve_each;

/// Path of the page, here and there.
pub const PATH: &str = "/metrics";
/// Scrapes at once at most. The next ones wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 64;
/// Whoever sends no request for this long is disconnected.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// No connection lasts longer: a reader that takes the answer byte by byte must not keep others out. Prometheus connects
/// anew.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(300);

/// The page cannot be served.
#[derive(Debug, thiserror::Error)]
#[error("listening on {address} failed: {cause}; set metrics.listen to a free address, or to off")]
pub struct ServeError {
    /// Where.
    pub address: SocketAddr,
    /// Why.
    pub cause: io::Error,
}

fn routes(page: Page) -> Router {
    Router::new().route(PATH, get(move |headers: HeaderMap| std::future::ready(page.answer(&headers))))
}

impl MetricsPage for Page {
    fn answer(&self, headers: &HeaderMap) -> Response {
        // A list may come in several lines (RFC 9110 section 5.3).
        let accept: Vec<&str> =
            headers.get_all(header::ACCEPT).iter().filter_map(|value| value.to_str().ok()).collect();
        let form = Form::accepted(Some(&accept.join(",")));
        match self.render(form) {
            Ok(text) => ([(header::CONTENT_TYPE, form.content_type()), (header::VARY, "Accept")], text)
                .into_response(),
            // No reading leads there.
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

/// Begins to serve the page. Returns where; port 0 takes a free one. It ends with the runtime.
///
/// # Errors
/// [`ServeError`] if the address cannot be had.
pub async fn start(address: SocketAddr, page: Page) -> Result<SocketAddr, ServeError> {
    let failed = |cause| ServeError { address, cause };
    let listener = bind(address).map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    tokio::spawn(serve(listener, page));
    Ok(bound)
}

/// Listens. It needs a tokio runtime around the call.
///
/// # Errors
/// Those of the kernel.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = std::net::TcpListener::bind(address)?;
    listener.set_nonblocking(true)?;
    TcpListener::from_std(listener)
}

/// Serves the page on what is listened on. It never ends by itself.
pub async fn serve(listener: TcpListener, page: Page) {
    let routes = routes(page);
    serve_each(listener, CONNECTIONS_MAX, |stream| {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(REQUEST_TIMEOUT)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes.clone()));
        async move {
            // Whatever ends it, the next scrape connects anew.
            let _ = tokio::time::timeout(CONNECTION_LIFETIME, connection).await;
        }
    })
    .await;
}
