//! Rank `namespaces`: the sidecar beside real sockets, in network namespaces, as root.

mod hosts;
mod path;
