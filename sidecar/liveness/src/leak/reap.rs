//! Which sockets are asked to be destroyed.
//!
//! Only of a port whose *configured* quota is full, only with the mode on (or in a dry run), oldest first, at most
//! [`REAPS_AT_ONCE`] with one census (and of a small quota an eighth beyond what is over it, so that no pool is wiped at once). What
//! was asked to be destroyed counts no more, although the next census may still see it: else a late destroy would take others
//! too. And never one that carried a byte within [`reap_min_idle_ms`](LeakSettings::reap_min_idle_ms) or that holds bytes: they
//! would be lost. Whoever destroys it looks at the socket once more.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use super::group::GroupKey;
use super::output::ReapWanted;
use super::settings::{LeakSettings, REAPS_AT_ONCE, ReapMode};
use super::watch::Known;
use crate::{TcpState, Timestamp};

/// Picks from `sockets`, those of ports for which `full` gives quota and count.
pub(super) fn pick<'a>(
    settings: &LeakSettings,
    at: Timestamp,
    sockets: impl Iterator<Item = &'a mut Known>,
    full: impl Fn(&GroupKey) -> Option<(u32, u32)>,
) -> Vec<ReapWanted> {
    if settings.reap == ReapMode::Off {
        return Vec::new();
    }
    let mut leaving: BTreeMap<GroupKey, u32> = BTreeMap::new();
    let mut candidates: Vec<(Timestamp, ReapWanted, &mut Known)> = sockets
        .filter_map(|known| {
            let group = GroupKey::of(&known.socket);
            let (quota, count) = full(&group)?;
            let was_asked = known
                .asked_at
                .is_some_and(|asked_at| at.ms_since(asked_at) < settings.reap_min_idle_ms.max(1));
            if was_asked && known.socket.state == TcpState::Established {
                *leaving.entry(group).or_default() += 1;
                return None;
            }
            if known.socket.state != TcpState::Established || !known.socket.is_empty() {
                return None;
            }
            let idle_since = known.socket.idle_since().filter(|_| !known.socket.busy)?;
            let idle_ms = at.ms_since(idle_since);
            // It was there before it carried its last byte.
            let born_at = known.first_seen_at.min(idle_since);
            let age_ms = at.ms_since(born_at);
            if age_ms < settings.reap_min_age_ms || idle_ms < settings.reap_min_idle_ms {
                return None;
            }
            let wanted = ReapWanted {
                at,
                connection: known.socket.connection,
                endpoints: known.socket.endpoints,
                group,
                quota,
                count,
                age_ms,
                idle_ms,
                min_idle_ms: settings.reap_min_idle_ms,
                mode: settings.reap,
            };
            Some((born_at, wanted, known))
        })
        .collect();
    candidates.sort_by_key(|(born_at, wanted, _)| (*born_at, wanted.connection));
    let mut of_group: BTreeMap<GroupKey, u32> = BTreeMap::new();
    candidates
        .into_iter()
        .filter(|(_, wanted, _)| {
            let taken = of_group.entry(wanted.group).or_default();
            *taken += 1;
            let staying = wanted.count.saturating_sub(leaving.get(&wanted.group).copied().unwrap_or(0));
            staying >= wanted.quota && *taken <= staying - wanted.quota + (wanted.quota / 8).max(1)
        })
        .take(REAPS_AT_ONCE)
        .map(|(_, wanted, known)| {
            known.asked_at = Some(at);
            wanted
        })
        .collect()
}
