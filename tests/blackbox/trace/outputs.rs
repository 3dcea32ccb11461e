//! The outputs of a trace: a reader of another project reads each form, and all forms have the same messages.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};
use serde_json::Value;
use trieline_tests::command::{binary_path, run};
use trieline_tests::root;

use super::perfetto::{events, is_named};
use super::relay;

/// Traces a broker that numbered messages pass, until it has had enough of them. Returns its output, and how many messages were sent.
fn trace(folder: &Path, arguments: &[&str]) -> (Output, u64) {
    trace_by(folder, &["--id", "0:4"], arguments)
}

/// The same, joined otherwise than by the number.
fn trace_by(folder: &Path, by: &[&str], arguments: &[&str]) -> (Output, u64) {
    let (mut broker, mut from, mut to) = relay(folder);
    let mut trace = Command::new(binary_path("trieline"))
        .args(["-j", "trace", "--strict", "--no-cost", "-p", &broker.id().to_string()])
        .args(by)
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

/// A file and those before it, in the order of time.
fn files(folder: &Path, name: &str) -> Vec<PathBuf> {
    let (stem, ending) = name.split_once('.').unwrap();
    let mut numbered: BTreeMap<u32, PathBuf> = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let file = entry.file_name().into_string().unwrap();
        if let Some(number) = file.strip_prefix(stem).and_then(|rest| rest.strip_suffix(ending))
            && let Ok(number) = number.trim_matches('.').parse()
        {
            numbered.insert(number, entry.path());
        }
    }
    numbered.into_values().chain([folder.join(name)]).collect()
}

/// Numbers of the messages one after another.
fn are_consecutive(numbers: &[u64]) -> bool {
    numbers.windows(2).all(|pair| pair[1] == pair[0] + 1)
}

#[test]
fn files_are_followed_by_others_and_every_message_is_in_one() {
    if !root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, jsonl, pcapng, perfetto) = (file("m.csv"), file("m.jsonl"), file("m.pcapng"), file("m.json"));
    let mut arguments = vec!["--count", "300", "--rotate-size", "8K"];
    arguments.extend(["--csv", &csv, "--jsonl", &jsonl, "--pcapng", &pcapng, "--perfetto", &perfetto]);
    let (output, _) = trace(folder.path(), &arguments);
    let matched = report(&output)["matched"].as_u64().unwrap();
    assert!(matched >= 300);

    let mut ids = Vec::new();
    for path in files(folder.path(), "m.csv") {
        let text = fs::read_to_string(path).unwrap();
        let mut lines = text.lines();
        let columns = lines.next().unwrap();
        assert!(columns.starts_with("received_ns,") && columns.ends_with(",id"), "{columns}");
        ids.extend(lines.map(|line| line.rsplit(',').next().unwrap().parse::<u64>().unwrap()));
    }
    assert!(ids.len() as u64 == matched && are_consecutive(&ids), "{matched}: {ids:?}");

    let lines: Vec<String> = files(folder.path(), "m.jsonl")
        .into_iter()
        .flat_map(|path| fs::read_to_string(path).unwrap().lines().map(String::from).collect::<Vec<_>>())
        .collect();
    let row =
        |line: &String| serde_json::from_str::<Value>(line).unwrap()["id"].as_str().unwrap().parse().unwrap();
    assert_eq!(lines.iter().map(row).collect::<Vec<u64>>(), ids);

    let parts = files(folder.path(), "m.pcapng");
    assert!(parts.len() > 5, "{parts:?}");
    let whole = file("whole");
    let names: Vec<String> = parts.iter().map(|path| path.display().to_string()).collect();
    run(&format!("mergecap -a -w {whole} {}", names.join(" "))).ok();
    let fields = "-e frame.len -e frame.cap_len -e data.data -e frame.comment";
    let packets = run(&format!("tshark -r {whole} -T fields {fields}")).ok();
    let packets: Vec<&str> = packets.lines().collect();
    assert_eq!(packets.len(), ids.len());
    for (packet, id) in packets.iter().zip(&ids) {
        let fields: Vec<&str> = packet.split('\t').collect();
        // 64 bytes behind 12 of tags; the four of the id are known.
        assert_eq!(fields[..2], ["76", "16"], "{packet}");
        let bytes: String = (*id as u32).to_ne_bytes().iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(fields[2].replace(':', ""), bytes, "{packet}");
        assert!(fields[3].starts_with("T2 ") && fields[3].contains(" relay of process "), "{packet}");
    }

    let mut slices = Vec::new();
    for path in files(folder.path(), "m.json") {
        let events = events(&path);
        assert!(is_named(&events, "process_name", "relay") && is_named(&events, "thread_name", "relay"));
        slices.extend(events.into_iter().filter(|event| event["ph"] == "X"));
    }
    let found: Vec<u64> =
        slices.iter().map(|slice| slice["args"]["id"].as_str().unwrap().parse().unwrap()).collect();
    assert_eq!(found, ids);
}

