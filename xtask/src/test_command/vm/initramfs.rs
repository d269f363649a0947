//! What the guest has: an archive in the format `newc` (Documentation/driver-api/early-userspace/buffer-format.rst).
//!
//! Archives may follow one another, so what all kernels share is packed once and each kernel's modules are appended.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context as _, Result, bail};

use super::debian::Tools;
use super::kernels::Kernel;
use super::{GUEST, capture};
use crate::process;
use crate::workspace::Workspace;

/// Modules that the guest's networks need lie here, relative to `kernel`; with what they need themselves.
const MODULE_FOLDERS: [&str; 2] = ["net/", "drivers/net/veth"];
/// Where the dynamic linker looks without being told, on every distribution.
const LIBRARIES: &str = "lib";

/// The part that all kernels share: the guest's programs, and the libraries that they are linked with.
///
/// # Errors
/// A program is missing.
pub(super) fn common(workspace: &Workspace, tools: &Tools, folder: &Path) -> Result<Vec<u8>> {
    fs::create_dir_all(folder).with_context(|| format!("could not make the folder {}", folder.display()))?;
    let mut archive = Archive::default();
    for name in ["proc", "sys", "dev", "run", "tmp", "etc"] {
        archive.folder(Path::new(name));
    }
    let mut libraries = BTreeSet::new();
    let guest = stripped(&workspace.program(GUEST, false), folder)?;
    let ackbeat = stripped(&workspace.program("ackbeat", false), folder)?;
    let mut programs = vec![
        (PathBuf::from("init"), guest),
        (PathBuf::from("bin/ackbeat"), ackbeat),
        (PathBuf::from("sbin/modprobe"), tools.modprobe()),
    ];
    for name in ["ip", "ss", "nft"] {
        let found = process::find_program(name).with_context(|| format!("{name} is not installed"))?;
        programs.push((Path::new("bin").join(name), found));
    }
    for (place, program) in programs {
        libraries.extend(linked_with(&program, tools)?);
        archive.program(&place, &read(&program)?);
    }
    for library in libraries {
        // The dynamic linker itself is named by its whole path in each program.
        let is_linker = library.file_name().is_some_and(|name| name.to_string_lossy().starts_with("ld-"));
        let name = library.file_name().unwrap_or_default();
        let place = if is_linker { Path::new("lib64").join(name) } else { Path::new(LIBRARIES).join(name) };
        archive.program(&place, &read(&library)?);
    }
    Ok(archive.finish())
}

/// The whole archive for one kernel.
///
/// # Errors
/// Its modules cannot be read.
pub(super) fn with_modules(common: &[u8], kernel: &Kernel) -> Result<Vec<u8>> {
    let mut all = common.to_vec();
    let Some(modules) = &kernel.modules else { return Ok(all) };
    let mut archive = Archive::default();
    let place = Path::new("lib/modules").join(&kernel.release);
    let needs = modules.join("modules.dep");
    let needs = fs::read_to_string(&needs).with_context(|| format!("could not read {}", needs.display()))?;
    for module in closure(&needs) {
        archive.file(&place.join(module), &read(&modules.join(module))?);
    }
    for entry in fs::read_dir(modules).with_context(|| format!("could not read {}", modules.display()))? {
        let path = entry?.path();
        // Some packages have the kernel itself there.
        let name = path.file_name().unwrap_or_default();
        if name.to_string_lossy().starts_with("modules.") && path.is_file() {
            archive.file(&place.join(name), &read(&path)?);
        }
    }
    all.extend(archive.finish());
    Ok(all)
}

/// The modules that are wanted, and all that they need: a line of `modules.dep` names one and everything below it.
fn closure(needs: &str) -> BTreeSet<&str> {
    let mut modules = BTreeSet::new();
    for line in needs.lines() {
        let Some((module, below)) = line.split_once(':') else { continue };
        let inside = module.strip_prefix("kernel/").unwrap_or(module);
        if MODULE_FOLDERS.iter().any(|folder| inside.starts_with(folder)) {
            modules.insert(module);
            modules.extend(below.split_whitespace());
        }
    }
    modules
}

/// A copy without symbols: the guest's memory is small.
fn stripped(program: &Path, folder: &Path) -> Result<PathBuf> {
    let copy = folder.join(program.file_name().context("a program has a name")?);
    let mut strip = process::command("strip");
    strip.arg("-o").arg(&copy).arg(program);
    process::run(&mut strip, "stripping a program")?;
    Ok(copy)
}

fn read(path: &Path) -> Result<Vec<u8>> {
    fs::read(path).with_context(|| format!("could not read {}", path.display()))
}

