//! Heartbeats as a client of each profile sees and sends them.

use std::time::Duration;

use ackbeat_liveness::HeartbeatProfile;
use serde_json::Value;
use tokio_tungstenite::tungstenite::Message;

use super::Target;
use super::options::{INTERVAL_HINT_DEFAULT, Options};

/// `SignalR`'s record separator.
const RECORD_SEPARATOR: char = '\u{1e}';
/// The interval at which `SignalR`'s own clients send (`keepAliveIntervalInMilliseconds`).
const SIGNALR_INTERVAL: Duration = Duration::from_secs(15);
/// engine.io's packet types.
const ENGINE_IO_OPEN: &str = "0{";
const ENGINE_IO_PING: &str = "2";
const ENGINE_IO_PONG: &str = "3";
/// socket.io's CONNECT to the main namespace, in an engine.io message. A host closes who does not send it.
const SOCKET_IO_CONNECT: &str = "40";

/// What the host itself said about its heartbeat.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Announced {
    /// From one heartbeat to the next.
    pub(super) interval: Duration,
    /// How long an answer is waited for.
    pub(super) timeout: Duration,
}

/// What a message of the host means.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Meaning {
    /// Heartbeats of the host in it.
    pub(super) heartbeats: u64,
    /// An answer to one.
    pub(super) answer: Option<Message>,
    /// What must be said for another reason.
    pub(super) message: Option<Message>,
    /// The host is ready for the user's messages.
    pub(super) is_ready: bool,
}

/// The profile, and what is known of it by now.
#[derive(Debug)]
pub(super) struct Heartbeats {
    /// The profile that was named, or that the host's heartbeats turned out to have.
    profile: Option<HeartbeatProfile>,
    is_named: bool,
    /// The probe sends heartbeats itself.
    asks: bool,
    hint: Option<Duration>,
    announced: Option<Announced>,
    /// Number of the last own heartbeat (Phoenix).
    reference: u64,
    is_engine_io_3: bool,
    is_socket_io: bool,
    is_phoenix_1: bool,
}

impl Heartbeats {
    pub(super) fn new(options: &Options, target: &Target) -> Self {
        let profile = options.profile.named();
        let is_engine_io_3 = target.query_value("EIO") == Some("3");
        let asks_itself = match profile {
            Some(HeartbeatProfile::Phoenix | HeartbeatProfile::SignalR) => true,
            Some(HeartbeatProfile::EngineIo) => is_engine_io_3,
            _ => false,
        };
        Self {
            profile,
            is_named: profile.is_some(),
            asks: options.ask || asks_itself,
            hint: options.interval_hint,
            announced: None,
            reference: 0,
            is_engine_io_3,
            is_socket_io: target.path().trim_end_matches('/').ends_with("/socket.io"),
            is_phoenix_1: target.query_value("vsn").is_some_and(|version| version.starts_with('1')),
        }
    }

    pub(super) const fn profile(&self) -> Option<HeartbeatProfile> {
        self.profile
    }

    pub(super) const fn announced(&self) -> Option<Announced> {
        self.announced
    }

    /// How far apart own heartbeats are; `None` where the host asks.
    pub(super) fn own_interval(&self) -> Option<Duration> {
        let of_the_profile = match self.profile {
            Some(HeartbeatProfile::SignalR) => SIGNALR_INTERVAL,
            _ => INTERVAL_HINT_DEFAULT,
        };
        let announced = self.announced.map(|announced| announced.interval);
        self.asks.then(|| self.hint.or(announced).unwrap_or(of_the_profile))
    }

    /// Whether Ping frames are this connection's heartbeat, and not only answered.
    pub(super) const fn counts_ping_frames(&self) -> bool {
        !self.is_named || matches!(self.profile, Some(HeartbeatProfile::Rfc6455))
    }

    /// What is said first, before the host says anything.
    pub(super) fn greeting(&self) -> Option<Message> {
        (self.profile == Some(HeartbeatProfile::SignalR))
            .then(|| Message::text(format!("{{\"protocol\":\"json\",\"version\":1}}{RECORD_SEPARATOR}")))
    }

