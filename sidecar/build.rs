//! Embeds the BPF object into the sidecar.
//!
//! `cargo xtask build` puts the object to `target/ebpf/ackbeat-ebpf`, or names another place in `ACKBEAT_EBPF_OBJECT`.
//! Without one the sidecar still builds; it then says at start that it carries no kernel programs.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

fn main() -> io::Result<()> {
    println!("cargo::rerun-if-env-changed=ACKBEAT_EBPF_OBJECT");
    let named = env::var_os("ACKBEAT_EBPF_OBJECT").map(PathBuf::from);
    let object = named.clone().unwrap_or_else(default_object);
    // A path that does not exist counts as changed each time, so the object is picked up as soon as it appears.
    println!("cargo::rerun-if-changed={}", object.display());
    let bytes = match fs::read(&object) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound && named.is_none() => Vec::new(),
        Err(error) => {
            return Err(io::Error::new(error.kind(), format!("BPF object {}: {error}", object.display())));
        }
    };
    let out =
        env::var_os("OUT_DIR").map(PathBuf::from).ok_or_else(|| io::Error::other("OUT_DIR is not set"))?;
    fs::write(out.join("ackbeat-ebpf"), bytes)
}

fn default_object() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../target/ebpf/ackbeat-ebpf")
}
