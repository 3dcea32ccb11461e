//! Both loaders in both map types on a veth pair: listed sources are dropped, others lose nothing while the list is replaced, and a bad
//! list changes nothing.
//!
//! ```text
//!   acl-N-a: v0 10.9.0.1-4, 2001:db8:9::1-4 ------------- acl-N-b: v1 10.9.0.100, 2001:db8:9::100, the program
//! ```

// A failed unwrap fails the test.
#![allow(clippy::unwrap_used)]

// Linked only so that the C library is built before this test.
use trieline as _;

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

use trieline_bpf::ImageMapType;

#[path = "../../../tests/src/skip.rs"]
mod no_skip;

const HERE: &str = env!("CARGO_MANIFEST_DIR");

/// Runs a shell script that must succeed.
#[track_caller]
fn sh(script: &str) -> String {
    let output = Command::new("sh").args(["-ec", script]).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{script}\n{}{}", text(&output.stdout), text(&output.stderr));
    text(&output.stdout)
}

fn can_run() -> bool {
    let is_root = sh("id -u").trim() == "0";
    if !is_root {
        no_skip::skip("needs root (network namespaces, BPF)");
    }
    is_root
}

fn map_types() -> impl Iterator<Item = ImageMapType> {
    [ImageMapType::Arena, ImageMapType::Array].into_iter().filter(|map_type| map_type.probe().is_ok())
}

/// Two namespaces; gone when dropped.
struct Bed(String);

impl Bed {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let bed = Self(format!("acl-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let p = &bed.0;
        sh(&format!(
            "for n in a b; do ip netns add {p}-$n; ip netns exec {p}-$n sysctl -qw net.ipv6.conf.default.accept_dad=0; done
             ip -n {p}-a link add v0 type veth peer name v1 netns {p}-b
             ip -n {p}-a link set v0 up; ip -n {p}-b link set v1 up
             for i in 1 2 3 4; do ip -n {p}-a addr add 10.9.0.$i/24 dev v0; ip -n {p}-a addr add 2001:db8:9::$i/64 dev v0 nodad; done
             ip -n {p}-b addr add 10.9.0.100/24 dev v1; ip -n {p}-b addr add 2001:db8:9::100/64 dev v1 nodad"
        ));
        bed
    }

    /// `count` pings from a source, one each `every` seconds.
    fn ping(&self, source: &str, count: u32, every: &str) -> Ping {
        let target = if source.contains(':') { "2001:db8:9::100" } else { "10.9.0.100" };
        let child = Command::new("ip")
            .args(["netns", "exec", &format!("{}-a", self.0), "ping", "-q", "-W", "1", "-I", source])
            .args(["-i", every, "-c", &count.to_string(), target])
            .stdout(Stdio::piped())
            .spawn();
        Ping(child.unwrap(), count)
    }

    /// Whether packets of a source arrive.
    fn passes(&self, source: &str) -> bool {
        self.ping(source, 2, "0.01").received() == 2
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        for n in ["a", "b"] {
            Command::new("ip").args(["netns", "del", &format!("{}-{n}", self.0)]).status().ok();
        }
    }
}

/// Pings under way.
struct Ping(Child, u32);

impl Ping {
    fn received(self) -> u32 {
        let text = String::from_utf8(self.0.wait_with_output().unwrap().stdout).unwrap();
        assert!(text.contains(&format!("{} packets transmitted", self.1)), "{text}");
        let words: Vec<&str> = text.split([' ', ',']).collect();
        let at = words.iter().position(|word| *word == "received").unwrap();
        words[at - 1].parse().unwrap()
    }
}

/// A loader that runs; ended when dropped.
struct Loader {
    child: Child,
    out: Lines<BufReader<ChildStdout>>,
    err: Lines<BufReader<ChildStderr>>,
}

impl Loader {
    fn start(bed: &Bed, program: &Path, list: &Path, map_type: ImageMapType) -> Self {
        let mut child = Command::new("ip")
            .args(["netns", "exec", &format!("{}-b", bed.0)])
            .arg(program)
            .arg("v1")
            .arg(list)
            .arg(map_type.to_string())
            .env("LD_LIBRARY_PATH", program.with_file_name("lib"))
            .current_dir(program.parent().unwrap())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let err = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { child, out, err }
    }

    #[track_caller]
    fn says(&mut self, words: &str) -> String {
        let Some(line) = self.out.next() else { panic!("{:?}", self.err.next()) };
        let line = line.unwrap();
        assert!(line.contains(words), "{line:?} instead of {words:?}");
        line
    }

