//! What ackbeat changes in a pod to run beside its containers, and how it is taken out again.
//!
//! [`inject`] and [`uninject`] read a manifest and give a JSON Patch (RFC 6902) or the reason why there is none. The admission
//! webhook sends the patch, `ackbeat inject` applies it to a text: one path, so both come to the same result. No IO, no clock,
//! no async, no unsafe. Manifests are `serde_json` values, so fields that nobody here knows survive; nothing panics,
//! whatever they hold.
//!
//! | module | decides |
//! |---|---|
//! | `settings` | what an operator chooses for all pods |
//! | `annotations` | what a pod chooses for itself |
//! | `facts` | what is known of the pod's surroundings: namespace, owners, server |
//! | `pod` | whether a pod is served, and what changes in it |
//! | `container` | the container |
//! | `identity` | `service.name` and the other resource attributes |
//! | `mesh` | service meshes on the pod's loopback |
//! | `status` | the note in the pod that `uninject` and updates go by |
//! | `workload` | where the pods are in each kind |
//! | [`manifest`] | the same for a text, whose comments and order stay |
#![forbid(unsafe_code)]

mod annotations;
mod container;
mod edits;
mod facts;
mod identity;
pub mod manifest;
mod mesh;
mod outcome;
mod pod;
mod quantity;
mod settings;
mod status;
mod workload;

pub use annotations::names;
pub use container::{CONTAINER_NAME, METRICS_PORT_NAME};
pub use facts::{Facts, Namespace, Owner, PodSecurity, ServerVersion};
pub use identity::variables;
pub use json_patch::{Patch, PatchOperation};
pub use outcome::{NotWanted, Outcome, Report, Skip};
pub use settings::{
    BadSetting, EXTRA_CAPABILITIES, ImagePullPolicy, LogLevel, Mode, NativeSidecar, Otlp, OtlpProtocol,
    Peers, Policy, Resources, SeccompProfile, Settings,
};
pub use workload::{inject, is_pod_bearing, uninject};
