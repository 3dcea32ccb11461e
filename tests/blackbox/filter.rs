//! Filters: sets from files decide before routes do, and are changed under traffic without a packet that neither set decided.

use serde_json::Value;
use std::path::{Path, PathBuf};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::run;
use trieline_testbed::daemon::{Daemon, Leftovers, trieline};
use trieline_testbed::packets::{UdpSink, UdpStream};
use trieline_testbed::{craft, eventually, needs_root};

/// A folder with a configuration and the files that it names.
struct Files(tempfile::TempDir);

impl Files {
    fn new(filters: &str) -> Self {
        let files = Self(tempfile::tempdir().expect("a folder"));
        files.configure(filters);
        files
    }

    fn configure(&self, filters: &str) {
        self.write("trielined.toml", &format!("devices = [\"n0\", \"n1\", \"n2\"]\n{filters}"));
    }

    fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("a file");
    }

    fn path(&self, name: &str) -> PathBuf {
        Path::new(self.0.path()).join(name)
    }

    fn start(&self, bed: &Bed) -> Daemon {
        Daemon::start(&bed.node, &format!("--config {}", self.path("trielined.toml").display()))
    }
}

const THREATS: &str =
    "[[filter]]\nname = \"threats\"\nfile = \"threats\"\nmatch = \"source\"\naction = \"drop\"\n";

fn routed_bed() -> Bed {
    let bed = Bed::routed();
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    bed
}

fn shown(bed: &Bed) -> Vec<Value> {
    trieline(&bed.node, "-j filter show").json().as_array().cloned().unwrap_or_default()
}

fn packets(bed: &Bed) -> u64 {
    shown(bed)[0]["packets"].as_u64().expect("a number")
}

/// Each action, both families, and the order; packed files.
#[test]
fn filters_decide_before_routes() {
    needs_root!();
    let bed = routed_bed();
    let files = Files::new(
        "[[filter]]\nname = \"dns\"\nfile = \"all\"\nmatch = \"destination\"\nprotocol = \"udp\"\nports = [53]\naction = \"allow\"\n\
         [[filter]]\nname = \"seen\"\nfile = \"all\"\nmatch = \"source\"\naction = \"count\"\n\
         [[filter]]\nname = \"slow\"\nfile = \"slow\"\nmatch = \"destination\"\naction = \"pass\"\n\
         [[filter]]\nname = \"closed\"\nfile = \"closed.gz\"\nmatch = \"destination\"\naction = \"drop\"\n",
    );
    files.write("all", "0.0.0.0/0\n::/0\n");
    files.write("slow", "10.50.2.0/24 # by the kernel\nfd50:0:2::/48\n");
    files.write("closed", "10.50.0.0/16\nfd50::/32\n");
    run(&format!("gzip {}", files.path("closed").display())).ok();
    let _daemon = files.start(&bed);
    for (to, expected) in [
        ("10.50.1.1:53", (0, 5, 0)),
        ("10.50.1.1:9", (0, 0, 0)),
        ("10.50.2.1:9", (5, 5, 0)),
        ("[fd50::1]:53", (0, 5, 0)),
        ("[fd50::1]:9", (0, 0, 0)),
        ("[fd50:0:2::1]:9", (5, 5, 0)),
    ] {
        assert_eq!(bed.send(to, "through the filters", 5).counts(), expected, "passed, sink, side to {to}");
    }
    let shown = shown(&bed);
    let reported: Vec<_> = shown.iter().map(|filter| (&filter["name"], &filter["action"])).collect();
    let expected = [("dns", "allow"), ("seen", "count"), ("slow", "pass"), ("closed", "drop")];
    assert_eq!(reported.len(), 4);
    for (reported, expected) in reported.into_iter().zip(expected) {
        assert_eq!((reported.0, reported.1), (&Value::from(expected.0), &Value::from(expected.1)));
    }
    // "slow" decided before "closed" was asked; "seen" has counted neighbours' answers too.
    let counts: Vec<_> = shown.iter().map(|filter| filter["packets"].as_u64().expect("a number")).collect();
    assert_eq!((counts[0], counts[2], counts[3]), (10, 10, 10));
    assert!(counts[1] >= 20, "{counts:?}");
    let text = trieline(&bed.node, "filter show closed").ok();
    assert!(text.contains("closed drop destination") && text.contains("1 IPv4, 1 IPv6"), "{text}");
}

