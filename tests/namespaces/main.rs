//! Rank `namespaces`: the sidecar beside real sockets, in network namespaces, as root.

mod api;
mod attribution;
mod clsact;
mod drop_in;
mod faults;
mod garbage;
mod heartbeat_position;
mod hosts;
mod leaks;
mod load;
mod middle;
mod path;
mod planned_restarts;
mod pools;
mod privileges;
mod quota_relay;
mod relay;
mod reported_heartbeats;
mod restart;
mod scene;
mod socket_statistics;
mod storms;
mod text_heartbeats;
mod top;
mod unprivileged;
mod window_probe;
