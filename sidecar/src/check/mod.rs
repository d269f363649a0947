//! What this kernel and these privileges allow, each missing piece with its fix.

use std::fmt::Write as _;

use crate::probe::RawSocketProber;
use crate::sandbox::Sandbox;
use crate::source::Ports;
pub use crate::source::ebpf::MissingKind;
use crate::source::ebpf::{self, Outcome};
use crate::source::sock_diag::SockDiagSource;

/// One thing that ackbeat needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub name: String,
    /// What it is for.
    pub purpose: Purpose,
    /// Whether nothing works without it; else only its own signal is missing.
    pub is_required: bool,
    /// `None` if it is there.
    pub missing: Option<Missing>,
}

/// What a finding is needed for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// The eBPF source, in full.
    Ebpf,
    /// The `sock-diag` source.
    SockDiag,
    /// Own window probes (`probe.window`).
    WindowProbes,
    /// Giving up what is not needed (`security.sandbox`).
    Sandbox,
}

/// Why something is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// What kind of thing is missing.
    pub kind: MissingKind,
    /// Why.
    pub reason: String,
    /// What to do about it.
    pub fix: String,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Findings(pub Vec<Finding>);

impl Findings {
    /// Looks at everything.
    ///
    /// It needs a tokio runtime around the call.
    #[must_use]
    pub fn gather() -> Self {
        let mut findings: Vec<Finding> = ebpf::probe().into_iter().map(of_probe).collect();
        findings.push(sock_diag_finding());
        findings.push(window_probes_finding());
        findings.push(sandbox_finding());
        Self(findings)
    }

    /// Whether `run` would start in full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.missing_for(Purpose::Ebpf).next().is_none()
    }

    /// Whether a privilege is missing, which whoever deploys can grant.
    #[must_use]
    pub fn lack_privilege(&self) -> bool {
        self.0
            .iter()
            // Without what is not required `run` starts all the same.
            .filter(|finding| finding.purpose == Purpose::Ebpf && finding.is_required)
            .filter_map(|finding| finding.missing.as_ref())
            .any(|missing| missing.kind == MissingKind::Privilege)
    }

    /// Whether `auto` may fall back to `sock-diag`: no privilege is missing, only what nobody can grant.
    #[must_use]
    pub fn allow_fallback(&self) -> bool {
        self.missing_for(Purpose::SockDiag).next().is_none() && !self.lack_privilege()
    }

    fn missing_for(&self, purpose: Purpose) -> impl Iterator<Item = &Missing> {
        self.0
            .iter()
            .filter(move |finding| finding.purpose == purpose)
            .filter_map(|finding| finding.missing.as_ref())
    }

    /// The table, and below it what to do. It is what `check` prints and what `run` says before exit code 3.
    #[must_use]
    pub fn explain(&self) -> String {
        let width = self.0.iter().map(|finding| finding.name.chars().count()).max().unwrap_or(0);
        let mut text = String::new();
        for Finding { name, is_required, missing, .. } in &self.0 {
            let Some(missing) = missing else {
                // Writing to a string cannot fail.
                let _ = writeln!(text, "ok       {name}");
                continue;
            };
            let word = if *is_required { "missing" } else { "without" };
            let _ = writeln!(text, "{word}  {name:width$}  {}", missing.reason);
            if !missing.fix.is_empty() {
                let _ = writeln!(text, "         {:width$}  fix: {}", "", missing.fix);
            }
        }
        if self.0.iter().any(|finding| finding.missing.is_some() && !finding.is_required) {
            text.push_str("(without: nothing else depends on it, only its own signal is unknown)\n");
        }
        text.push('\n');
        let sock_diag_works = self.missing_for(Purpose::SockDiag).next().is_none();
        text.push_str(match (self.is_full(), sock_diag_works) {
            (true, _) => "`ackbeat run` starts in full (mode ebpf).\n",
            (false, true) => {
                "`ackbeat run` cannot start in full. Grant what is missing, or accept less with \
                 `ackbeat run --mode sock-diag`: no capability is needed, but heartbeats, resets and the closing process are \
                 unknown.\n"
            }
            (false, false) => "`ackbeat run` cannot start in any mode.\n",
        });
        text
    }
}

fn sock_diag_finding() -> Finding {
    Finding {
        name: "netlink sock_diag".to_owned(),
        purpose: Purpose::SockDiag,
        is_required: true,
        missing: SockDiagSource::open(Ports::Listening).err().map(|error| Missing {
            kind: MissingKind::Feature,
            reason: error.to_string(),
            fix: "allow AF_NETLINK sockets, or a kernel with CONFIG_INET_DIAG".to_owned(),
        }),
    }
}

fn window_probes_finding() -> Finding {
    Finding {
        name: "raw socket (own window probes, if probe.window is on)".to_owned(),
        purpose: Purpose::WindowProbes,
        is_required: false,
        missing: RawSocketProber::open().err().map(|error| Missing {
            kind: MissingKind::Privilege,
            reason: error.cause.to_string(),
            fix: error.fix.to_owned(),
        }),
    }
}

fn sandbox_finding() -> Finding {
    Finding {
        name: "seccomp filter (security.sandbox)".to_owned(),
        purpose: Purpose::Sandbox,
        is_required: false,
        missing: Sandbox::probe().err().map(|reason| Missing {
            kind: MissingKind::Feature,
            reason,
            fix: "none is needed: capabilities are given up without it too".to_owned(),
        }),
    }
}

fn of_probe(probe: ebpf::Probe) -> Finding {
    let missing = match probe.outcome {
        Outcome::Works => None,
        Outcome::Missing { reason, fix, kind } => Some(Missing { kind, reason, fix }),
        Outcome::NotTried { after, kind } => {
            Some(Missing { kind, reason: format!("not tried: {after} came before it"), fix: String::new() })
        }
    };
    Finding { name: probe.thing.to_owned(), purpose: Purpose::Ebpf, is_required: probe.required, missing }
}

#[cfg(test)]
mod tests;
