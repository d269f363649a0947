//! `GET /v1/connections`: filter, sort, limit.
//!
//! Two passes: the first finds out which connections are asked for and in which order, the second writes them, some dozens
//! at a time as the client reads. So a client that asks for everything and reads slowly holds a list of numbers, and
//! neither the text of the answer nor the lock.

use std::cmp::Ordering;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;

use ackbeat_liveness::{Assessed, ConnectionInfo, Timestamp, Verdict};
use axum::body::{Body, Bytes};
use axum::extract::{RawQuery, State};
use axum::http::header;
use axum::response::{IntoResponse as _, Response};

use super::query::Query;
use super::types::{LIMIT_DEFAULT, LIMIT_MAX, Problem};
use super::{Api, answer};
use crate::connections::{Connections, Cursor, READ_AT_ONCE};

/// Every parameter, for messages.
const PARAMETERS: &str = "verdict, local_port, peer, path, kill_justified, websocket, sort, limit";

/// Which connections are asked for.
#[derive(Debug, Default)]
struct Filter {
    verdicts: Option<Vec<Verdict>>,
    local_port: Option<u16>,
    peer: Option<IpAddr>,
    path: Option<String>,
    kill_justified: Option<bool>,
    websocket: Option<bool>,
}

/// What they are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Key {
    Age,
    Verdict,
    LastPongAge,
    SendQueue,
    Srtt,
    PingBytesAhead,
}

impl Key {
    const WORDS: [(&str, Self); 6] = [
        ("age_ms", Self::Age),
        ("verdict", Self::Verdict),
        ("last_pong_age_ms", Self::LastPongAge),
        ("send_queue_bytes", Self::SendQueue),
        ("srtt_us", Self::Srtt),
        ("ping_bytes_ahead", Self::PingBytesAhead),
    ];

    /// The value; `None` where it is not known.
    fn of(self, info: &ConnectionInfo<'_>, assessed: &Assessed, now: Timestamp) -> Option<u64> {
        let socket = info.snapshot;
        match self {
            Self::Age => Some(now.ms_since(info.opened_at)),
            Self::Verdict => Some(assessed.verdict as u64),
            Self::LastPongAge => assessed.heartbeat.last_pong_age_ms,
            Self::SendQueue => socket.and_then(|socket| socket.send_queue_bytes).map(u64::from),
            Self::Srtt => socket.and_then(|socket| socket.srtt_us).map(u64::from),
            Self::PingBytesAhead => assessed.heartbeat.ping_bytes_ahead,
        }
    }
}

/// A request, understood.
struct Request {
    filter: Filter,
    sort: Option<(Key, bool)>,
    limit: usize,
}

/// Reads an answer's verdict filter.
fn verdicts(text: &str) -> Option<Vec<Verdict>> {
    text.split(',')
        .map(|word| Verdict::ALL.iter().copied().find(|verdict| verdict.as_str() == word))
        .collect()
}

/// A key of [`Key::WORDS`], and whether the largest comes first.
fn sort(text: &str) -> Option<(Key, bool)> {
    let (word, is_descending) = match text.strip_prefix('-') {
        Some(word) => (word, true),
        None => (text, false),
    };
    Key::WORDS.iter().find(|(known, _)| *known == word).map(|(_, key)| (*key, is_descending))
}

impl Request {
    fn read(raw: Option<&str>) -> Result<Self, Problem> {
        let mut query = Query::new(raw);
        let filter = Filter {
            verdicts: query.value(
                "verdict",
                "one or more of alive, congested, stalled, silent, unreachable, unknown, closed, separated by commas",
                verdicts,
            )?,
            local_port: query.value("local_port", "a port from 1 to 65535", |text| {
                text.parse().ok().filter(|port| *port != 0)
            })?,
            peer: query.ip("peer")?,
            path: query.value("path", "the beginning of a path, as /api", |text| {
                text.starts_with('/').then(|| text.to_owned())
            })?,
            kill_justified: query.flag("kill_justified")?,
            websocket: query.flag("websocket")?,
        };
        let sort = query.value(
            "sort",
            "one of age_ms, verdict, last_pong_age_ms, send_queue_bytes, srtt_us, ping_bytes_ahead, with a - before it \
             for the largest first",
            sort,
        )?;
        let limit = query
            .value("limit", &format!("a number from 0 to {LIMIT_MAX}"), |text| {
                text.parse().ok().filter(|limit| *limit <= LIMIT_MAX)
            })?
            .unwrap_or(LIMIT_DEFAULT);
        query.finish(PARAMETERS)?;
        Ok(Self { filter, sort, limit })
    }
}

