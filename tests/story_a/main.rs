//! Rank `namespaces`: the main story, on real sockets.
