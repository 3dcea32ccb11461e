//! The outputs of a trace: a reader of another project reads each form, and all forms have the same messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;
use trieline_testbed::command::binary_path;
use trieline_testbed::needs_root;

use super::perfetto::{events, is_named};
use super::relay;

/// Traces a broker that numbered messages pass, until it has had enough of them. Returns its output, and how many messages were sent.
fn trace(folder: &Path, arguments: &[&str]) -> (Output, u64) {
    let (mut broker, mut from, mut to) = relay(folder);
    let mut trace = Command::new(binary_path("trieline"))
        .args(["-j", "trace", "--strict", "--no-cost", "-p", &broker.id().to_string()])
        .args(["--id", "0:4"])
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut sent = 0u32;
    while trace.try_wait().unwrap().is_none() {
        let mut message = [7; 64];
        message[..4].copy_from_slice(&sent.to_ne_bytes());
        from.write_all(&message).unwrap();
        to.read_exact(&mut [0; 64]).unwrap();
        sent += 1;
        sleep(Duration::from_micros(100));
    }
    drop(from);
    broker.wait().unwrap();
    let output = trace.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (output, sent.into())
}

fn report(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Numbers of the messages one after another.
fn are_consecutive(numbers: &[u64]) -> bool {
    numbers.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

#[test]
fn every_message_is_in_each_file() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, jsonl, perfetto) = (file("m.csv"), file("m.jsonl"), file("m.json"));
    let mut arguments = vec!["--count", "300"];
    arguments.extend(["--csv", &csv, "--jsonl", &jsonl, "--perfetto", &perfetto]);
    let (output, _) = trace(folder.path(), &arguments);
    let matched = report(&output)["matched"].as_u64().unwrap();
    assert!(matched >= 300);

    let text = fs::read_to_string(&csv).unwrap();
    let mut lines = text.lines();
    let columns = lines.next().unwrap();
    assert!(columns.starts_with("received_ns,") && columns.ends_with(",id"), "{columns}");
    let ids: Vec<u64> = lines.map(|line| line.rsplit(',').next().unwrap().parse().unwrap()).collect();
    assert!(ids.len() as u64 == matched && are_consecutive(&ids), "{matched}: {ids:?}");

    let row =
        |line: &str| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(fs::read_to_string(&jsonl).unwrap().lines().map(row).collect::<Vec<u64>>(), ids);

    let events = events(Path::new(&perfetto));
    assert!(is_named(&events, "process_name", "relay") && is_named(&events, "thread_name", "relay"));
    let slices = events.iter().filter(|event| event["ph"] == "X");
    let found: Vec<u64> =
        slices.map(|slice| slice["args"]["id"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(found, ids);
}

#[test]
fn distributions_are_in_hdrhistograms_log_and_in_a_picture() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (log, svg) = (file("t.hlog"), file("t.svg"));
    let mut arguments = vec!["--duration", "0.7", "--interval", "0.2", "--live"];
    arguments.extend(["--hdr", &log, "--svg", &svg]);
    let (output, _) = trace(folder.path(), &arguments);
    let report = report(&output);
    let matched = report["matched"].as_u64().unwrap();

    let log = fs::read(log).unwrap();
    let cost = "#[cost: not measured (--no-cost)]";
    assert!(String::from_utf8_lossy(&log).contains(cost));
    assert!(log.starts_with(b"#[") && String::from_utf8_lossy(&log).contains("log format version 1.3"));
    let mut all = Histogram::<u64>::new(3).unwrap();
    let mut intervals = 0;
    // The legend is for people and for HdrHistogram's own reader; this crate's knows only comments.
    let lines: Vec<&[u8]> =
        log.split_inclusive(|byte| *byte == b'\n').filter(|line| line[0] != b'"').collect();
    for entry in IntervalLogIterator::new(&lines.concat()) {
        let LogEntry::Interval(interval) = entry.unwrap() else { continue };
        assert_eq!(interval.tag().unwrap().as_str(), "unix-stream-to-unix-stream-sent");
        let bytes = base64(interval.encoded_histogram());
        let times: Histogram<u64> = Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap();
        all.add(times).unwrap();
        intervals += 1;
    }
    assert_eq!(all.len(), matched);
    assert!((2..=5).contains(&intervals), "{intervals}");
    assert_eq!(all.max(), report["stages"][0]["max_ns"].as_u64().unwrap());

    let svg = fs::read_to_string(svg).unwrap();
    assert!(
        svg.starts_with("<svg") && svg.contains("unix-stream to unix-stream, sent") && svg.contains("90%")
    );

    // As many live views as intervals; with -j they are JSON.
    let views: Vec<Value> =
        output.stderr.lines().map(|line| serde_json::from_str(&line.unwrap()).unwrap()).collect();
    assert!((1..=4).contains(&views.len()), "{views:?}");
    let seen: u64 = views.iter().map(|view| view["messages"].as_u64().unwrap()).sum();
    assert_eq!(views.last().unwrap()["in_all"][0]["messages"], seen);
    assert!(views.iter().all(|view| view["lost"] == 0 && view["not_joined"].is_u64()), "{views:?}");
}

/// Bytes of standard base64.
fn base64(text: &str) -> Vec<u8> {
    let value = |letter: u8| match letter {
        b'A'..=b'Z' => letter - b'A',
        b'a'..=b'z' => letter - b'a' + 26,
        b'0'..=b'9' => letter - b'0' + 52,
        b'+' => 62,
        b'/' => 63,
        _ => panic!("no base64: {letter}"),
    };
    let digits: Vec<u32> = text.trim_end_matches('=').bytes().map(|letter| value(letter).into()).collect();
    let bytes = |four: &[u32]| {
        let bits = four.iter().fold(0, |bits, digit| bits << 6 | digit) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(bytes).collect()
}

/// A collector with the given answer; returns the requests that it got.
fn collector(status: &'static str, answer: &'static str) -> (String, Arc<Mutex<Vec<Value>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let taken = Arc::clone(&requests);
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let taken = Arc::clone(&taken);
            std::thread::spawn(move || serve(connection.unwrap(), status, answer, &taken));
        }
    });
    (url, requests)
}

