//! `unsafe` appears only in the modules listed here, each with the reason why it must.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

use super::repository;
use crate::workspace::Workspace;

/// The modules that may contain `unsafe`, as prefixes of paths. This is the only list.
const ALLOWED: [(&str, &str); 4] = [
    (
        "ebpf/src/",
        "kernel programs: contexts are raw pointers, and every helper of the kernel is a foreign function",
    ),
    (
        "sidecar/src/source/ebpf/reader.rs",
        "tokio lets a descriptor be registered only by a promise about its owner",
    ),
    ("sidecar/src/memory.rs", "the allocator is told to return memory by a function of the C library"),
    (
        "tests/overhead/src/kernel/bpf.rs",
        "an empty kernel program of two instructions is loaded by the system call itself: there is no object to load",
    ),
];

/// Checks every Rust file of the repository.
///
/// # Errors
/// `unsafe` outside the list, or an entry of the list that is no longer needed. The message names each place.
pub(super) fn check(workspace: &Workspace) -> Result<()> {
    let mut findings = Vec::new();
    let mut used = [false; ALLOWED.len()];
    for file in repository::files(workspace)? {
        if file.extension().is_none_or(|extension| extension != "rs") {
            continue;
        }
        let path = workspace.root.join(&file);
        let source =
            fs::read_to_string(&path).with_context(|| format!("could not read {}", path.display()))?;
        let lines = lines_with_unsafe(&source);
        if lines.is_empty() {
            continue;
        }
        match allowed_entry(&file) {
            Some(entry) => used[entry] = true,
            None => findings.extend(lines.iter().map(|line| format!("{}:{line}", file.display()))),
        }
    }
    ensure!(
        findings.is_empty(),
        "`unsafe` outside the modules named in xtask/src/lint_command/unsafe_code.rs: {}",
        findings.join(", ")
    );
    for ((prefix, _), used) in ALLOWED.iter().zip(used) {
        ensure!(
            used,
            "`{prefix}` has no `unsafe` any more: remove it from xtask/src/lint_command/unsafe_code.rs"
        );
    }
    Ok(())
}

fn allowed_entry(file: &Path) -> Option<usize> {
    let path = file.to_string_lossy();
    ALLOWED.iter().position(|(prefix, _)| path.starts_with(prefix))
}

/// The lines, from 1, on which the keyword stands outside comments, strings and characters.
fn lines_with_unsafe(source: &str) -> Vec<usize> {
    let code = without_comments_and_strings(source);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    code.lines()
        .enumerate()
        .filter(|(_, line)| line.split(|c: char| !is_word(c)).any(|word| word == "unsafe"))
        .map(|(index, _)| index + 1)
        .collect()
}

/// Replaces comments, string and character literals by blanks; lines stay where they are.
fn without_comments_and_strings(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            block_comment(rest)
        } else if let Some(length) = raw_string(rest, before) {
            length
        } else if first == '"' {
            quoted(rest, '"')
        } else if first == '\'' && is_character_literal(rest) {
            quoted(rest, '\'')
        } else {
            code.push(first);
            before = first;
            rest = &rest[first.len_utf8()..];
            continue;
        };
        let (skipped, remaining) = rest.split_at(length);
        code.push(' ');
        code.extend(skipped.chars().filter(|c| *c == '\n'));
        before = ' ';
        rest = remaining;
    }
    code
}

/// Block comments nest in Rust.
fn block_comment(text: &str) -> usize {
    let mut depth = 0_usize;
    let mut position = 0;
    while position < text.len() {
        let here = &text[position..];
        if here.starts_with("/*") {
            depth += 1;
            position += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            position += 2;
            if depth == 0 {
                return position;
            }
        } else {
            position += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

/// The length of `r"…"`, `r#"…"#`, `br"…"` or `cr"…"` at the start of the text.
fn raw_string(text: &str, before: char) -> Option<usize> {
    if before.is_alphanumeric() || before == '_' {
        return None;
    }
    let after_prefix =
        text.strip_prefix("br").or_else(|| text.strip_prefix("cr")).or_else(|| text.strip_prefix('r'))?;
    let hashes = after_prefix.len() - after_prefix.trim_start_matches('#').len();
    let body = after_prefix[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let opening = text.len() - body.len();
    Some(body.find(&end).map_or(text.len(), |position| opening + position + end.len()))
}

fn quoted(text: &str, quote: char) -> usize {
    let mut escaped = false;
    for (position, c) in text.char_indices().skip(1) {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return position + 1;
        }
    }
    text.len()
}

/// Tells `'a'` from the lifetime `'a`.
fn is_character_literal(text: &str) -> bool {
    let mut characters = text.chars().skip(1);
    matches!((characters.next(), characters.next()), (Some('\\'), _) | (Some(_), Some('\'')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_keyword_is_found_wherever_it_is_code() {
        let source =
            "fn a() {\n    unsafe { b() }\n}\nunsafe extern \"C\" {}\n#[unsafe(no_mangle)]\nfn c() {}\n";
        assert_eq!(lines_with_unsafe(source), [2, 4, 5]);
    }

    #[test]
    fn words_in_comments_and_strings_do_not_count() {
        let source = r##"// unsafe
/* unsafe /* nested unsafe */ unsafe
unsafe */ fn a<'a>(x: &'a str) -> char {
    let text = "unsafe \" unsafe";
    let raw = r#"unsafe " unsafe"#;
    let quote = '"'; let escape = '\''; // unsafe
    #![forbid(unsafe_code)]
    let not_unsafe = 1;
}
unsafe fn found() {}
"##;
        assert_eq!(lines_with_unsafe(source), [10]);
    }

    #[test]
    fn only_the_listed_modules_are_allowed() {
        assert_eq!(allowed_entry(Path::new("ebpf/src/wire/mod.rs")), Some(0));
        assert_eq!(allowed_entry(Path::new("ebpf/wire/src/lib.rs")), None);
        assert_eq!(allowed_entry(Path::new("sidecar/liveness/src/lib.rs")), None);
    }
}
