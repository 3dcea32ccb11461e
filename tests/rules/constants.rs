//! A number that C and Rust share is written once, in C: Rust takes it from the BTF. Numbers of the kernel that the BPF programs write
//! out are compared with the kernel's headers.

use super::tree::{text, tracked};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::process::{Command, Stdio};

/// The crates whose BPF programs have types that Rust generates from the BTF, with the header and the program that has all its enums.
const CRATES: [(&str, &str, &str); 2] = [
    ("router/", "router/src/xdp/intf.h", "router/src/xdp/node.bpf.c"),
    ("trace/", "trace/bpf/intf.h", "trace/bpf/trace.bpf.c"),
];
/// Where the programs write the kernel's numbers out, as they include no header of the kernel.
const KERNEL: [&str; 3] = ["router/src/xdp/vmlinux.h", "trace/bpf/kernel.h", "lab/bpf/kernel.h"];
/// The kernel's headers for user space that have such numbers.
const HEADERS: [&str; 12] = [
    "netinet/in.h",
    "sys/socket.h",
    "sys/stat.h",
    "linux/bpf.h",
    "linux/icmp.h",
    "linux/icmpv6.h",
    "linux/if_ether.h",
    "linux/in.h",
    "linux/in6.h",
    "linux/ipv6.h",
    "linux/seg6.h",
    "linux/socket.h",
];