/// The libraries that a program is linked with, its dynamic linker among them; none for a static program.
fn linked_with(program: &Path, tools: &Tools) -> Result<Vec<PathBuf>> {
    let mut ldd = process::command("ldd");
    ldd.env("LD_LIBRARY_PATH", tools.library_path()).arg(program);
    let answer = process::capture(&mut ldd, "asking for a program's libraries")?;
    if !answer.success && (answer.stdout + &answer.stderr).contains("not a dynamic executable") {
        return Ok(Vec::new());
    }
    libraries_in(&capture(&mut ldd, "asking for a program's libraries")?)
        .with_context(|| format!("{} cannot run here", program.display()))
}

/// Reads `ldd`'s lines: `libc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x…)`, `/lib64/ld-linux-x86-64.so.2 (0x…)`.
fn libraries_in(text: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in text.lines().map(str::trim) {
        if line.contains("not found") {
            bail!("a library is missing: {line}");
        }
        libraries.extend(line.split_whitespace().find(|word| word.starts_with('/')).map(PathBuf::from));
    }
    Ok(libraries)
}

/// An archive that is being written.
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<PathBuf>,
    entries: u32,
}

const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_644;
const PROGRAM: u32 = 0o100_755;

impl Archive {
    /// Adds a folder and those above it, once.
    fn folder(&mut self, path: &Path) {
        let mut above = PathBuf::new();
        for part in path.components().filter(|part| matches!(part, Component::Normal(_))) {
            above.push(part);
            if self.folders.insert(above.clone()) {
                self.entry(&above, FOLDER, &[]);
            }
        }
    }

    fn file(&mut self, path: &Path, content: &[u8]) {
        self.folder(path.parent().unwrap_or(Path::new("")));
        self.entry(path, FILE, content);
    }

    fn program(&mut self, path: &Path, content: &[u8]) {
        self.folder(path.parent().unwrap_or(Path::new("")));
        self.entry(path, PROGRAM, content);
    }

    fn entry(&mut self, path: &Path, mode: u32, content: &[u8]) {
        let name = path.to_string_lossy();
        self.entries += 1;
        // Fields of eight hexadecimal digits each: inode, mode, owner, group, links, time, size, device numbers (four),
        // length of the name with its zero, checksum.
        let links = if mode == FOLDER { 2 } else { 1 };
        let fields = [
            u64::from(self.entries),
            u64::from(mode),
            0,
            0,
            links,
            0,
            content.len() as u64,
            0,
            0,
            0,
            0,
            name.len() as u64 + 1,
            0,
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.align();
        self.bytes.extend_from_slice(content);
        self.align();
    }

    /// Names and contents begin at multiples of four bytes.
    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.entry(Path::new("TRAILER!!!"), 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_as_the_format_says() {
        let mut archive = Archive::default();
        archive.file(Path::new("a/b"), b"hello");
        let bytes = archive.finish();
        let text = String::from_utf8_lossy(&bytes);
        assert!(bytes.len().is_multiple_of(4));
        // 6 of magic and 13 fields of 8, the name with its zero, aligned.
        assert!(text.starts_with("07070100000001000041ED"), "{text}");
        assert_eq!(&bytes[110..112], b"a\0");
        let second = 112;
        assert_eq!(&bytes[second..second + 14], b"07070100000002");
        assert_eq!(&bytes[second + 6 + 6 * 8..second + 6 + 7 * 8], b"00000005");
        assert_eq!(&bytes[second + 110..second + 114], b"a/b\0");
        assert_eq!(&bytes[second + 116..second + 121], b"hello");
        assert!(text.contains("TRAILER!!!"));
    }

    #[test]
    fn modules_bring_what_they_need() {
        let needs = "kernel/net/sched/cls_bpf.ko:\nkernel/drivers/net/veth.ko.xz: kernel/net/core/x.ko.xz\n\
                     kernel/net/netfilter/nf_tables.ko: kernel/lib/libcrc32c.ko kernel/net/netfilter/nfnetlink.ko\n\
                     kernel/drivers/net/wireguard/wireguard.ko: kernel/lib/y.ko\n";
        let expected = [
            "kernel/drivers/net/veth.ko.xz",
            "kernel/lib/libcrc32c.ko",
            "kernel/net/core/x.ko.xz",
            "kernel/net/netfilter/nf_tables.ko",
            "kernel/net/netfilter/nfnetlink.ko",
            "kernel/net/sched/cls_bpf.ko",
        ];
        assert_eq!(closure(needs).into_iter().collect::<Vec<_>>(), expected);
    }

    #[test]
    fn libraries_are_read_from_ldd() {
        let text = "\tlinux-vdso.so.1 (0x1)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x2)\n\t/lib64/ld-linux-x86-64.so.2 (0x3)\n";
        let expected = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"].map(PathBuf::from);
        assert_eq!(libraries_in(text).expect("all are there"), expected);
        assert!(libraries_in("\tlibx.so => not found\n").is_err());
    }
}
