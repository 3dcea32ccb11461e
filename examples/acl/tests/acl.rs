//! Both loaders in both map types on a veth pair. Listed sources are dropped, others lose nothing while the list is replaced, and a bad
//! list changes nothing.
//!
//! ```text
//!   sources: v0 10.9.0.1-4, 2001:db8:9::1-4 ------------- node: v1 10.9.0.100, 2001:db8:9::100, the program
//! ```

// A failed unwrap fails the test.
#![allow(clippy::unwrap_used)]

// Linked only so that the C library is built before this test.
use trieline as _;

use std::fs;
use std::io::{BufRead, BufReader, Lines};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, ChildStdout, Command, Stdio};

use trieline_bpf::ImageMapType;
use trieline_testbed::command::sh;
use trieline_testbed::namespace::{End, Namespace, veth};
use trieline_testbed::{needs_root, probed, root, skip};

const HERE: &str = env!("CARGO_MANIFEST_DIR");

fn map_types() -> Vec<ImageMapType> {
    probed([ImageMapType::Arena, ImageMapType::Array], ImageMapType::probe)
}

/// Two namespaces; gone when dropped.
struct Bed {
    sources: Namespace,
    node: Namespace,
}

impl Bed {
    fn new() -> Self {
        let bed = Self { sources: Namespace::new("sources"), node: Namespace::new("node") };
        for namespace in [&bed.sources, &bed.node] {
            namespace.sysctl("net.ipv6.conf.default.accept_dad", "0");
        }
        let near = End { namespace: &bed.sources, device: "v0", mac: [2, 0, 0, 0, 0, 1] };
        let far = End { namespace: &bed.node, device: "v1", mac: [2, 0, 0, 0, 0, 2] };
        veth(near, far).unwrap();
        for (namespace, device, hosts) in [(&bed.sources, "v0", 1..5), (&bed.node, "v1", 100..101)] {
            namespace.ip(&format!("link set {device} up"));
            for host in hosts {
                namespace.ip(&format!("addr add 10.9.0.{host}/24 dev {device}"));
                namespace.ip(&format!("addr add 2001:db8:9::{host}/64 dev {device} nodad"));
            }
        }
        bed
    }

    /// `count` pings from a source, one each `every` seconds.
    fn ping(&self, source: &str, count: u32, every: &str) -> Ping {
        let target = if source.contains(':') { "2001:db8:9::100" } else { "10.9.0.100" };
        let child = Command::new("ip")
            .args(["netns", "exec", self.sources.name(), "ping", "-q", "-W", "1", "-I", source])
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
            .args(["netns", "exec", bed.node.name()])
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

/// docs/tables.md shows how to compile a loader: that line, with the library that is installed.
#[test]
fn the_documentations_command_compiles_the_loader() {
    let page = fs::read_to_string(format!("{HERE}/../../docs/tables.md")).unwrap();
    let command = page.lines().find(|line| line.starts_with("cc loader.c ")).unwrap();
    let built = Built::new(Some(&newer_libbpf()));
    let at = built.0.path().display();
    sh(&format!(
        "cd {at}; cp acl.c loader.c; export PKG_CONFIG_PATH={at}:{at}/lib/pkgconfig; {command}; test -x a.out"
    ));
}

#[test]
fn the_loader_in_rust() {
    if root() {
        map_types().into_iter().for_each(|map_type| story(Path::new(env!("CARGO_BIN_EXE_acl")), map_type));
    }
}

#[test]
fn the_loader_in_c() {
    let built = Built::new(Some(&newer_libbpf()));
    if root() {
        map_types().into_iter().for_each(|map_type| story(&built.program(), map_type));
    }
}

/// Debian 12's libbpf is too old for an array, and the loader says so.
#[test]
fn the_loader_in_c_with_the_systems_libbpf() {
    if !Command::new("pkg-config").args(["--exists", "libbpf"]).status().is_ok_and(|status| status.success())
    {
        skip("needs libbpf-dev");
        return;
    }
    let built = Built::new(None);
    let version = sh("pkg-config --modversion libbpf");
    let is_old = ["0.", "1.0", "1.1", "1.2"].iter().any(|old| version.starts_with(old));
    needs_root!();
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
