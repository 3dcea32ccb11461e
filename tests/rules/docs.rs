//! The documentation holds together: links and anchors lead somewhere, the book has every page, the README stays short.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

/// Longest README that an engineer reads in two minutes.
const README_LINES: usize = 150;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn text(page: &Path) -> String {
    fs::read_to_string(root().join(page)).unwrap_or_else(|error| panic!("{}: {error}", page.display()))
}

/// README.md, ARCHITECTURE.md and the pages in docs/, relative to the root.
fn pages() -> BTreeSet<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs/ is there");
    let docs = docs.map(|entry| Path::new("docs").join(entry.expect("docs/ can be read").file_name()));
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    docs.chain(["README.md".into(), "ARCHITECTURE.md".into()]).collect()
}

/// The lines of a page outside of code blocks, with their numbers from 1.
fn prose(text: &str) -> Vec<(usize, &str)> {
    let mut code = false;
    let outside = |(_, line): &(usize, &str)| {
        let fence = line.trim_start().starts_with("```");
        code ^= fence;
        !code && !fence
    };
    (1..).zip(text.lines()).filter(outside).collect()
}

/// A line without its pieces in backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("``")
}

/// Targets of links and pictures: what stands behind `](`.
fn targets(line: &str) -> Vec<String> {
    let line = without_code(line);
    let behind = line.split("](").skip(1);
    behind.filter_map(|rest| rest.split_once(')')).map(|(target, _)| target.trim().to_owned()).collect()
}

/// The anchor that GitHub and mdBook give a heading: lower case, blanks as hyphens, other signs left out.
fn anchor(heading: &str) -> String {
    let mut shown = String::new();
    let mut rest = heading.trim();
    // Of a link in a heading only its text counts.
    while let Some((before, link)) = rest.split_once("](") {
        shown.push_str(before);
        rest = link.split_once(')').map_or("", |(_, behind)| behind);
    }
    shown.push_str(rest);
    let kept = shown.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.flat_map(char::to_lowercase).map(|c| if c == ' ' { '-' } else { c }).collect()
}

/// Every anchor of a page; a heading that comes again gets a number.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let mut all = BTreeSet::new();
    for (_, line) in prose(text) {
        let heading = line.trim_start_matches('#');
        if heading.len() == line.len() || !heading.starts_with(' ') {
            continue;
        }
        let anchor = anchor(heading);
        let before = times.entry(anchor.clone()).or_default();
        all.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
        *before += 1;
    }
    all
}

/// A path without `.` and `..`, relative to the root. `None`: it leaves the tree.
fn resolved(page: &Path, target: &str) -> Option<PathBuf> {
    let mut path = PathBuf::new();
    for part in page.parent().unwrap_or(Path::new("")).join(target).components() {
        match part {
            Component::Normal(part) => path.push(part),
            Component::CurDir => {}
            Component::ParentDir => path.pop().then_some(())?,
            Component::RootDir | Component::Prefix(_) => return None,
        }
    }
    Some(path)
}

/// The reason why a link of a page leads nowhere, if it does.
fn broken(page: &Path, target: &str) -> Option<String> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (file, wanted) = target.split_once('#').map_or((target, None), |(file, wanted)| (file, Some(wanted)));
    let Some(path) = (if file.is_empty() { Some(page.to_owned()) } else { resolved(page, file) }) else {
        return Some("leaves the tree".into());
    };
    if !root().join(&path).exists() {
        return Some(format!("{} does not exist", path.display()));
    }
    let wanted = wanted.filter(|wanted| !anchors(&text(&path)).contains(*wanted))?;
    Some(format!("{} has no heading #{wanted}", path.display()))
}

#[test]
fn links_lead_to_files_and_headings() {
    let mut found = Vec::new();
    for page in pages() {
        for (number, line) in prose(&text(&page)) {
            for target in targets(line) {
                let wrong = broken(&page, &target);
                found.extend(wrong.map(|why| format!("{}:{number}: ({target}): {why}", page.display())));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn anchors_are_those_of_the_forge() {
    let page = "# `trieline -j lab run NAME`\n## A message's whole way\n```sh\n# not a heading\n```\n## Two [hosts](x.md)\n## Two hosts\n";
    let expected = ["a-messages-whole-way", "trieline--j-lab-run-name", "two-hosts", "two-hosts-1"];
    assert_eq!(anchors(page).into_iter().collect::<Vec<_>>(), expected);
    assert_eq!(targets("[a](b.md#c), `[d](e)`, ![f](g.svg)"), ["b.md#c", "g.svg"]);
    assert_eq!(resolved(Path::new("docs/a.md"), "../b/c.md"), Some("b/c.md".into()));
    assert_eq!(resolved(Path::new("docs/a.md"), "../../c.md"), None);
}

#[test]
fn the_book_has_every_page_once() {
    let summary = Path::new("docs/SUMMARY.md");
    let lines = text(summary);
    let listed: Vec<PathBuf> = prose(&lines)
        .into_iter()
        .flat_map(|(_, line)| targets(line))
        .filter_map(|target| resolved(summary, &target))
        .collect();
    let mut in_docs = pages();
    in_docs.retain(|page| page.starts_with("docs") && page != summary);
    assert_eq!(listed.iter().cloned().collect::<BTreeSet<_>>(), in_docs, "docs/SUMMARY.md, then docs/");
    assert_eq!(listed.len(), in_docs.len(), "docs/SUMMARY.md names a page twice");
}

#[test]
fn the_readme_is_short_and_names_the_first_commands() {
    let readme = text(Path::new("README.md"));
    let lines = readme.lines().count();
    assert!(lines <= README_LINES, "README.md has {lines} lines; expected at most {README_LINES}");
    for command in ["./dev demo", "./dev build", "./dev test"] {
        assert!(readme.contains(command), "README.md does not name `{command}`");
    }
}

/// Verdicts in a line of a command's output: `6 forward ipv4`, `[pass unresolved]`.
fn verdicts(line: &str) -> Vec<(String, String)> {
    let words: Vec<&str> = line.split_whitespace().map(|word| word.trim_matches(['[', ']'])).collect();
    let counted = words.first().is_some_and(|word| word.parse::<u64>().is_ok());
    let bracketed = line.rsplit_once('[').map_or("", |(_, behind)| behind);
    let after = words.windows(2).filter(|pair| {
        let is_kind = ["forward", "pass", "drop"].contains(&pair[0]);
        let in_brackets = pair[0] != "forward" && bracketed.starts_with(&format!("{} {}", pair[0], pair[1]));
        is_kind && (counted && words.len() == 3 || in_brackets)
    });
    after.map(|pair| (pair[0].to_owned(), pair[1].to_owned())).collect()
}

/// A test of the router compares docs/verdicts.md with the program's verdicts.
#[test]
fn verdicts_in_printed_output_exist() {
    let known = text(Path::new("docs/verdicts.md"));
    let mut found = 0;
    for page in pages() {
        let text = text(&page);
        let prose: BTreeSet<usize> = prose(&text).into_iter().map(|(number, _)| number).collect();
        for (number, line) in (1..).zip(text.lines()).filter(|(number, _)| !prose.contains(number)) {
            for (kind, name) in verdicts(line) {
                let row = format!("| `{name}` | {kind} |");
                assert!(known.contains(&row), "{}:{number}: no verdict `{kind} {name}`", page.display());
                found += 1;
            }
        }
    }
    assert!(found >= 8, "only {found} verdicts were found in the pages' output");
}
