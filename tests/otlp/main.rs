//! Rank `namespaces`: spans received by an OTLP receiver that is not ours.
