//! The compiler keeps the order that the C header asks for. In the code for arm64 and for BPF, the load of the fallback takes an address
//! that depends on the walk's result. So does that of the directory entry behind it, on the fallback. On weakly ordered processors nothing
//! else keeps them in order.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

const SOURCE: &str = r#"
#ifdef __aarch64__
#define TL_AFTER_NOTE "/* after %w0 */"
#define TL_THEN_NOTE "/* then %w0 */"
#else
#define TL_AFTER_NOTE "/* after %0 */"
#define TL_THEN_NOTE "/* then %0 */"
#endif
#include <linux/types.h>
#include <trieline/lpm.h>
#ifdef __bpf__
#define WHERE
#define VIEW 0
#else
#define WHERE const void *base, __u64 size,
#define VIEW (struct tl_view){base, size}
#endif
#define APART __attribute__((noinline)) __u32
APART of4(WHERE __u32 id, __u32 addr) { return tl_lookup4(VIEW, id, addr); }
APART of6(WHERE __u32 id, __u64 hi, __u64 lo) { return tl_lookup6(VIEW, id, hi, lo); }
APART of48(WHERE __u32 id, __u64 hi) { return tl_lookup(VIEW, id, 48, hi, 0); }
APART of160(WHERE __u32 id, const __u64 *key) { return tl_lookup_wide(VIEW, id, 160, key); }
"#;

/// How the code is made: by name.
const TARGETS: [(&str, &[&str]); 4] = [
    ("arm64", &["--target=aarch64-linux-gnu", "-O2"]),
    ("arm64, -O3", &["--target=aarch64-linux-gnu", "-O3"]),
    ("BPF, array", &["--target=bpf", "-O2", "-mcpu=v3", "-DTL_ARRAY"]),
    ("BPF, arena", &["--target=bpf", "-O2", "-mcpu=v4", "-DTL_ARENA"]),
];

/// A note in the assembly: the function it is in, whether the register that it names holds the loaded word. Also whether that register is
/// added to an address behind it, perhaps as a part of it.
#[derive(Debug)]
struct Note {
    function: String,
    is_found: bool,
    is_added: bool,
}

/// The number of a register, whatever its width.
fn number(register: &str) -> &str {
    register.trim_matches(|c: char| !c.is_ascii_digit())
}

/// The register that an instruction writes, and what it writes there.
fn written(line: &str) -> Option<(&str, &str)> {
    let line = line.split(['#', ';']).next().unwrap_or(line).trim();
    if let Some((to, from)) = line.split_once(" = ") {
        return (to.starts_with(['r', 'w']) && !to.starts_with("*")).then_some((number(to), from.trim()));
    }
    let (name, operands) = line.split_once('\t')?;
    let (to, from) = operands.split_once(", ")?;
    let is_write = !name.starts_with("st") && !name.starts_with('c') && !name.starts_with('t');
    (is_write && to.starts_with(['w', 'x'])).then_some((number(to), from))
}

fn is_constant(from: &str) -> bool {
    from.starts_with("wzr") || from.starts_with("xzr") || from.trim_start_matches('#').parse::<i64>().is_ok()
}

