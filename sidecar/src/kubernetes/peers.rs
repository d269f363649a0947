//! Who a peer is: addresses of pods and Services, as a watch tells of them.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::api::ApiResource;
use kube::core::{DynamicResourceScope, Object, ObjectMeta};
use kube::runtime::watcher;
use kube::runtime::watcher::Event;
use kube::{Api, Client, Resource, ResourceExt as _};
use parking_lot::RwLock;
use serde::Deserialize;
use tracing::warn;

use super::OwnPod;
use super::connection::Connection;
use super::counters::{KubernetesCounters, PeerKind};
use super::following::{Followed, Heard, Patience, follow};

/// Addresses of one kind that are known at most.
pub(super) const ADDRESSES_MAX: usize = 10_000;
/// So long somebody who is gone is known by his address: a close is told once its post-mortem is over.
const REMEMBERED: Duration = Duration::from_secs(60);

/// Who has an address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerName {
    /// A pod or a Service.
    pub kind: PeerKind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl std::fmt::Display for PeerName {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// Names of peers. A clone sees the same; nothing in it waits for the API server.
#[derive(Clone, Debug)]
pub struct Peers(Arc<[RwLock<Table>; PeerKind::ALL.len()]>);

impl Peers {
    /// Begins to watch, in the own namespace or (`is_everywhere`) in all. It ends with the runtime.
    pub(super) fn start(
        connection: &Connection,
        pod: &OwnPod,
        is_everywhere: bool,
        counters: &Arc<KubernetesCounters>,
        patience: Patience,
    ) -> Self {
        let peers = Self(Arc::new(PeerKind::ALL.map(|_| RwLock::default())));
        counters.peers_are_on();
        let scope = (!is_everywhere).then(|| pod.namespace.clone());
        let feed = |kind| Feed { peers: peers.clone(), kind, counters: Arc::clone(counters), is_full: false };
        let (mut pods, mut services) = (feed(PeerKind::Pod), feed(PeerKind::Service));
        tokio::spawn({
            let (connection, scope) = (connection.clone(), scope.clone());
            async move {
                let api: Api<SlimPod> = of::<Pod, _>(connection.await, scope);
                let take = move |heard| pods.take(heard, addresses_of_pod);
                follow(api, watcher::Config::default(), PODS, patience, take).await;
            }
        });
        let connection = connection.clone();
        tokio::spawn(async move {
            let api: Api<SlimService> = of::<Service, _>(connection.await, scope);
            let take = move |heard| services.take(heard, addresses_of_service);
            follow(api, watcher::Config::default(), SERVICES, patience, take).await;
        });
        peers
    }

    /// Who has this address; `None` where that is not known.
    #[must_use]
    pub fn name_of(&self, address: IpAddr) -> Option<Arc<PeerName>> {
        let address = address.to_canonical();
        self.0.iter().find_map(|table| table.read().name_of(address, Instant::now()))
    }
}

const PODS: Followed = Followed {
    purpose: "resolving peers to names of pods",
    right: "list and watch of pods (the chart's sidecarPeers.namespaces)",
    setting: "kubernetes.peers: off",
};
const SERVICES: Followed = Followed {
    purpose: "resolving peers to names of Services",
    right: "list and watch of services (the chart's sidecarPeers.namespaces)",
    setting: "kubernetes.peers: off",
};

fn of<K, S>(client: Client, namespace: Option<String>) -> Api<S>
where
    K: Resource<DynamicType = ()>,
    S: Resource<DynamicType = ApiResource, Scope = DynamicResourceScope>,
{
    let resource = ApiResource::erase::<K>(&());
    match namespace {
        Some(namespace) => Api::namespaced_with(client, &namespace, &resource),
        None => Api::all_with(client, &resource),
    }
}

/// What is read of a pod: nothing else is kept, and most of it is not even parsed.
type SlimPod = Object<SlimPodSpec, SlimPodStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimPodSpec {
    host_network: Option<bool>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimPodStatus {
    phase: Option<String>,
    #[serde(rename = "podIP")]
    pod_ip: Option<String>,
    #[serde(rename = "podIPs")]
    pod_ips: Option<Vec<SlimAddress>>,
}

/// The same of a Service.
type SlimService = Object<SlimServiceSpec, SlimServiceStatus>;

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimServiceSpec {
    #[serde(rename = "clusterIP")]
    cluster_ip: Option<String>,
    #[serde(rename = "clusterIPs")]
    cluster_ips: Option<Vec<String>>,
    #[serde(rename = "externalIPs")]
    external_ips: Option<Vec<String>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimServiceStatus {
    load_balancer: Option<SlimLoadBalancer>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimLoadBalancer {
    ingress: Option<Vec<SlimAddress>>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SlimAddress {
    ip: Option<String>,
}

/// Addresses that are a pod's own: not the node's, and not those of a pod that is over, which others may have by now.
fn addresses_of_pod(pod: &SlimPod) -> Vec<IpAddr> {
    let Some(status) = &pod.status else { return Vec::new() };
    if pod.spec.host_network == Some(true) || matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
    {
        return Vec::new();
    }
    let more = status.pod_ips.iter().flatten().filter_map(|address| address.ip.as_ref());
    parsed(status.pod_ip.iter().chain(more))
}

/// Addresses by which a Service is dialled.
fn addresses_of_service(service: &SlimService) -> Vec<IpAddr> {
    let spec = &service.spec;
    let balanced = service.status.iter().filter_map(|status| status.load_balancer.as_ref()?.ingress.as_ref());
    let all = spec
        .cluster_ip
        .iter()
        .chain(spec.cluster_ips.iter().flatten())
        .chain(spec.external_ips.iter().flatten())
        .chain(balanced.flatten().filter_map(|address| address.ip.as_ref()));
    // A headless Service has `None` in the place of an address.
    parsed(all)
}

fn parsed<'a>(texts: impl Iterator<Item = &'a String>) -> Vec<IpAddr> {
    let mut addresses: Vec<IpAddr> =
        texts.filter_map(|text| text.parse::<IpAddr>().ok()).map(|address| address.to_canonical()).collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// From a watch into a table.
struct Feed {
    peers: Peers,
    kind: PeerKind,
    counters: Arc<KubernetesCounters>,
    is_full: bool,
}

impl Feed {
    fn take<S>(&mut self, heard: Heard<S>, addresses: fn(&S) -> Vec<IpAddr>)
    where
        S: Resource<DynamicType = ApiResource>,
    {
        let Some(table) = self.peers.0.get(self.kind as usize) else { return };
        let now = Instant::now();
        let mut left_out = 0;
        // Dropped after the lock.
        let mut before = None;
        {
            let mut table = table.write();
            match heard {
                Heard::Event(Event::Init) => table.begin(),
                Heard::Event(Event::InitApply(object) | Event::Apply(object)) => {
                    let name = PeerName {
                        kind: self.kind,
                        namespace: object.namespace().unwrap_or_default(),
                        name: object.name_any(),
                    };
                    left_out = table.set(&identity(object.meta()), name, &addresses(&object), now);
                }
                Heard::Event(Event::InitDone) => table.finish(now),
                Heard::Event(Event::Delete(object)) => table.remove(&identity(object.meta()), now),
                Heard::Nothing => before = Some(std::mem::take(&mut *table)),
            }
            self.counters.known_are(self.kind, table.entries.len());
        }
        drop(before);
        if left_out > 0 {
            self.counters.left_out(left_out);
            if !std::mem::replace(&mut self.is_full, true) {
                warn!(
                    target: "ackbeat::kubernetes",
                    "there are more than {ADDRESSES_MAX} addresses of {}s: the others stay without a name",
                    self.kind.as_str()
                );
            }
        }
    }
}

/// What tells one object from another, also from one of the same name later.
fn identity(meta: &ObjectMeta) -> String {
    let part = |text: &Option<String>| text.clone().unwrap_or_default();
    meta.uid.clone().unwrap_or_else(|| format!("{}/{}", part(&meta.namespace), part(&meta.name)))
}

/// Addresses of one kind.
#[derive(Debug, Default)]
struct Table {
    entries: HashMap<IpAddr, Entry>,
    /// Addresses of each object, by its identity.
    of_object: HashMap<String, Vec<IpAddr>>,
    /// When it was last looked for those who can be forgotten.
    looked_at: Option<Instant>,
    /// Which list of all objects is read, or was read last.
    list: u64,
}

#[derive(Debug)]
struct Entry {
    name: Arc<PeerName>,
    owner: String,
    /// The list that had it last.
    list: u64,
    /// Since when nobody has the address.
    gone_at: Option<Instant>,
}

impl Entry {
    fn is_forgotten(&self, now: Instant) -> bool {
        self.gone_at.is_some_and(|gone_at| now.saturating_duration_since(gone_at) > REMEMBERED)
    }
}

impl Table {
    /// A list of all objects begins.
    fn begin(&mut self) {
        self.list += 1;
    }

    /// It is over: what was not in it is gone.
    fn finish(&mut self, now: Instant) {
        let list = self.list;
        for entry in self.entries.values_mut().filter(|entry| entry.list != list) {
            entry.gone_at.get_or_insert(now);
        }
        self.forget(now);
    }

    /// An object has these addresses, and no others. Gives how many found no room.
    fn set(&mut self, owner: &str, name: PeerName, addresses: &[IpAddr], now: Instant) -> u64 {
        for before in self.of_object.remove(owner).unwrap_or_default() {
            if !addresses.contains(&before) {
                self.leave(before, owner, now);
            }
        }
        let name = Arc::new(name);
        let (mut kept, mut left_out) = (Vec::new(), 0);
        for address in addresses {
            if !self.entries.contains_key(address) && self.entries.len() >= ADDRESSES_MAX {
                self.forget(now);
                if self.entries.len() >= ADDRESSES_MAX {
                    left_out += 1;
                    continue;
                }
            }
            let entry =
                Entry { name: Arc::clone(&name), owner: owner.to_owned(), list: self.list, gone_at: None };
            if let Some(before) = self.entries.insert(*address, entry)
                && before.owner != owner
            {
                // Whoever had it before has it no more.
                self.disown(&before.owner, *address);
            }
            kept.push(*address);
        }
        if !kept.is_empty() {
            self.of_object.insert(owner.to_owned(), kept);
        }
        left_out
    }

    /// An object is gone.
    fn remove(&mut self, owner: &str, now: Instant) {
        for address in self.of_object.remove(owner).unwrap_or_default() {
            self.leave(address, owner, now);
        }
        self.forget(now);
    }

    fn leave(&mut self, address: IpAddr, owner: &str, now: Instant) {
        if let Some(entry) = self.entries.get_mut(&address).filter(|entry| entry.owner == owner) {
            entry.gone_at.get_or_insert(now);
        }
    }

    fn disown(&mut self, owner: &str, address: IpAddr) {
        if let Some(addresses) = self.of_object.get_mut(owner) {
            addresses.retain(|other| *other != address);
            if addresses.is_empty() {
                self.of_object.remove(owner);
            }
        }
    }

    /// Forgets who is gone for long, at most once a second.
    fn forget(&mut self, now: Instant) {
        if self.looked_at.is_some_and(|at| now.saturating_duration_since(at) < Duration::from_secs(1)) {
            return;
        }
        self.looked_at = Some(now);
        let mut forgotten = Vec::new();
        self.entries.retain(|address, entry| {
            let stays = !entry.is_forgotten(now);
            if !stays {
                forgotten.push((entry.owner.clone(), *address));
            }
            stays
        });
        for (owner, address) in forgotten {
            self.disown(&owner, address);
        }
    }

    fn name_of(&self, address: IpAddr, now: Instant) -> Option<Arc<PeerName>> {
        self.entries
            .get(&address)
            .filter(|entry| !entry.is_forgotten(now))
            .map(|entry| Arc::clone(&entry.name))
    }
}
