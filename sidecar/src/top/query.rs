//! What is asked of the server: which connections, in which order, how many.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use ackbeat_liveness::Verdict;
use form_urlencoded::Serializer;

use crate::api::types::Connection;

/// Connections that are asked for unless the command line says otherwise: more than anybody scrolls through.
pub const ROWS_DEFAULT: usize = 200;
/// Connections that are asked for while a text is looked for that the server cannot look for itself.
const ROWS_SEARCHED: usize = 2_000;
/// Characters of a filter's text at most.
pub(super) const TEXT_MAX: usize = 128;

/// Keys to sort by; the words are those of `GET /v1/connections`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SortKey {
    /// The verdict, from alive over unreachable to unknown.
    Verdict,
    /// Age of the last Pong.
    PongAge,
    /// Bytes in the send queue.
    SendQueue,
    /// Bytes before the oldest unanswered Ping.
    PingBytesAhead,
    /// Smoothed round-trip time.
    RoundTrip,
    /// Age of the connection.
    Age,
}

impl SortKey {
    /// In the order of their columns.
    pub const ALL: [Self; 6] =
        [Self::Verdict, Self::PongAge, Self::SendQueue, Self::PingBytesAhead, Self::RoundTrip, Self::Age];

    /// As the API writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Verdict => "verdict",
            Self::PongAge => "last_pong_age_ms",
            Self::SendQueue => "send_queue_bytes",
            Self::PingBytesAhead => "ping_bytes_ahead",
            Self::RoundTrip => "srtt_us",
            Self::Age => "age_ms",
        }
    }

    /// The key on the keyboard that sorts by it.
    #[must_use]
    pub const fn letter(self) -> char {
        match self {
            Self::Verdict => 'V',
            Self::PongAge => 'P',
            Self::SendQueue => 'S',
            Self::PingBytesAhead => 'B',
            Self::RoundTrip => 'R',
            Self::Age => 'A',
        }
    }

    /// The order in words.
    #[must_use]
    pub const fn order(self, descending: bool) -> &'static str {
        match (self, descending) {
            (Self::Verdict, true) => "verdicts from unknown to alive",
            (Self::Verdict, false) => "verdicts from alive to unknown",
            (Self::PongAge, true) => "oldest Pong first",
            (Self::PongAge, false) => "latest Pong first",
            (Self::SendQueue, true) => "longest send queue first",
            (Self::SendQueue, false) => "shortest send queue first",
            (Self::PingBytesAhead, true) => "most bytes before the Ping first",
            (Self::PingBytesAhead, false) => "fewest bytes before the Ping first",
            (Self::RoundTrip, true) => "longest RTT first",
            (Self::RoundTrip, false) => "shortest RTT first",
            (Self::Age, true) => "oldest connection first",
            (Self::Age, false) => "youngest connection first",
        }
    }

    /// What is compared. `None` is not known and comes last either way.
    fn value(self, connection: &Connection) -> Option<u64> {
        match self {
            Self::Verdict => Verdict::ALL
                .iter()
                .position(|verdict| *verdict == connection.verdict)
                .and_then(|index| u64::try_from(index).ok()),
            Self::PongAge => connection.heartbeat.last_pong_age_ms,
            Self::SendQueue => connection.tcp.send_queue_bytes.map(u64::from),
            Self::PingBytesAhead => connection.heartbeat.ping_bytes_ahead,
            Self::RoundTrip => connection.tcp.srtt_us.map(u64::from),
            Self::Age => Some(connection.age_ms),
        }
    }
}

/// An order of connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sort {
    /// What is compared.
    pub key: SortKey,
    /// The largest first.
    pub descending: bool,
}

impl Default for Sort {
    fn default() -> Self {
        Self { key: SortKey::SendQueue, descending: true }
    }
}

impl Sort {
    /// Puts connections into this order. Where the server sorts the same way this changes nothing; it does when the key
    /// has just changed, and the server has not answered yet.
    pub(super) fn apply(self, connections: &mut [Connection]) {
        connections.sort_by(|a, b| match (self.key.value(a), self.key.value(b)) {
            (Some(a), Some(b)) => {
                if self.descending {
                    b.cmp(&a)
                } else {
                    a.cmp(&b)
                }
            }
            (a, b) => b.is_some().cmp(&a.is_some()),
        });
    }
}

impl fmt::Display for Sort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}{}", if self.descending { "-" } else { "" }, self.key.as_str())
    }
}