impl Filter {
    /// Whether it lets a connection through, by what costs nothing to know.
    fn lets_through(&self, info: &ConnectionInfo<'_>) -> bool {
        let path = info.upgrade.and_then(|upgrade| upgrade.path.as_deref());
        self.local_port.is_none_or(|port| port == info.endpoints.local_port)
            && self.peer.is_none_or(|peer| peer == info.endpoints.peer_address.to_canonical())
            && self.websocket.is_none_or(|websocket| websocket == info.is_websocket)
            && self.path.as_deref().is_none_or(|start| path.is_some_and(|path| path.starts_with(start)))
    }

    /// Whether it asks for what only a judgement tells.
    const fn judges(&self) -> bool {
        self.verdicts.is_some() || self.kill_justified.is_some()
    }

    fn lets_judged_through(&self, assessed: &Assessed) -> bool {
        self.verdicts.as_ref().is_none_or(|verdicts| verdicts.contains(&assessed.verdict))
            && self.kill_justified.is_none_or(|justified| justified == assessed.kill_justified)
    }
}

/// What is not known comes last, whatever the order.
fn compare(left: Option<u64>, right: Option<u64>, is_descending: bool) -> Ordering {
    match (left, right) {
        (Some(left), Some(right)) if is_descending => right.cmp(&left),
        (left, right) => (left.is_none(), left).cmp(&(right.is_none(), right)),
    }
}

/// The connections that are watched: filtered, sorted, limited. Unsorted they come in the order of their peers' addresses;
/// what a sort key does not know comes last.
#[utoipa::path(
    get,
    path = "/v1/connections",
    tag = "verdicts",
    params(
        ("verdict" = Option<String>, Query, description = "Any of these verdicts, separated by commas",
            pattern = "^(alive|congested|stalled|silent|unreachable|unknown|closed)(,(alive|congested|stalled|silent|unreachable|unknown|closed))*$",
            example = "stalled,silent,unreachable"),
        ("local_port" = Option<u16>, Query, minimum = 1, maximum = 65535, description = "The pod's port"),
        ("peer" = inline(Option<super::schema::IpAddress>), Query, description = "The peer's IP address", example = "10.0.0.7"),
        ("path" = Option<String>, Query, pattern = "^/", description = "The beginning of the upgrade request's path",
            example = "/api"),
        ("kill_justified" = Option<bool>, Query, description = "Whether the policy justifies a kill"),
        ("websocket" = Option<bool>, Query, description = "Whether a heartbeat, a Close frame or an upgrade was seen"),
        ("sort" = Option<String>, Query, description = "What to sort by, with a `-` before it for the largest first",
            pattern = "^-?(age_ms|verdict|last_pong_age_ms|send_queue_bytes|srtt_us|ping_bytes_ahead)$",
            example = "-send_queue_bytes"),
        ("limit" = Option<usize>, Query, minimum = 0, maximum = 100000, description = "Connections at most; 100 unless given"),
    ),
    responses(
        (status = 200, description = "The connections", body = super::types::Connections),
        (status = 400, description = "A parameter is wrong; `field` names it", body = Problem,
            content_type = "application/problem+json"),
        (status = 503, description = "What existed at the start is not found yet; ask again after `Retry-After` seconds",
            body = Problem, content_type = "application/problem+json"),
    ),
)]
pub(super) async fn list(State(api): State<Arc<Api>>, RawQuery(raw): RawQuery) -> Result<Response, Problem> {
    let request = Request::read(raw.as_deref())?;
    if !api.connections.is_ready() {
        return Err(Problem::not_ready());
    }
    let now = api.now();
    let mut found: Vec<(Option<u64>, Cursor)> = Vec::new();
    let (mut total, mut matched, mut cursor) = (0_usize, 0_usize, None);
    loop {
        cursor = api.connections.visit(cursor, |place, info, assess| {
            total += 1;
            if !request.filter.lets_through(info) {
                return;
            }
            let is_judged = request.filter.judges() || request.sort.is_some();
            let assessed = if is_judged { assess(now) } else { None };
            if assessed.as_ref().is_some_and(|assessed| !request.filter.lets_judged_through(assessed)) {
                return;
            }
            matched += 1;
            let key = request.sort.zip(assessed.as_ref());
            // Unsorted, the first ones are those that are wanted.
            if request.sort.is_some() || found.len() < request.limit {
                found.push((key.and_then(|((key, _), assessed)| key.of(info, assessed, now)), place));
            }
        });
        if cursor.is_none() {
            break;
        }
        tokio::task::yield_now().await;
    }
    if let Some((_, is_descending)) = request.sort {
        found.sort_by(|left, right| compare(left.0, right.0, is_descending).then(left.1.cmp(&right.1)));
        found.truncate(request.limit);
    }
    let places: Vec<Cursor> = found.into_iter().map(|(_, place)| place).collect();
    let body = Body::from_stream(futures::stream::iter(Pages {
        connections: Arc::clone(&api.connections),
        api: Arc::clone(&api),
        places,
        written: 0,
        state: Page::Head { total, matched },
    }));
    Ok(([(header::CONTENT_TYPE, "application/json")], body).into_response())
}

