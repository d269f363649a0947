//! The Secret that replicas share.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::cluster::Cluster;
use crate::webhook::authorities::Times;
use crate::webhook::certificates::{Certificates, SecretSource, Source};
use crate::webhook::{CertificateOptions, Counters, Options};

fn source(client: &kube::Client) -> SecretSource {
    let options = Options {
        settings: ackbeat_injection::Settings::default(),
        listen: ([127, 0, 0, 1], 0).into(),
        http_listen: ([127, 0, 0, 1], 0).into(),
        namespace: "tools".to_owned(),
        certificates: CertificateOptions::Secret {
            name: "tls".to_owned(),
            service: "ackbeat".to_owned(),
            configuration: "ackbeat".to_owned(),
            times: Times { leaf_s: 86_400, authority_s: 864_000, overlap_s: 60 },
            check: Duration::from_secs(30),
        },
        has_events: false,
    };
    match Source::new(&options, client.clone()).unwrap() {
        Source::Secret(source) => *source,
        Source::Folder(_) => panic!("a Secret was asked for"),
    }
}

fn text(secret: &Value, key: &str) -> String {
    let data = secret["data"][key].as_str().unwrap_or_else(|| panic!("{key} is missing"));
    String::from_utf8(STANDARD.decode(data).unwrap()).unwrap()
}

#[tokio::test]
async fn an_empty_secret_is_filled_and_the_api_server_told() {
    let (client, cluster) = Cluster::start();
    let counters = Counters::new().unwrap();
    let (first, second) = (Arc::new(Certificates::new()), Arc::new(Certificates::new()));
    let (mut one, mut other) = (source(&client), source(&client));
    assert!(!first.is_ready());
    cluster.lock().conflicts = 1;
    one.check(&first, &counters).await.unwrap();
    assert!(first.is_ready());
    let secret = cluster.lock().secret.clone();
    let bundle = text(&secret, "ca.crt");
    assert!(
        text(&secret, "tls.crt").contains("BEGIN CERTIFICATE")
            && text(&secret, "tls.key").contains("PRIVATE KEY")
    );
    let trusted = cluster.lock().configuration["webhooks"][0]["clientConfig"]["caBundle"].clone();
    assert_eq!(trusted, json!(STANDARD.encode(&bundle)));

    // Another replica takes what is there.
    other.check(&second, &counters).await.unwrap();
    assert_eq!(cluster.lock().secret, secret);
    assert!(second.is_ready());

    // Somebody takes everything away: what callers trust comes back.
    cluster.lock().secret["data"] = json!({});
    cluster.lock().configuration["webhooks"][0]["clientConfig"] = json!({});
    one.check(&first, &counters).await.unwrap();
    assert_eq!(text(&cluster.lock().secret, "ca.crt"), bundle);
    assert_eq!(cluster.lock().configuration["webhooks"][0]["clientConfig"]["caBundle"], trusted);
    let page = counters.page();
    assert!(page.contains("ackbeat_webhook_certificate_rotations_total{what=\"authority\"} 1"), "{page}");
}

#[tokio::test]
async fn a_missing_right_is_named() {
    let (_, _) = Cluster::start();
    let client = kube::Client::new(axum::Router::new(), "tools");
    let error = source(&client).check(&Certificates::new(), &Counters::new().unwrap()).await.unwrap_err();
    assert!(error.to_string().starts_with("reading the Secret tls (right: get) failed"), "{error}");
}
