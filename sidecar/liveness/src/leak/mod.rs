//! Sockets that have no use any more: who holds them, how many, and since when.
//!
//! Every few seconds the driver's side takes a *census*: every TCP socket of the pod, dialled ones too, as `inet_diag`
//! tells them. What comes in here is what changed since the census before ([`Census`], made by [`Changes`]): a socket that
//! was idle and stays idle costs nothing, and neither does one that is busy and stays busy. This is also what is recorded,
//! with a whole census once in a while, so that a part of a recording can be replayed by itself.
//!
//! | module | decides |
//! |---|---|
//! | `census` | what a census says, and what of it is new |
//! | `settings` | when something is suspected, and what may be reaped |
//! | `group` | of one listening or one remote port: count, maximum, how long flat, how many idle |
//! | `pairs` | which dialled socket served a connection whose peer has left |
//! | `watch` | all sockets and groups, and what is suspected of them |
//! | `reap` | which sockets are asked to be destroyed, if any |
//! | `output` | what is told |
//!
//! Three signs, each with hysteresis:
//!
//! - [`LeakSign::FlatCount`]: the count has stood at its own maximum of the last hour (or at a configured quota), and
//!   nearly all of its sockets carried no byte either way, for long enough. A pool that is used is never accused: its idle
//!   ages do not grow. A pool that is *not* used looks the same as a leak: it is suspected, not convicted.
//! - [`LeakSign::CloseWait`]: the peer has closed and the host has not, one socket each.
//! - [`LeakSign::Orphans`]: dialled sockets that outlive the connection that they served, lie idle, and are passed over when
//!   the next one is dialled. A pool would have used them again.

mod census;
mod group;
mod output;
mod pairs;
mod reap;
mod settings;
mod watch;

pub use census::{Census, CensusSocket, Changes, Owner, SOCKETS_MAX};
pub use group::{GroupKey, GroupView, IDLE_BOUNDARIES_MS, IDLE_BUCKETS, Side, StateAge};
pub use output::{Certainty, LeakChange, LeakCounters, LeakSign, Pair, ReapWanted};
pub use settings::{LeakSettings, Quota, QuotaError, REAPS_AT_ONCE, ReapMode};
pub use watch::{GROUPS_MAX, LeakWatch};