/// A key that connections are not sorted by.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("connections are not sorted by {wanted:?}; by one of {}, with - before it the largest first", SortKey::ALL.map(SortKey::as_str).join(", "))]
pub struct SortError {
    wanted: String,
}

impl FromStr for Sort {
    type Err = SortError;

    fn from_str(text: &str) -> Result<Self, SortError> {
        let (descending, name) = text.strip_prefix('-').map_or((false, text), |name| (true, name));
        let key = SortKey::ALL.into_iter().find(|key| key.as_str() == name);
        key.map(|key| Self { key, descending }).ok_or_else(|| SortError { wanted: text.to_owned() })
    }
}

/// Text that connections must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct TextFilter(pub(super) String);

/// How a text is looked for.
#[derive(Debug, PartialEq, Eq)]
enum Meaning<'a> {
    Everything,
    /// The start of a path: the server looks.
    Path(&'a str),
    /// The server looks for the address, and here the port is compared.
    Peer(IpAddr, Option<u16>),
    /// `:8080`, a listening port: the server looks.
    LocalPort(u16),
    /// Any part of what a row shows: looked for here.
    Part(&'a str),
}

impl TextFilter {
    fn meaning(&self) -> Meaning<'_> {
        let text = self.0.trim();
        if text.is_empty() {
            Meaning::Everything
        } else if text.starts_with('/') {
            Meaning::Path(text)
        } else if let Some(port) = text.strip_prefix(':').and_then(|port| port.parse().ok()) {
            Meaning::LocalPort(port)
        } else if let Ok(address) = text.parse() {
            Meaning::Peer(address, None)
        } else if let Ok(socket) = text.parse::<SocketAddr>() {
            Meaning::Peer(socket.ip(), Some(socket.port()))
        } else {
            Meaning::Part(text)
        }
    }

    /// Whether a row stays. The server's own part is asked again, so that the answer to the keys is immediate.
    pub(super) fn matches(&self, connection: &Connection) -> bool {
        let ends_with_port = |address: &str, port: u16| address.ends_with(&format!(":{port}"));
        match self.meaning() {
            Meaning::Everything => true,
            Meaning::Path(start) => connection.path.as_ref().is_some_and(|path| path.starts_with(start)),
            Meaning::LocalPort(port) => ends_with_port(&connection.local, port),
            Meaning::Peer(address, port) => connection
                .peer
                .parse::<SocketAddr>()
                .is_ok_and(|peer| peer.ip() == address && port.is_none_or(|port| peer.port() == port)),
            Meaning::Part(part) => {
                let part = part.to_lowercase();
                let words = [
                    connection.verdict.as_str(),
                    connection.peer.as_str(),
                    connection.local.as_str(),
                    connection.path.as_deref().unwrap_or_default(),
                    connection.heartbeat.profile.map_or("", |profile| profile.as_str()),
                    connection.heartbeat.ping_location.as_str(),
                ];
                words.iter().any(|word| word.to_lowercase().contains(&part))
            }
        }
    }

    /// Whether only those rows were looked at that the server sent.
    pub(super) fn is_local(&self) -> bool {
        matches!(self.meaning(), Meaning::Part(_) | Meaning::Peer(_, Some(_)))
    }
}

/// What `GET /v1/connections` is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Query {
    /// The order.
    pub sort: Sort,
    /// Only these verdicts; all of them if empty.
    pub verdicts: Vec<Verdict>,
    /// Rows at most.
    pub rows: usize,
    pub(super) text: TextFilter,
}

impl Default for Query {
    fn default() -> Self {
        Self::new(Sort::default(), Vec::new(), ROWS_DEFAULT)
    }
}

impl Query {
    /// With no filter on text.
    #[must_use]
    pub fn new(sort: Sort, verdicts: Vec<Verdict>, rows: usize) -> Self {
        Self { sort, verdicts, rows, text: TextFilter::default() }
    }

    /// Path and query of the request.
    pub(super) fn path_and_query(&self) -> String {
        let verdicts = self.verdicts.iter().map(|verdict| verdict.as_str()).collect::<Vec<_>>().join(",");
        let rows = if self.text.is_local() { self.rows.max(ROWS_SEARCHED) } else { self.rows };
        let mut parameters = vec![("sort", self.sort.to_string()), ("limit", rows.to_string())];
        if !verdicts.is_empty() {
            parameters.push(("verdict", verdicts));
        }
        match self.text.meaning() {
            Meaning::Path(start) => parameters.push(("path", start.to_owned())),
            Meaning::Peer(address, _) => parameters.push(("peer", address.to_string())),
            Meaning::LocalPort(port) => parameters.push(("local_port", port.to_string())),
            Meaning::Everything | Meaning::Part(_) => {}
        }
        path_and_query("/v1/connections", &parameters)
    }

