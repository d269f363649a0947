//! Asks the sidecar's API, over a connection for each question.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::time::Duration;

use ackbeat::api::types::{ADDRESS_DEFAULT, Connection};
use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;

use crate::journal::wait_until;
use crate::namespace::Namespace;
use crate::sockets;

/// A sidecar on a busy machine is ready within this time.
const READY_DEADLINE: Duration = Duration::from_secs(60);

/// The API of a sidecar.
pub struct ApiClient<'a> {
    namespace: &'a Namespace,
    address: SocketAddr,
}

impl<'a> ApiClient<'a> {
    /// The API of the sidecar in `namespace`, where it listens unless told otherwise.
    ///
    /// # Errors
    /// Never, as long as the default is an address.
    pub fn of(namespace: &'a Namespace) -> Result<Self> {
        Ok(Self { namespace, address: ADDRESS_DEFAULT.parse()? })
    }

    /// The API of a sidecar in `namespace` that listens at `address`.
    #[must_use]
    pub const fn at(namespace: &'a Namespace, address: SocketAddr) -> Self {
        Self { namespace, address }
    }

    /// The status and the body of the answer to a GET.
    ///
    /// # Errors
    /// If nothing answers, or no HTTP.
    pub fn get(&self, path: &str) -> Result<(u16, String)> {
        self.ask(&format!("GET {path} HTTP/1.0\r\nhost: {}\r\n\r\n", self.address))
    }

    /// Waits until the sidecar is ready, and gives what `/readyz` then says: a moment lies between its log line and that.
    ///
    /// # Errors
    /// If it does not get ready in time, or nothing answers.
    pub fn wait_until_ready(&self) -> Result<String> {
        let mut said = String::new();
        wait_until("readiness", READY_DEADLINE, || {
            let (status, body) = self.get("/readyz")?;
            said = body;
            Ok(status == 200)
        })?;
        Ok(said)
    }

    /// The status and the body of the answer to a POST of JSON.
    ///
    /// # Errors
    /// As [`Self::get`].
    pub fn post(&self, path: &str, body: &str) -> Result<(u16, String)> {
        self.ask(&format!(
            "POST {path} HTTP/1.0\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            self.address,
            body.len()
        ))
    }

    fn ask(&self, request: &str) -> Result<(u16, String)> {
        let answer = self.namespace.run(|| -> Result<String> {
            let mut stream = sockets::connect(self.address)?;
            stream.write_all(request.as_bytes()).context("writing a request failed")?;
            let mut answer = String::new();
            // To its end: an answer over HTTP/1.0 ends with the connection (RFC 9112 section 6.3).
            stream.read_to_string(&mut answer).context("reading an answer failed")?;
            Ok(answer)
        })??;
        let (head, body) = answer.split_once("\r\n\r\n").context("an answer has no end of its head")?;
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        Ok((status.with_context(|| format!("no status in {head:?}"))?, body.to_owned()))
    }

    /// What a GET answers with status 200.
    ///
    /// # Errors
    /// If the status is another, or the answer of another form.
    pub fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let (status, body) = self.get(path)?;
        if status != 200 {
            bail!("{path} answers {status}: {body}");
        }
        serde_json::from_str(&body).with_context(|| format!("{path} answers {body}"))
    }

    /// The verdict about a peer.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn verdict(&self, peer: SocketAddr) -> Result<Connection> {
        self.read(&format!("/v1/verdict?peer={peer}"))
    }

    /// Waits until a peer is watched and the verdict about it is as `holds` wants it.
    ///
    /// # Errors
    /// Names `what` if that did not come within `deadline`, and the last answer.
    pub fn wait_for_verdict(
        &self,
        what: &str,
        peer: SocketAddr,
        deadline: Duration,
        holds: impl Fn(&Connection) -> bool,
    ) -> Result<Connection> {
        let mut last = None;
        wait_until(what, deadline, || {
            let (status, body) = self.get(&format!("/v1/verdict?peer={peer}"))?;
            let pleases = status == 200
                && serde_json::from_str(&body).is_ok_and(|connection: Connection| {
                    let pleases = holds(&connection);
                    last = Some(connection);
                    pleases
                });
            Ok(pleases)
        })
        .with_context(|| format!("the last answer was {last:#?}"))?;
        last.context("there was no answer")
    }
}
