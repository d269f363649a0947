//! Names of peers: which addresses are whose, how many are kept, and what a server that refuses or goes away costs.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::server::{Answer, Server, own_pod, pod, until};
use crate::kubernetes::following::Patience;
use crate::kubernetes::peers::ADDRESSES_MAX;
use crate::kubernetes::{KubernetesCounters, PeerKind, Peers};

struct Scene {
    server: Server,
    peers: Peers,
    counters: Arc<KubernetesCounters>,
}

fn scene(is_everywhere: bool, patience: Patience, prepare: impl FnOnce(&Server)) -> Scene {
    let server = Server::start();
    prepare(&server);
    let counters = Arc::new(KubernetesCounters::default());
    let peers = Peers::start(&server.connection(), &own_pod(), is_everywhere, &counters, patience);
    Scene { server, peers, counters }
}

impl Scene {
    fn name_of(&self, address: &str) -> Option<String> {
        self.peers.name_of(address.parse::<IpAddr>().unwrap()).map(|name| name.to_string())
    }

    fn known(&self, kind: PeerKind) -> u64 {
        self.counters.peers().unwrap()[kind as usize].1
    }
}

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service",
        "metadata": {"name": "relay", "namespace": "shop", "uid": "u-relay", "resourceVersion": "1"},
        "spec": {"clusterIP": "10.96.0.7", "clusterIPs": ["10.96.0.7", "fd00:96::7"], "ports": [{"port": 80}], "externalIPs": ["192.0.2.9"]},
        "status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.7"}, {"hostname": "lb.example"}]}},
    })
}

#[tokio::test]
async fn pods_and_services_are_known_by_their_addresses_as_they_come_and_go() {
    let scene = scene(false, Patience::default(), |server| {
        let mut cluster = server.cluster.lock();
        cluster.pods.push(pod("shop", "reader-0", "u-0", "10.1.0.5"));
        cluster.pods.push(pod("other", "reader-9", "u-9", "10.1.0.9"));
        let mut on_the_node = pod("shop", "agent", "u-a", "192.0.2.1");
        on_the_node["spec"]["hostNetwork"] = json!(true);
        cluster.pods.push(on_the_node);
        let mut over = pod("shop", "job", "u-j", "10.1.0.6");
        over["status"]["phase"] = json!("Succeeded");
        cluster.pods.push(over);
        let mut waiting = pod("shop", "new", "u-n", "");
        waiting["status"] = json!({"phase": "Pending", "podIPs": null});
        cluster.pods.push(waiting);
        cluster.services.push(service());
        let mut headless = service();
        headless["metadata"]["uid"] = json!("u-headless");
        headless["spec"] = json!({"clusterIP": "None", "clusterIPs": ["None"]});
        headless["status"] = json!({"loadBalancer": {}});
        cluster.services.push(headless);
    });
    until("both watches", || scene.server.cluster.lock().watches == 2).await;
    until("names", || scene.known(PeerKind::Pod) == 1 && scene.known(PeerKind::Service) == 4).await;
    assert_eq!(scene.name_of("10.1.0.5").as_deref(), Some("pod shop/reader-0"));
    assert_eq!(scene.name_of("::ffff:10.1.0.5").as_deref(), Some("pod shop/reader-0"));
    for address in ["10.96.0.7", "fd00:96::7", "192.0.2.7", "192.0.2.9"] {
        assert_eq!(scene.name_of(address).as_deref(), Some("service shop/relay"), "{address}");
    }
    for address in ["10.1.0.9", "192.0.2.1", "10.1.0.6", "10.1.0.7"] {
        assert_eq!(scene.name_of(address), None, "{address}");
    }
    let change = |kind: &str, object: Value| scene.server.cluster.lock().change(kind, &object);
    change("MODIFIED", pod("shop", "new", "u-n", "fd00::7"));
    until("the new pod", || scene.name_of("fd00::7").is_some()).await;
    // Who is gone is known for a while: his closes are told late. Who has his address next is the one.
    change("DELETED", pod("shop", "reader-0", "u-0", "10.1.0.5"));
    change("ADDED", pod("shop", "mark", "u-m", "10.1.0.77"));
    until("the mark", || scene.name_of("10.1.0.77").is_some()).await;
    assert_eq!(scene.name_of("10.1.0.5").as_deref(), Some("pod shop/reader-0"));
    change("ADDED", pod("shop", "reader-1", "u-1", "10.1.0.5"));
    until("the next", || scene.name_of("10.1.0.5").as_deref() == Some("pod shop/reader-1")).await;
    assert_eq!(scene.counters.peers_left_out(), Some(0));
}

#[tokio::test]
async fn of_10_001_pods_one_finds_no_room_and_is_counted() {
    let scene = scene(true, Patience::default(), |server| {
        server.cluster.lock().pods = (0..10_001_u32)
            .map(|number| {
                let address = IpAddr::from((0x0a00_0000 + number).to_be_bytes());
                pod("crowd", &format!("p-{number}"), &format!("u-{number}"), &address.to_string())
            })
            .collect();
    });
    until("the whole list", || scene.counters.peers_left_out() == Some(1)).await;
    until("the watches", || scene.server.cluster.lock().watches == 2).await;
    assert_eq!(scene.known(PeerKind::Pod), ADDRESSES_MAX as u64);
    assert_eq!(scene.name_of("10.0.39.15").as_deref(), Some("pod crowd/p-9999"));
    assert_eq!(scene.name_of("10.0.39.16"), None);
    let lists = scene.server.cluster.lock().lists.clone();
    assert!(
        lists.iter().filter(|list| list.starts_with("/api/v1/pods?")).count() > 20,
        "page by page: {lists:?}"
    );
}

#[tokio::test]
async fn a_refusal_is_no_name_and_a_right_that_comes_is_used() {
    let patience = Patience { refused: Duration::from_millis(50), ..Patience::default() };
    let scene = scene(false, patience, |server| {
        let mut cluster = server.cluster.lock();
        cluster.answer = Answer::With(StatusCode::FORBIDDEN);
        cluster.pods.push(pod("shop", "reader-0", "u-0", "10.1.0.5"));
    });
    until("some refusals", || scene.server.cluster.lock().requests >= 6).await;
    assert_eq!(scene.name_of("10.1.0.5"), None);
    scene.server.cluster.lock().answer = Answer::Properly;
    until("a name", || scene.name_of("10.1.0.5").is_some()).await;
}

#[tokio::test]
async fn names_outlive_a_short_absence_and_not_a_long_one() {
    let patience = Patience { forget: Duration::from_secs(2), ..Patience::default() };
    let mut scene = scene(false, patience, |server| {
        server.cluster.lock().pods.push(pod("shop", "reader-0", "u-0", "10.1.0.5"));
    });
    until("a name", || scene.name_of("10.1.0.5").is_some()).await;
    until("both watches", || scene.server.cluster.lock().watches == 2).await;
    scene.server.go_away().await;
    assert!(scene.name_of("10.1.0.5").is_some(), "at first it is what it was");
    until("it is forgotten", || scene.name_of("10.1.0.5").is_none()).await;
    assert_eq!(scene.known(PeerKind::Pod), 0);
    scene.server.cluster.lock().change("MODIFIED", &pod("shop", "reader-0", "u-0", "10.1.0.8"));
    scene.server.come_back();
    until("what is there by now", || scene.name_of("10.1.0.8").is_some()).await;
    assert_eq!(scene.name_of("10.1.0.5"), None);
}