fn serve(mut connection: TcpStream, status: &str, answer: &str, requests: &Mutex<Vec<Value>>) {
    let mut reader = BufReader::new(connection.try_clone().unwrap());
    loop {
        let mut head = Vec::new();
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() == 0 {
                return;
            }
            if line.trim().is_empty() {
                break;
            }
            head.push(line.trim().to_ascii_lowercase());
        }
        assert_eq!(head[0], "post /v1/traces http/1.1");
        assert!(head.contains(&"content-type: application/json".to_owned()), "{head:?}");
        let length = head.iter().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
        let mut body = vec![0; length.parse().unwrap()];
        reader.read_exact(&mut body).unwrap();
        requests.lock().unwrap().push(serde_json::from_slice(&body).unwrap());
        write!(connection, "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{answer}", answer.len()).unwrap();
    }
}

/// The keys of an object must be exactly these.
fn keys(value: &Value, expected: &[&str]) {
    let found: BTreeSet<&str> = value.as_object().unwrap().keys().map(String::as_str).collect();
    assert_eq!(found, expected.iter().copied().collect(), "{value}");
}

/// `repeated KeyValue` of opentelemetry-proto's common.proto in JSON: 64-bit numbers are strings.
fn attributes(value: &Value) -> BTreeMap<String, String> {
    let pair = |attribute: &Value| {
        keys(attribute, &["key", "value"]);
        let value = attribute["value"].as_object().unwrap();
        let (kind, value) = value.iter().next().unwrap();
        assert!(
            kind == "stringValue" || kind == "intValue" && value.as_str().unwrap().parse::<i64>().is_ok()
        );
        (attribute["key"].as_str().unwrap().to_owned(), value.as_str().unwrap().to_owned())
    };
    value.as_array().unwrap().iter().map(pair).collect()
}