    fn signal(&self, name: &str) {
        sh(&format!("kill -{name} {}", self.child.id()));
    }
}

impl Drop for Loader {
    fn drop(&mut self) {
        self.child.kill().ok();
        self.child.wait().ok();
    }
}

/// One listed host and one always listed, among many others.
fn write_list(to: &Path, listed: u32) {
    let mut text = format!("# sources\n10.9.0.{listed}\n10.9.0.4\n2001:db8:9::{listed}\n2001:db8:9::4\n");
    for other in 0..5000u32 {
        text += &format!("172.{}.{}.0/24\n", 16 + other % 16, (other / 16 + listed) % 256);
    }
    fs::write(to, text).unwrap();
}

/// The whole story with one loader in one map type.
fn story(program: &Path, map_type: ImageMapType) {
    let bed = Bed::new();
    let directory = tempfile::tempdir().unwrap();
    let list = directory.path().join("list");
    // (1) the list counts from the first packet on
    write_list(&list, 2);
    let mut loader = Loader::start(&bed, program, &list, map_type);
    loader.says("5002 IPv4 and 2 IPv6 prefixes");
    loader.says("attached");
    for (source, passes) in [("10.9.0.1", true), ("10.9.0.2", false), ("10.9.0.3", true), ("10.9.0.4", false)]
    {
        assert_eq!(bed.passes(source), passes, "{source}");
    }
    assert!(bed.passes("2001:db8:9::1") && !bed.passes("2001:db8:9::2"));
    // (2) replaced again and again: who is in no list loses nothing, and of who is in each nothing comes through
    let allowed = [bed.ping("10.9.0.1", 1000, "0.002"), bed.ping("2001:db8:9::1", 1000, "0.002")];
    let listed = bed.ping("10.9.0.4", 1000, "0.002");
    for turn in 0..41 {
        write_list(&list, 2 + (turn + 1) % 2);
        loader.signal("HUP");
        loader.says("5002 IPv4 and 2 IPv6 prefixes");
    }
    assert_eq!(allowed.map(Ping::received), [1000, 1000]);
    assert_eq!(listed.received(), 0);
    assert!(bed.passes("10.9.0.2") && !bed.passes("10.9.0.3") && bed.passes("2001:db8:9::2"));
    // (3) a bad list: said with its line, and the one before stays
    fs::write(&list, "10.9.0.1\n10.9.0.2/33\n").unwrap();
    loader.signal("HUP");
    let error = loader.err.next().unwrap().unwrap();
    assert!(error.contains(&format!("{}:2: ", list.display())) && error.contains("33 is over 32"), "{error}");
    assert!(error.contains("what is not said to be new stays as it was"), "{error}");
    assert!(bed.passes("10.9.0.1") && bed.passes("10.9.0.2") && !bed.passes("10.9.0.3"));
    // (4) what was dropped
    loader.signal("TERM");
    let counts = loader.says("dropped ");
    let counts: Vec<u32> = counts.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(counts.len() == 2 && counts[0] >= 1000 && counts[1] >= 1, "{counts:?}");
    assert!(loader.child.wait().unwrap().success());
}

/// The C loader, built as its user would: against an installed libtrieline and some libbpf.
struct Built(tempfile::TempDir);

impl Built {
    fn new(libbpf: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let at = directory.path().display();
        let deps = std::env::current_exe().unwrap();
        let deps = deps.parent().unwrap().display();
        if let Some(pc) = libbpf {
            fs::write(directory.path().join("libbpf.pc"), pc).unwrap();
        }
        sh(&format!(
            "{HERE}/../../capi/install {deps} {at} >&2
             cp {HERE}/acl.c {HERE}/acl.bpf.c {HERE}/Makefile {at}
             PKG_CONFIG_PATH={at}:{at}/lib/pkgconfig make -s -C {at}"
        ));
        Self(directory)
    }

    fn program(&self) -> PathBuf {
        self.0.path().join("acl")
    }
}

/// The libbpf that libbpf-rs has built, as pkg-config would tell of it.
fn newer_libbpf() -> String {
    let deps = std::env::current_exe().unwrap();
    let build = deps.ancestors().nth(2).unwrap().join("build");
    let out = sh(&format!("ls -td {}/libbpf-sys-*/out/libbpf.a | head -n 1", build.display()));
    let out = Path::new(out.trim()).parent().unwrap().display();
    format!(
        "Name: libbpf\nDescription: libbpf\nVersion: 1\nCflags: -I{out}/include\nLibs: {out}/libbpf.a -lelf -lz\n"
    )
}

#[test]
fn the_loader_in_rust() {
    if can_run() {
        map_types().for_each(|map_type| story(Path::new(env!("CARGO_BIN_EXE_acl")), map_type));
    }
}

#[test]
fn the_loader_in_c() {
    let built = Built::new(Some(&newer_libbpf()));
    if can_run() {
        map_types().for_each(|map_type| story(&built.program(), map_type));
    }
}

/// Debian 12's libbpf is too old for an array, and the loader says so.
#[test]
fn the_loader_in_c_with_the_systems_libbpf() {
    if !Command::new("pkg-config").args(["--exists", "libbpf"]).status().is_ok_and(|status| status.success())
    {
        no_skip::skip("needs libbpf-dev");
        return;
    }
    let built = Built::new(None);
    let version = sh("pkg-config --modversion libbpf");
    let is_old = ["0.", "1.0", "1.1", "1.2"].iter().any(|old| version.starts_with(old));
    if !can_run() {
        return;
    }
    for map_type in map_types() {
        if map_type == ImageMapType::Arena || !is_old {
            story(&built.program(), map_type);
            continue;
        }
        let (bed, list) = (Bed::new(), built.0.path().join("list"));
        write_list(&list, 2);
        let mut loader = Loader::start(&bed, &built.program(), &list, map_type);
        let error = loader.err.next().unwrap().unwrap();
        assert!(error.contains("cannot resize a section; expected 1.3 or newer"), "{error}");
        assert!(!loader.child.wait().unwrap().success());
    }
}
