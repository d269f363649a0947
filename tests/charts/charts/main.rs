//! Rank `in-process`: both charts by the real Helm 3 and 4, against the real schemas of Kubernetes.

mod demo;
mod dry_run;
mod example;
mod injection;
mod kind;
mod matrix;
mod monitoring;
mod pod_security;
mod render;
mod rights;
mod schemas;
mod seccomp;
mod tls;
mod values;
