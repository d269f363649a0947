//! What came of it.

use json_patch::Patch;

use crate::facts::{PodSecurity, ServerVersion};
use crate::settings::Mode;

/// What came of one pod or pod template.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The result.
    pub outcome: Outcome,
    /// What whoever made the pod should know, whatever the result.
    pub warnings: Vec<String>,
}

/// The result for one pod or pod template.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// The sidecar is added.
    Injected {
        /// What changes.
        patch: Patch,
        /// The sidecar's mode.
        mode: Mode,
        /// Whether it is a native sidecar.
        is_native: bool,
    },
    /// The sidecar was there and is brought up to date.
    Updated {
        /// What changes.
        patch: Patch,
        /// The sidecar's mode.
        mode: Mode,
        /// Whether it is a native sidecar.
        is_native: bool,
    },
    /// The sidecar is there and is what it would be.
    Unchanged,
    /// The sidecar is taken out.
    Removed {
        /// What changes.
        patch: Patch,
    },
    /// Nobody asked for a sidecar, or there is none to take out.
    NotWanted(NotWanted),
    /// A sidecar is wanted, but this pod is left alone.
    Skipped(Skip),
}

impl Outcome {
    /// What changes; `None` for nothing.
    #[must_use]
    pub const fn patch(&self) -> Option<&Patch> {
        match self {
            Self::Injected { patch, .. } | Self::Updated { patch, .. } | Self::Removed { patch } => {
                Some(patch)
            }
            Self::Unchanged | Self::NotWanted(_) | Self::Skipped(_) => None,
        }
    }

    /// A word for it: the label `outcome` of the webhook's counter.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Injected { .. } => "injected",
            Self::Updated { .. } => "updated",
            Self::Unchanged => "unchanged",
            Self::Removed { .. } => "removed",
            Self::NotWanted(_) => "not_wanted",
            Self::Skipped(_) => "skipped",
        }
    }
}

/// Why nobody wants a sidecar in a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotWanted {
    /// The pod opts out.
    #[error("its annotation ackbeat.dev/inject says disabled")]
    Disabled,
    /// The namespace opts out.
    #[error("its namespace's ackbeat.dev/inject says disabled")]
    NamespaceDisabled,
    /// Neither says anything.
    #[error("neither it nor its namespace asks for it with ackbeat.dev/inject: enabled")]
    NotAsked,
    /// Nothing was injected.
    #[error("there is no injected sidecar in it")]
    NotInjected,
}

/// Why a pod that wants a sidecar is left alone. Every message says what would help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Skip {
    /// An annotation cannot be read.
    #[error("annotation {name}: {problem}")]
    BadAnnotation {
        /// The annotation.
        name: String,
        /// What is wrong, and what would be right.
        problem: String,
    },
    /// The pod is on the node's network.
    #[error(
        "hostNetwork: true: the sidecar would see every socket of the node, and its ports are the node's; \
         set allowHostNetwork in the injector's settings if that is wanted"
    )]
    HostNetwork,
    /// The pod is for Windows.
    #[error("it is for Windows, and the sidecar runs on Linux only")]
    Windows,
    /// The pod is the API server's image of a static pod.
    #[error("it mirrors a static pod, which only its node's files can change")]
    MirrorPod,
    /// A container has the sidecar's name.
    #[error(
        "it has a container named `ackbeat` that was not injected (a library chart, or by hand); \
         rename or remove it to have it injected"
    )]
    ForeignContainer,
    /// The note says that there is a sidecar, and there is none.
    #[error(
        "annotation ackbeat.dev/status says that the sidecar is there, but no container is named `ackbeat`; \
         remove that annotation"
    )]
    ContainerGone,
    /// The pod ends, and an ordinary sidecar would not.
    #[error(
        "restartPolicy: {restart_policy}: an ordinary sidecar would keep it from ending; it needs a native one \
         (Kubernetes 1.29 or later, --native-sidecar)"
    )]
    RunsToCompletion {
        /// `Never` or `OnFailure`.
        restart_policy: String,
    },
    /// A native sidecar is demanded of a server that has none.
    #[error(
        "nativeSidecar: always, but the server is {server} and would wait for the sidecar's end before it starts the \
         application; native sidecars need 1.29, use auto"
    )]
    NoNativeSidecars {
        /// The server's version.
        server: ServerVersion,
    },
    /// The namespace forbids capabilities, and the pod demands mode `ebpf`.
    #[error(
        "mode ebpf needs capabilities, which PodSecurity `{}` of its namespace forbids; use ackbeat.dev/mode: auto or \
         sock-diag", level.as_str()
    )]
    PodSecurity {
        /// The level.
        level: PodSecurity,
    },
    /// The pod has its own user namespace, and demands mode `ebpf`.
    #[error(
        "mode ebpf loads kernel programs, which no user namespace may (hostUsers: false); use ackbeat.dev/mode: auto \
         or sock-diag"
    )]
    UserNamespace,
    /// It is no pod as the API server would take it.
    #[error("{at} is not {expected}")]
    Malformed {
        /// Where, as a path in the pod.
        at: String,
        /// What belongs there.
        expected: &'static str,
    },
}

impl Skip {
    /// A word for it: the label `reason` of the webhook's counter.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::BadAnnotation { .. } => "bad_annotation",
            Self::HostNetwork => "host_network",
            Self::Windows => "windows",
            Self::MirrorPod => "mirror_pod",
            Self::ForeignContainer => "foreign_container",
            Self::ContainerGone => "container_gone",
            Self::RunsToCompletion { .. } => "runs_to_completion",
            Self::NoNativeSidecars { .. } => "no_native_sidecars",
            Self::PodSecurity { .. } => "pod_security",
            Self::UserNamespace => "user_namespace",
            Self::Malformed { .. } => "malformed",
        }
    }
}