/// `route get` says what a filter does and which; without the source, or with ports, it says which filters may match. A packet that is
/// tried and one that is captured name the filter, too; a capture of one direction has no frame of the other.
#[test]
fn the_filter_that_decides_is_named() {
    needs_root!();
    let bed = routed_bed();
    let files = Files::new(
        "[[filter]]\nname = \"web\"\nfile = \"web\"\nmatch = \"destination\"\nprotocol = \"tcp\"\nports = [80]\naction = \"drop\"\n\
         [[filter]]\nname = \"slow\"\nfile = \"slow\"\nmatch = \"destination\"\naction = \"pass\"\n\
         [[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"source\"\naction = \"drop\"\n",
    );
    files.write("web", "10.50.3.0/24\n");
    files.write("slow", "10.50.2.0/24\n");
    files.write("bad", "10.0.0.2\nfd00::2\n");
    let _daemon = files.start(&bed);
    // (1) asked about addresses
    let get = |args: &str| {
        let answer = trieline(&bed.node, &format!("-j route get {args}")).json()[0].clone();
        ["action", "reason", "filter", "filters_may_match"].map(|key| answer[key].clone())
    };
    let text = |word: &str| Value::from(word);
    let (none, may) = (Value::Null, |names: &[&str]| Value::from(names));
    let surely = |action, reason, name| [text(action), text(reason), text(name), Value::Null];
    assert_eq!(get("10.50.1.1 --from 10.0.0.2 --iif n0"), surely("drop", "filtered", "bad"));
    assert_eq!(get("fd50::1 --from fd00::2"), surely("drop", "filtered", "bad"));
    assert_eq!(get("10.50.2.1"), surely("pass", "filter", "slow"));
    assert_eq!(get("10.50.1.1 --from 10.0.0.3"), [text("forward"), none.clone(), none.clone(), none.clone()]);
    assert_eq!(get("10.50.1.1"), [text("forward"), none.clone(), none.clone(), may(&["bad (drop)"])]);
    let both = may(&["web (drop)", "bad (drop)"]);
    assert_eq!(get("10.50.3.1 --from 10.0.0.2"), [text("forward"), none.clone(), none, both]);
    let printed = trieline(&bed.node, "route get 10.50.1.1 --from 10.0.0.2").ok();
    assert!(printed.ends_with("[drop filtered by filter bad]\n"), "{printed}");
    // (2) tried and captured
    let packet = |to: &str| -> String {
        let frame = craft::ipv4("10.0.0.2", to, b"which filter", |_| {});
        frame.iter().map(|byte| format!("{byte:02x}")).collect()
    };
    for (to, expected_text) in
        [("10.50.1.1", "drop filtered by filter bad"), ("10.50.2.1", "pass filter by filter slow")]
    {
        let answer = trieline(&bed.node, &format!("route get --packet {}", packet(to)));
        assert!(answer.stdout.contains(expected_text), "{answer:?}");
    }
    for (direction, holds) in [("in", true), ("out", false), ("both", true)] {
        let file = files.path("captured");
        let args = format!("-j capture --count 5 --direction {direction} -w {}", file.display());
        let capture = std::thread::scope(|scope| {
            let capture = scope.spawn(|| trieline(&bed.node, &args));
            while !capture.is_finished() {
                bed.send("10.50.1.1:9", "captured", 5);
            }
            capture.join().expect("it ends")
        });
        let printed: Value = serde_json::from_str(&capture.stderr).expect("JSON");
        let bytes = std::fs::read(&file).expect("a file");
        let named = bytes.windows(20).any(|window| window == b"drop filtered by bad");
        assert_eq!((named, printed["frames"].as_u64() > Some(0)), (holds, holds), "{direction}: {capture:?}");
    }
}

