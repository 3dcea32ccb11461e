//! `trieline table` on maps that other people's programs have: a real BPF_MAP_TYPE_LPM_TRIE of each kind, read, imported, compared.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use trieline_testbed::command::{Answer, binary_path, run, run_with};
use trieline_testbed::skip;

const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/blackbox/lpm_trie");

/// Pinned maps; gone when dropped.
struct Maps {
    files: tempfile::TempDir,
    pins: String,
    ids: HashMap<String, u32>,
}

impl Maps {
    /// Makes the maps of lpm_trie/maps.bpf.c and fills them: lines of lpm_trie/fill.c.
    fn new(entries: &str) -> Option<Self> {
        if std::fs::metadata("/proc/self").expect("it is there").uid() != 0 {
            skip("needs root (BPF)");
            return None;
        }
        let files = tempfile::tempdir().expect("a directory");
        let at = files.path().display();
        let machine = run("uname -m").ok();
        run(&format!(
            "clang-19 -target bpf -g -O2 -Wall -Werror -I/usr/include/{}-linux-gnu -c {SOURCES}/maps.bpf.c -o {at}/maps.o",
            machine.trim()
        ))
        .ok();
        run(&format!("gcc -Wall -Wextra -Werror {SOURCES}/fill.c -o {at}/fill -lbpf")).ok();
        let pins =
            format!("/sys/fs/bpf/tlbb-{}", files.path().file_name()?.to_string_lossy().replace('.', ""));
        std::fs::create_dir(&pins).expect("bpffs is mounted");
        let mut maps = Self { files, pins, ids: HashMap::new() };
        let reported = run_with(&maps.file("fill"), &[&maps.file("maps.o"), &maps.pins], entries).ok();
        let id = |line: &str| line.split_once(' ').map(|(name, id)| (name.to_owned(), id.parse().unwrap()));
        maps.ids = reported.lines().filter_map(id).collect();
        Some(maps)
    }

    fn file(&self, name: &str) -> String {
        self.files.path().join(name).to_string_lossy().into_owned()
    }

    fn map(&self, name: &str) -> String {
        format!("map:{}/{name}", self.pins)
    }

    /// Imports a map, and compares the image with the map.
    #[track_caller]
    fn imported(&self, name: &str) -> String {
        let image = self.file(&format!("{name}.img"));
        table(&["import", "--map", &format!("id:{}", self.ids[name]), "-o", &image]).ok();
        assert_eq!(table(&["diff", &self.map(name), &image]).ok(), "");
        assert_eq!(table(&["diff", "--forwarding", &image, &self.map(name)]).ok(), "");
        table(&["verify", &image]).ok();
        image
    }
}

impl Drop for Maps {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.pins).ok();
    }
}

#[track_caller]
fn table(args: &[&str]) -> Answer {
    let args: Vec<&str> = ["table"].iter().chain(args).copied().collect();
    run_with(&binary_path("trieline"), &args, "")
}

const ENTRIES: &str = "\
v4 0.0.0.0 0 05000000
v4 10.0.0.0 8 07000000
v4 10.1.2.3 16 ffffff7f
v6 :: 0 50000100020000000102030405060000
v6 2001:db8:: 32 bb010200010000000102030405060000
v6 2001:db8:1:: 48 50000100020000000102030405060000
wide 10.0.0.0 8 0000000000000000
wide 11.0.0.0 8 0500000001000000
bare 10.0.0.0 8 010203
";

#[test]
fn a_map_is_read_and_imported() {
    let Some(maps) = Maps::new(ENTRIES) else { return };
    // (1) numbers stay; the kernel keeps the bits behind a prefix as they came
    assert_eq!(table(&["show", &maps.map("v4")]).ok(), "0.0.0.0/0 5\n10.0.0.0/8 7\n10.1.0.0/16 2147483647\n");
    let image = maps.imported("v4");
    assert_eq!(
        table(&["get", &image, "10.1.9.9", "192.0.2.1"]).ok(),
        table(&["get", &maps.map("v4"), "10.1.9.9", "192.0.2.1"]).ok()
    );
    // (2) structs become numbers with names
    let action = "{port=80,flags=1,kind=DROP,mac=bytes:010203040506}";
    let shown = table(&["show", &maps.map("v6")]).ok();
    assert!(shown.starts_with(&format!("::/0 {action}\n2001:db8::/32 {{port=443,")), "{shown}");
    assert!(shown.ends_with(&format!("2001:db8:1::/48 {action}\n")), "{shown}");
    let image = maps.imported("v6");
    assert_eq!(
        table(&["get", &image, "2001:db8:1::1"]).ok(),
        format!("2001:db8:1::1 in 2001:db8:1::/48 {action}\n")
    );
    assert_eq!(table(&["-j", "stat", &maps.map("v6")]).json()["values"][0]["prefixes"], 2);
    // (3) values out of range, and bytes of an unknown type
    assert_eq!(table(&["show", &maps.map("wide")]).ok(), "10.0.0.0/8 =0\n11.0.0.0/8 =4294967301\n");
    assert_eq!(table(&["show", &maps.map("bare")]).ok(), "10.0.0.0/8 bytes:010203\n");
    maps.imported("wide");
    // (4) other formats
    let list = maps.file("list.txt.gz");
    table(&["import", "--map", &format!("{}/v4", maps.pins), "-o", &list, "--format", "text"]).ok();
    assert_eq!(table(&["diff", &list, &maps.map("v4")]).ok(), "");
    // (5) a difference is printed
    std::fs::write(&list, "0.0.0.0/0 5\n10.0.0.0/8 8\n").expect("written");
    let diff = table(&["diff", &list, &maps.map("v4")]);
    assert_eq!((diff.code, diff.stdout.as_str()), (1, "~ 10.0.0.0/8 8 -> 7\n+ 10.1.0.0/16 2147483647\n"));
}

