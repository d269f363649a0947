//! `ackbeat ready`

use std::io::{self, BufRead as _, BufReader, Write as _};
use std::net::{TcpStream, ToSocketAddrs as _};
use std::time::{Duration, Instant};

use super::CommandError;
use crate::cli::ReadyArguments;
use crate::top::address::ApiAddress;

/// Between two questions.
const PAUSE: Duration = Duration::from_millis(100);
/// From a question to its answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);

/// Waits until the sidecar's API says that it watches.
///
/// # Errors
/// It does not within the time, unless that is to be forgiven.
pub fn execute(arguments: &ReadyArguments) -> Result<(), CommandError> {
    let until = Instant::now() + arguments.within;
    let is_ready = match &arguments.api {
        ApiAddress::Tcp { host, port } => wait(host, *port, until),
        ApiAddress::Unix(_) => Err("ackbeat ready asks over TCP only; name http://HOST:PORT".to_owned()),
    };
    match is_ready {
        Err(cause) if !arguments.lenient => {
            Err(CommandError::System { step: "waiting for the sidecar", cause: io::Error::other(cause) })
        }
        _ => Ok(()),
    }
}

fn wait(host: &str, port: u16, until: Instant) -> Result<(), String> {
    loop {
        let problem = match ask(host, port) {
            Ok(status) if status.starts_with("HTTP/1.1 200 ") => return Ok(()),
            Ok(status) => format!("http://{host}:{port}/readyz answers {}", status.trim_end()),
            Err(cause) => format!("http://{host}:{port}/readyz does not answer: {cause}"),
        };
        if Instant::now() + PAUSE >= until {
            return Err(problem);
        }
        std::thread::sleep(PAUSE);
    }
}

/// The first line of the answer.
fn ask(host: &str, port: u16) -> io::Result<String> {
    // The brackets of an IPv6 address belong to the URL.
    let name = host.trim_start_matches('[').trim_end_matches(']');
    let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for address in (name, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER_DEADLINE) {
            Ok(mut stream) => {
                stream.set_read_timeout(Some(ANSWER_DEADLINE))?;
                stream.set_write_timeout(Some(ANSWER_DEADLINE))?;
                let request =
                    format!("GET /readyz HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n");
                stream.write_all(request.as_bytes())?;
                let mut status = String::new();
                BufReader::new(stream).read_line(&mut status)?;
                return Ok(status);
            }
            Err(cause) => failure = cause,
        }
    }
    Err(failure)
}
