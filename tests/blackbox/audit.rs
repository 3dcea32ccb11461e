//! `trieline node audit` and the samples of trielined. A route, an action and the kernel's table are damaged behind trielined's back; each
//! is found, named and repaired.

use libbpf_rs::{MapCore, MapFlags, MapHandle};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, status, trieline};
use trieline_testbed::{eventually, needs_root};

/// A small image that a process can read and write as one element.
const TABLES: &str = "--dev n0 --dev n1 --dev n2 --map-type array --image 4M";
/// The route that is damaged, and a destination in it.
const ROUTE: &str = "10.50.0.0/16";
const TO: &str = "10.50.7.7:9";

/// A pinned map of the node.
pub(crate) fn map(bed: &Bed, name: &str) -> MapHandle {
    MapHandle::from_pinned_path(format!("/sys/fs/bpf/trieline/netns-{}/{name}", bed.node.inode()))
        .expect("a pinned map")
}

fn element(map: &MapHandle, index: u32) -> Option<Vec<u8>> {
    map.lookup(&index.to_ne_bytes(), MapFlags::ANY).expect("a lookup")
}

fn set_element(map: &MapHandle, index: u32, value: &[u8]) {
    map.update(&index.to_ne_bytes(), value, MapFlags::ANY).expect("an update");
}

/// Sends the route's packets the wrong way. The kernel's route leads to the side, and the image has again the words of the time when the
/// route led to the sink.
fn damage_route(bed: &Bed) {
    let image = map(bed, "image");
    bed.node.ip(&format!("route replace {ROUTE} via 10.1.0.2"));
    bed.becomes("to the sink", TO, (0, 5, 0));
    let before = element(&image, 0).expect("the image");
    bed.node.ip(&format!("route replace {ROUTE} via 10.2.0.2"));
    bed.becomes("to the side", TO, (0, 0, 5));
    let mut words = element(&image, 0).expect("the image");
    let mut changed = 0;
    for (now, then) in words.chunks_exact_mut(4).zip(before.chunks_exact(4)) {
        changed += usize::from(now != then);
        now.copy_from_slice(then);
    }
    assert!((1..200).contains(&changed), "{changed} words");
    set_element(&image, 0, &words);
}

/// Sends the packets of each header to the side's neighbour to another MAC address.
fn damage_header(bed: &Bed) {
    let adjacencies = map(bed, "adjacencies");
    let neighbour = [2, 0, 0, 0, 0, 0x21];
    let mut damaged = 0;
    for index in 0..adjacencies.max_entries() {
        let mut record = element(&adjacencies, index).expect("a record");
        if let Some(at) = record.windows(6).position(|bytes| bytes == neighbour) {
            record[at + 5] = 0x77;
            set_element(&adjacencies, index, &record);
            damaged += 1;
        }
    }
    assert!(damaged > 0, "no header to the neighbour");
}

pub(crate) fn audit(bed: &Bed) -> serde_json::Value {
    status(&bed.node)["audit"].clone()
}

pub(crate) fn number(value: &serde_json::Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("no number: {value}"))
}