    /// Whether a row of an older answer is still asked for.
    pub(super) fn admits(&self, connection: &Connection) -> bool {
        (self.verdicts.is_empty() || self.verdicts.contains(&connection.verdict))
            && self.text.matches(connection)
    }

    /// Puts a verdict on the list, or takes it off.
    pub(super) fn toggle(&mut self, verdict: Verdict) {
        match self.verdicts.iter().position(|listed| *listed == verdict) {
            Some(index) => drop(self.verdicts.remove(index)),
            None => self.verdicts.push(verdict),
        }
        self.verdicts.sort_unstable();
    }
}

/// A path with its query, encoded as forms are (WHATWG URL, section 5).
pub(super) fn path_and_query(path: &str, parameters: &[(&str, String)]) -> String {
    let query = Serializer::new(String::new()).extend_pairs(parameters).finish();
    format!("{path}?{query}")
}

#[cfg(test)]
mod tests {
    use super::super::samples;
    use super::*;

    fn query(text: &str) -> Query {
        Query { text: TextFilter(text.to_owned()), ..Query::default() }
    }

    #[test]
    fn the_server_is_asked_for_what_it_can_look_for() {
        let base = "/v1/connections?sort=-send_queue_bytes&limit=200";
        for (text, more) in [
            ("", ""),
            ("/api/a b&c", "&path=%2Fapi%2Fa+b%26c"),
            ("10.87.2.2", "&peer=10.87.2.2"),
            ("fd87::2", "&peer=fd87%3A%3A2"),
            (":8080", "&local_port=8080"),
        ] {
            assert_eq!(query(text).path_and_query(), format!("{base}{more}"), "{text}");
        }
        for (text, more) in [("mux", ""), (":99999", ""), ("10.87.2.2:5", "&peer=10.87.2.2"), ("10.87.2", "")]
        {
            let expected = format!("{}{more}", base.replace("200", "2000"));
            assert_eq!(query(text).path_and_query(), expected, "{text}");
        }
        let mut worst = query("");
        worst.sort = "verdict".parse().expect("a key");
        worst.toggle(Verdict::Silent);
        worst.toggle(Verdict::Congested);
        assert_eq!(
            worst.path_and_query(),
            "/v1/connections?sort=verdict&limit=200&verdict=congested%2Csilent"
        );
        worst.toggle(Verdict::Silent);
        assert_eq!(worst.verdicts, [Verdict::Congested]);
    }

    #[test]
    fn a_text_is_looked_for_in_what_a_row_shows() {
        let connection = samples::congested();
        for text in
            ["", "CONG", "10.87.2.2", "10.87.2.2:51234", "/api", "remote.mux", ":8080", "rfc6455", "not_sent"]
        {
            assert!(query(text).admits(&connection), "{text}");
        }
        for text in ["silent", "10.87.2.3", "10.87.2.2:5", "/mux", ":80", "phoenix"] {
            assert!(!query(text).admits(&connection), "{text}");
        }
    }

    #[test]
    fn the_unknown_comes_last_either_way() {
        let order = |sort: &str| {
            let mut connections = samples::connections();
            sort.parse::<Sort>().expect("a key").apply(&mut connections);
            connections.iter().map(|connection| connection.tcp.send_queue_bytes).collect::<Vec<_>>()
        };
        let (down, up) = (order("-send_queue_bytes"), order("send_queue_bytes"));
        assert!(down.first().is_some_and(Option::is_some) && up.first().is_some_and(Option::is_some));
        assert!(down.last().is_some_and(Option::is_none) && up.last().is_some_and(Option::is_none));
        let known = |values: &[Option<u32>]| values.iter().flatten().copied().collect::<Vec<_>>();
        assert!(known(&up).is_sorted() && known(&down).iter().rev().is_sorted(), "{up:?} {down:?}");
    }

    #[test]
    fn a_key_that_is_none_is_refused_with_those_that_are() {
        for key in SortKey::ALL {
            let sort = Sort { key, descending: true };
            assert_eq!(sort.to_string().parse(), Ok(sort));
        }
        let error = "size".parse::<Sort>().expect_err("no key").to_string();
        assert!(error.contains("\"size\"") && error.contains("ping_bytes_ahead"), "{error}");
    }
}
