//! Where to connect to, and the upgrade request.

use std::str::FromStr;

use ackbeat_liveness::HeartbeatProfile;
use http::uri::{PathAndQuery, Uri};
use http::{HeaderName, HeaderValue, Request};
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

/// Headers that the handshake itself needs as they are (RFC 6455 section 4.1).
const OF_THE_HANDSHAKE: [&str; 4] = ["connection", "upgrade", "sec-websocket-key", "sec-websocket-version"];

/// A URL, a header or a cookie that means nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TargetError {
    /// No URL.
    #[error("this is no URL: {0}")]
    Url(String),
    /// A URL of something else.
    #[error("a URL that begins with ws:// or wss:// is needed")]
    Scheme,
    /// A URL without a host.
    #[error("the URL names no host")]
    Host,
    /// A URL whose port is none.
    #[error("{0:?} ends in no port from 1 to 65535")]
    Port(String),
    /// A URL with a user's name.
    #[error("a user in the URL is not sent: say --header 'Authorization: …'")]
    User,
    /// A cookie without a name.
    #[error("a cookie is NAME=VALUE")]
    Cookie,
    /// A header without a colon.
    #[error("a header is NAME: VALUE")]
    Colon,
    /// A name that no header can have.
    #[error("{0:?} is no header's name")]
    Name(String),
    /// A value that no header can have.
    #[error("the value of {0} has bytes that no header may have")]
    Value(String),
    /// A header that belongs to the handshake.
    #[error("the handshake sets {0} itself")]
    Reserved(String),
}

/// One header of the upgrade request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    name: HeaderName,
    value: HeaderValue,
}

impl FromStr for RequestHeader {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (name, value) = text.split_once(':').ok_or(TargetError::Colon)?;
        let name =
            HeaderName::from_str(name.trim()).map_err(|_| TargetError::Name(name.trim().to_owned()))?;
        if OF_THE_HANDSHAKE.contains(&name.as_str()) {
            return Err(TargetError::Reserved(name.to_string()));
        }
        let value = HeaderValue::from_str(value.trim()).map_err(|_| TargetError::Value(name.to_string()))?;
        Ok(Self { name, value })
    }
}

/// A WebSocket's URL with the headers of its request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    uri: Uri,
    headers: Vec<RequestHeader>,
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let uri = Uri::from_str(text).map_err(|error| TargetError::Url(error.to_string()))?;
        if !matches!(uri.scheme_str(), Some("ws" | "wss")) {
            return Err(TargetError::Scheme);
        }
        let authority = uri.authority().ok_or(TargetError::Host)?;
        if authority.as_str().contains('@') {
            return Err(TargetError::User);
        }
        if authority.host().is_empty() {
            return Err(TargetError::Host);
        }
        // `Uri` takes any number for a port and then says that there is none: the default would be another host's.
        let names_a_port = !matches!(authority.as_str().strip_prefix(authority.host()), Some("" | ":"));
        if names_a_port && matches!(authority.port_u16(), None | Some(0)) {
            return Err(TargetError::Port(authority.to_string()));
        }
        Ok(Self { uri, headers: Vec::new() })
    }
}

impl Target {
    /// With these headers. One that the request has anyway (`Host`) is replaced, all others are sent as often as they are
    /// given.
    #[must_use]
    pub fn with_headers(mut self, headers: impl IntoIterator<Item = RequestHeader>) -> Self {
        self.headers.extend(headers);
        self
    }

    /// With these cookies (`NAME=VALUE`), all in one header (RFC 6265 section 5.4).
    ///
    /// # Errors
    /// [`TargetError::Cookie`] if one has no name, [`TargetError::Value`] if they are no header's value.
    pub fn with_cookies(mut self, cookies: &[String]) -> Result<Self, TargetError> {
        if cookies.iter().any(|cookie| matches!(cookie.find('='), None | Some(0))) {
            return Err(TargetError::Cookie);
        }
        if !cookies.is_empty() {
            let value = HeaderValue::from_str(&cookies.join("; "))
                .map_err(|_| TargetError::Value("cookie".to_owned()))?;
            self.headers.push(RequestHeader { name: http::header::COOKIE, value });
        }
        Ok(self)
    }