const KEYS: &str = "\
endpoint 000000000000 0 01000000
endpoint c00002010000 24 07000000
endpoint c00002010050 48 08000000
endpoint c000020101bb 48 09000000
endpoint6 20010db8000000000000000000000001ffff 128 50000100020000000102030405060000
endpoint6 20010db80000000000000000000000010050 144 bb010200010000000102030405060000
odd 010203 24 01000000
odd 010000 9 02000000
ports 00500000 16 03000000
ports 00501f90 32 04000000
pair 20010db8000000000000000000000000 32 05000000
in4 10.0.0.0 8 06000000
in6 2001:db8:: 32 07000000
";

/// Keys that are no addresses: any width, shown as hexadecimal digits.
#[test]
fn keys_of_any_width() {
    let Some(maps) = Maps::new(KEYS) else { return };
    // (1) address and port
    let shown = table(&["show", &maps.map("endpoint")]);
    assert!(shown.stderr.contains("keys of 48 bits (prefixlen, saddr[4], dport[2])"), "{shown:?}");
    assert_eq!(shown.ok(), "000000000000/0 1\nc00002000000/24 7\nc00002010050/48 8\nc000020101bb/48 9\n");
    let image = maps.imported("endpoint");
    for file in [&image, &maps.map("endpoint")] {
        assert_eq!(
            table(&["get", file, "c00002010050", "0xc00002010051", "0a0000010050"]).ok(),
            "c00002010050 in c00002010050/48 8\nc00002010051 in c00002000000/24 7\n0a0000010050 in 000000000000/0 1\n"
        );
        assert_eq!(
            table(&["covering", file, "c00002010000/40"]).ok(),
            "000000000000/0 1\nc00002000000/24 7\n"
        );
        assert_eq!(table(&["covered", file, "c00002010000/40"]).ok(), "c00002010050/48 8\n");
        assert_eq!(table(&["show", file, "c00002010000/32"]).ok(), "c00002010050/48 8\nc000020101bb/48 9\n");
        table(&["get", file, "c000020100"])
            .fails(1, &["c000020100/40 has 40 bits; expected keys of 48 bits"]);
        table(&["-4", "show", file, "c00002010000/32"]).fails(2, &["-4 expects IPv4"]);
        let stat = table(&["-j", "stat", file]).json();
        assert_eq!(
            (&stat["keys"]["48"], &stat["lengths_48"]["48"], &stat["ipv4"]),
            (&4.into(), &2.into(), &0.into())
        );
    }
    let stat = table(&["stat", &maps.map("endpoint")]).ok();
    assert!(
        stat.contains(
            "0 IPv6 and 4 48-bit\nkey       prefixlen, saddr[4], dport[2]\n48 bits   /0 1  /24 1  /48 2\n"
        ),
        "{stat}"
    );
    // (2) text and back; a difference is printed; packed and piped images
    let list = maps.file("list.txt");
    table(&["import", "--map", &maps.map("endpoint"), "-o", &list, "--format", "text"]).ok();
    assert_eq!(table(&["diff", "--key", "48", &list, &image]).ok(), "");
    std::fs::write(&list, "c00002010050/48 5\n0a0000000000/8 5\n000000000000/0 1\n").expect("written");
    let diff = table(&["diff", "--key", "48", &image, &list]);
    assert_eq!(
        (diff.code, diff.stdout.as_str()),
        (1, "+ 0a0000000000/8 5\n- c00002000000/24 7\n~ c00002010050/48 8 -> 5\n- c000020101bb/48 9\n")
    );
    let forwarding = table(&["diff", "--forwarding", "--key", "48", &image, &list]).stdout;
    assert!(
        forwarding.contains("~ c00002010050/48 8 -> 5\n")
            && forwarding.contains("~ c00002010051/48 7 -> 1\n"),
        "{forwarding}"
    );
    table(&["show", "--key", "40", &list])
        .fails(1, &["list.txt:1:", "of 40 bits: expected 10 hexadecimal digits"]);
    table(&["import", "--map", &maps.map("endpoint"), "-o", &list, "--format", "mrt"])
        .fails(1, &["keys of 48 bits"]);
    run(&format!("gzip -k {image}")).ok();
    assert_eq!(table(&["diff", &format!("{image}.gz"), &image]).ok(), "");
    // (3) wider, with values that are structs; narrower
    let image = maps.imported("endpoint6");
    assert!(table(&["get", &image, "20010db80000000000000000000000010050"]).ok().contains("/144 {port=443,"));
    assert!(table(&["get", &image, "20010db80000000000000000000000010051"]).ok().contains("/128 {port=80,"));
    assert_eq!(
        table(&["get", &maps.imported("odd"), "010203", "017f00", "018000"]).stdout,
        "010203 in 010203/24 1\n017f00 in 010000/9 2\nnone 018000\n"
    );
    // (4) as wide as an address: what the BTF says, and what the user says
    for (name, printed, shown) in [
        ("in4", "IPv4 addresses (prefixlen, addr[4])", "10.0.0.0/8 6\n"),
        ("in6", "IPv6 addresses (prefixlen, addr[16])", "2001:db8::/32 7\n"),
        ("ports", "keys of 32 bits (prefixlen, sport[2], dport[2])", "00500000/16 3\n00501f90/32 4\n"),
        ("pair", "keys of 128 bits (prefixlen, from[8], to[8])", "20010db8000000000000000000000000/32 5\n"),
    ] {
        let answer = table(&["show", &maps.map(name)]);
        assert!(answer.stderr.contains(printed), "{answer:?}");
        assert_eq!(answer.ok(), shown);
        maps.imported(name);
    }
    assert_eq!(table(&["-6", "show", &maps.map("pair")]).ok(), "2001:db8::/32 5\n");
    assert_eq!(table(&["-4", "show", &maps.map("ports")]).ok(), "0.80.0.0/16 3\n0.80.31.144/32 4\n");
    assert_eq!(table(&["show", "--key", "32", &maps.map("in4")]).ok(), "0a000000/8 6\n");
    table(&["show", "--key", "48", &maps.map("in4")]).fails(1, &["keys of 32 bits; --key expects 48"]);
    table(&["show", "--key", "2049", &maps.map("in4")]).fails(2, &["2049 is not in 1..=2048"]);
    // (5) several maps in one image
    let all = maps.file("all.img");
    let maps_of = |names: &[&str]| {
        names.iter().flat_map(|name| ["--map".to_owned(), maps.map(name)]).collect::<Vec<_>>()
    };
    let args = maps_of(&["in4", "endpoint", "odd", "in6"]);
    let args: Vec<&str> = ["import", "-o", &all].into_iter().chain(args.iter().map(String::as_str)).collect();
    assert!(table(&args).ok().contains("1 IPv4 and 1 IPv6 and 2 24-bit and 4 48-bit prefixes"));
    assert!(table(&["verify", &all]).ok().contains("sound; 8 prefixes"));
    assert_eq!(table(&["diff", &maps.map("odd"), &all]).stdout.lines().count(), 6);
}

