//! The engine's words in the description of the API. The engine knows nothing of it, so its words are listed here, from
//! the engine's own lists where it has them.

use ackbeat_liveness::leak::{Certainty, LeakSign, ReapMode, Side};
use ackbeat_liveness::{
    Assessment, CloseFrames, CloseInitiator, CloseKind, CloseMethod, EvidenceScope, HeartbeatProfile,
    HeartbeatSource, PingLocation, Postmortem, Role, Rung, TcpState, Verdict,
};
use serde::Serialize;
use utoipa::openapi::schema::{AnyOfBuilder, KnownFormat, ObjectBuilder, SchemaFormat, SchemaType, Type};
use utoipa::openapi::{Object, RefOr, Schema};
use utoipa::{PartialSchema, ToSchema};

/// One of these words.
fn one_of(words: Vec<serde_json::Value>) -> Object {
    ObjectBuilder::new().schema_type(Type::String).enum_values(Some(words)).build()
}

/// One of these words, or `null`.
fn one_of_or_null(mut words: Vec<serde_json::Value>) -> Object {
    words.push(serde_json::Value::Null);
    ObjectBuilder::new()
        .schema_type(SchemaType::from_iter([Type::String, Type::Null]))
        .enum_values(Some(words))
        .build()
}

/// Values as they are written.
fn written<T: Serialize>(values: &[T]) -> Vec<serde_json::Value> {
    values.iter().filter_map(|value| serde_json::to_value(value).ok()).collect()
}

macro_rules! schemas {
    ($($name:ident: $make:ident of $values:expr;)+) => {
        $(
            pub(super) fn $name() -> Object {
                $make(written($values))
            }
        )+
    };
}

schemas! {
    verdict: one_of of Verdict::ALL;
    rung: one_of of Rung::ALL;
    evidence_scope: one_of of EvidenceScope::ALL;
    leak_sign: one_of of LeakSign::ALL;
    leak_side: one_of of Side::ALL;
    leak_certainty: one_of of Certainty::ALL;
    reap_mode: one_of of ReapMode::ALL;
    role: one_of of &[Role::Server, Role::Client];
    heartbeat_source: one_of of HeartbeatSource::ALL;
    ping_location: one_of of PingLocation::ALL;
    close_kind: one_of of CloseKind::ALL;
    close_initiator: one_of of CloseInitiator::ALL;
    close_frames: one_of of CloseFrames::ALL;
    optional_heartbeat_profile: one_of_or_null of HeartbeatProfile::ALL;
    optional_tcp_state: one_of_or_null of &TcpState::ALL;
    optional_close_method: one_of_or_null of CloseMethod::ALL;
    optional_assessment: one_of_or_null of Assessment::ALL;
    optional_postmortem: one_of_or_null of Postmortem::ALL;
}

/// `ADDRESS:PORT`, an IPv6 address in brackets. A pattern cannot tell every IPv6 address from what is none.
const SOCKET_ADDRESS: &str = "^(((25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])\\.){3}\
    (25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])|\\[[0-9A-Fa-f:.]+\\]):\
    (6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[1-9][0-9]{0,3})$";

pub(super) fn socket_address() -> Object {
    ObjectBuilder::new().schema_type(Type::String).pattern(Some(SOCKET_ADDRESS)).build()
}

pub(super) fn optional_socket_address() -> Object {
    let types = SchemaType::from_iter([Type::String, Type::Null]);
    ObjectBuilder::new().schema_type(types).pattern(Some(SOCKET_ADDRESS)).build()
}

/// An address and a port, as a parameter.
pub(super) struct SocketAddress;

impl PartialSchema for SocketAddress {
    fn schema() -> RefOr<Schema> {
        socket_address().into()
    }
}

impl ToSchema for SocketAddress {}

/// An IP address, as a parameter.
pub(super) struct IpAddress;

impl PartialSchema for IpAddress {
    fn schema() -> RefOr<Schema> {
        let of = |format| {
            ObjectBuilder::new().schema_type(Type::String).format(Some(SchemaFormat::KnownFormat(format)))
        };
        Schema::AnyOf(AnyOfBuilder::new().item(of(KnownFormat::Ipv4)).item(of(KnownFormat::Ipv6)).build())
            .into()
    }
}

impl ToSchema for IpAddress {}
