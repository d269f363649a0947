//! The page in its two forms.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::super::page::Form;
use super::*;

#[test]
fn the_form_is_what_the_client_likes_best() {
    use Form::{OpenMetrics, Text};
    for (accept, form) in [
        (None, Text),
        (Some(""), Text),
        (Some("*/*"), Text),
        // curl, a browser, and something that cannot be had.
        (Some("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"), Text),
        (Some("application/json"), Text),
        // Prometheus 2.42, 2.50 with protobuf, and 3.
        (
            Some(
                "application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ),
            OpenMetrics,
        ),
        (
            Some(
                "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited,\
                 application/openmetrics-text;version=1.0.0;q=0.8,application/openmetrics-text;version=0.0.1;q=0.75,\
                 text/plain;version=0.0.4;q=0.5,*/*;q=0.1",
            ),
            OpenMetrics,
        ),
        (
            Some(
                "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.5,text/plain;version=1.0.0;q=0.4,\
                 text/plain;version=0.0.4;q=0.2,*/*;q=0.1",
            ),
            OpenMetrics,
        ),
        (Some("text/plain;version=0.0.4;q=0.9, application/openmetrics-text;q=0.3"), Text),
        (Some("application/openmetrics-text; version=\"1.0.0\""), OpenMetrics),
        (Some("Application/OpenMetrics-Text"), OpenMetrics),
        (Some("application/openmetrics-text;version=0.0.1"), Text),
        (Some("application/openmetrics-text;q=0, */*;q=0.1"), Text),
        (Some("application/*, text/*;q=0.5"), OpenMetrics),
        (Some(";;q=,,=;q=x"), Text),
    ] {
        assert_eq!(Form::accepted(accept), form, "{accept:?}");
    }
}

/// A series with its labels in order. The two forms write a bound in two ways, and have it at two places among the labels.
fn normal(series: &str) -> String {
    let Some((name, labels)) = series.trim_end_matches('}').split_once('{') else { return series.to_owned() };
    let mut labels: Vec<String> = labels
        .split(',')
        .map(|label| if label.starts_with("le=") { label.replace(".0\"", "\"") } else { label.to_owned() })
        .collect();
    labels.sort_unstable();
    format!("{name}{{{}}}", labels.join(","))
}

/// Samples of a page: everything but comments, without exemplars, with numbers as numbers.
fn samples(page: &str) -> Vec<(String, f64)> {
    let mut samples: Vec<(String, f64)> = page
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let line = line.split(" # ").next().unwrap();
            let (series, value) = line.rsplit_once(' ').unwrap();
            (normal(series), value.parse().unwrap())
        })
        .filter(|(series, _)| !series.starts_with("process_"))
        .collect();
    samples.sort_by(|one, other| one.0.cmp(&other.0));
    samples
}

#[test]
fn both_forms_say_the_same() {
    let pipeline = start(&plan(&[]));
    record_everything(&pipeline.metrics());
    let page = pipeline.page().unwrap();
    let (text, open_metrics) = (page.render(Form::Text).unwrap(), page.render(Form::OpenMetrics).unwrap());
    assert_eq!(samples(&text), samples(&open_metrics));
    assert!(open_metrics.ends_with("# EOF\n"));
    assert!(!text.contains("# EOF") && !text.contains("trace_id"));
    assert!(open_metrics.contains("# TYPE ackbeat_host_closes counter\n"));
    assert!(open_metrics.contains("# TYPE target info\n"));
    assert!(open_metrics.contains("target_info{service_name=\"ackbeat\"} 1\n"), "{open_metrics}");
    insta::assert_snapshot!("open_metrics", without_what_varies(&open_metrics));
}

/// The page without what the process costs and when the closes were.
fn without_what_varies(page: &str) -> String {
    let still = |line: &str| match line.rsplit_once(' ') {
        Some((start, _)) if line.contains("trace_id") => format!("{start} (time)"),
        Some((start, _)) if line.starts_with("process_") => format!("{start} (varies)"),
        _ => line.to_owned(),
    };
    page.lines().map(|line| still(line) + "\n").collect()
}

