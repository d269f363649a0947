//! What is kept of the head of an upgrade request. Everything else is dropped where it is read: cookies and credentials
//! are never stored or logged.

use ackbeat_liveness::{ConnectionId, Timestamp, Upgrade};

/// Headers that are looked at. A request with more has its later ones left out.
const HEADERS_MAX: usize = 128;
/// Longest path that is kept, in bytes.
const PATH_MAX_BYTES: usize = 256;

/// Names of headers that a proxy adds on the way. Those that begin with `x-forwarded-` are recognized by that.
const FORWARDING_HEADERS: [&str; 14] = [
    "cf-connecting-ip",
    "cf-ray",
    "fastly-client-ip",
    "forwarded",
    "true-client-ip",
    "via",
    "x-amzn-trace-id",
    "x-azure-ref",
    "x-client-ip",
    "x-cloud-trace-context",
    "x-cluster-client-ip",
    "x-envoy-external-address",
    "x-original-forwarded-for",
    "x-real-ip",
];

/// Reads the head of an upgrade request, which may be cut.
pub(super) fn read(connection: ConnectionId, at: Timestamp, head: &[u8]) -> Upgrade {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    // A head that is cut, or that goes on behind a line that is none, still has the lines before.
    let _whole = request.parse(head);
    let mut traceparents =
        request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("traceparent"));
    let traceparent = match (traceparents.next(), traceparents.next()) {
        (Some(only), None) => std::str::from_utf8(only.value).ok().filter(|value| is_traceparent(value)),
        _ => None,
    };
    let mut forwarding_headers: Vec<String> = request
        .headers
        .iter()
        .map(|header| header.name.to_ascii_lowercase())
        .filter(|name| name.starts_with("x-forwarded-") || FORWARDING_HEADERS.contains(&name.as_str()))
        .collect();
    forwarding_headers.sort_unstable();
    forwarding_headers.dedup();
    Upgrade {
        connection,
        at,
        path: request.path.and_then(path),
        traceparent: traceparent.map(str::to_owned),
        forwarding_headers,
    }
}

/// The path of a request target (RFC 9112 section 3.2), without its query.
fn path(target: &str) -> Option<String> {
    let origin = match target.split_once("://") {
        // The absolute form: the path begins behind the authority.
        Some((scheme, rest)) if !scheme.contains(['/', '?']) => {
            rest.find('/').and_then(|start| rest.get(start..))?
        }
        _ => target,
    };
    let path = origin.split(['?', '#']).next().filter(|path| path.starts_with('/'))?;
    let mut end = path.len().min(PATH_MAX_BYTES);
    while !path.is_char_boundary(end) {
        end -= 1;
    }
    path.get(..end).map(str::to_owned)
}

/// Whether this is a valid `traceparent` of version 00 (W3C Trace Context section 3.2.2).
fn is_traceparent(value: &str) -> bool {
    let lower_hex = |text: &str, length| {
        text.len() == length && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let not_zero = |text: &str| text.bytes().any(|byte| byte != b'0');
    let parts: Vec<&str> = value.split('-').collect();
    let [version, trace, parent, flags] = parts.as_slice() else { return false };
    *version == "00"
        && lower_hex(trace, 32)
        && not_zero(trace)
        && lower_hex(parent, 16)
        && not_zero(parent)
        && lower_hex(flags, 2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TRACEPARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn upgrade(head: &[u8]) -> Upgrade {
        read(ConnectionId(7), Timestamp::from_ns(1), head)
    }

    #[test]
    fn a_head_gives_path_trace_and_names_and_nothing_else() {
        let head = format!(
            "GET /stream/7?token=secret HTTP/1.1\r\nHost: example\r\nTraceParent: {TRACEPARENT}\r\n\
             Cookie: session=secret\r\nAuthorization: Bearer secret\r\nX-Forwarded-For: 192.0.2.1\r\nVia: 1.1 edge\r\n\
             x-forwarded-for: 192.0.2.2\r\nX-Forwarded-Proto: https\r\n\r\n"
        );
        let kept = upgrade(head.as_bytes());
        assert_eq!(kept.path.as_deref(), Some("/stream/7"));
        assert_eq!(kept.traceparent.as_deref(), Some(TRACEPARENT));
        assert_eq!(kept.forwarding_headers, ["via", "x-forwarded-for", "x-forwarded-proto"]);
        assert!(!format!("{kept:?}").contains("secret"));
        assert!(!format!("{kept:?}").contains("192.0.2"));
    }

    #[test]
    fn a_cut_head_gives_what_came_before_the_cut() {
        let kept = upgrade(b"GET /a HTTP/1.1\r\nVia: x\r\nCookie: abc");
        assert_eq!(kept.path.as_deref(), Some("/a"));
        assert_eq!(kept.forwarding_headers, ["via"]);
        assert_eq!(upgrade(b"GET").path, None);
    }

    #[test]
    fn the_absolute_form_of_a_target_has_its_path_found() {
        assert_eq!(path("http://host:80/ws?x"), Some("/ws".to_owned()));
        assert_eq!(path("http://host"), None);
        assert_eq!(path("*"), None);
        assert_eq!(path("/redirect?to=http://elsewhere/x"), Some("/redirect".to_owned()));
    }

    #[test]
    fn a_path_is_cut_at_its_bound() {
        assert_eq!(path(&format!("/{}", "a".repeat(1000))).unwrap().len(), PATH_MAX_BYTES);
    }

    #[test]
    fn a_traceparent_that_is_not_valid_is_none() {
        for value in [
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            "01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            "00-4BF92F3577B34DA6A3CE929D0E0E4736-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01-x",
        ] {
            let kept = upgrade(format!("GET / HTTP/1.1\r\ntraceparent: {value}\r\n\r\n").as_bytes());
            assert_eq!(kept.traceparent, None, "{value}");
        }
        let twice =
            format!("GET / HTTP/1.1\r\ntraceparent: {TRACEPARENT}\r\ntraceparent: {TRACEPARENT}\r\n\r\n");
        assert_eq!(upgrade(twice.as_bytes()).traceparent, None);
    }

    proptest! {
        #[test]
        fn any_head_is_survived_and_bounded(head in proptest::collection::vec(any::<u8>(), 0..4096)) {
            let kept = upgrade(&head);
            prop_assert!(kept.path.is_none_or(|path| path.len() <= PATH_MAX_BYTES && path.starts_with('/')));
            prop_assert!(kept.forwarding_headers.len() <= HEADERS_MAX);
        }
    }
}
