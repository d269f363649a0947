//! The stream parser against streams whose frames are known: a frame that it reports is one, and where it loses its place
//! it says so and finds it again. Streams and judge are those of the test target `wire_streams`.
#![expect(
    clippy::cast_possible_truncation,
    reason = "lengths and sequence numbers of test streams, which are small or wrap on purpose"
)]

use ackbeat_abi::Direction;
use ackbeat_wire::state::FlowState;

use super::Target;
use crate::draw::Draw;

#[path = "../../../wire/heartbeats.rs"]
pub(super) mod heartbeats;
#[path = "../../../wire/host.rs"]
pub(super) mod host;
#[path = "../../../wire/model.rs"]
mod model;
#[path = "../../../wire/random.rs"]
mod random;

use host::Host;
use model::{Case, Totals, Trouble, judge};

pub(super) const TARGET: Target = Target {
    name: "wire-model",
    about: "the WebSocket stream parser: streams whose frames are known, cut, repeated, reordered, with holes",
    generate: |rng| {
        let mut bytes = rng.u64(..).to_le_bytes().to_vec();
        bytes.extend([rng.u8(..), rng.u8(..)]);
        bytes
    },
    run,
    // The streams themselves.
    memory_limit_bytes: |_| 64 * 1024 * 1024,
};

fn run(bytes: &[u8]) -> Result<(), String> {
    let mut draw = Draw::new(bytes);
    let seed = draw.u64();
    let flags = draw.byte();
    let trouble = Trouble {
        repeat: flags & 1 != 0,
        reorder: flags & 2 != 0,
        drop: flags & 4 != 0,
        frames_max: if flags & 8 == 0 { 12 } else { 60 },
        payload_max: if flags & 48 == 0 { 70_000 } else { 300 },
        segment_max: if flags & 64 == 0 { 1_500 } else { 30_000 },
        pause_max_ns: 20_000_000,
        heartbeats: draw.byte() & 1 != 0,
    };
    // Segments that go by unseen because another processor holds the direction.
    let contended = flags & 128 != 0;
    let mut case = Case::random(seed, trouble);
    case.in_order &= !contended;
    let mut chance = fastrand::Rng::with_seed(seed);
    let mut host = Host::new(FlowState::OPENED);
    if trouble.heartbeats {
        host.patterns = heartbeats::patterns();
    }
    for delivery in &case.deliveries {
        let (stream, other) = match delivery.direction {
            Direction::Ingress => (&case.ingress, &case.egress),
            Direction::Egress => (&case.egress, &case.ingress),
        };
        if contended && delivery.start >= stream.frames_start && chance.u8(..) < 8 {
            host.contended(delivery.direction);
            continue;
        }
        host.deliver(
            delivery.direction,
            stream.seq(delivery.start),
            &stream.bytes[delivery.start..delivery.start + delivery.length],
            other.seq(delivery.acknowledged),
            delivery.pause_ns,
        );
    }
    judge(&case, &host.records, &mut Totals::default())
}
