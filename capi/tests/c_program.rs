//! libtrieline as a loader in C meets it: compiled as C and as C++, run, run under valgrind; and what the library exports.

// A failed unwrap fails the test.
#![allow(clippy::unwrap_used)]

// Linked only so that the library is built before this test.
use trieline as _;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use trieline_bpf::ImageMapType;
use trieline_testbed::{probed, root, skip};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// A directory with the library as it is installed.
fn library() -> tempfile::TempDir {
    let built = std::env::current_exe().unwrap().with_file_name("libtrieline.so");
    let at = tempfile::tempdir().unwrap();
    for name in ["libtrieline.so", "libtrieline.so.0"] {
        std::os::unix::fs::symlink(&built, at.path().join(name)).unwrap();
    }
    at
}

#[track_caller]
fn ok(output: Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}\n{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn compile(compiler: &str, language: &[&str], library: &Path) -> PathBuf {
    let program = library.join("tables");
    let mut command = Command::new(compiler);
    command.args(["-Wall", "-Wextra", "-Werror", "-g"]).args(language);
    command.arg(format!("-I{HERE}/include")).arg(format!("{HERE}/tests/c/tables.c"));
    command.arg("-o").arg(&program).arg("-L").arg(library).arg("-ltrieline");
    ok(command.output().unwrap());
    program
}

/// Runs the program in every map type with these words before it.
fn run(before: &[&str], program: &Path, library: &Path, map_types: &[impl AsRef<str>], pins: Option<&str>) {
    let (good, bad, big) = (library.join("good"), library.join("bad"), library.join("big"));
    // Apart from each other, so that each takes memory.
    let host = |n: u32| format!("2001:db8::{:x}:{:x}\n", n >> 16, n & 0xffff);
    let many: String = (0..60_000).map(|n| host(7 * n)).collect();
    std::fs::write(&big, format!("192.0.2.0/24\n{many}")).unwrap();
    std::fs::write(&good, "192.0.2.0/24 # a list\n10.0.0.1\n2001:db8::/32\n").unwrap();
    std::fs::write(&bad, "192.0.2.0/24\n10.0.0.1/33\n").unwrap();
    for map_type in map_types {
        let words: Vec<&str> = before.iter().copied().chain([program.to_str().unwrap()]).collect();
        let mut command = Command::new(words[0]);
        command
            .args(&words[1..])
            .args([map_type.as_ref(), pins.unwrap_or("-")])
            .arg(&good)
            .arg(&bad)
            .arg(&big);
        assert_eq!(ok(command.env("LD_LIBRARY_PATH", library).output().unwrap()), "ok\n");
    }
}

/// Those that this kernel has, by name, and any.
fn map_types() -> Vec<String> {
    let map_types = probed([ImageMapType::Arena, ImageMapType::Array], ImageMapType::probe);
    map_types.iter().map(ToString::to_string).chain(["any".into()]).collect()
}

#[test]
fn a_program_in_c() {
    let library = library();
    let program = compile("gcc", &["-std=c11"], library.path());
    if root() {
        let pins = format!("/sys/fs/bpf/trieline-capi-{}", std::process::id());
        run(&[], &program, library.path(), &map_types(), Some(&pins));
        assert!(!Path::new(&pins).exists());
    }
}

/// clang needs no C++ library for it.
#[test]
fn a_program_in_cpp() {
    let library = library();
    let program = compile("clang-19", &["-x", "c++", "-std=c++17"], library.path());
    if root() {
        run(&[], &program, library.path(), &["any"], None);
    }
}

/// In an array: valgrind keeps the addresses of an arena for itself.
#[test]
fn nothing_leaks() {
    let library = library();
    let program = compile("gcc", &["-std=c11"], library.path());
    if Command::new("valgrind").arg("--version").output().is_err() {
        skip("needs valgrind");
        return;
    }
    if root() {
        let valgrind = ["valgrind", "-q", "--leak-check=full", "--error-exitcode=3"];
        run(&valgrind, &program, library.path(), &["array"], None);
    }
}

/// A program that links it, beside any libbpf, gets these names and no others, and all that the header declares.
#[test]
fn exports_match_the_header() {
    let library = library();
    let built = library.path().join("libtrieline.so");
    let nm = Command::new("nm").args(["-D", "--defined-only", "--format=posix"]).arg(&built).output();
    let symbols = ok(nm.unwrap());
    let mut exported: Vec<&str> = symbols.lines().filter_map(|line| line.split(' ').next()).collect();
    exported.sort_unstable();
    let header = std::fs::read_to_string(format!("{HERE}/include/trieline/trieline.h")).unwrap();
    let code: String =
        header.lines().filter(|line| !line.starts_with(" *") && !line.starts_with("/*")).collect();
    let mut declared: Vec<&str> =
        code.split('(').filter_map(|text| text.rsplit([' ', '*', '\t']).next()).collect();
    declared.retain(|name| name.starts_with("trieline_"));
    declared.sort_unstable();
    declared.dedup();
    assert_eq!(exported, declared);
    let dynamic = ok(Command::new("readelf").arg("-d").arg(&built).output().unwrap());
    assert!(dynamic.contains("soname: [libtrieline.so.0]"), "{dynamic}");
}
