//! `trieline table`: files of every format read, written, built into images, looked up in, compared; mistakes explained.

use std::path::{Path, PathBuf};
use trieline_testbed::command::{Answer, binary_path, run_with};

/// A small table of both families, with names for values.
const LIST: &str =
    "# country\n10.0.0.0/8 ad\n10.1.0.0/16 de\n10.1.0.0/17 de\n192.0.2.0/24 us\n2001:db8::/32 de\n";

struct Files(tempfile::TempDir);

impl Files {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_string_lossy().into_owned()
    }

    fn write(&self, name: &str, content: impl AsRef<[u8]>) -> String {
        std::fs::write(self.path(name), content).expect("written");
        self.path(name)
    }

    fn names(&self) -> Vec<PathBuf> {
        std::fs::read_dir(self.0.path())
            .expect("a directory")
            .map(|entry| entry.expect("an entry").path())
            .collect()
    }
}

#[track_caller]
fn table(args: &[&str]) -> Answer {
    fed(args, "")
}

#[track_caller]
fn fed(args: &[&str], input: &str) -> Answer {
    let args: Vec<&str> = ["table"].iter().chain(args).copied().collect();
    run_with(&binary_path("trieline"), &args, input)
}

#[test]
fn an_image_is_built_and_looked_up_in() {
    let files = Files::new();
    let (list, image) = (files.write("list", LIST), files.path("list.img"));
    // (1) built: counts on stdout, progress on stderr
    let built = table(&["build", &list, "-o", &image]);
    assert!(built.stderr.contains("reading"), "{built:?}");
    assert!(built.ok().contains("4 IPv4 and 1 IPv6 prefixes; 3 values have names"));
    // (2) the same answers from the image and from the list, in words and in JSON
    for file in [&image, &list] {
        let got = table(&["get", file, "10.1.2.3", "10.1.200.1", "2001:db8::1", "203.0.113.1"]);
        assert_eq!(
            got.stdout,
            "10.1.2.3 in 10.1.0.0/17 de\n10.1.200.1 in 10.1.0.0/16 de\n2001:db8::1 in 2001:db8::/32 de\nnone 203.0.113.1\n"
        );
        assert_eq!(got.code, 1);
        assert_eq!(
            table(&["-j", "get", file, "192.0.2.7"]).ok(),
            "[{\"dst\":\"192.0.2.7\",\"prefix\":\"192.0.2.0/24\",\"value\":3,\"name\":\"us\"}]\n"
        );
        assert_eq!(fed(&["get", file, "-"], "# some\n10.9.9.9\n").ok(), "10.9.9.9 in 10.0.0.0/8 ad\n");
        assert_eq!(
            table(&["covering", file, "10.1.2.3"]).ok(),
            "10.0.0.0/8 ad\n10.1.0.0/16 de\n10.1.0.0/17 de\n"
        );
        assert_eq!(table(&["covered", file, "10.1.0.0/16"]).ok(), "10.1.0.0/16 de\n10.1.0.0/17 de\n");
        table(&["covering", file, "203.0.113.0/24"]).fails(1, &[]);
        assert_eq!(table(&["-6", "show", file]).ok(), "2001:db8::/32 de\n");
        assert_eq!(table(&["sh", file, "--numeric", "192.0.0.0/8"]).ok(), "192.0.2.0/24 3\n");
        assert_eq!(
            table(&["-4", "aggregate", file]).ok(),
            "10.0.0.0/8 ad\n10.1.0.0/16 de\n192.0.2.0/24 us\n"
        );
    }
    // (3) what it is
    assert!(table(&["verify", &image]).ok().contains("sound; 5 prefixes"));
    let stat = table(&["-j", "stat", &image]).json();
    assert_eq!((stat["ipv4"].as_u64(), stat["lengths4"]["17"].as_u64()), (Some(4), Some(1)));
    assert_eq!(stat["values"][0]["name"], "de");
    let size = std::fs::metadata(&image).expect("a file").len();
    assert_eq!(stat["file_bytes"].as_u64(), Some(size));
    // (4) nothing is left beside it
    assert_eq!(files.names().len(), 2);
}

/// Every format says the same after it was written and read.
#[test]
fn formats_are_recognised_by_their_content() {
    let files = Files::new();
    let list = files.write("list", "10.0.0.0/8 7\n10.1.0.0/16 2147483647\n2001:db8::/32 9\n");
    for format in ["text", "json", "iproute", "mrt", "image"] {
        let names: &[&str] = if format == "image" { &["as"] } else { &["as", "packed.gz"] };
        for name in names {
            let to = files.path(name);
            table(&["show", &list, "--format", format, "-o", &to]).ok();
            table(&["diff", &list, &to, "--mrt-value", "med"]).ok();
            table(&["diff", &list, &to, "--mrt-value", "med", "--forwarding"]).ok();
        }
    }
    let routes = table(&["show", &list, "--format", "iproute"]).ok();
    assert!(routes.starts_with("route replace 10.0.0.0/8 nhid 7\n"), "{routes}");
    // From a router: gateways become values, and the image knows them.
    let routes =
        "default via 192.0.2.1 dev eth0 \n10.0.0.0/8 via 192.0.2.2 dev eth0 \nblackhole 10.1.0.0/16 \n";
    let image = files.path("routes.img");
    fed(&["build", "-", "-o", &image], routes).ok();
    assert_eq!(
        table(&["get", &image, "10.2.0.1", "10.1.0.1"]).ok(),
        "10.2.0.1 in 10.0.0.0/8 via 192.0.2.2 dev eth0\n10.1.0.1 in 10.1.0.0/16 blackhole\n"
    );
}