    /// Whether the user's messages must wait until the host says that it is ready ([`Meaning::is_ready`]): socket.io
    /// closes who speaks before the answer to CONNECT.
    pub(super) fn waits_for_host(&self) -> bool {
        self.profile == Some(HeartbeatProfile::EngineIo) || (!self.is_named && self.is_socket_io)
    }

    /// The next own heartbeat.
    pub(super) fn own(&mut self) -> Message {
        self.reference += 1;
        let reference = self.reference;
        match self.profile {
            Some(HeartbeatProfile::PingPong) => Message::text("ping"),
            Some(HeartbeatProfile::Json) => Message::text(r#"{"type":"ping"}"#),
            Some(HeartbeatProfile::EngineIo) => Message::text(ENGINE_IO_PING),
            Some(HeartbeatProfile::Phoenix) if self.is_phoenix_1 => Message::text(format!(
                r#"{{"topic":"phoenix","event":"heartbeat","payload":{{}},"ref":"{reference}"}}"#
            )),
            Some(HeartbeatProfile::Phoenix) => {
                Message::text(format!(r#"[null,"{reference}","phoenix","heartbeat",{{}}]"#))
            }
            Some(HeartbeatProfile::SignalR) => Message::text(format!("{{\"type\":6}}{RECORD_SEPARATOR}")),
            Some(HeartbeatProfile::Rfc6455 | HeartbeatProfile::Custom) | None => {
                Message::Ping(reference.to_be_bytes().to_vec().into())
            }
        }
    }

    /// A Ping frame came.
    pub(super) fn ping_frame(&mut self) {
        self.is_seen(HeartbeatProfile::Rfc6455);
    }

    /// A Pong frame came. It is a heartbeat of the host where the probe asks with Ping frames.
    pub(super) const fn counts_pong_frame(&self) -> bool {
        self.asks && self.counts_ping_frames()
    }

    /// A text message came.
    pub(super) fn text(&mut self, text: &str) -> Meaning {
        match self.profile {
            Some(profile) if self.is_named => self.text_as(profile, text),
            _ => self.guessed(text),
        }
    }

    /// The first profile whose heartbeat it is.
    fn guessed(&mut self, text: &str) -> Meaning {
        if text.starts_with(ENGINE_IO_OPEN) && engine_io_open(text).is_some() {
            self.profile = Some(HeartbeatProfile::EngineIo);
        }
        if self.profile == Some(HeartbeatProfile::EngineIo) {
            return self.text_as(HeartbeatProfile::EngineIo, text);
        }
        for profile in [HeartbeatProfile::PingPong, HeartbeatProfile::Json] {
            let meaning = self.text_as(profile, text);
            if meaning.heartbeats > 0 {
                self.is_seen(profile);
                return meaning;
            }
        }
        Meaning::default()
    }

    /// The first heartbeat names the profile, unless somebody did.
    fn is_seen(&mut self, profile: HeartbeatProfile) {
        if !self.is_named {
            self.profile.get_or_insert(profile);
        }
    }

    fn text_as(&mut self, profile: HeartbeatProfile, text: &str) -> Meaning {
        match profile {
            HeartbeatProfile::PingPong => match text {
                "ping" => asked(Message::text("pong")),
                "pong" if self.asks => answered(1),
                _ => Meaning::default(),
            },
            HeartbeatProfile::Json => self.json(text),
            HeartbeatProfile::EngineIo => self.engine_io(text),
            HeartbeatProfile::Phoenix => answered(u64::from(is_phoenix_reply(text))),
            HeartbeatProfile::SignalR => {
                let records = text.split(RECORD_SEPARATOR).filter(|record| is_signalr_ping(record));
                answered(records.count() as u64)
            }
            HeartbeatProfile::Rfc6455 | HeartbeatProfile::Custom => Meaning::default(),
        }
    }

    fn json(&self, text: &str) -> Meaning {
        let Ok(Value::Object(mut object)) = serde_json::from_str(text) else { return Meaning::default() };
        match object.get("type").and_then(Value::as_str) {
            // Other members go back as they came: a host may look for its own number or time in them.
            Some("ping") => {
                object.insert("type".to_owned(), "pong".into());
                asked(Message::text(Value::Object(object).to_string()))
            }
            Some("pong") if self.asks => answered(1),
            _ => Meaning::default(),
        }
    }

    fn engine_io(&mut self, text: &str) -> Meaning {
        match text {
            ENGINE_IO_PING if !self.is_engine_io_3 => asked(Message::text(ENGINE_IO_PONG)),
            ENGINE_IO_PONG if self.asks => answered(1),
            _ if self.is_socket_io && text.starts_with(SOCKET_IO_CONNECT) => {
                Meaning { is_ready: true, ..Meaning::default() }
            }
            _ => {
                let Some(announced) = engine_io_open(text) else { return Meaning::default() };
                self.announced = Some(announced);
                self.asks |= self.is_engine_io_3;
                let message = self.is_socket_io.then(|| Message::text(SOCKET_IO_CONNECT));
                Meaning { is_ready: message.is_none(), message, ..Meaning::default() }
            }
        }
    }
}

fn asked(answer: Message) -> Meaning {
    Meaning { heartbeats: 1, answer: Some(answer), ..Meaning::default() }
}

fn answered(heartbeats: u64) -> Meaning {
    Meaning { heartbeats, ..Meaning::default() }
}

/// engine.io's first packet: its type and an object with the session's id and the host's times.
fn engine_io_open(text: &str) -> Option<Announced> {
    let object: Value = serde_json::from_str(text.strip_prefix('0')?).ok()?;
    object.get("sid")?;
    let time = |name: &str| Some(Duration::from_millis(object.get(name)?.as_u64()?));
    Some(Announced { interval: time("pingInterval")?, timeout: time("pingTimeout")? })
}

/// Phoenix's answer to a heartbeat, of either serializer: an object, or an array of join reference, reference, topic, event
/// and payload.
fn is_phoenix_reply(text: &str) -> bool {
    let Ok(value) = serde_json::from_str::<Value>(text) else { return false };
    let member =
        |name: &str, index: usize| value.get(name).or_else(|| value.get(index)).and_then(Value::as_str);
    member("topic", 2) == Some("phoenix") && member("event", 3) == Some("phx_reply")
}

fn is_signalr_ping(record: &str) -> bool {
    serde_json::from_str::<Value>(record).is_ok_and(|value| value.get("type") == Some(&Value::from(6)))
}

#[cfg(test)]
mod tests {
    use super::super::ProfileChoice;
    use super::*;

    fn heartbeats(profile: Option<HeartbeatProfile>, url: &str, ask: bool) -> Heartbeats {
        let target: Target = url.parse().unwrap();
        let profile = profile.map_or(ProfileChoice::Auto, ProfileChoice::Only);
        Heartbeats::new(&Options { profile, ask, ..Options::new(target.clone()) }, &target)
    }

    fn answer(heartbeats: &mut Heartbeats, text: &str) -> Option<String> {
        heartbeats.text(text).answer.map(|message| message.to_text().unwrap().to_owned())
    }

    #[test]
    fn what_the_host_asks_with_is_recognised() {
        let mut auto = heartbeats(None, "ws://a/", false);
        assert_eq!(answer(&mut auto, "hello"), None);
        assert_eq!(answer(&mut auto, "2"), None);
        assert_eq!(answer(&mut auto, r#"{"kind":"x","type":"data"}"#), None);
        assert_eq!(auto.profile(), None);
        let pong = answer(&mut auto, r#"{"n":7,"type":"ping"}"#).unwrap();
        assert_eq!(
            serde_json::from_str::<Value>(&pong).unwrap(),
            serde_json::json!({ "n": 7, "type": "pong" })
        );
        assert_eq!(auto.profile(), Some(HeartbeatProfile::Json));
        assert_eq!(answer(&mut heartbeats(None, "ws://a/", false), "ping").as_deref(), Some("pong"));
    }

    #[test]
    fn engine_io_is_known_by_its_first_packet() {
        let open = r#"0{"sid":"x","upgrades":[],"pingInterval":25000,"pingTimeout":20000,"maxPayload":1}"#;
        let mut auto = heartbeats(None, "ws://a/socket.io/?EIO=4&transport=websocket", false);
        assert_eq!(auto.text(open).message, Some(Message::text("40")));
        let announced = auto.announced().unwrap();
        assert_eq!((announced.interval.as_secs(), announced.timeout.as_secs()), (25, 20));
        assert_eq!(answer(&mut auto, "2").as_deref(), Some("3"));
        assert_eq!(auto.own_interval(), None);
        let mut plain = heartbeats(Some(HeartbeatProfile::EngineIo), "ws://a/engine.io/", false);
        assert_eq!(plain.text(open).message, None);
        let mut third = heartbeats(None, "ws://a/engine.io/?EIO=3", false);
        third.text(open);
        assert_eq!(third.own_interval(), Some(Duration::from_secs(25)));
        assert_eq!(third.own(), Message::text("2"));
        assert_eq!(third.text("3").heartbeats, 1);
    }

    #[test]
    fn own_heartbeats_are_those_of_the_profiles_clients() {
        let mut two = heartbeats(Some(HeartbeatProfile::Phoenix), "ws://a/?vsn=2.0.0", false);
        assert_eq!(two.own(), Message::text(r#"[null,"1","phoenix","heartbeat",{}]"#));
        assert_eq!(two.own(), Message::text(r#"[null,"2","phoenix","heartbeat",{}]"#));
        let reply = r#"[null,"2","phoenix","phx_reply",{"status":"ok","response":{}}]"#;
        assert_eq!(two.text(reply).heartbeats, 1);
        assert_eq!(two.text(r#"[null,"2","room:1","phx_reply",{}]"#).heartbeats, 0);
        assert_eq!(two.own_interval(), Some(Duration::from_secs(30)));
        let mut one = heartbeats(Some(HeartbeatProfile::Phoenix), "ws://a/?vsn=1.0.0", false);
        let own = one.own().to_text().unwrap().to_owned();
        assert_eq!(serde_json::from_str::<Value>(&own).unwrap()["event"], "heartbeat");
        let reply = r#"{"event":"phx_reply","payload":{},"ref":"1","topic":"phoenix"}"#;
        assert_eq!(one.text(reply).heartbeats, 1);
        let mut signalr = heartbeats(Some(HeartbeatProfile::SignalR), "ws://a/hub", false);
        assert_eq!(signalr.greeting(), Some(Message::text("{\"protocol\":\"json\",\"version\":1}\u{1e}")));
        assert_eq!(signalr.own(), Message::text("{\"type\":6}\u{1e}"));
        assert_eq!(signalr.text("{}\u{1e}{\"type\":6}\u{1e}{\"type\":1}\u{1e}").heartbeats, 1);
    }

    #[test]
    fn a_client_may_ask_where_the_host_usually_does() {
        let mut json = heartbeats(Some(HeartbeatProfile::Json), "ws://a/", true);
        assert_eq!(json.own(), Message::text(r#"{"type":"ping"}"#));
        assert_eq!(json.text(r#"{"type":"pong"}"#).heartbeats, 1);
        let mut frames = heartbeats(None, "ws://a/", true);
        assert!(matches!(frames.own(), Message::Ping(_)) && frames.counts_pong_frame());
        assert!(!heartbeats(None, "ws://a/", false).counts_pong_frame());
    }

    #[test]
    fn a_named_text_profile_leaves_ping_frames_to_the_websocket() {
        assert!(!heartbeats(Some(HeartbeatProfile::Json), "ws://a/", false).counts_ping_frames());
        assert!(heartbeats(Some(HeartbeatProfile::Rfc6455), "ws://a/", false).counts_ping_frames());
        let mut frames = heartbeats(Some(HeartbeatProfile::Rfc6455), "ws://a/", false);
        assert_eq!(frames.text("ping"), Meaning::default());
    }
}
