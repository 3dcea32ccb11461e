//! Pages of documents that were written by hand, hostile ones among them.

use std::{fs, path::Path};

use serde_json::{Value, json};

use super::{
    contents::{Page, State},
    figures::FIGURES,
};
use crate::{Error, experiments::LIST};

/// A document of `map-ops` in which every text is `text`.
fn document(text: &str) -> Value {
    json!({
        "experiment": "map-ops",
        "version": 1,
        "title": "map-ops",
        "machine": {
            "cpu": text, "cores": 2, "kernel": text, "compiler": text, "version": text, "git": text, "date": text, "command": text,
            "seed": 1,
            "load": { "busy": false, "cpus_at_start": 0.0, "cpus_at_end": 0.0 },
            "calibration": { "tolerance": 1.1, "samples": 4, "rejected": 0, "slow": 0 },
            "interrupted": null
        },
        "parameters": {
            "quick": true, "entries": 10_000, "rounds": 2, "cpu": 1, "keys": text, "places": text, "clock": text, "published": text
        },
        "rows": [{
            "structure": text, "map_type": text, "where": text, "op": "lookup", "mops": 10.0, "stddev": 0.5, "ns": 100.5, "ns_min": 99.0,
            "ns_max": 101.0, "ns_ci": null, "published_ns": 134.71, "published_mops": 7.423, "ratio": 1.0, "operations": 1000, "checked": 5,
            "rounds": 2
        }],
        "refused": [{ "rival": text, "case": text, "reason": text }]
    })
}

fn folder(name: &str, content: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join(name), content).unwrap();
    folder
}

pub(super) fn page(text: &str) -> Page {
    Page::read(folder("map-ops.json", &document(text).to_string()).path()).unwrap()
}

/// A page with a document of this date.
pub(super) fn dated(date: &str) -> Page {
    let mut document = document("x");
    document["machine"]["date"] = date.into();
    Page::read(folder("map-ops.json", &document.to_string()).path()).unwrap()
}

#[test]
fn every_figure_is_there_with_the_command_that_makes_it() {
    let page = Page::read(Path::new("/nonexistent")).unwrap();
    assert!(page.is_empty());
    let (html, markdown) = (page.html().unwrap(), page.markdown().unwrap());
    for (number, figure) in (1..).zip(&FIGURES) {
        assert_eq!(figure.number, format!("F{number}"));
        let is_known = LIST.iter().any(|listed| listed.name == figure.experiment);
        let says = if is_known {
            format!("trieline lab run {} --save", figure.experiment)
        } else {
            "has no experiment".into()
        };
        assert!(
            html.contains(&format!("id=\"{}\"", figure.number)) && html.contains(&says),
            "{}",
            figure.number
        );
        assert!(
            markdown.contains(&format!("## {}: ", figure.number)) && markdown.contains(&says),
            "{}",
            figure.number
        );
    }
    // The published numbers are there without any of ours.
    assert!(html.contains("134.7 ns") && markdown.contains("134.7 ns"));
    assert!(html.contains("0 of 9 published figures"));
}

#[test]
fn a_document_is_read_back_as_it_was_written() {
    let text = document("plain");
    let page = page("plain");
    let entry = page.entry("map-ops").unwrap();
    assert_eq!(serde_json::from_str::<Value>(&entry.finished.json(true).unwrap()).unwrap(), text);
    assert_eq!(page.states()[0], State { figure: "F1", experiment: "map-ops", measured: true });
    let html = page.html().unwrap();
    assert!(html.contains("100.5 ns") || html.contains(">100<"), "{html}");
    assert_eq!(html.matches("<svg").count(), 1);
    assert!(page.markdown().unwrap().contains("(map-ops.svg)"));
}