#[test]
fn differences_are_printed() {
    let files = Files::new();
    let old = files.write("old", "10.0.0.0/8 1\n10.1.0.0/16 1\n10.2.0.0/16 2\n");
    let new = files.write("new", "10.0.0.0/8 1\n10.2.0.0/16 3\n10.3.0.0/16 3\n");
    let diff = table(&["diff", &old, &new]);
    assert_eq!(
        (diff.code, diff.stdout.as_str()),
        (1, "- 10.1.0.0/16 1\n~ 10.2.0.0/16 2 -> 3\n+ 10.3.0.0/16 3\n")
    );
    let diff = table(&["diff", "--forwarding", &old, &new]);
    // 10.1.0.0/16 said what 10.0.0.0/8 says.
    assert_eq!((diff.code, diff.stdout.as_str()), (1, "~ 10.2.0.0/16 2 -> 3\n~ 10.3.0.0/16 1 -> 3\n"));
    let diff = table(&["-j", "diff", &old, &new]);
    assert!(
        diff.stdout.contains("{\"dst\":\"10.2.0.0/16\",\"change\":\"changed\",\"from\":2,\"to\":3}"),
        "{diff:?}"
    );
    // Names are the same values whatever their numbers.
    let (a, b) = (
        files.write("a", "10.0.0.0/8 x\n11.0.0.0/8 y\n"),
        files.write("b", "11.0.0.0/8 y\n12.0.0.0/8 x\n10.0.0.0/8 x\n"),
    );
    assert_eq!(table(&["diff", &a, &b]).stdout, "+ 12.0.0.0/8 x\n");
    assert_eq!(table(&["diff", &a, &a]).ok(), "");
}

/// Several lists in one image: names keep their meaning.
#[test]
fn lists_are_laid_over_each_other() {
    let files = Files::new();
    let (a, b) =
        (files.write("a", "10.0.0.0/8 x\n11.0.0.0/8 y\n"), files.write("b", "11.0.0.0/8 z\n12.0.0.0/8 x\n"));
    let image = files.path("both");
    table(&["build", &a, &b, "-o", &image]).ok();
    assert_eq!(table(&["show", &image]).ok(), "10.0.0.0/8 x\n11.0.0.0/8 z\n12.0.0.0/8 x\n");
    let numbers = files.write("numbers", "10.0.0.0/8 7\n");
    table(&["build", &a, &numbers, "-o", &image])
        .fails(1, &[&numbers, "numbers in one file and names in another"]);
}

#[test]
fn mistakes_are_explained() {
    let files = Files::new();
    let bad = files.write("bad", "10.0.0.0/8 7\n10.0.0.0/33 7\n");
    let to = files.path("to");
    table(&["build", &bad, "-o", &to]).fails(1, &[&format!("{bad}:2:"), "10.0.0.0/33", "over 32"]);
    assert!(!Path::new(&to).exists());
    let json = files.write("bad.json", "[{\"dst\": \"10.0.0.0/8\",\n \"value\": 0}]");
    table(&["show", &json]).fails(1, &[&format!("{json}:2:"), "invalid value 0", "expected a number from 1"]);
    let mixed = files.write("mixed", "10.0.0.0/8 7\n11.0.0.0/8\n");
    table(&["show", &mixed]).fails(1, &[&mixed, "11.0.0.0/8", "expected all or none"]);
    table(&["show", "/no/such/file"]).fails(1, &["/no/such/file", "No such file"]);
    table(&["verify", &bad]).fails(1, &[&bad, "no image"]);
    table(&["show", &bad, "--from", "mrt"]).fails(1, &[&bad, "record 1", "expected an MRT record"]);
    let list = files.write("list", LIST);
    table(&["build", &list, "-o", "/no/such/directory/to"]).fails(1, &["/no/such/directory/to"]);
    table(&["-6", "get", &list, "10.0.0.1"]).fails(2, &["IPv4"]);
    table(&["get", &list, "10.0.0.0/8"]).fails(2, &["expected an address"]);
    table(&["get", "-", "-"]).fails(2, &["expected one of them"]);
    table(&["show", &list, "--format", "nonsense"]).fails(2, &["nonsense"]);
}

