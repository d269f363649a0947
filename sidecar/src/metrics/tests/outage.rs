//! A collector that is away.

use std::time::{Duration, Instant};

use super::super::page::Form;
use super::*;

const DEADLINE: Duration = Duration::from_secs(60);

fn variables(endpoint: &str, protocol: &str) -> MetricsPlan {
    plan(&[
        ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", endpoint),
        ("OTEL_EXPORTER_OTLP_METRICS_PROTOCOL", protocol),
        ("OTEL_METRIC_EXPORT_INTERVAL", "20"),
    ])
}

/// Over gRPC an exporter lives on a runtime.
fn with_runtime(test: impl FnOnce()) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let context = runtime.enter();
    test();
    drop(context);
    runtime.shutdown_background();
}

fn one_that_is_down_is_counted(protocol: &str) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    with_runtime(|| {
        let pipeline = start(&variables(&endpoint, protocol));
        let start = Instant::now();
        let failed = || {
            let page = pipeline.page().unwrap().render(Form::Text).unwrap();
            let series = "ackbeat_export_metrics_total{outcome=\"failed\"} ";
            let failed = page.lines().find_map(|line| line.strip_prefix(series)).unwrap();
            assert!(page.contains("ackbeat_export_metrics_total{outcome=\"exported\"} 0\n"), "{page}");
            failed.parse::<u64>().unwrap()
        };
        while failed() < 2 {
            pipeline.metrics().closed(&records::false_kill(), &span(1));
            assert!(start.elapsed() < DEADLINE, "no export failed");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(!pipeline.shut_down(DEADLINE), "nobody took the last totals");
    });
}

#[test]
fn one_that_is_down_is_counted_over_http() {
    one_that_is_down_is_counted("http/protobuf");
}

#[test]
fn one_that_is_down_is_counted_over_grpc() {
    one_that_is_down_is_counted("grpc");
}

fn one_that_never_answers_holds_up_nobody(protocol: &str) {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    with_runtime(|| {
        let pipeline = start(&variables(&endpoint, protocol));
        // Until an export hangs in it.
        let (_stream, _) = listener.accept().unwrap();
        let start = Instant::now();
        for number in 1..=2_000 {
            pipeline.metrics().closed(&records::false_kill(), &span(number));
        }
        pipeline.page().unwrap().render(Form::OpenMetrics).unwrap();
        // An export would take ten seconds, thirty with what the SDK adds.
        assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
        let start = Instant::now();
        assert!(!pipeline.shut_down(Duration::from_millis(200)));
        assert!(start.elapsed() < Duration::from_secs(9), "{:?}", start.elapsed());
    });
}

#[test]
fn one_that_never_answers_holds_up_nobody_over_http() {
    one_that_never_answers_holds_up_nobody("http/protobuf");
}

#[test]
fn one_that_never_answers_holds_up_nobody_over_grpc() {
    one_that_never_answers_holds_up_nobody("grpc");
}
