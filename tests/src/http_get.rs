//! `GET` of small answers, inside a network namespace or without one: for the HTTP interfaces of programs that the tests talk to.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::namespace::Namespace;

/// One answer, on a busy machine.
const ANSWER_DEADLINE: Duration = Duration::from_secs(30);

/// Asks for `target` (path and query) and returns the body of the 200.
///
/// HTTP/1.0: the answer ends with the connection, so that its body is what is left after the blank line (RFC 1945
/// section 7.2.2).
///
/// # Errors
/// If nothing listens, the answer is cut short, or its status is another one; the message has the body.
pub fn get<'a>(
    namespace: impl Into<Option<&'a Namespace>>,
    address: SocketAddr,
    target: &str,
) -> Result<String> {
    let answer = Namespace::run_in(namespace.into(), || -> std::io::Result<Vec<u8>> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWER_DEADLINE)?;
        stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
        write!(stream, "GET {target} HTTP/1.0\r\nHost: {address}\r\nAccept: */*\r\n\r\n")?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        Ok(answer)
    })?
    .with_context(|| format!("GET {target} from {address} failed"))?;
    let answer = String::from_utf8_lossy(&answer);
    let (head, body) = answer
        .split_once("\r\n\r\n")
        .with_context(|| format!("GET {target} from {address}: no answer ({} bytes)", answer.len()))?;
    let status = head.split_whitespace().nth(1).unwrap_or_default();
    if status != "200" {
        bail!("GET {target} from {address}: status {status}: {body}");
    }
    Ok(body.to_owned())
}

/// The same, read as JSON.
///
/// # Errors
/// As [`get`], or if the body is no JSON.
pub fn get_json<'a>(
    namespace: impl Into<Option<&'a Namespace>>,
    address: SocketAddr,
    target: &str,
) -> Result<serde_json::Value> {
    let body = get(namespace, address, target)?;
    serde_json::from_str(&body).with_context(|| format!("GET {target} from {address}: no JSON: {body}"))
}

/// Text as part of a query (RFC 3986 section 2.1).
#[must_use]
pub fn escaped(text: &str) -> String {
    use std::fmt::Write as _;
    text.bytes().fold(String::new(), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            // Writing to a string cannot fail.
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

/// An unused port of the loopback.
///
/// # Errors
/// If the kernel has none.
pub fn free_port<'a>(namespace: impl Into<Option<&'a Namespace>>) -> Result<u16> {
    Namespace::run_in(namespace.into(), || -> std::io::Result<u16> {
        Ok(std::net::TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
    })?
    .context("finding a free port failed")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_query_may_not_hold_is_escaped() {
        assert_eq!(escaped(r#"sum(x{a="b"}[1m])"#), "sum%28x%7Ba%3D%22b%22%7D%5B1m%5D%29");
    }
}
