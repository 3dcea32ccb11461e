//! Things that may not be in the tree: one machine's paths, files without a licence, `unsafe` where it does not belong, giants.

use std::path::{Path, PathBuf};
use std::process::Command;

/// `unsafe` is for the image's memory, the BPF side, for what C calls, and where mmap or setns leave no other way.
const UNSAFE_ALLOWED: &[&str] = &[
    "lpm/",
    "bpf/",
    "capi/",
    "router/src/xdp/",
    "router/src/kernel/kernel_hooks.rs",
    "router/src/capture/ring.rs",
    "router/src/filter/maps.rs",
    "router/src/sid_hook/maps.rs",
    "router/tests/",
    "trace/",
    "lab/",
    "testbed/src/socket.rs",
    "testbed/src/wire.rs",
];

const LINES_MAX: usize = 600;

/// Where a hand-written file's first lines must carry an SPDX tag: what is not Rust and may be copied out on its own.
const C_LICENCE: &str = "SPDX-License-Identifier: BSD-2-Clause OR GPL-2.0-only";

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Paths git tracks, relative to the root. Outside a git checkout (a source tarball) there is nothing to check.
pub(super) fn tracked() -> Vec<String> {
    if !root().join(".git").exists() {
        return Vec::new();
    }
    // A clone owned by another user is still the tree to check.
    let output = Command::new("git")
        .args(["-c", "safe.directory=*", "-C"])
        .arg(root())
        .args(["ls-files", "-z"])
        .output();
    let output = output.expect("git starts");
    assert!(output.status.success(), "git ls-files: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // A file deleted but not yet committed is still listed.
    text.split('\0')
        .filter(|path| !path.is_empty() && root().join(path).is_file())
        .map(str::to_owned)
        .collect()
}

pub(super) fn text(path: &str) -> String {
    String::from_utf8_lossy(&std::fs::read(root().join(path)).expect("a tracked file is readable"))
        .into_owned()
}

fn is_code(path: &str) -> bool {
    let extension = Path::new(path).extension().and_then(|extension| extension.to_str());
    matches!(extension, Some("rs" | "c" | "h" | "sh"))
}

fn is_c(path: &str) -> bool {
    path.ends_with(".c") || path.ends_with(".h")
}

#[test]
fn no_paths_of_one_machine() {
    // Spelled in pieces so that this file does not find itself.
    let homes = ["work", "farm", "root", "home"].map(|home| format!("/{home}/"));
    let mut found = Vec::new();
    for path in tracked().iter().filter(|path| !path.ends_with(".lock")) {
        for (number, line) in text(path).lines().enumerate() {
            if homes.iter().any(|home| starts_a_path(line, home)) {
                found.push(format!("{path}:{}: {line}", number + 1));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Whether `home` occurs as the beginning of an absolute path, not inside a longer one (`target/work/`).
fn starts_a_path(line: &str, home: &str) -> bool {
    line.match_indices(home).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        !before.is_some_and(|before| before.is_alphanumeric() || "._-$}".contains(before))
    })
}

#[test]
fn c_files_carry_their_licence() {
    for path in tracked().iter().filter(|path| is_c(path)) {
        assert!(text(path).lines().take(3).any(|line| line.contains(C_LICENCE)), "{path}: no `{C_LICENCE}`");
    }
}

#[test]
fn licence_texts_are_there() {
    for path in ["LICENSE-MIT", "LICENSE-APACHE", "LICENSE-BSD-2-Clause", "LICENSE-GPL-2.0"] {
        assert!(text(path).len() > 1000, "{path} is not a licence text");
    }
}

#[test]
fn unsafe_only_where_memory_is_handled() {
    for path in tracked().iter().filter(|path| path.ends_with(".rs")) {
        if UNSAFE_ALLOWED.iter().any(|allowed| path.starts_with(allowed)) || path.starts_with("tests/rules/")
        {
            continue;
        }
        for (number, line) in text(path).lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            assert!(!code.contains("unsafe "), "{path}:{}: unsafe does not belong here: {line}", number + 1);
        }
    }
}

#[test]
fn files_are_of_readable_size() {
    for path in tracked().iter().filter(|path| is_code(path) && !path.ends_with("vmlinux.h")) {
        let lines = text(path).lines().count();
        assert!(lines <= LINES_MAX, "{path} has {lines} lines; past {LINES_MAX} it wants splitting");
    }
}

#[test]
fn rust_files_say_why_they_exist() {
    for path in tracked().iter().filter(|path| path.ends_with(".rs")) {
        let first = text(path);
        let first = first.lines().find(|line| !line.trim().is_empty()).unwrap_or_default().to_owned();
        // A crate may open with its README.
        let opens = first.starts_with("//") || first.starts_with("#![doc = include_str!");
        assert!(opens, "{path} does not open with a sentence that says why it exists");
    }
}

/// A skip means the same in every test: scripts aside, one file reads the variable.
#[test]
fn one_file_reads_no_skip() {
    let reads =
        |path: &&String| text(path).lines().any(|line| line.contains("env::var") && line.contains("NO_SKIP"));
    let rust =
        tracked().into_iter().filter(|path| path.ends_with(".rs") && !path.starts_with("tests/rules/"));
    let readers: Vec<String> = rust.filter(|path| reads(&path)).collect();
    assert!(readers.is_empty() || readers == ["testbed/src/skip.rs"], "{readers:?}");
}

#[test]
fn nothing_is_unfinished_by_its_own_word() {
    let marks = ["todo!(", "unimplemented!(", "FIXME", "XXX", "keep in sync"];
    for path in tracked().iter().filter(|path| is_code(path) && !path.starts_with("tests/rules/")) {
        for (number, line) in text(path).lines().enumerate() {
            assert!(!marks.iter().any(|mark| line.contains(mark)), "{path}:{}: {line}", number + 1);
        }
    }
}
