//! The performance figures of README and docs: the pages hold what `lab report --markdown --fill` writes from the documents in `docs/figures`, and
//! no figure besides.

// A helper that fails fails its test.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    path::{Path, PathBuf},
};

use trieline_lab::page::Page;

fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

fn documents() -> Page {
    Page::read(&root().join("docs/figures")).unwrap()
}

/// README.md and the pages of docs, with the folder of pictures as each links to it.
fn pages() -> Vec<(PathBuf, &'static str)> {
    let mut pages = vec![(root().join("README.md"), "docs/figures")];
    let docs = fs::read_dir(root().join("docs")).unwrap().map(|entry| entry.unwrap().path());
    pages.extend(
        docs.filter(|path| path.extension().is_some_and(|end| end == "md")).map(|path| (path, "figures")),
    );
    pages
}

#[test]
fn pages_hold_what_the_command_writes() {
    let page = documents();
    let mut marks = 0;
    for (path, pictures) in pages() {
        let text = fs::read_to_string(&path).unwrap();
        marks += text.matches("<!-- lab: ").count();
        let filled = page.fill(&path, &text, pictures).unwrap();
        assert!(
            filled == text,
            "{}: `trieline lab report --markdown --from docs/figures --fill README.md docs/*.md` writes other figures",
            path.display()
        );
    }
    assert!(marks > 10, "{marks} marks");
    for picture in page.pictures() {
        let path = root().join(format!("docs/figures/{}.svg", picture.name));
        assert_eq!(fs::read_to_string(&path).unwrap(), picture.svg, "{}", path.display());
    }
}

/// Not a failure: code changes more often than anybody has a quiet machine.
#[test]
fn documents_that_are_older_than_their_code_are_named() {
    for old in documents().old(root()) {
        println!("old: {}", old.text());
    }
}

/// Units of measured figures.
const UNITS: [&str; 7] =
    ["ns", "Mpps", "kpps", "µs", "million lookups a second", "million packets a second", "Mop/s"];

/// Lines with figures that were not measured here: the page, a part of the line, and why it may stay.
const OTHERS: &[(&str, &str, &str)] = &[
    ("lpm-trie.md", "Lookup 7.423 million a second", "published by Cloudflare"),
    ("lpm-trie.md", "1,000,000: 37 ns to 665 ns", "published in bench02"),
    ("queues.md", "million packets", "published: Saito, the XDP paper"),
    ("queues.md", "The XDP paper measured", "published"),
    ("json.md", "", "a page of keys: ends of buckets, spaces between messages"),
    ("measure.md", "10 µs of it at most", "a setting of the generator"),
    ("trace-cost.md", "one per 60 µs", "a setting of the experiment"),
    ("metrics.md", "", "a page of metrics: ends of buckets"),
];

/// Whether a line has a number in front of a unit.
fn has_figure(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let is_number = |word: &str| {
        let digits = word.trim_start_matches(['(', '+', '~', '*', '|']).trim_end_matches(['*', '|']);
        digits.starts_with(|letter: char| letter.is_ascii_digit())
            && digits.chars().all(|letter| letter.is_ascii_digit() || ".,–-".contains(letter))
    };
    (0..words.len()).any(|at| {
        let rest = words[at + 1..].join(" ");
        let is_unit = |unit: &&str| {
            rest.strip_prefix(*unit)
                .is_some_and(|rest| !rest.starts_with(|letter: char| letter.is_alphanumeric()))
        };
        is_number(words[at]) && UNITS.iter().any(is_unit)
    })
}

#[test]
fn no_page_has_another_figure() {
    assert!(
        has_figure("takes 82 ns a packet") && has_figure("| 3.45 Mpps |") && !has_figure("20 ms, 30 nsec")
    );
    let mut found = Vec::new();
    for (path, _) in pages() {
        let text = fs::read_to_string(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        let (mut is_filled, mut is_code) = (false, false);
        for (line, number) in text.lines().zip(1..) {
            is_code ^= line.starts_with("```");
            is_filled = line.starts_with("<!-- lab: ") || is_filled && line != "<!-- /lab -->";
            let is_others = OTHERS.iter().any(|(page, part, _)| *page == name && line.contains(part));
            if !is_filled && !is_code && !is_others && has_figure(line) {
                found.push(format!("{name}:{number}: {line}"));
            }
        }
    }
    assert!(found.is_empty(), "figures that no command wrote:\n{}", found.join("\n"));
}