#[test]
fn the_latest_sampled_close_of_a_series_is_its_exemplar() {
    let pipeline = start(&plan(&[]));
    let metrics = pipeline.metrics();
    let page = pipeline.page().unwrap();
    let line = |series: &str| {
        let text = page.render(Form::OpenMetrics).unwrap();
        text.lines()
            .find(|line| line.starts_with(series))
            .unwrap_or_else(|| panic!("{series}: {text}"))
            .to_owned()
    };
    let of_false_kills = r#"ackbeat_false_kills_total{ackbeat_close_kind="heartbeat_kill"}"#;
    assert!(!line(of_false_kills).contains('#'));
    for number in 1..=300 {
        metrics.closed(&records::false_kill(), &span(number));
    }
    // Of another series, and one that nobody can look up.
    metrics.closed(&records::justified_kill(), &span(500));
    let unsampled = SpanContext::new(
        TraceId::from(7_u128),
        SpanId::from(7_u64),
        TraceFlags::NOT_SAMPLED,
        false,
        TraceState::NONE,
    );
    metrics.closed(&records::false_kill(), &unsampled);
    let line = line(of_false_kills);
    let expected =
        format!(r#"{of_false_kills} 301.0 # {{trace_id="{:032x}",span_id="{:016x}"}} 1.0 "#, 300, 300);
    assert!(line.starts_with(&expected), "{line}");
    let at: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs_f64();
    assert!((now - 60.0..=now).contains(&at), "{line}");
}

#[test]
fn it_is_read_while_it_is_written_from_many_threads() {
    const WRITERS: u64 = 8;
    const CLOSES: u64 = 100;
    let pipeline = start(&plan(&[]));
    let is_done = AtomicBool::new(false);
    let page = pipeline.page().unwrap();
    let false_kills = |text: &str| -> f64 {
        let series = r#"ackbeat_false_kills_total{ackbeat_close_kind="heartbeat_kill"} "#;
        let rest = text.lines().find_map(|line| line.strip_prefix(series)).unwrap();
        rest.split(' ').next().unwrap().parse().unwrap()
    };
    std::thread::scope(|scope| {
        for form in [Form::Text, Form::OpenMetrics] {
            let (page, is_done) = (page.clone(), &is_done);
            scope.spawn(move || {
                let (mut last, mut reads) = (0.0, 0);
                while !is_done.load(Ordering::Acquire) || reads == 0 {
                    let text = page.render(form).unwrap();
                    let now = false_kills(&text);
                    assert!(now >= last, "a counter fell from {last} to {now}");
                    for line in
                        text.lines().filter(|line| !line.starts_with('#') && line.contains("_share_ratio "))
                    {
                        let share: f64 = line.rsplit_once(' ').unwrap().1.parse().unwrap();
                        assert!((0.0..=1.0).contains(&share), "{line}");
                    }
                    (last, reads) = (now, reads + 1);
                }
            });
        }
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let metrics = pipeline.metrics();
                scope.spawn(move || {
                    for number in 0..CLOSES {
                        metrics.closed(&records::false_kill(), &span(writer * CLOSES + number + 1));
                        metrics.answered(&answered(Some(number), Some(number)));
                        sweep(&metrics, 2);
                    }
                })
            })
            .collect();
        let start = Instant::now();
        while writers.iter().any(|writer| !writer.is_finished()) {
            assert!(
                start.elapsed() < Duration::from_secs(120),
                "somebody who records is held up by who reads"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        is_done.store(true, Ordering::Release);
    });
    #[expect(clippy::cast_precision_loss, reason = "a few thousand")]
    let expected = (WRITERS * CLOSES) as f64;
    assert!((false_kills(&page.render(Form::Text).unwrap()) - expected).abs() < f64::EPSILON);
}
