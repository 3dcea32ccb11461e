//! The Perfetto file by the rules of Perfetto's own importer: what breaks one is dropped there without a word, or drawn wrongly.
//!
//! The rules are those of google/perfetto, src/trace_processor/importers. The files are `json/json_trace_parser_impl.cc` (which keys
//! each kind of event has), `common/slice_tracker.cc` (slices of a track nest) and `common/flow_tracker.cc` (arrows hold on to open
//! slices).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::thread::Builder;

use serde_json::Value;
use trieline_testbed::command::binary_path;
use trieline_testbed::needs_root;

/// A time of the format, microseconds, as nanoseconds.
fn ns(value: &Value) -> i64 {
    (value.as_f64().unwrap_or_else(|| panic!("{value}")) * 1000.0).round() as i64
}

/// The events of a file, in which no rule is broken.
pub fn events(path: &Path) -> Vec<Value> {
    let document: Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let events = document["traceEvents"].as_array().unwrap().clone();
    let (names, mut timed): (Vec<&Value>, Vec<&Value>) = events.iter().partition(|event| event["ph"] == "M");
    for name in names {
        assert!(
            name["pid"].is_u64() && name["name"].is_string() && name["args"]["name"].is_string(),
            "{name}"
        );
    }
    // The importer takes them by their times; those of one time in the file's order.
    timed.sort_by_key(|event| ns(&event["ts"]));
    let mut tracks: BTreeMap<(u64, u64), Vec<(i64, i64)>> = BTreeMap::new();
    let (mut flows, mut used, mut pending) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
    for event in timed {
        let [pid, tid] = ["pid", "tid"].map(|key| event[key].as_u64().unwrap_or_else(|| panic!("{event}")));
        let [cat, name] = ["cat", "name"].map(|key| event[key].as_str().unwrap_or_else(|| panic!("{event}")));
        let (at, track) = (ns(&event["ts"]), tracks.entry((pid, tid)).or_default());
        // Of flows and asynchronous slices: a number, or hexadecimal digits.
        let id = event["id"].as_u64();
        match event["ph"].as_str().unwrap() {
            "X" => {
                let end = at + ns(&event["dur"]);
                track.retain(|(_, open)| *open > at);
                assert!(end > at && track.iter().all(|(_, open)| end <= *open), "{event} crosses {track:?}");
                track.push((at, end));
            }
            kind @ ("s" | "f") => {
                // Each end belongs to the slice last begun, which must be open.
                assert!(
                    track.last().is_some_and(|(start, end)| (*start..*end).contains(&at)),
                    "{event} {track:?}"
                );
                let key = (id.unwrap(), cat, name);
                if kind == "s" {
                    assert!(used.insert(key) && flows.insert(key, at).is_none(), "{event}: twice");
                } else {
                    assert!(
                        event["bp"] == "e" && flows.remove(&key).is_some_and(|start| start <= at),
                        "{event}"
                    );
                }
            }
            "b" => assert!(pending.insert((pid, cat, id.unwrap(), name), at).is_none(), "{event}: twice"),
            "e" => {
                let begun = pending.remove(&(pid, cat, id.unwrap(), name));
                assert!(begun.is_some_and(|start| start <= at), "{event}");
            }
            _ => panic!("{event}"),
        }
    }
    assert!(flows.is_empty() && pending.is_empty(), "{flows:?} {pending:?}");
    events
}

/// Whether a process or a thread has this name.
pub fn is_named(events: &[Value], kind: &str, name: &str) -> bool {
    events.iter().any(|event| event["ph"] == "M" && event["name"] == kind && event["args"]["name"] == name)
}

fn connected(listener: &TcpListener) -> (TcpStream, TcpStream) {
    let one = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    one.set_nodelay(true).unwrap();
    (one, listener.accept().unwrap().0)
}

/// Two messages in a read: another thread sends the first, and in every other read before the second leaves.
#[test]
fn batches_of_two_threads_break_no_rule() {
    needs_root!();
    const BYTES: usize = 64;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ((mut from, mut input), (mut to, mut output)) = (connected(&listener), connected(&listener));
    output.set_nodelay(true).unwrap();
    let (hand, handed) = channel::<Vec<u8>>();
    let (done, is_done) = channel();
    let mut same_output = output.try_clone().unwrap();
    let second = Builder::new().name("second".into()).spawn(move || {
        for message in handed {
            same_output.write_all(&message).unwrap();
            let _ = done.send(());
        }
    });
    let first = Builder::new().name("first".into()).spawn(move || {
        let mut both = [0; 2 * BYTES];
        for round in 0.. {
            match input.read(&mut both).unwrap() {
                0 => return,
                bytes => assert_eq!(bytes, both.len()),
            }
            hand.send(both[..BYTES].to_vec()).unwrap();
            if round % 2 == 0 {
                is_done.recv().unwrap();
            }
            output.write_all(&both[BYTES..]).unwrap();
            if round % 2 == 1 {
                is_done.recv().unwrap();
            }
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.json");
    let mut trace = Command::new(binary_path("trieline"))
        .args([
            "-j",
            "trace",
            "--strict",
            "--no-cost",
            "--decode",
            "length:0:1",
            "--count",
            "400",
            "--perfetto",
        ])
        .arg(&file)
        .args(["--port", &listener.local_addr().unwrap().port().to_string()])
        .args(["-p", &std::process::id().to_string()])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut sent = 0u64;
    while trace.try_wait().unwrap().is_none() {
        let mut both = [[BYTES as u8 - 1; BYTES]; 2];
        for message in &mut both {
            message[1..9].copy_from_slice(&sent.to_ne_bytes());
            sent += 1;
        }
        from.write_all(both.as_flattened()).unwrap();
        to.read_exact(&mut [0; 2 * BYTES]).unwrap();
    }
    drop(from);
    first.unwrap().join().unwrap();
    second.unwrap().join().unwrap();
    let report: Value = serde_json::from_slice(&trace.wait_with_output().unwrap().stdout).unwrap();

    let events = events(&file);
    let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).count() as u64;
    // A message is one slice, or two with an arrow.
    assert_eq!(of("X") - of("s"), report["matched"].as_u64().unwrap(), "{report}");
    assert!(of("s") > 200 && of("X") > 2 * of("s"), "{report}");
    assert!(is_named(&events, "thread_name", "first") && is_named(&events, "thread_name", "second"));
}