/// Samples find a wrong word and a wrong header within the promised time, name them once in the log, and repair them.
#[test]
fn samples_find_and_repair() {
    needs_root!();
    let bed = Bed::routed();
    // The sink's action stays in use when the route leads to the side.
    bed.node.ip("route add 10.51.0.0/16 via 10.1.0.2");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("trielined.toml");
    std::fs::write(&config, "[audit]\nrate = 2000\n").expect("a file");
    let daemon = Daemon::start(&bed.node, &format!("{TABLES} --config {}", config.display()));
    // (1) all is right: samples are taken, nothing differs
    assert!(eventually(10.0, || number(&audit(&bed)["rounds"]) > 2), "{}", audit(&bed));
    let before = audit(&bed);
    assert_eq!(number(&before["differences"]), 0, "{before}\n{}", daemon.log());
    assert!(number(&before["samples"]) > number(&before["passed"]) + number(&before["skipped"]), "{before}");
    // (2) a route: 2N/rate is far below a second here; the samples of a second begin with it
    damage_route(&bed);
    let begun = Instant::now();
    bed.becomes("repaired", TO, (0, 0, 5));
    assert!(eventually(5.0, || number(&audit(&bed)["repairs"]) == 1), "{}\n{}", audit(&bed), daemon.log());
    println!("the wrong route was repaired after {:?} at most", begun.elapsed());
    let log = daemon.log();
    let named = log.lines().filter(|line| line.contains("audit:") && line.contains(ROUTE)).count();
    assert_eq!(named, 1, "{log}");
    assert!(log.contains("wrong image"), "{log}");
    // (3) a header; a second repair may wait
    std::thread::sleep(Duration::from_secs(11));
    damage_header(&bed);
    bed.becomes("its header repaired", TO, (0, 0, 5));
    assert!(eventually(15.0, || number(&audit(&bed)["repairs"]) == 2), "{}\n{}", audit(&bed), daemon.log());
    assert!(daemon.log().contains("wrong action"), "{}", daemon.log());
    // (4) quiet again, and changes go on being followed
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(number(&audit(&bed)["repairs"]), 2, "{}", daemon.log());
    bed.node.ip(&format!("route replace {ROUTE} via 10.1.0.2"));
    bed.becomes("followed", TO, (0, 5, 0));
    // (5) so do packets through the program, but to the device that they come in by
    let answer = trieline(&bed.node, "-j node audit").json();
    assert!(number(&answer["packets"]["forwarded"]) > 8, "{answer:#}");
}

/// The command finds the same at once, also where no sample is taken.
#[test]
fn the_command_finds_and_repairs() {
    needs_root!();
    let bed = Bed::routed();
    bed.node.ip("route add 10.51.0.0/16 via 10.1.0.2");
    bed.node.ip("rule add from 10.99.0.0/16 lookup 100");
    bed.node.ip("route add 10.52.0.0/16 via 10.1.0.2 table 100");
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("trielined.toml");
    std::fs::write(&config, "[audit]\nrate = 0\n").expect("a file");
    let daemon = Daemon::start(&bed.node, &format!("{TABLES} --config {}", config.display()));
    // (1) equal
    let equal = || {
        let answer = trieline(&bed.node, "-j node audit").json();
        assert_eq!((&answer["equal"], &answer["differences"]), (&true.into(), &0.into()), "{answer:#}");
        answer
    };
    let answer = equal();
    assert!(number(&answer["routes"]) > 20 && number(&answer["actions"]) > 5, "{answer:#}");
    // Of IPv4, a rule decides: packets through the program are compared of IPv6 only.
    assert!(number(&answer["packets"]["forwarded"]) > 2, "{answer:#}");
    assert!(number(&answer["lookups"]) > 4 * number(&answer["prefixes"]), "{answer:#}");
    // (2) a wrong word: named, and left as it is on demand
    damage_route(&bed);
    for _ in 0..2 {
        let answer = trieline(&bed.node, "node audit --no-repair");
        assert_eq!(answer.code, 1, "{answer:?}");
        let wanted = ["wrong image", ROUTE, "via 10.2.0.2", "02:00:00:00:00:11", "different"];
        assert!(wanted.iter().all(|word| answer.stdout.contains(word)), "{answer:?}");
    }
    assert_eq!(bed.send(TO, "still wrong", 5).counts(), (0, 5, 0));
    // (3) repaired
    let answer = trieline(&bed.node, "-j node audit");
    assert_eq!(answer.code, 1, "{answer:?}");
    let report: serde_json::Value = serde_json::from_str(&answer.stdout).expect("JSON");
    assert_eq!(
        (&report["repaired"], &report["found"][0]["part"]),
        (&true.into(), &"image".into()),
        "{report:#}"
    );
    assert_eq!(report["found"][0]["prefix"], ROUTE, "{report:#}");
    bed.becomes("repaired", TO, (0, 0, 5));
    equal();
    // (4) a wrong header
    damage_header(&bed);
    let answer = trieline(&bed.node, "node audit");
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(
        answer.stdout.contains("wrong action") && answer.stdout.contains("02:00:00:00:00:77"),
        "{answer:?}"
    );
    bed.becomes("its header repaired", TO, (0, 0, 5));
    equal();
    // (5) without samples none were taken; the log has each difference once
    assert_eq!(number(&audit(&bed)["samples"]), 0);
    let is_named = |line: &&str| line.contains("wrong image") && line.contains(ROUTE);
    assert_eq!(daemon.log().lines().filter(is_named).count(), 1, "{}", daemon.log());
    trieline(&bed.node, "node audit --wrong").fails(2, &["--wrong"]);
    daemon.kill();
    trieline(&bed.node, "node audit").fails(1, &["trielined does not run"]);
    trieline(&bed.node, "node detach").ok();
}

