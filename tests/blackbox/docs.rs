//! Every command of ours in README.md and docs/ is one that the program accepts: its words and options, up to `--help` at the end.

use std::fs;
use std::path::{Path, PathBuf};
use trieline_tests::command::{Answer, binary_path, run_with};

const PROGRAMS: [&str; 4] = ["trieline", "trielined", "trieline-trace", "trieline-lab"];

/// README.md and the pages in docs/.
fn pages() -> Vec<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let docs = fs::read_dir(root.join("docs")).expect("docs/ is there");
    let docs = docs.map(|entry| entry.expect("docs/ can be read").path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut pages: Vec<PathBuf> = docs.chain([root.join("README.md")]).collect();
    pages.sort();
    pages
}

/// The lines that a reader types: of `sh` blocks all, of `console` blocks those behind a prompt.
fn typed(page: &str) -> Vec<(usize, &str)> {
    let mut block = None;
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(page.lines()) {
        if let Some(language) = line.trim_start().strip_prefix("```") {
            block = if block.is_some() { None } else { Some(language) };
            continue;
        }
        let behind_prompt = || line.strip_prefix("$ ").or(line.strip_prefix("# "));
        match block {
            Some("sh") => lines.push((number, line)),
            Some("console") => lines.extend(behind_prompt().map(|line| (number, line))),
            _ => {}
        }
    }
    lines
}

/// The commands of a line, as words. Quotes hold words together; a word that begins with # ends the line.
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut all = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in line.chars().chain([' ']) {
        match (quote, c) {
            (Some(open), _) if c == open => quote = None,
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '#') if word.is_none() => break,
            (None, ' ' | ';' | '|' | '&') => {
                all.last_mut().expect("there is one").extend(word.take());
                if c != ' ' {
                    all.push(Vec::new());
                }
            }
            _ => word.get_or_insert_default().push(c),
        }
    }
    all.retain(|words| !words.is_empty());
    all
}

/// What a reader would write for a placeholder: a number where only numbers are accepted, else the word itself.
fn filled(word: &str) -> String {
    match word.trim_matches(['[', ']', '…']) {
        "PID" | "N" => "1".into(),
        "ADDRESS" => "192.0.2.1".into(),
        word => word.into(),
    }
}

/// Asks a program of ours for the help of this command line, and so to read all words before. `None`: another program.
fn asked(words: &[String]) -> Option<Answer> {
    let words = if words[0] == "sudo" { &words[1..] } else { words };
    let name = Path::new(words.first()?).file_name()?.to_str()?;
    if !PROGRAMS.contains(&name) {
        return None;
    }
    let mut words: Vec<String> =
        words[1..].iter().map(|word| filled(word)).filter(|w| !w.is_empty()).collect();
    // Behind `--` stands the command line of another program.
    let own = words.iter().position(|word| word == "--").unwrap_or(words.len());
    words.insert(own, "--help".into());
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Some(run_with(&binary_path(name), &words, ""))
}

#[test]
fn the_documentations_commands_are_accepted() {
    let (mut refused, mut accepted) = (Vec::new(), 0);
    for page in pages() {
        let name = page.file_name().expect("a page has a name").to_string_lossy().into_owned();
        for (number, line) in typed(&fs::read_to_string(&page).expect("a page can be read")) {
            for answer in commands(line).iter().filter_map(|words| asked(words)) {
                if answer.code == 0 && answer.stdout.contains("Usage:") {
                    accepted += 1;
                } else {
                    refused.push(format!("{name}:{number}: {answer:?}"));
                }
            }
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n"));
    assert!(accepted >= 45, "only {accepted} commands were found");
}

#[test]
fn lines_are_cut_as_the_shell_cuts_them() {
    let words = |line: &str| commands(line).into_iter().map(|words| words.join("_")).collect::<Vec<_>>();
    assert_eq!(words("a --id 'x y' \"z;\"; b && c | d & # e"), ["a_--id_x y_z;", "b", "c", "d"]);
    assert_eq!(words("sudo trieline top   # live"), ["sudo_trieline_top"]);
    let page = "```sh\na\n```\nb\n```console\n$ c\nd\n# e\n```\n";
    assert_eq!(typed(page), [(2, "a"), (6, "c"), (8, "e")]);
}

/// The help is no proof where a program prints it before it has read what stands in front.
#[test]
fn a_wrong_command_is_refused_before_the_help() {
    for line in [
        "trieline table get --nonsense a.img",
        "trieline roude get",
        "trielined --devv eth0",
        "trieline trace -p x",
        "trieline lab run forward --gap x",
    ] {
        let answer = commands(line).iter().find_map(|words| asked(words)).expect("a command of ours");
        answer.fails(2, &[]);
    }
}