/// The notes of `kind`: "after" the walk, "then" after the fallback.
fn notes(assembly: &str, kind: &str) -> Vec<Note> {
    let lines: Vec<&str> = assembly.lines().collect();
    let is_name = |name: &str| {
        name.starts_with(|c: char| c.is_ascii_lowercase())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let label = |at: usize| lines[at].split_once(':').map(|(name, _)| name).filter(|name| is_name(name));
    let mut notes = Vec::new();
    let mut begin = 0;
    for (at, line) in lines.iter().enumerate() {
        if label(at).is_some() {
            begin = at;
        }
        let Some((_, register)) = line.split_once(&format!(" {kind} ")) else { continue };
        let register = number(register);
        let before =
            lines[begin..at].iter().rev().find_map(|line| written(line).filter(|(to, _)| *to == register));
        let is_found = before.is_some_and(|(_, from)| !is_constant(from));
        // After the walk, in the function's blocks, wherever they were laid; else at once.
        let end = (at + 1..lines.len()).find(|at| label(*at).is_some()).unwrap_or(lines.len());
        let behind = if kind == "then" { &lines[at..(at + 6).min(end)] } else { &lines[begin..end] };
        let adds = |line: &&str| {
            let is_add = line.contains("\tadd\t") || line.contains(" += ");
            let mut registers = line.split([' ', '\t', ',']).filter(|word| {
                word.len() < 4 && word.starts_with(['r', 'w', 'x']) && number(word) == register
            });
            is_add && registers.next().is_some()
        };
        let is_added = behind.iter().any(adds);
        notes.push(Note { function: label(begin).unwrap_or_default().to_owned(), is_found, is_added });
    }
    notes
}

/// Names of functions in whose code no note follows a load, although it has notes.
fn unordered(include: &Path, flags: &[&str], source: &Path, kind: &str) -> (usize, Vec<String>) {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    let output = Command::new(clang)
        .args(flags)
        .args(["-S", "-o", "-", "-I"])
        .arg(include)
        // Where Debian has <asm/types.h>.
        .arg(format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH))
        .arg(source)
        .output()
        .expect("clang-19 is needed: `./dev setup` installs it, CLANG names another");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let notes = notes(&String::from_utf8(output.stdout).unwrap(), kind);
    let mut functions: Vec<_> = notes.iter().map(|note| note.function.clone()).collect();
    functions.sort_unstable();
    functions.dedup();
    // Where a damaged image ends a walk early the answer is a constant 0. A copy of the note may follow it: there is nothing to order.
    let is_ordered =
        |name: &String| notes.iter().any(|note| note.function == *name && note.is_found && note.is_added);
    (functions.len(), functions.into_iter().filter(|name| !is_ordered(name)).collect())
}

/// A copy of the headers with another text from `from` to the end of the next `to` in lpm.h.
fn mutant(include: &Path, folder: PathBuf, from: &str, to: &str, text: &str) -> PathBuf {
    fs::create_dir_all(folder.join("trieline")).unwrap();
    for file in fs::read_dir(include.join("trieline")).unwrap() {
        let file = file.unwrap();
        let mut header = fs::read_to_string(file.path()).unwrap();
        if file.file_name() == "lpm.h" {
            let begin = header.find(from).unwrap();
            let end = begin + header[begin..].find(to).unwrap() + to.len();
            header.replace_range(begin..end, text);
        }
        fs::write(folder.join("trieline").join(file.file_name()), header).unwrap();
    }
    folder
}

#[test]
fn the_fallback_is_loaded_after_the_walk_and_the_entry_after_it() {
    let include = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("include");
    let directory = tempfile::tempdir().unwrap();
    let source = directory.path().join("order.c");
    fs::write(&source, SOURCE).unwrap();

    // The barrier inside the branch, where the compiler knows the value.
    let branch = "if (!tl_value) { asm volatile(TL_AFTER_NOTE : \"+r\"(tl_value)); \\\n \
                  tl_value = TL_TABLE_FIELD(base, tl_word + tl_value, fallback); (void)tl_after";
    let after = mutant(
        &include,
        directory.path().join("after"),
        "asm volatile(TL_AFTER_NOTE",
        "(tl_then | -tl_then) & TL_UNSETTLED",
        branch,
    );
    // The entry's address without the fallback.
    let part = "(tl_then & TL_UNSETTLED)";
    let then = mutant(&include, directory.path().join("then"), part, part, "0 * sizeof(tl_then)");
    for (name, flags) in TARGETS {
        for (kind, mutant) in [("after", &after), ("then", &then)] {
            let (functions, unordered_now) = unordered(&include, flags, &source, kind);
            assert!(functions >= 4, "{name}: notes in {functions} functions only");
            assert!(
                unordered_now.is_empty(),
                "{name}: in {unordered_now:?} the load may come before what it is to come {kind}"
            );
            // In one function, `of6`, the compiler may keep the order by itself.
            let (functions, unordered_then) = unordered(mutant, flags, &source, kind);
            let is_seen = unordered_then.len() + 1 >= functions;
            assert!(is_seen, "{name}: the check does not see what it is for: {kind} {unordered_then:?}");
            println!("{name}, {kind}: {functions} functions");
        }
    }
}