/// A set is reloaded again and again under a stream that both the old and the new one drop. No packet comes through, and each is counted.
/// Then with files that are bad: the set in force stays.
#[test]
fn a_reload_leaves_no_gap() {
    needs_root!();
    let bed = routed_bed();
    let files = Files::new(THREATS);
    files.write("threats", "10.0.0.2\n");
    let _daemon = files.start(&bed);
    let (address, before) = ("10.50.0.1:7000".parse().expect("an address"), packets(&bed));
    let sink = UdpSink::open(&bed.sink, address);
    let stream = UdpStream::start(&bed.generator, address, 5000);
    // (1) sets that share no prefix, small and large in turn
    let many: String = (0..20_000).map(|n| format!("172.16.{}.{}\n", n >> 8, n & 255)).collect();
    for round in 0..20 {
        let set = if round % 2 == 0 { format!("{many}10.0.0.0/24\n") } else { "10.0.0.2/31\n".into() };
        files.write("threats", &set);
        trieline(&bed.node, "filter reload threats").ok();
        let prefixes = shown(&bed)[0]["prefixes4"].as_u64();
        assert_eq!(prefixes, Some(if round % 2 == 0 { 20_001 } else { 1 }));
    }
    // (2) a bad file: said with its line, and the set stays
    for (bad, expected_text) in [
        ("10.0.0.2\n10.0.0.300\n", "threats:2: \"10.0.0.300\""),
        ("10.0.0.2/33\n", "threats:1:"),
        ("10.0.0.9/24\n", "threats:1:"),
    ] {
        files.write("threats", bad);
        trieline(&bed.node, "filter reload threats").fails(1, &[expected_text, "nothing has changed"]);
    }
    std::fs::remove_file(files.path("threats")).expect("removed");
    trieline(&bed.node, "filter reload").fails(1, &["threats", "no such file", "nothing has changed"]);
    trieline(&bed.node, "filter reload other").fails(1, &["no filter is named other", "threats"]);
    let sent = stream.stop();
    assert_eq!(sink.close(), 0, "packets that no set decided, of {sent}");
    let dropped = || packets(&bed) - before;
    assert!(eventually(2.0, || dropped() >= sent), "{} dropped of {sent}", dropped());
    assert!(sent > 1000 && dropped() < sent + 20, "{} counted, {sent} sent", dropped());
    // (3) and one that no longer holds the sender lets it through
    files.write("threats", "192.0.2.1\n");
    trieline(&bed.node, "filter reload threats").ok();
    assert_eq!(bed.send("10.50.0.1:9", "free again", 5).counts(), (0, 5, 0));
}

/// SIGHUP: filters come, change and go with the file; one that is bad changes nothing.
#[test]
fn the_file_is_read_anew() {
    needs_root!();
    let bed = routed_bed();
    let files = Files::new("");
    files.write("threats", "10.0.0.2\n");
    let daemon = files.start(&bed);
    let becomes = |what: &str, counts: (usize, usize, usize)| {
        let mut last = None;
        let equal = eventually(5.0, || {
            last = Some(bed.send("10.50.1.1:9", what, 5).counts());
            last == Some(counts)
        });
        assert!(equal, "{what}: expected {counts:?}, last seen {last:?} (passed, sink, side)");
    };
    let reload = |filters: &str| {
        files.configure(filters);
        run(&format!("kill -HUP {}", daemon.pid())).ok();
    };
    becomes("no filters", (0, 5, 0));
    reload(THREATS);
    becomes("dropped", (0, 0, 0));
    reload(&THREATS.replace("\"threats\"\nmatch", "\"nowhere\"\nmatch"));
    assert!(eventually(5.0, || daemon.log().contains("not reloaded")), "{}", daemon.log());
    becomes("still dropped", (0, 0, 0));
    reload(&THREATS.replace("drop", "pass"));
    becomes("passed", (5, 5, 0));
    assert_eq!(shown(&bed)[0]["action"], "pass");
    reload("");
    becomes("no filters again", (0, 5, 0));
    assert_eq!(shown(&bed).len(), 0);
}

/// A daemon that is killed leaves its filters in force; the next one takes them over with what they counted.
#[test]
fn filters_outlive_the_daemon() {
    needs_root!();
    let bed = routed_bed();
    let files = Files::new(THREATS);
    files.write("threats", "10.0.0.2\nfd00::2\n");
    let _leftovers = Leftovers(&bed.node);
    files.start(&bed).kill();
    for to in ["10.50.1.1:9", "[fd50::1]:9"] {
        assert_eq!(bed.send(to, "unanswered", 5).counts(), (0, 0, 0), "to {to}");
    }
    let before = packets(&bed);
    assert!(before >= 10, "{before}");
    // A file that is bad takes nothing away.
    files.write("threats", "10.0.0\n");
    let daemon = files.start(&bed);
    assert!(daemon.log().contains("threats:1:"), "{}", daemon.log());
    assert_eq!(bed.send("10.50.1.1:9", "still", 5).counts(), (0, 0, 0));
    daemon.kill();
    files.write("threats", "10.0.0.0/24\nfd00::/64\n");
    let _daemon = files.start(&bed);
    assert_eq!(bed.send("10.50.1.1:9", "taken over", 5).counts(), (0, 0, 0));
    assert!(packets(&bed) >= before + 10, "{} after {before}", packets(&bed));
}

