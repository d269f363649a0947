//! What no socket shows and whoever deploys knows: what stands between the host and its peers, and what its close codes mean.

use alloc::vec::Vec;

use crate::CloseKind;

/// Close codes that are final unless told otherwise: 1008 (policy violation, RFC 6455 section 7.4.1), and of the private range
/// (section 7.4.2) 4000 and 4001, with which hosts say that whoever asks again is turned away again.
pub const FINAL_CODES_DEFAULT: [u16; 3] = [1008, 4000, 4001];

/// The reason with which 4001 announces a restart, and is no final code.
pub(crate) const RESTART_REASON: &str = "server_restart";

/// Whether whatever terminates TCP on the other end only speaks for the peer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
pub enum PeerIsProxy {
    /// A forwarding header of the upgrade request says so, or Pongs that come long after their Pings were acknowledged.
    #[default]
    Auto,
    /// Always.
    Yes,
    /// Never, whatever a header says.
    No,
}

/// What whoever deploys says. It is recorded with the thresholds, so that a replay decides the same.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(deny_unknown_fields, default)
)]
pub struct Deployment {
    /// What stands between the host and its peers.
    pub peer_is_proxy: PeerIsProxy,
    /// Status codes of Close frames after which the peer must not come back.
    pub final_codes: Vec<u16>,
}

impl Default for Deployment {
    fn default() -> Self {
        Self { peer_is_proxy: PeerIsProxy::Auto, final_codes: FINAL_CODES_DEFAULT.to_vec() }
    }
}

impl Deployment {
    /// Whether a close with this code is the last word. `None` where there is no code; a planned restart never is.
    pub(crate) fn is_final(&self, kind: CloseKind, code: Option<u16>) -> Option<bool> {
        code.map(|code| kind != CloseKind::PlannedRestart && self.final_codes.contains(&code))
    }
}

/// Whether a Close frame announces that the host goes away and will be back: 1001 (going away) and 1012 (service restart,
/// IANA's registry of close codes), and 4001 with the reason `server_restart`.
pub(crate) fn announces_restart(code: Option<u16>, reason: Option<&str>) -> bool {
    match code {
        Some(1001 | 1012) => true,
        Some(4001) => reason == Some(RESTART_REASON),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::{Deployment, announces_restart};
    use crate::CloseKind;

    #[test]
    fn a_restart_is_announced_by_its_codes_and_4001_by_its_reason_alone() {
        assert!(announces_restart(Some(1001), None));
        assert!(announces_restart(Some(1012), Some("back soon")));
        assert!(announces_restart(Some(4001), Some("server_restart")));
        assert!(!announces_restart(Some(4001), Some("logged out")));
        assert!(!announces_restart(Some(4001), None));
        assert!(!announces_restart(Some(1000), Some("server_restart")));
        assert!(!announces_restart(None, None));
    }

    #[test]
    fn a_final_code_is_final_but_for_a_restart_and_none_says_nothing() {
        let deployment = Deployment::default();
        assert_eq!(deployment.is_final(CloseKind::Graceful, Some(4001)), Some(true));
        assert_eq!(deployment.is_final(CloseKind::PlannedRestart, Some(4001)), Some(false));
        assert_eq!(deployment.is_final(CloseKind::Graceful, Some(1000)), Some(false));
        assert_eq!(deployment.is_final(CloseKind::Graceful, None), None);
    }
}