/// More than one batch.
#[test]
fn many_entries() {
    let mut entries = String::new();
    for at in 0..20_000u32 {
        let (high, low) = (at / 256, at % 256);
        writeln!(entries, "v4 10.{high}.{low}.0 24 {:08x}", (at % 9 + 1).swap_bytes()).expect("a string");
    }
    let Some(maps) = Maps::new(&entries) else { return };
    maps.imported("v4");
    assert_eq!(table(&["-j", "stat", &maps.map("v4")]).json()["ipv4"], 20_000);
}

#[test]
fn maps_that_are_not_tries_are_refused() {
    let Some(maps) = Maps::new("") else { return };
    let out = maps.file("out");
    let import = |map: &str| table(&["import", "--map", map, "-o", &out]);
    import(&format!("{}/other", maps.pins)).fails(1, &["a map of type hash", "expected lpm_trie"]);
    import(&format!("id:{}", maps.ids["other"])).fails(1, &["a map of type hash"]);
    import(&format!("{}/none", maps.pins)).fails(1, &["none: No such file"]);
    import(&maps.pins).fails(1, &["a directory", "expected a pinned LPM trie"]);
    import(&maps.file("fill")).fails(1, &["the file is not a pin"]);
    import("id:4000000000").fails(1, &["no BPF map has the id 4000000000"]);
    import("id:some").fails(1, &["invalid map number \"some\""]);
    import(&format!("{}/v4", maps.pins)).fails(1, &["no prefix in what was read"]);
    assert!(!std::path::Path::new(&out).exists());
    let trieline = binary_path("trieline");
    run(&format!("setpriv --bounding-set=-all {trieline} table show map:id:{}", maps.ids["v4"]))
        .fails(1, &["not permitted; missing CAP_BPF"]);
}
