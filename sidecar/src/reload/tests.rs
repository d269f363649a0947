use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::*;
use crate::config::{Environment, Layer, Sources};

/// A ConfigMap as the kubelet mounts it: `ackbeat.yaml -> ..data/ackbeat.yaml`, `..data -> ..N`.
struct Mount {
    directory: tempfile::TempDir,
    number: u32,
}

impl Mount {
    fn new(text: &str) -> Self {
        let mut mount = Self { directory: tempfile::tempdir().unwrap(), number: 0 };
        mount.swap(text);
        symlink("..data/ackbeat.yaml", mount.file()).unwrap();
        mount
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn file(&self) -> PathBuf {
        self.path("ackbeat.yaml")
    }

    /// A new folder, a new link, and one rename over the old link.
    fn swap(&mut self, text: &str) {
        self.number += 1;
        let folder = format!("..{}", self.number);
        fs::create_dir(self.path(&folder)).unwrap();
        fs::write(self.path(&folder).join("ackbeat.yaml"), text).unwrap();
        symlink(&folder, self.path("..data_tmp")).unwrap();
        fs::rename(self.path("..data_tmp"), self.path("..data")).unwrap();
        if self.number > 1 {
            fs::remove_dir_all(self.path(&format!("..{}", self.number - 1))).unwrap();
        }
    }
}

fn watching(file: Option<&Path>, variables: &[(&str, &str)]) -> (Watch, Arc<ReloadState>) {
    let environment = Environment::from_variables(variables.iter().copied());
    let sources = Sources::new(Layer::default(), file, environment);
    let layer = sources.layer().unwrap();
    let state = Arc::new(ReloadState::new(PolicyName::Default));
    let mut watch = Watch::new(sources, layer, Arc::clone(&state));
    assert!(watch.look(false).is_none(), "what it started with is no news");
    (watch, state)
}

fn totals(state: &ReloadState) -> [u64; 3] {
    state.totals().map(|(_, count)| count)
}

#[test]
fn a_swapped_config_map_takes_effect_once() {
    let mut mount = Mount::new("policy: default\n");
    let (mut watch, state) = watching(Some(&mount.file()), &[]);
    assert!(watch.look(false).is_none());
    mount.swap("policy: fast\nthresholds: {silent_after_ms: 9000}\n");
    let settings = watch.look(false).unwrap();
    assert_eq!(settings.policy, Policy { silent_after_ms: 9_000, ..Policy::fast_policy() });
    assert_eq!(state.policy(), PolicyName::Fast);
    assert!(watch.look(false).is_none(), "it is as it was");
    assert_eq!(totals(&state), [1, 0, 0]);
}

#[test]
fn garbage_changes_nothing_and_what_follows_it_does() {
    let mut mount = Mount::new("policy: default\n");
    let (mut watch, state) = watching(Some(&mount.file()), &[]);
    for (number, garbage) in [
        "\u{0}\u{1}{{{",
        "policy: [",
        "policy: faster\n",
        "polisy: fast\n",
        "policy: fast\nthresholds: {silent_after_ms: soon}\n",
        // Sound but for what takes effect with the next start only.
        "policy: fast\nrecording: {max_bytes: 1}\n",
        "policy: fast\npolicy: fast\n",
    ]
    .into_iter()
    .enumerate()
    {
        mount.swap(garbage);
        assert!(watch.look(false).is_none(), "{garbage}");
        assert!(watch.look(false).is_none(), "a mistake is told once");
        assert_eq!(totals(&state), [0, 0, number as u64 + 1], "{garbage}");
        assert_eq!(state.policy(), PolicyName::Default);
    }
    mount.swap("policy: fast\n");
    assert!(watch.look(false).is_some());
    assert_eq!(totals(&state), [1, 0, 7]);
}

#[test]
fn a_file_that_is_gone_changes_nothing() {
    let mut mount = Mount::new("policy: fast\n");
    let (mut watch, state) = watching(Some(&mount.file()), &[]);
    fs::remove_file(mount.path("..data")).unwrap();
    assert!(watch.look(false).is_none());
    assert_eq!(totals(&state), [0, 0, 1]);
    mount.number = 0;
    fs::remove_dir_all(mount.path("..1")).unwrap();
    mount.swap("policy: fast\n");
    assert!(watch.look(false).is_none(), "it is back, and as it was");
    assert_eq!(totals(&state), [0, 1, 1]);
}

#[test]
fn what_needs_a_start_waits_for_it_and_what_is_stronger_stays() {
    let mut mount = Mount::new("mode: ebpf\n");
    let (mut watch, state) = watching(Some(&mount.file()), &[("ACKBEAT_POLICY", "default")]);
    mount.swap("mode: sock-diag\npolicy: fast\nleaks: {reap: \"on\", reap_quota: [\"remote:1=2\"]}\n");
    assert!(watch.look(false).is_none(), "the variable is stronger than the file");
    assert_eq!(totals(&state), [0, 1, 0]);
    mount.swap("mode: sock-diag\nleaks: {reap: \"on\", reap_quota: [\"remote:1=2\"], count_min: 3}\n");
    let settings = watch.look(false).unwrap();
    assert_eq!(settings.leaks.count_min, 3);
    assert_eq!(settings.leaks.reap, ackbeat_liveness::leak::ReapMode::Off, "only a start raises it");
    assert_eq!(settings.mode, crate::config::ModeChoice::Ebpf);
}

#[test]
fn a_signal_reads_it_whether_it_changed_or_not() {
    let mount = Mount::new("policy: fast\n");
    let (mut watch, state) = watching(Some(&mount.file()), &[]);
    assert!(watch.look(true).is_none());
    assert_eq!(totals(&state), [0, 1, 0]);
    let (mut without, state) = watching(None, &[]);
    assert!(without.look(true).is_none());
    assert_eq!(totals(&state), [0, 0, 0]);
}

#[test]
fn a_pipe_without_a_writer_is_not_waited_for() {
    let mount = Mount::new("policy: default\n");
    let file = mount.path("plain.yaml");
    fs::write(&file, "policy: default\n").unwrap();
    let (mut watch, state) = watching(Some(&file), &[]);
    fs::remove_file(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRUSR).unwrap();
    assert!(watch.look(false).is_none() && watch.look(true).is_none());
    assert_eq!(totals(&state), [0, 0, 0]);
    fs::remove_file(&file).unwrap();
    fs::write(&file, "policy: fast\n").unwrap();
    assert!(watch.look(false).is_some());
    assert_eq!(totals(&state), [1, 0, 0]);
}
