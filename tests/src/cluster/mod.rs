//! A real Kubernetes of one node, without an image registry: etcd, API server, controllers, scheduler, kube-proxy, kubelet
//! and containerd, all in a network namespace of their own.

mod kubectl;
mod node;
mod remains;

pub use kubectl::{Kubectl, Said};
pub use node::{NODE_ADDRESS, Node, NodePart};
