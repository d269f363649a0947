//! Certificates against time.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};

use crate::webhook::authorities::{Chain, Step, Times};

const BEGIN_S: i64 = 1_900_000_000;

fn names() -> Vec<String> {
    vec!["ackbeat.tools.svc".to_owned()]
}

/// Whether somebody who trusts this bundle takes this certificate at this time.
fn is_taken(bundle: &str, certificate: &str, now_s: i64) -> bool {
    let mut roots = RootCertStore::empty();
    for root in CertificateDer::pem_slice_iter(bundle.as_bytes()) {
        roots.add(root.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let leaf = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let name = ServerName::try_from("ackbeat.tools.svc").unwrap();
    let now = UnixTime::since_unix_epoch(Duration::from_secs(now_s.unsigned_abs()));
    verifier.verify_server_cert(&leaf, &[], &name, &[], now).is_ok()
}

#[test]
fn no_caller_ever_trusts_the_wrong_one() {
    let times = Times { leaf_s: 6_000, authority_s: 18_000, overlap_s: 600 };
    let (step_s, lag) = (100, 5);
    let mut chain = Chain::default();
    let mut steps = Vec::new();
    // What was written in the last 500 s: a caller may know any of the bundles, and a replica serve any of the leaves.
    let mut bundles: VecDeque<String> = VecDeque::new();
    let mut leaves: VecDeque<String> = VecDeque::new();
    for now_s in (BEGIN_S..BEGIN_S + 60_000).step_by(step_s) {
        while let Some(step) = chain.step(now_s, &names(), times).unwrap() {
            steps.push(step);
        }
        bundles.push_back(chain.bundle());
        leaves.push_back(chain.leaf().unwrap().0.to_owned());
        if bundles.len() > lag {
            bundles.pop_front();
            leaves.pop_front();
        }
        let (old_bundle, new_bundle) = (bundles.front().unwrap(), bundles.back().unwrap());
        let (old_leaf, new_leaf) = (leaves.front().unwrap(), leaves.back().unwrap());
        for (bundle, leaf) in [(old_bundle, new_leaf), (new_bundle, old_leaf), (new_bundle, new_leaf)] {
            assert!(is_taken(bundle, leaf, now_s), "{} s after the beginning: {steps:?}", now_s - BEGIN_S);
        }
    }
    let count = |wanted: Step| steps.iter().filter(|step| **step == wanted).count();
    assert_eq!(count(Step::Begun), 1);
    assert!(count(Step::AuthorityAdded) >= 4, "{steps:?}");
    assert!(count(Step::AuthorityDropped) >= 3, "{steps:?}");
    assert!(count(Step::LeafRenewed) > count(Step::AuthorityAdded), "{steps:?}");
}

#[test]
fn what_ended_begins_anew_and_other_names_need_another_leaf() {
    let times = Times { leaf_s: 6_000, authority_s: 18_000, overlap_s: 600 };
    let mut chain = Chain::default();
    assert_eq!(chain.step(BEGIN_S, &names(), times).unwrap(), Some(Step::Begun));
    assert_eq!(chain.step(BEGIN_S, &names(), times).unwrap(), None);
    let other = vec!["other.tools.svc".to_owned()];
    assert_eq!(chain.step(BEGIN_S + 1, &other, times).unwrap(), Some(Step::LeafRenewed));
    assert_eq!(chain.step(BEGIN_S + 1, &other, times).unwrap(), None);
    // The webhook was away for longer than anything counts.
    assert_eq!(chain.step(BEGIN_S + 100_000, &names(), times).unwrap(), Some(Step::Begun));
    assert_eq!(chain.step(BEGIN_S + 100_000, &names(), times).unwrap(), None);
    assert!(is_taken(&chain.bundle(), chain.leaf().unwrap().0, BEGIN_S + 100_000));
    let written = serde_json::to_vec(&chain).unwrap();
    assert_eq!(serde_json::from_slice::<Chain>(&written).unwrap(), chain);
}