/// Where the writing stands.
#[derive(Clone, Copy)]
enum Page {
    Head { total: usize, matched: usize },
    Middle { is_first: bool },
    End,
}

/// The answer, piece by piece.
struct Pages {
    connections: Arc<Connections>,
    api: Arc<Api>,
    places: Vec<Cursor>,
    written: usize,
    state: Page,
}

impl Iterator for Pages {
    type Item = Result<Bytes, Infallible>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut text = Vec::new();
        let mut is_first = match self.state {
            Page::Head { total, matched } => {
                text.extend_from_slice(
                    format!("{{\"total\":{total},\"matched\":{matched},\"connections\":[").as_bytes(),
                );
                true
            }
            Page::Middle { is_first } => is_first,
            Page::End => return None,
        };
        let now = self.api.now();
        let places = self.places.get(self.written..).unwrap_or_default();
        let places = places.get(..READ_AT_ONCE).unwrap_or(places);
        let mut read = Vec::with_capacity(places.len());
        self.connections
            .read(places, now, |info, assessed| read.push(answer::connection(info, assessed, now)));
        // Written outside of the lock.
        for connection in &read {
            if !std::mem::take(&mut is_first) {
                text.push(b',');
            }
            // Numbers, words and strings always serialize.
            let _ = serde_json::to_writer(&mut text, connection);
        }
        self.written += places.len();
        self.state = if self.written >= self.places.len() {
            text.extend_from_slice(b"]}");
            Page::End
        } else {
            Page::Middle { is_first }
        };
        Some(Ok(text.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_known_comes_last_in_either_order() {
        let sorted = |is_descending| {
            let mut values = vec![None, Some(2), Some(3), None, Some(1)];
            values.sort_by(|left, right| compare(*left, *right, is_descending));
            values
        };
        assert_eq!(sorted(false), [Some(1), Some(2), Some(3), None, None]);
        assert_eq!(sorted(true), [Some(3), Some(2), Some(1), None, None]);
    }

    #[test]
    fn every_word_is_read() {
        for (word, key) in Key::WORDS {
            assert_eq!(sort(word), Some((key, false)));
            assert_eq!(sort(&format!("-{word}")), Some((key, true)));
        }
        assert_eq!((sort(""), sort("--age_ms"), sort("age")), (None, None, None));
        assert_eq!(verdicts("stalled,silent"), Some(vec![Verdict::Stalled, Verdict::Silent]));
        assert_eq!((verdicts(""), verdicts("alive,"), verdicts("dead")), (None, None, None));
    }
}
