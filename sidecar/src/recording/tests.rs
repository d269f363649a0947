use std::io::BufReader;
use std::path::Path;

use ackbeat_liveness::{ConnectionId, Input, Policy, Timestamp};

use super::*;

fn header() -> Header {
    Header {
        ackbeat_recording: FORMAT,
        version: "0.1.0".to_owned(),
        mode: "ebpf".to_owned(),
        policy: "default".to_owned(),
        thresholds: Policy::default_policy(),
        ticks: true,
        began_at: Timestamp::from_ms(1),
        began_unix_ns: 5,
    }
}

fn outstanding(ms: u64) -> Input {
    Input::Outstanding { connection: ConnectionId(u64::MAX), at: Timestamp::from_ms(ms) }
}

fn read(text: &str) -> Result<Vec<Line>, ReadError> {
    let lines = Box::new(BufReader::new(std::io::Cursor::new(text.to_owned())));
    let mut reader = Reader::new(Path::new("night.jsonl"), lines)?;
    let mut all = Vec::new();
    while let Some(line) = reader.next_line()? {
        all.push(line);
    }
    if reader.is_cut_off() {
        all.push(Line::Gap(u64::MAX));
    }
    Ok(all)
}

fn header_line() -> String {
    format!("{}\n", serde_json::to_string(&header()).unwrap())
}

#[test]
fn what_is_recorded_is_what_is_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.jsonl");
    let mut recorder = Recorder::begin(&path, 1 << 20, &header()).unwrap();
    recorder.input(&outstanding(2));
    recorder.tick(Timestamp::from_ms(3), Timestamp::from_ms(4));
    recorder.shut_down(Timestamp::from_ms(5));
    assert_eq!(recorder.finish(), 0);
    let lines = read(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let tick = Tick { due: Timestamp::from_ms(3), at: Timestamp::from_ms(4) };
    assert_eq!(
        lines,
        [Line::Input(Box::new(outstanding(2))), Line::Tick(tick), Line::ShutDown(Timestamp::from_ms(5))]
    );
}

#[test]
fn a_recording_that_was_there_is_kept() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.jsonl");
    std::fs::write(&path, "the last run").unwrap();
    Recorder::begin(&path, 1 << 20, &header()).unwrap().finish();
    assert_eq!(std::fs::read_to_string(directory.path().join("night.jsonl.1")).unwrap(), "the last run");
    assert!(std::fs::read_to_string(&path).unwrap().starts_with("{\"ackbeat_recording\":1,"));
}

#[test]
fn a_full_recording_ends_and_counts() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("night.jsonl");
    let mut recorder = Recorder::begin(&path, 4_096, &header()).unwrap();
    for ms in 0..1_000 {
        recorder.input(&outstanding(ms));
    }
    let lost = recorder.finish();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.len() <= 4_096, "{}", text.len());
    assert_eq!(read(&text).unwrap().len() as u64 + lost, 1_000, "each line is written or counted");
    assert!(lost > 0);
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("nowhere").join("night.jsonl");
    let error = Recorder::begin(&missing, 1 << 20, &header()).unwrap_err();
    assert!(error.to_string().contains("nowhere"), "{error}");
}

#[test]
fn a_device_is_written_to_and_stays_what_it_is() {
    let mut recorder = Recorder::begin(Path::new("/dev/null"), 1 << 20, &header()).unwrap();
    recorder.input(&outstanding(2));
    assert_eq!(recorder.finish(), 0);
    let error = Recorder::begin(Path::new("/dev/full"), 1 << 20, &header()).unwrap_err();
    assert!(error.to_string().contains("first line"), "{error}");
    assert!(Path::new("/dev/null").exists() && Path::new("/dev/full").exists());
}

#[test]
fn a_bad_line_is_named_by_its_number() {
    let text = format!(
        "{}{{\"input\":\"outstanding\",\"connection\":1,\"at\":2}}\n\n{{\"input\":\"sneeze\"}}\n",
        header_line()
    );
    let message = read(&text).unwrap_err().to_string();
    assert!(message.contains("line 4") && message.contains("sneeze"), "{message}");
    let message = read("{\"ackbeat_recording\":99}\n").unwrap_err().to_string();
    assert!(message.contains("line 1"), "{message}");
    let newer = header_line().replace("\"ackbeat_recording\":1", "\"ackbeat_recording\":99");
    let message = read(&newer).unwrap_err().to_string();
    assert!(message.contains("format 99"), "{message}");
    let mut endless = header();
    endless.thresholds.fresh_ms = u64::MAX;
    let message = read(&serde_json::to_string(&endless).unwrap()).unwrap_err().to_string();
    assert!(message.contains("thresholds.fresh_ms") && message.contains("86400000"), "{message}");
    assert!(read("").unwrap_err().to_string().contains("empty"));
    assert!(read("not a recording").unwrap_err().to_string().contains("line 1"));
}

#[test]
fn a_line_that_a_killed_sidecar_left_half_written_is_left_out() {
    let whole = format!("{}{}\n", header_line(), serde_json::to_string(&outstanding(2)).unwrap());
    let lines = read(&format!("{whole}{{\"input\":\"outst")).unwrap();
    assert_eq!(lines, [Line::Input(Box::new(outstanding(2))), Line::Gap(u64::MAX)]);
}