/// The spans of an `ExportTraceServiceRequest` of opentelemetry-proto, in its JSON form.
fn spans(request: &Value) -> Vec<Value> {
    keys(request, &["resourceSpans"]);
    let mut spans = Vec::new();
    for resource in request["resourceSpans"].as_array().unwrap() {
        keys(resource, &["resource", "scopeSpans"]);
        keys(&resource["resource"], &["attributes"]);
        assert_eq!(attributes(&resource["resource"]["attributes"])["service.name"], "relay");
        for scope in resource["scopeSpans"].as_array().unwrap() {
            keys(scope, &["scope", "spans"]);
            keys(&scope["scope"], &["name", "version", "attributes"]);
            attributes(&scope["scope"]["attributes"]);
            spans.extend(scope["spans"].as_array().unwrap().clone());
        }
    }
    spans
}

#[test]
fn a_collector_gets_spans() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (url, requests) = collector("200 OK", "{}");
    let (output, _) = trace(folder.path(), &["--count", "3000", "--otlp", &url, "--otlp-sample", "1/3"]);
    let report = report(&output);
    let expected = report["matched"].as_u64().unwrap() / 3;
    let note = report["notes"][0].as_str().unwrap();
    assert!(
        note.starts_with(&format!("{expected} spans sent to {url}/v1/traces, 0 failed, 0 left out")),
        "{note}"
    );

    let spans: Vec<Value> = requests.lock().unwrap().iter().flat_map(spans).collect();
    assert_eq!(spans.len() as u64, expected);
    let is_id = |value: &Value, digits: usize| {
        let text = value.as_str().unwrap();
        text.len() == digits
            && text.bytes().all(|digit| b"0123456789abcdef".contains(&digit))
            && !text.trim_matches('0').is_empty()
    };
    let now = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos() as u64;
    let mut ids = BTreeSet::new();
    for span in &spans {
        keys(
            span,
            &["traceId", "spanId", "name", "kind", "startTimeUnixNano", "endTimeUnixNano", "attributes"],
        );
        assert!(is_id(&span["traceId"], 32) && is_id(&span["spanId"], 16), "{span}");
        let time = |key: &str| span[key].as_str().unwrap().parse::<u64>().unwrap();
        let (start, end) = (time("startTimeUnixNano"), time("endTimeUnixNano"));
        assert!(start < end && now.abs_diff(start) < 600_000_000_000, "{span}");
        let attributes = attributes(&span["attributes"]);
        assert_eq!(attributes["network.transport"], "unix-stream");
        ids.insert(attributes["trieline.message.id"].parse::<u64>().unwrap());
    }
    // Every third message.
    let ids: Vec<u64> = ids.into_iter().collect();
    assert!(ids.len() == spans.len() && ids.windows(2).all(|pair| pair[1] == pair[0] + 3), "{ids:?}");
}

#[test]
fn a_collector_that_fails_is_counted_and_stops_nothing() {
    needs_root!();
    let folder = tempfile::tempdir().unwrap();
    let (refusing, _) = collector("503 Service Unavailable", "full");
    let (picky, _) = collector("200 OK", r#"{"partialSuccess": {"rejectedSpans": "2"}}"#);
    for (url, expected) in [
        ("http://127.0.0.1:1", "Connection refused"),
        (&refusing, "503 Service Unavailable: full"),
        (&picky, "2 spans rejected"),
    ] {
        let (output, _) = trace(folder.path(), &["--count", "100", "--otlp", url]);
        let report = report(&output);
        let matched = report["matched"].as_u64().unwrap();
        let note = report["notes"][0].as_str().unwrap();
        let (taken, rest) = note.split_once(&format!(" spans sent to {url}/v1/traces, ")).unwrap();
        let (failed, rest) = rest.split_once(" failed, 0 left out").unwrap();
        let (taken, failed): (u64, u64) = (taken.parse().unwrap(), failed.parse().unwrap());
        assert!(taken + failed == matched && rest.contains(expected), "{note}");
        // Of each batch two, or all.
        let batches = matched.div_ceil(512);
        assert!(if url == picky { failed >= 2 * batches && taken > 0 } else { taken == 0 }, "{note}");
    }
}