/// `trieline node reload`: its exit code says whether the whole configuration is in force; else all is as before.
#[test]
fn a_reload_takes_all_or_nothing() {
    needs_root!();
    let bed = routed_bed();
    let files = Files::new("");
    files.write("threats", "10.0.0.2\n");
    let daemon = files.start(&bed);
    let config = files.path("trielined.toml");
    let begun = std::fs::read_to_string(&config).expect("the configuration");
    let reload = || trieline(&bed.node, "node reload");
    let sid_hook = "[[sid_hook]]\nname = \"x\"\nsid = \"fd00:c::3\"\nprogram = \"/sys/fs/bpf/none\"\n";
    for (what, text, expected_text) in [
        ("a device that is not there", begun.replace("\"n0\"", "\"n0\", \"ghost\"") + THREATS, "ghost"),
        ("a program that is not there", format!("{begun}{THREATS}{sid_hook}"), "/sys/fs/bpf/none"),
        (
            "a file that is not there",
            begun.clone() + &THREATS.replace("\"threats\"\nmatch", "\"nowhere\"\nmatch"),
            "nowhere",
        ),
        ("no TOML", format!("{begun}{THREATS}devices = ["), "trielined.toml"),
    ] {
        std::fs::write(&config, text).expect("written");
        reload().fails(1, &[expected_text]);
        assert_eq!(bed.send("10.50.1.1:9", what, 5).counts(), (0, 5, 0), "{what}:\n{}", daemon.log());
        assert_eq!(shown(&bed).len(), 0, "{what}");
    }
    std::fs::write(&config, format!("{begun}{THREATS}")).expect("written");
    reload().ok();
    assert_eq!(bed.send("10.50.1.1:9", "in force", 5).counts(), (0, 0, 0), "{}", daemon.log());
}

/// `skip_bad`: a filter's set without the lines that are wrong, which are counted; without it the file is refused.
#[test]
fn bad_lines_of_a_set_may_be_passed_over() {
    needs_root!();
    let bed = routed_bed();
    let files = Files::new(THREATS);
    files.write("threats", "10.0.0.2\nhello\nfd00::2 # by IPv6\n10.0.0.9/24\n");
    let config = files.path("trielined.toml");
    Daemon::refused(&bed.node, &format!("--config {}", config.display())).fails(1, &["threats:2: \"hello\""]);
    files.configure(&format!("{THREATS}skip_bad = true\n"));
    let _daemon = files.start(&bed);
    let shown = shown(&bed);
    assert_eq!((&shown[0]["prefixes4"], &shown[0]["bad_lines"]), (&1.into(), &2.into()), "{shown:?}");
    assert_eq!(bed.send("10.50.1.1:9", "skipped", 5).counts(), (0, 0, 0));
    // A list that has become something else is not taken for one whose lines are all wrong.
    for (content, what) in [("<html>\n502 Bad Gateway\n", "no good one"), ("", "0 bytes"), ("[]", "skip_bad")]
    {
        files.write("threats", content);
        trieline(&bed.node, "filter reload threats").fails(1, &[what, "nothing has changed"]);
    }
    std::fs::remove_file(files.path("threats")).expect("removed");
    run(&format!("mkfifo {}", files.path("threats").display())).ok();
    trieline(&bed.node, "filter reload threats").fails(1, &["not a regular file", "nothing has changed"]);
    assert_eq!(bed.send("10.50.1.1:9", "still in force", 5).counts(), (0, 0, 0));
}

/// A list as its publisher makes it.
#[test]
fn published_lists_are_read() {
    needs_root!();
    let bed = routed_bed();
    let files = Files::new(THREATS);
    files.write("threats", "; Spamhaus DROP List\n10.0.0.0/24 ; SBL1\nfd00::/64 ; SBL2\n");
    let _daemon = files.start(&bed);
    assert_eq!(bed.send("10.50.1.1:9", "dropped", 5).counts(), (0, 0, 0));
    assert_eq!(bed.send("[fd50::1]:9", "dropped", 5).counts(), (0, 0, 0));
}

/// `truncate`: prefixes with host bits are taken without them; otherwise the file is refused.
#[test]
fn host_bits_of_a_set_may_be_cleared() {
    needs_root!();
    let bed = routed_bed();
    let files = Files::new(THREATS);
    files.write("threats", "10.0.0.9/24\n");
    let config = files.path("trielined.toml");
    Daemon::refused(&bed.node, &format!("--config {}", config.display()))
        .fails(1, &["threats:1", "10.0.0.9/24"]);
    files.configure(&format!("{THREATS}truncate = true\n"));
    let daemon = files.start(&bed);
    assert_eq!(bed.send("10.50.1.1:9", "cleared", 5).counts(), (0, 0, 0), "{}", daemon.log());
    assert!(daemon.log().contains("host bits"), "{}", daemon.log());
}