fn without_comments(c: &str) -> String {
    let mut code = String::new();
    let mut rest = c;
    while let Some((before, comment)) = rest.split_once("/*") {
        code.push_str(before);
        rest = comment.split_once("*/").map_or("", |(_, after)| after);
    }
    code + rest
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Macros with a value, and their values.
fn macros(c: &str) -> BTreeMap<String, String> {
    let c = without_comments(c);
    let of = |line: &str| {
        let (name, value) = line.strip_prefix("#define ")?.trim().split_once([' ', '\t'])?;
        is_word(name).then(|| (name.to_owned(), value.trim().to_owned()))
    };
    c.lines().filter_map(of).collect()
}

/// The enums, by name: members, each with its value if that is written there.
fn enums(c: &str) -> Vec<(String, BTreeMap<String, String>)> {
    let c = without_comments(c);
    let blocks = c.split("enum ").skip(1).filter_map(|text| {
        let (name, rest) = text.split_once('{')?;
        let (members, _) = rest.split_once('}')?;
        let name = name.trim();
        (name.is_empty() || is_word(name)).then_some((name, members))
    });
    let member = |text: &str| {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        is_word(name.trim()).then(|| (name.trim().to_owned(), value.trim().to_owned()))
    };
    blocks.map(|(name, members)| (name.to_owned(), members.split(',').filter_map(member).collect())).collect()
}

/// Macros and members of enums.
fn constants(c: &str) -> BTreeMap<String, String> {
    macros(c).into_iter().chain(enums(c).into_iter().flat_map(|(_, members)| members)).collect()
}

/// Constants of Rust that a literal defines: their names, and those between backticks in the comment before them.
fn literals(rust: &str) -> Vec<(usize, BTreeSet<String>)> {
    let defined = |line: &str| {
        let (_, constant) = line.split_once("const ")?;
        let (name, rest) = constant.split_once(':')?;
        let (_, value) = rest.split_once('=')?;
        let value = value.trim().trim_end_matches(';');
        let is_literal = value.starts_with(|c: char| c.is_ascii_digit())
            && value.chars().all(|c| c.is_ascii_alphanumeric() || " <_".contains(c));
        (is_word(name) && is_literal).then(|| name.to_owned())
    };
    let mut comment = String::new();
    let mut found = Vec::new();
    for (number, line) in (1..).zip(rust.lines()) {
        if line.trim_start().starts_with("//") {
            comment.push_str(line);
            continue;
        }
        let named = comment.split('`').skip(1).step_by(2).map(str::to_owned);
        found.extend(defined(line).map(|name| (number, named.chain([name]).collect())));
        comment.clear();
    }
    found
}

fn copies(rust: &str, c: &BTreeSet<String>) -> Vec<(usize, String)> {
    let is_copy = |name: &String| {
        c.contains(name) || ["TL", "TR"].iter().any(|prefix| c.contains(&format!("{prefix}_{name}")))
    };
    let copies = |(line, names): (usize, BTreeSet<String>)| Some((line, names.into_iter().find(is_copy)?));
    literals(rust).into_iter().filter_map(copies).collect()
}

#[test]
fn rust_writes_no_number_that_c_names() {
    let tracked = tracked();
    for (folder, _, _) in CRATES {
        let of =
            |path: &&String| path.starts_with(folder) && !path.contains("/tests/") && !path.contains("/cli/");
        let sources = tracked.iter().filter(of).filter(|path| path.ends_with(".c") || path.ends_with(".h"));
        let known: BTreeSet<String> = sources.flat_map(|path| constants(&text(path)).into_keys()).collect();
        assert!(tracked.is_empty() || known.len() > 50, "{folder}: only {} constants in C", known.len());
        for path in tracked.iter().filter(of).filter(|path| path.ends_with(".rs")) {
            let copies = copies(&text(path), &known);
            assert!(copies.is_empty(), "{path}: C names these numbers, take them from the BTF: {copies:?}");
        }
    }
}

#[test]
fn every_shared_number_is_in_the_btf() {
    for (_, header, program) in CRATES.into_iter().filter(|_| !tracked().is_empty()) {
        let (header_text, program_text) = (text(header), text(program));
        let enums = enums(&header_text);
        assert!(enums.len() > 5, "{header}: only {} enums", enums.len());
        for (name, _) in enums {
            let is_kept = program_text.contains(&format!("\tenum {name} "));
            assert!(is_kept, "{program}: no member of type `enum {name}`, so that the BTF does not have it");
        }
        // The BTF has no macros. The router's build.rs reads those that are one number.
        for (name, value) in macros(&header_text) {
            let is_number = value.starts_with("0x") || value.parse::<u32>().is_ok();
            let is_read = header.starts_with("router/") && (is_number || value.starts_with("TL_"));
            assert!(is_read, "{header}: {name} {value} is a macro; expected a member of an enum");
        }
    }
}

/// The compiler compares them: one assertion for each. A name that no header has is not the kernel's for user space.
#[test]
fn numbers_of_the_kernel_are_its_own() {
    for header in KERNEL.into_iter().filter(|_| !tracked().is_empty()) {
        let mut numbers = constants(&text(header));
        numbers.retain(|_, value| value.starts_with(|c: char| c.is_ascii_digit() || c == '-'));
        let mut source = HEADERS.map(|header| format!("#include <{header}>\n")).concat();
        for (name, value) in &numbers {
            source += &format!("_Static_assert((long)({name}) == (long)({value}), \"{name}\");\n");
        }
        let errors = compile(&source);
        let mut unknown = BTreeSet::new();
        for line in errors.lines().filter(|line| line.contains("error: ")) {
            let name = line.split_once("undeclared identifier '").and_then(|(_, name)| name.split_once('\''));
            let Some((name, _)) = name else { panic!("{header} differs from the kernel's headers: {line}") };
            unknown.insert(name.to_owned());
        }
        let compared = numbers.len() - unknown.len();
        assert!(compared * 3 > numbers.len() * 2, "{header}: the kernel's headers do not have {unknown:?}");
    }
}

/// The compiler's messages about a C source.
fn compile(source: &str) -> String {
    let clang = std::env::var("CLANG").unwrap_or_else(|_| "clang-19".into());
    let child = Command::new(&clang)
        .args([
            "-fsyntax-only",
            "-ferror-limit=0",
            "-fno-spell-checking",
            "-fno-color-diagnostics",
            "-x",
            "c",
            "-",
        ])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| panic!("cannot run {clang}: {error}; set CLANG"));
    child.stdin.take().expect("a pipe").write_all(source.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn copies_are_found() {
    let c = constants("#define TL_A_MAX 4 /* x */\nenum tl_x { TL_B = 1, TL_C, };\n#define TL_GUARD_H\n");
    assert_eq!(c.keys().collect::<Vec<_>>(), ["TL_A_MAX", "TL_B", "TL_C"]);
    let names: BTreeSet<String> = c.into_keys().collect();
    assert_eq!(copies("const A_MAX: usize = 4;", &names), [(1, "A_MAX".to_owned())]);
    assert_eq!(copies("/// `TL_B`.\nconst OTHER: u8 = 1;", &names), [(2, "TL_B".to_owned())]);
    assert!(
        copies("const A_MAX: usize = tl_limits::TL_A_MAX.0 as usize;\nconst D: u8 = 1;", &names).is_empty()
    );
    assert!(compile("_Static_assert(1 == 2, \"x\");").contains("error: "));
}
