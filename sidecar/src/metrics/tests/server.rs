//! The listener.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::super::server;
use super::*;

const DEADLINE: Duration = Duration::from_secs(60);

async fn serving(pipeline: &MetricsPipeline) -> SocketAddr {
    server::start("127.0.0.1:0".parse().unwrap(), pipeline.page().unwrap()).await.unwrap()
}

/// A request as it goes over the wire, and its answer.
async fn ask(address: SocketAddr, request: &str) -> String {
    let answer = async {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    };
    tokio::time::timeout(DEADLINE, answer).await.unwrap()
}

fn get(path: &str, header: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{header}\r\n")
}

#[tokio::test]
async fn the_answer_has_the_media_type_of_its_form() {
    let pipeline = start(&plan(&[]));
    record_everything(&pipeline.metrics());
    let address = serving(&pipeline).await;
    let text = ask(address, &get("/metrics", "")).await;
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    assert!(text.contains("content-type: text/plain; version=0.0.4; charset=utf-8\r\n"), "{text}");
    assert!(text.contains("ackbeat_host_closes_total{"), "{text}");
    let open_metrics = ask(
        address,
        &get(
            "/metrics",
            "Accept: text/plain;q=0.5\r\nAccept: application/openmetrics-text;version=1.0.0\r\n",
        ),
    )
    .await;
    let media_type = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n";
    assert!(open_metrics.contains(media_type), "{open_metrics}");
    assert!(open_metrics.ends_with("# EOF\n"), "{open_metrics}");
    assert!(ask(address, &get("/", "")).await.starts_with("HTTP/1.1 404"));
    let post = "POST /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 0\r\n\r\n";
    assert!(ask(address, post).await.starts_with("HTTP/1.1 405"));
}

#[tokio::test]
async fn an_address_that_is_taken_is_told_with_the_setting() {
    let taken = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let pipeline = start(&plan(&[]));
    let error =
        server::start(taken.local_addr().unwrap(), pipeline.page().unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("metrics.listen") && error.contains("127.0.0.1:"), "{error}");
}

#[tokio::test]
async fn whoever_connects_and_says_nothing_keeps_nobody_out_for_long() {
    let pipeline = start(&plan(&[]));
    let address = serving(&pipeline).await;
    let mut silent = Vec::new();
    for _ in 0..70 {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    assert!(ask(address, &get("/metrics", "")).await.starts_with("HTTP/1.1 200"));
}