#[test]
fn packets_have_the_bytes_that_were_captured() {
    if !root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("m.pcapng").to_str().unwrap().to_owned();
    // The fifth byte, 7, is a length 57 less than the message's.
    for (by, known) in [
        (&["--id", "regex:(?s-u)^(.{4})"][..], 64),
        (&["--id", "regex:(?s-u)^(.{4})", "--capture", "16"], 16),
        (&["--decode", "length:4:1:+52"], 64),
    ] {
        let (output, _) = trace_by(folder.path(), by, &["--count", "100", "--pcapng", &file]);
        let matched = report(&output)["matched"].as_u64().unwrap();
        let packets =
            run(&format!("tshark -r {file} -T fields -e frame.len -e frame.cap_len -e data.data")).ok();
        let mut numbers = Vec::new();
        for packet in packets.lines() {
            let fields: Vec<&str> = packet.split('\t').collect();
            assert_eq!(fields[..2], ["76", &(12 + known).to_string()], "{by:?}: {packet}");
            let (number, rest) = fields[2].split_at(8);
            numbers.push(u64::from(u32::from_str_radix(number, 16).unwrap().swap_bytes()));
            assert_eq!(rest, "07".repeat(known - 4), "{by:?}: {packet}");
        }
        assert!(numbers.len() as u64 == matched && are_consecutive(&numbers), "{by:?}: {numbers:?}");
    }
}

#[test]
fn only_so_many_finished_files_are_kept() {
    if !root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let csv = folder.path().join("m.csv");
    fs::write(folder.path().join("m.2.csv"), "somebody else's").unwrap();
    let csv = csv.to_str().unwrap();
    let arguments = ["--duration", "1", "--rotate-time", "0.05", "--rotate-keep", "2", "--csv", csv];
    let (output, _) = trace(folder.path(), &arguments);
    let left = files(folder.path(), "m.csv");
    // Two, the one that was being written, and the one of another name that was there before.
    assert_eq!(left.len(), 4, "{left:?}");
    assert_eq!(fs::read_to_string(&left[0]).unwrap(), "somebody else's");
    let ids: Vec<u64> = left[1..]
        .iter()
        .flat_map(|path| {
            let text = fs::read_to_string(path).unwrap();
            let id = |line: &str| line.rsplit(',').next().unwrap().parse().unwrap();
            text.lines().skip(1).map(id).collect::<Vec<u64>>()
        })
        .collect();
    let matched = report(&output)["matched"].as_u64().unwrap();
    assert!((ids.len() as u64) < matched && are_consecutive(&ids), "{matched}: {ids:?}");
}

#[test]
fn distributions_are_in_hdrhistograms_forms_and_in_a_picture() {
    if !root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (log, text, svg) = (file("t.hlog"), file("t.hgrm"), file("t.svg"));
    let mut arguments = vec!["--duration", "0.7", "--interval", "0.2", "--live"];
    arguments.extend(["--hdr", &log, "--percentiles", &text, "--svg", &svg]);
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

    let text = fs::read_to_string(text).unwrap();
    assert!(text.starts_with(cost), "{text}");
    let last: Vec<&str> =
        text.lines().rfind(|line| !line.starts_with('#')).unwrap().split_whitespace().collect();
    assert_eq!(last[1..], ["1.000000000000", &matched.to_string()]);
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
    if !root() {
        return;
    }
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
    if !root() {
        return;
    }
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
