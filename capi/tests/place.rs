//! `trieline/libbpf.h` with the libbpf that libbpf-rs has built: objects are given the tables, or refused with the reason.

// A failed unwrap fails the test.
#![allow(clippy::unwrap_used)]

// Linked only so that the library is built before this test.
use trieline as _;

use std::path::{Path, PathBuf};
use std::process::Command;

use trieline_bpf::ImageMapType;
use trieline_testbed::{needs_root, probed};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

#[track_caller]
fn ok(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{command:?}\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

/// Where the build script of libbpf-sys left a static libbpf and its headers.
fn libbpf(deps: &Path) -> PathBuf {
    let build = deps.parent().unwrap().join("build");
    let folders = std::fs::read_dir(build).unwrap().map(|entry| entry.unwrap().path().join("out"));
    let mut built: Vec<PathBuf> = folders.filter(|out| out.join("libbpf.a").exists()).collect();
    built.sort_by_key(|out| out.join("libbpf.a").metadata().and_then(|file| file.modified()).unwrap());
    built.pop().unwrap()
}

#[test]
fn objects_are_placed_or_refused() {
    let deps = std::env::current_exe().unwrap().parent().unwrap().to_path_buf();
    let (libbpf, at) = (libbpf(&deps), tempfile::tempdir().unwrap());
    let file = |name: &str| at.path().join(name);
    let headers = [
        format!("-I{HERE}/include"),
        format!("-I{HERE}/../lpm/include"),
        format!("-I{}", libbpf.join("include").display()),
    ];
    let machine = format!("-I/usr/include/{}-linux-gnu", std::env::consts::ARCH);
    let compile = |to: &str, source: &str, args: &[&str]| {
        let mut clang = Command::new("clang-19");
        clang.args(["-target", "bpf", "-g", "-O2", "-Wall", "-Werror", &machine]).args(&headers).args(args);
        ok(clang.arg("-c").arg(format!("{HERE}/{source}")).arg("-o").arg(file(to)));
    };
    for (map_type, args) in [("arena", ["-mcpu=v4", "-DTL_ARENA"]), ("array", ["-mcpu=v3", "-DTL_ARRAY"])] {
        let (place, deferred) = ("tests/c/place.bpf.c", "../bpf/tests/programs/deferred.bpf.c");
        compile(map_type, place, &args);
        compile(&format!("{map_type}.sleepable"), place, &[args[0], args[1], "-DSLEEPABLE"]);
        compile(&format!("{map_type}.deferred"), deferred, &args);
    }
    std::os::unix::fs::symlink(deps.join("libtrieline.so"), file("libtrieline.so.0")).unwrap();
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Wextra", "-Werror", "-std=gnu11"])
        .args(&headers)
        .arg(format!("{HERE}/tests/c/place.c"));
    gcc.arg("-o").arg(file("place")).arg(file("libtrieline.so.0")).arg(libbpf.join("libbpf.a"));
    ok(gcc.args(["-lelf", "-lz"]));
    needs_root!();
    for map_type in probed([ImageMapType::Arena, ImageMapType::Array], ImageMapType::probe) {
        let (name, other) = match map_type {
            ImageMapType::Arena => ("arena", "array"),
            ImageMapType::Array => ("array", "arena"),
        };
        let mut run = Command::new(file("place"));
        run.arg(name).arg(file(name)).arg(file(&format!("{name}.sleepable"))).arg(file(other));
        run.arg(file(&format!("{name}.deferred")));
        assert_eq!(ok(run.env("LD_LIBRARY_PATH", at.path())), "ok\n");
    }
}