/// A damaged image gives no answers.
#[test]
fn damage_is_found() {
    let files = Files::new();
    let (list, image) = (files.write("list", LIST), files.path("image"));
    table(&["build", &list, "-o", &image]).ok();
    let whole = std::fs::read(&image).expect("a file");
    for at in [4, 64, 200, 65536 + 40, whole.len() - 20] {
        let mut damaged = whole.clone();
        damaged[at] ^= 4;
        let damaged = files.write("damaged", damaged);
        table(&["verify", &damaged]).fails(1, &[&damaged]);
        table(&["get", &damaged, "10.0.0.1"]).fails(1, &[&damaged]);
    }
    let cut = files.write("cut", &whole[..whole.len() - 8]);
    table(&["verify", &cut]).fails(1, &[&cut, "cut short"]);
}

/// The full Internet table, where it lies beside the repository.
#[test]
fn the_full_table() {
    let real = Path::new("../../shared/data/bgp-table.txt.gz");
    if !real.is_file() {
        trieline_testbed::skip("no ../shared/data/bgp-table.txt.gz");
        return;
    }
    let files = Files::new();
    let image = files.path("bgp.img");
    table(&["build", &real.to_string_lossy(), "-o", &image]).ok();
    assert!(table(&["verify", &image]).ok().contains("1062046 prefixes"));
    table(&["diff", &real.to_string_lossy(), &image]).ok();
}

/// The same number may stand for a word in one file: such tables cannot be compared.
#[test]
fn words_are_not_compared_with_numbers() {
    let files = Files::new();
    let words = files.write("words", "10.0.0.0/8 us\n");
    let numbers = files.write("numbers", "10.0.0.0/8 1\n");
    for mode in [&[][..], &["--forwarding"]] {
        table(&[&["diff", &words, &numbers], mode].concat()).fails(1, &["expected one of both"]);
    }
}

/// A list without prefixes (an interrupted download) does not replace an image unless that is meant.
#[test]
fn an_empty_list_replaces_nothing() {
    let files = Files::new();
    let (list, empty, image) =
        (files.write("list", "10.0.0.0/8 7\n"), files.write("empty", "# none\n"), files.path("image"));
    table(&["build", &list, "-o", &image]).ok();
    table(&["build", &empty, "-o", &image]).fails(1, &["--allow-empty"]);
    assert!(table(&["get", &image, "10.0.0.1"]).ok().contains('7'));
    table(&["build", &empty, "-o", &image, "--allow-empty"]).ok();
}

/// The rest of a copy that failed is not a table; a table without prefixes that is not empty is one.
#[test]
fn an_empty_file_is_an_error_and_not_a_no() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("a file");
        path.display().to_string()
    };
    let (blank, none) = (file("blank", ""), file("none", "# nothing\n"));
    let some = file("some", "10.0.0.0/9 a\n");
    let table = |args: &[&str]| run_with(&binary_path("trieline"), &[&["table"], args].concat(), "");
    table(&["get", &blank, "10.0.0.1"]).fails(1, &["blank", "empty (0 bytes)"]);
    table(&["diff", &some, &blank]).fails(1, &["blank", "empty (0 bytes)"]);
    table(&["covering", &blank, "10.0.0.1"]).fails(1, &["blank", "empty (0 bytes)"]);
    let answer = table(&["get", &none, "10.0.0.1"]);
    assert!(answer.code == 1 && answer.stdout == "none 10.0.0.1\n", "{answer:?}");
    // values of the one that has any
    assert_eq!(table(&["diff", &some, &none]).stdout, "- 10.0.0.0/9 a\n");
    assert_eq!(table(&["diff", &none, &some]).stdout, "+ 10.0.0.0/9 a\n");
}

/// One bad line in a list: an error that names it, or counted; likewise host bits and prefixes with several values.
#[test]
fn bad_lines_are_an_error_or_counted() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("list");
    std::fs::write(&path, "10.0.0.0/8 a\n1.2.3.4.5\n10.1.2.3/16 b\n10.0.0.0/8 b\n10.0.0.0/8 a\n")
        .expect("a file");
    let path = path.display().to_string();
    let show =
        |args: &[&str]| run_with(&binary_path("trieline"), &[&["table", "show", &path], args].concat(), "");
    let refused = show(&[]);
    refused.fails(1, &["list:2: \"1.2.3.4.5\": not a prefix; expected"]);
    assert_eq!(refused.stderr.matches("1.2.3.4.5").count(), 1, "{refused:?}");
    let skipped = show(&["--skip-bad"]);
    assert_eq!(skipped.stdout, "10.0.0.0/8 a\n", "{skipped:?}");
    assert!(
        skipped.stderr.contains("passed over 2 bad lines") && skipped.stderr.contains("list:2:"),
        "{skipped:?}"
    );
    assert!(
        skipped.stderr.contains("1 prefix stands there more than once with different values"),
        "{skipped:?}"
    );
    let truncated = show(&["--skip-bad", "--truncate"]);
    assert_eq!(truncated.stdout, "10.0.0.0/8 a\n10.1.0.0/16 b\n", "{truncated:?}");
    assert!(truncated.stderr.contains("cleared host bits of 1 prefix"), "{truncated:?}");
}