/// While routes flap a thousand times a second, nothing differs: what is in flight does not count.
#[test]
fn changes_in_flight_do_not_count() {
    needs_root!();
    let bed = Bed::routed();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("trielined.toml");
    std::fs::write(&config, "[audit]\nrate = 5000\n").expect("a file");
    let daemon = Daemon::start(&bed.node, &format!("{TABLES} --config {}", config.display()));
    let flap: String = (0..2000)
        .map(|n| {
            let via = ["10.1.0.2", "10.2.0.2"][n % 2];
            format!("route replace 10.60.{}.0/24 via {via}\nroute replace {ROUTE} via {via}\n", n % 50)
        })
        .collect();
    let end = Instant::now() + Duration::from_secs(4);
    let mut audits = 0;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while Instant::now() < end {
                bed.node.ip_batch(&["-4"], &flap);
            }
        });
        while Instant::now() < end {
            trieline(&bed.node, "node audit").ok();
            audits += 1;
        }
    });
    assert!(audits > 0);
    let after = audit(&bed);
    assert_eq!(number(&after["differences"]), 0, "{after}\n{}", daemon.log());
    assert!(number(&after["samples"]) > 1000, "{after}");
    // Most were compared all the same, and the audits passed over few.
    let compared = number(&after["samples"]) - number(&after["skipped"]) - number(&after["passed"]);
    assert!(compared > 500, "{after}");
    let quiet = trieline(&bed.node, "-j node audit").json();
    assert_eq!(quiet["in_flight"], 0, "{quiet:#}");
}

/// Asks for an audit that repairs nothing.
fn ask(bed: &Bed) -> UnixStream {
    let socket = format!("/run/trieline/netns-{}.sock", bed.node.inode());
    let mut stream = UnixStream::connect(&socket).unwrap_or_else(|error| panic!("{socket}: {error}"));
    stream.write_all(b"{\"command\":\"audit\",\"repair\":false}\n").expect("a request");
    stream
}

/// The processor time of a process, ticks of 10 ms.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).expect("it runs");
    let fields: Vec<&str> = stat.rsplit_once(") ").expect("a name").1.split(' ').collect();
    fields[11..13].iter().map(|field| field.parse::<u64>().expect("a time")).sum()
}

/// One audit runs at a time, none after the tables were removed, and one without its client ends.
#[test]
fn an_audit_that_cannot_go_on_ends() {
    needs_root!();
    let bed = Bed::routed();
    let daemon = Daemon::start(&bed.node, TABLES);
    // (1) two at once, unless the first one has ended before the second is asked for
    let is_refused = || {
        let answers = [ask(&bed), ask(&bed)].map(|stream| {
            let mut lines = BufReader::new(stream).lines().map(|line| line.expect("a line"));
            lines.find(|line| !line.contains("progress")).expect("an answer")
        });
        assert!(answers[0].contains("destinations"), "{answers:?}");
        answers[1].contains("another audit is running")
    };
    assert!(eventually(10.0, is_refused));
    trieline(&bed.node, "node audit --no-repair").ok();
    // (2) a client that is gone takes no place
    drop(ask(&bed));
    assert!(eventually(5.0, || trieline(&bed.node, "node audit --no-repair").code == 0));
    // (3) without tables
    trieline(&bed.node, "node detach").ok();
    assert!(eventually(5.0, || {
        let answer = trieline(&bed.node, "node audit");
        answer.code == 1 && answer.stderr.contains("detached")
    }));
    drop(ask(&bed));
    std::thread::sleep(Duration::from_millis(500));
    let before = ticks(daemon.pid());
    std::thread::sleep(Duration::from_secs(3));
    let busy = ticks(daemon.pid()) - before;
    assert!(busy < 100, "{busy} ticks in three seconds");
}