#[test]
fn hostile_texts_stay_texts() {
    let hostile = "</title></svg><script>alert(1)</script><img src=x onerror=y> | ``` ](http://x) & \"'";
    let page = page(hostile);
    let html = page.html().unwrap();
    assert!(html.contains("&lt;script&gt;"), "the text is shown");
    for part in ["<script", "<img", "</title></svg>"] {
        assert!(!html.contains(part), "{part} in the page");
    }
    assert_eq!(html.matches("</svg>").count(), 1);
    let markdown = page.markdown().unwrap();
    let outside_code = |line: &&str| !line.starts_with("- Command: ");
    for line in markdown.lines().filter(outside_code) {
        assert!(!line.contains('<'), "{line}");
        assert!(!line.replace("\\]", "").contains("](http"), "{line}");
    }
    assert!(markdown.contains("- Command: ```` </title>"), "a fence longer than those in the text");
    // As many cells in a row as in the heading.
    let cells = |line: &&str| line.replace("\\|", "").matches('|').count();
    let table: Vec<&str> =
        markdown.lines().filter(|line| line.starts_with('|') && line.contains("alert")).collect();
    assert!(!table.is_empty() && table.iter().all(|line| cells(line) == 12), "{table:?}");
}

#[test]
fn a_document_that_cannot_be_used_is_refused_with_its_file() {
    let changed = |pointer: &str, value: Value| {
        let mut document = document("x");
        *document.pointer_mut(pointer).unwrap() = value;
        document.to_string()
    };
    for (content, expected) in [
        (changed("/version", json!(2)), "a document of version 2; this program reads version 1"),
        (
            changed("/experiment", json!("tries")),
            "a document of experiment `tries`; expected one of `map-ops`",
        ),
        (changed("/rows/0/ns", json!("quick")), "expected f64"),
        (changed("/rows/0", json!({})), "missing field `structure`"),
        ("{".to_owned(), "not JSON"),
        ("[]".to_owned(), "expected a document that `trieline lab run NAME --save` wrote"),
    ] {
        let folder = folder("map-ops.json", &content);
        let error = Page::read(folder.path()).err().unwrap().to_string();
        assert!(error.contains("map-ops.json: ") && error.contains(expected), "{expected}: {error}");
    }
    // A file of another name is not the page's.
    assert!(Page::read(folder("notes.json", "{").path()).unwrap().is_empty());
}

#[test]
fn a_failed_experiment_shows_its_error() {
    let mut page = page("x");
    page.fail("livelock", Error::NotRoot.to_string());
    let html = page.html().unwrap();
    assert!(html.contains("Experiment livelock failed: ") && html.contains(&Error::NotRoot.to_string()));
}

#[test]
fn a_busy_machine_stands_in_every_title() {
    let quiet = page("x");
    let busy = {
        let mut document = document("x");
        document["title"] = "BUSY MACHINE: map-ops".into();
        document["machine"]["load"] = json!({ "busy": true, "cpus_at_start": 1.5, "cpus_at_end": 0.0 });
        Page::read(folder("map-ops.json", &document.to_string()).path()).unwrap()
    };
    let (html, markdown) = (busy.html().unwrap(), busy.markdown().unwrap());
    for title in [
        "<title>BUSY MACHINE: The published figures, measured again",
        "<h1>BUSY MACHINE: The published figures",
        "F1: BUSY MACHINE: Operations on a trie",
        "-title\">BUSY MACHINE: map-ops</h3>",
        "role=\"img\"><title>BUSY MACHINE: ",
        "Other work ran on the machine during 1 of them",
    ] {
        assert!(html.contains(title), "{title}");
    }
    for title in [
        "# BUSY MACHINE: The published",
        "## F1: BUSY MACHINE: ",
        "### BUSY MACHINE: map-ops",
        "![BUSY MACHINE: ",
    ] {
        assert!(markdown.contains(title), "{title}");
    }
    assert!(busy.pictures().all(|picture| picture.title().starts_with("BUSY MACHINE: ")));
    assert!(!quiet.html().unwrap().contains("BUSY") && !quiet.markdown().unwrap().contains("BUSY"));
}