    /// Whether TLS is wanted.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.uri.scheme_str() == Some("wss")
    }

    /// The host's name or address; an IPv6 address without its brackets.
    #[must_use]
    pub fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    /// The port; 80 and 443 unless the URL names one (RFC 6455 section 3).
    #[must_use]
    pub fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.is_secure() { 443 } else { 80 })
    }

    /// The URL without its query, which may hold a secret.
    #[must_use]
    pub fn shown(&self) -> String {
        let authority = self.uri.authority().map_or("", http::uri::Authority::as_str);
        format!("{}://{authority}{}", self.uri.scheme_str().unwrap_or_default(), self.uri.path())
    }

    /// The path, as it was given.
    pub(super) fn path(&self) -> &str {
        self.uri.path()
    }

    /// A member of the query.
    pub(super) fn query_value(&self, name: &str) -> Option<&str> {
        self.uri.query()?.split('&').find_map(|member| member.strip_prefix(name)?.strip_prefix('='))
    }

    /// With what a client of this profile always asks for, unless the URL says something about it.
    pub(super) fn completed_for(&self, profile: Option<HeartbeatProfile>) -> Result<Self, TargetError> {
        let wanted: &[(&str, &str)] = match profile {
            Some(HeartbeatProfile::EngineIo) => &[("EIO", "4"), ("transport", "websocket")],
            Some(HeartbeatProfile::Phoenix) => &[("vsn", "2.0.0")],
            _ => &[],
        };
        let missing: Vec<String> = wanted
            .iter()
            .filter(|(name, _)| self.query_value(name).is_none())
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        if missing.is_empty() {
            return Ok(self.clone());
        }
        let query = self.uri.query().filter(|query| !query.is_empty()).map(str::to_owned);
        let query = query.into_iter().chain(missing).collect::<Vec<_>>().join("&");
        let url = |error: &dyn std::fmt::Display| TargetError::Url(error.to_string());
        let mut parts = self.uri.clone().into_parts();
        parts.path_and_query = Some(
            PathAndQuery::from_str(&format!("{}?{query}", self.uri.path())).map_err(|error| url(&error))?,
        );
        let uri = Uri::from_parts(parts).map_err(|error| url(&error))?;
        Ok(Self { uri, headers: self.headers.clone() })
    }

    /// The upgrade request.
    pub(super) fn request(&self) -> Result<Request<()>, tokio_tungstenite::tungstenite::Error> {
        let mut request = self.uri.clone().into_client_request()?;
        for RequestHeader { name, value } in &self.headers {
            if *name == http::header::HOST {
                request.headers_mut().insert(name, value.clone());
            } else {
                request.headers_mut().append(name, value.clone());
            }
        }
        Ok(request)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_adds_only_what_the_url_leaves_open() {
        let completed = |url: &str, profile| {
            url.parse::<Target>().unwrap().completed_for(Some(profile)).unwrap().uri.to_string()
        };
        let engine_io = HeartbeatProfile::EngineIo;
        assert_eq!(completed("ws://a/socket.io/", engine_io), "ws://a/socket.io/?EIO=4&transport=websocket");
        assert_eq!(completed("ws://a/x?EIO=3&t=1", engine_io), "ws://a/x?EIO=3&t=1&transport=websocket");
        let phoenix = HeartbeatProfile::Phoenix;
        assert_eq!(completed("ws://a/socket/websocket", phoenix), "ws://a/socket/websocket?vsn=2.0.0");
        assert_eq!(completed("ws://a/s?vsn=1.0.0", phoenix), "ws://a/s?vsn=1.0.0");
        assert_eq!(completed("ws://a:81/x?y", HeartbeatProfile::Json), "ws://a:81/x?y");
    }

    #[test]
    fn what_is_no_target_is_named() {
        let error = |url: &str| url.parse::<Target>().unwrap_err();
        assert_eq!(error("http://a/"), TargetError::Scheme);
        assert_eq!(error("/x"), TargetError::Scheme);
        assert_eq!(error("ws://me:secret@a/"), TargetError::User);
        assert!(matches!(error("ws://a b"), TargetError::Url(_)));
        for authority in ["a:99999", "[::1]:0", "a:0"] {
            assert_eq!(error(&format!("ws://{authority}/")), TargetError::Port(authority.to_owned()));
        }
        let cookies = |text: &str| "ws://a/".parse::<Target>().unwrap().with_cookies(&[text.to_owned()]);
        assert_eq!(cookies("=x"), Err(TargetError::Cookie));
        assert_eq!(cookies("session"), Err(TargetError::Cookie));
        let header = |text: &str| text.parse::<RequestHeader>().unwrap_err();
        assert_eq!(header("x"), TargetError::Colon);
        assert_eq!(header("a b: c"), TargetError::Name("a b".into()));
        assert_eq!(header("Upgrade: h2c"), TargetError::Reserved("upgrade".into()));
        assert_eq!(header("x: a\nb"), TargetError::Value("x".into()));
    }

    #[test]
    fn a_url_is_shown_without_its_query() {
        let target: Target = "wss://[::1]:8443/mux?token=secret".parse().unwrap();
        assert_eq!((target.host(), target.port(), target.is_secure()), ("::1", 8443, true));
        assert_eq!(target.shown(), "wss://[::1]:8443/mux");
        for (url, port) in [("ws://a", 80), ("wss://a:/", 443), ("ws://a:65535/", 65_535)] {
            assert_eq!(url.parse::<Target>().unwrap().port(), port);
        }
    }
}
