//! GET, and no more than that.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

/// Generous: the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);

/// The body of an answer of status 200, and its head.
pub(super) fn get(address: SocketAddr, target: &str, accept: &str) -> Result<(String, String)> {
    let mut stream =
        TcpStream::connect(address).with_context(|| format!("connecting to {address} failed"))?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // Of version 1.0: the body ends with the connection.
    write!(stream, "GET {target} HTTP/1.0\r\nHost: {address}\r\nAccept: {accept}\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("reading {target} failed"))?;
    let (head, body) = answer.split_once("\r\n\r\n").context("an answer without an end of its head")?;
    ensure!(head.split(' ').nth(1) == Some("200"), "{target}: {head}\n{body}");
    Ok((head.to_owned(), body.to_owned()))
}

/// What is not a letter or a digit, as `%XX`.
pub(super) fn percent_encoded(text: &str) -> String {
    text.bytes()
        .map(
            |byte| {
                if byte.is_ascii_alphanumeric() {
                    char::from(byte).to_string()
                } else {
                    format!("%{byte:02X}")
                }
            },
        )
        .collect()
}
