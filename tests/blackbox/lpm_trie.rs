//! `trieline table` on maps that other people's programs have: a real BPF_MAP_TYPE_LPM_TRIE of each kind, read, imported, compared.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::os::unix::fs::MetadataExt;
use trieline_tests::command::{Answer, binary_path, run, run_with};
use trieline_tests::skip;

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
        let told = run_with(&maps.file("fill"), &[&maps.file("maps.o"), &maps.pins], entries).ok();
        let id = |line: &str| line.split_once(' ').map(|(name, id)| (name.to_owned(), id.parse().unwrap()));
        maps.ids = told.lines().filter_map(id).collect();
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
    // (3) values that are none, and bytes of which nothing is known
    assert_eq!(table(&["show", &maps.map("wide")]).ok(), "10.0.0.0/8 =0\n11.0.0.0/8 =4294967301\n");
    assert_eq!(table(&["show", &maps.map("bare")]).ok(), "10.0.0.0/8 bytes:010203\n");
    maps.imported("wide");
    // (4) other formats
    let list = maps.file("list.txt.gz");
    table(&["import", "--map", &format!("{}/v4", maps.pins), "-o", &list, "--format", "text"]).ok();
    assert_eq!(table(&["diff", &list, &maps.map("v4")]).ok(), "");
    // (5) a difference is told
    std::fs::write(&list, "0.0.0.0/0 5\n10.0.0.0/8 8\n").expect("written");
    let diff = table(&["diff", &list, &maps.map("v4")]);
    assert_eq!((diff.code, diff.stdout.as_str()), (1, "~ 10.0.0.0/8 8 -> 7\n+ 10.1.0.0/16 2147483647\n"));
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
fn what_is_no_trie_is_told() {
    let Some(maps) = Maps::new("") else { return };
    let out = maps.file("out");
    let import = |map: &str| table(&["import", "--map", map, "-o", &out]);
    import(&format!("{}/other", maps.pins)).fails(1, &["a map of type hash", "expected lpm_trie"]);
    import(&format!("id:{}", maps.ids["other"])).fails(1, &["a map of type hash"]);
    import(&format!("{}/odd", maps.pins)).fails(1, &["keys of 64 bits", "IPv4 (32) or IPv6 (128)"]);
    import(&format!("{}/none", maps.pins)).fails(1, &["none: No such file"]);
    import(&maps.pins).fails(1, &["a directory", "expected a pinned LPM trie"]);
    import(&maps.file("fill")).fails(1, &["a file that is no pin"]);
    import("id:4000000000").fails(1, &["there is no BPF map 4000000000"]);
    import("id:some").fails(1, &["\"some\" is no number of a map"]);
    import(&format!("{}/v4", maps.pins)).fails(1, &["no prefix in what was read"]);
    assert!(!std::path::Path::new(&out).exists());
    let trieline = binary_path("trieline");
    run(&format!("setpriv --bounding-set=-all {trieline} table show map:id:{}", maps.ids["v4"]))
        .fails(1, &["not permitted; missing CAP_BPF"]);
}
