//! Plain English in comments, messages and pages: this test keeps the worst words out and sentences short.

use super::tree::{text, tracked};

/// Words that hide the actor, or that a reader in her third language has to look up.
const WORDS: &[&str] = &["told", "whoever", "nobody", "anew"];

/// Phrases that turn a sentence around.
const PHRASES: &[&str] = &["is no", "that there is", "of which", "nothing more than"];

/// A sentence that begins with one of these and does not ask has a clause as its subject.
const CLAUSES: &[&str] = &["What", "Who", "Whoever"];

/// Words that pages and help have another one for: prints, reports, shows, requests, looks up.
const PAGE_WORDS: &[&str] = &["says", "asked"];

/// Phrases that pages and help do without, too.
const PAGE_PHRASES: &[&str] = &["are no"];

/// The longest sentence that a page or a comment may have, in words.
const WORDS_MAX: usize = 25;

/// The longest sentence that a string literal may have, in words: in an error, values stand between them.
const LITERAL_WORDS_MAX: usize = 30;

/// Pages that are not clean yet. Take a page out of this list when it is; no page comes in.
const EXEMPT_PAGES: &[&str] = &["CHANGELOG.md", "docs/glossary.md"];

/// This file names the words, and breaches stand in its own tests.
const THIS_FILE: &str = "tests/rules/words.rs";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Comment,
    Literal,
    Page,
}

/// A piece of text that belongs together: a comment's paragraph, a literal, a page's paragraph.
#[derive(Debug, PartialEq, Eq)]
struct Piece {
    kind: Kind,
    /// Line number and text of each line.
    lines: Vec<(usize, String)>,
}

/// Collects lines into paragraphs.
#[derive(Default)]
struct Pieces {
    found: Vec<Piece>,
    open: bool,
    /// Inside a ``` block, which is code.
    fenced: bool,
}

impl Pieces {
    /// A line of a comment or page, without the comment's marks.
    fn line(&mut self, kind: Kind, number: usize, line: &str) {
        let line = line.trim();
        if line.starts_with("```") {
            self.fenced = !self.fenced;
            self.open = false;
            return;
        }
        if self.fenced {
            return;
        }
        let item = line.trim_start_matches(|c: char| c.is_ascii_digit());
        let item = ["- ", "* ", "+ ", ". ", "@ "].iter().find_map(|mark| item.strip_prefix(mark));
        // Headings, cells of tables, columns and items stand alone.
        let is_alone = line.starts_with(['#', '|']) || line.contains("   ");
        if line.is_empty() || is_alone || item.is_some() {
            self.open = false;
        }
        if line.starts_with('|') {
            for cell in line.split('|') {
                self.push(kind, number, cell.trim());
                self.open = false;
            }
        } else {
            self.push(kind, number, item.unwrap_or(line).trim_start_matches(['#', ' ']));
            self.open &= !is_alone;
        }
    }

    fn push(&mut self, kind: Kind, number: usize, text: &str) {
        if text.is_empty() {
            return;
        }
        match self.found.last_mut() {
            Some(last) if self.open && last.kind == kind => last.lines.push((number, text.to_owned())),
            _ => self.found.push(Piece { kind, lines: vec![(number, text.to_owned())] }),
        }
        self.open = true;
    }

    fn end(&mut self) {
        self.open = false;
        self.fenced = false;
    }

    /// A string literal as it stands in the source: its line breaks end a piece unless `\` joins them.
    fn literal(&mut self, number: usize, literal: &str) {
        self.end();
        for (row, line) in literal.split('\n').enumerate() {
            let joined = line.ends_with('\\');
            for (part, text) in line.trim_end_matches('\\').split("\\n").enumerate() {
                self.open &= part == 0;
                self.push(Kind::Literal, number + row, text.trim());
            }
            self.open &= joined;
        }
        self.end();
    }
}

/// The comments and string literals of Rust and C.
fn of_code(source: &str, rust: bool) -> Vec<Piece> {
    let mut pieces = Pieces::default();
    let (mut at, mut number, mut line_of_comment) = (0, 1, 0);
    while let Some(c) = source[at..].chars().next() {
        let rest = &source[at..];
        let length = if let Some(comment) = rest.strip_prefix("//") {
            let line = comment.lines().next().unwrap_or_default();
            let alone = source[..at].rsplit('\n').next().is_none_or(|before| before.trim().is_empty());
            // A comment goes on in the next line, if both stand alone.
            if !(alone && line_of_comment + 1 == number) {
                pieces.end();
            }
            line_of_comment = number;
            pieces.line(Kind::Comment, number, line.trim_start_matches(['/', '!']));
            2 + line.len()
        } else if let Some(comment) = rest.strip_prefix("/*") {
            let end = comment.find("*/").unwrap_or(comment.len());
            pieces.end();
            for (row, line) in comment[..end].lines().enumerate() {
                let line = line.trim_start();
                pieces.line(Kind::Comment, number + row, line.strip_prefix('*').unwrap_or(line));
            }
            pieces.end();
            (end + 4).min(rest.len())
        } else if let Some(marks) = raw_string(rest).filter(|_| rust) {
            let end = format!("\"{}", "#".repeat(marks));
            let literal = &rest[marks + 2..];
            let literal = &literal[..literal.find(&end).unwrap_or(literal.len())];
            pieces.literal(number, literal);
            (marks + 2 + literal.len() + end.len()).min(rest.len())
        } else if c == '"' {
            let length = quoted(&rest[1..]);
            pieces.literal(number, &rest[1..=length]);
            (length + 2).min(rest.len())
        } else if let Some(length) = character(rest) {
            length
        } else if c.is_alphanumeric() {
            // A whole word, so that the `r` at its end begins no literal.
            rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
        } else {
            c.len_utf8()
        };
        number += rest[..length].matches('\n').count();
        at += length;
    }
    pieces.found
}

/// How many `#` a raw string has that begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let marks = rest.strip_prefix('r')?;
    let literal = marks.trim_start_matches('#');
    literal.starts_with('"').then(|| marks.len() - literal.len())
}

/// Length of a literal up to its closing quote.
fn quoted(literal: &str) -> usize {
    let mut escaped = false;
    let end = literal.bytes().position(|byte| {
        let ends = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        ends
    });
    end.unwrap_or(literal.len().saturating_sub(1))
}

/// Length of the character literal that begins here; a lifetime is none.
fn character(rest: &str) -> Option<usize> {
    let inside = rest.strip_prefix('\'')?;
    if inside.starts_with('\\') {
        return inside.get(2..)?.find('\'').map(|end| end + 4);
    }
    let length = inside.chars().next()?.len_utf8();
    inside[length..].starts_with('\'').then_some(length + 2)
}

/// The comments of TOML, units and the shell, and what stands between quotes; of `dev`, every other line: its help has no quotes.
fn of_settings(source: &str, shell: bool) -> Vec<Piece> {
    let mut pieces = Pieces::default();
    for (row, line) in source.lines().enumerate() {
        let comment =
            line.find('#').filter(|at| line[..*at].chars().next_back().is_none_or(char::is_whitespace));
        let (code, comment) = comment.map_or((line, ""), |at| line.split_at(at));
        if !code.trim().is_empty() || comment.is_empty() {
            pieces.end();
        }
        if shell && !code.trim().is_empty() {
            pieces.literal(row + 1, code);
        } else {
            for literal in code.split('"').skip(1).step_by(2) {
                pieces.literal(row + 1, literal);
            }
        }
        pieces.line(Kind::Comment, row + 1, comment.trim_start_matches(['#', '!']));
        if !code.trim().is_empty() {
            pieces.end();
        }
    }
    pieces.found
}

/// All but what `lab report --fill` writes between its marks.
fn of_page(source: &str) -> Vec<Piece> {
    let mut pieces = Pieces::default();
    let mut filled = false;
    for (row, line) in source.lines().enumerate() {
        filled = (filled || line.starts_with("<!-- lab: ")) && line != "<!-- /lab -->";
        pieces.line(Kind::Page, row + 1, if filled { "" } else { line });
    }
    pieces.found
}

fn pieces(path: &str, source: &str) -> Option<Vec<Piece>> {
    match path.rsplit(['.', '/']).next()? {
        "rs" => Some(of_code(source, true)),
        "c" | "h" => Some(of_code(source, false)),
        "toml" => Some(of_settings(source, false)),
        "dev" => Some(of_settings(source, true)),
        "md" => Some(of_page(source)),
        "service" | "spec" | "yml" | "Containerfile" | "control" => Some(of_settings(source, false)),
        _ if source.starts_with("#!/") => Some(of_settings(source, false)),
        _ => None,
    }
}

/// The sentences of a piece, each with the line that it begins in. In a literal `;` ends one, too: "cannot X: cause; hint". Names between backticks, and between the braces of a literal, are blanked.
fn sentences(piece: &Piece) -> Vec<(usize, String)> {
    let mut words = Vec::new();
    let (mut code, mut braces) = (false, false);
    for (number, line) in &piece.lines {
        for word in line.split_whitespace() {
            let mut plain = String::new();
            for c in word.chars() {
                match c {
                    '`' => {
                        code = !code;
                        plain.push(c);
                    }
                    '{' | '}' if piece.kind == Kind::Literal => {
                        braces = c == '{';
                        plain.push(c);
                    }
                    _ if code || braces => plain.push('x'),
                    _ => plain.push(c),
                }
            }
            words.push((*number, plain));
        }
    }
    let mut found: Vec<(usize, String)> = Vec::new();
    let ends: &[char] = if piece.kind == Kind::Literal { &['.', '!', '?', ';'] } else { &['.', '!', '?'] };
    let mut open = false;
    for (at, (number, word)) in words.iter().enumerate() {
        match found.last_mut() {
            Some((_, sentence)) if open => {
                sentence.push(' ');
                sentence.push_str(word);
            }
            _ => found.push((*number, word.clone())),
        }
        let next = words.get(at + 1).map(|(_, word)| word.as_str());
        let end = word.trim_end_matches([')', '"', '*', '_', '`']).ends_with(ends);
        let goes_on = |next: &str| {
            next.starts_with(char::is_lowercase) && !next.starts_with("trieline") && !word.ends_with(';')
        };
        open = !end || next.is_some_and(goes_on);
    }
    found
}

/// What is wrong with a sentence of a kind.
fn breaches(kind: Kind, sentence: &str) -> Vec<String> {
    let is_page = kind == Kind::Page;
    let (page_words, page_phrases) = if is_page { (PAGE_WORDS, PAGE_PHRASES) } else { (&[][..], &[][..]) };
    let mut found = Vec::new();
    let words: Vec<String> = sentence
        .split(|c: char| !c.is_alphanumeric() && c != '\'')
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let is_used = |bad: &&&str| words.iter().any(|word| word == **bad);
    found.extend(WORDS.iter().chain(page_words).filter(is_used).map(|bad| format!("\"{bad}\"")));
    // A comma ends a phrase: "if that is no, stop".
    let spoken = format!(" {} ", sentence.to_lowercase());
    let is_spoken = |bad: &&&str| spoken.contains(&format!(" {bad} "));
    found.extend(PHRASES.iter().chain(page_phrases).filter(is_spoken).map(|bad| format!("\"{bad}\"")));
    let first = sentence.trim_start_matches(['(', '*', '_', '"']).split(' ').next().unwrap_or_default();
    if sentence.contains(' ') && CLAUSES.contains(&first) && !sentence.contains('?') {
        found.push(format!("a sentence that begins with \"{first}\""));
    }
    let length = sentence.split(' ').filter(|word| word.contains(char::is_alphanumeric)).count();
    let longest = if kind == Kind::Literal { LITERAL_WORDS_MAX } else { WORDS_MAX };
    if length > longest {
        found.push(format!("{length} words"));
    }
    found
}

fn breaches_of(path: &str, source: &str) -> Vec<String> {
    let mut found = Vec::new();
    for piece in pieces(path, source).unwrap_or_default() {
        for (number, sentence) in sentences(&piece) {
            let wrong = breaches(piece.kind, &sentence);
            if !wrong.is_empty() {
                found.push(format!("{path}:{number}: {}: {sentence}", wrong.join(", ")));
            }
        }
    }
    found
}

#[test]
fn comments_and_messages_are_plain_english() {
    let watched = |path: &&String| {
        path.as_str() != THIS_FILE && !path.ends_with("vmlinux.h") && !EXEMPT_PAGES.contains(&path.as_str())
    };
    let found: Vec<String> =
        tracked().iter().filter(watched).flat_map(|path| breaches_of(path, &text(path))).collect();
    assert!(found.is_empty(), "{} breaches:\n{}", found.len(), found.join("\n"));
}

/// The words of all breaches in a text.
fn words_of(path: &str, source: &str) -> Vec<String> {
    let line = |breach: String| breach.trim_start_matches(path).trim_start_matches(':').to_owned();
    breaches_of(path, source).into_iter().map(line).collect()
}

#[test]
fn breaches_in_rust_are_found() {
    let source = r##"
//! A page is good.

/// The daemon is told
/// of a route. Whoever asks gets `nobody`.
fn plain(told: &'static str) -> char {
    // There is no table.
    let raw = r#"written anew "quoted" here"#; // a list, of which one is long
    let number = "one"; let quote = '"'; /* What it does. */ let escaped = '\'';
    format!("{told} nobody \
             listens\nWhat is it?")
}
"##;
    let expected = [
        "4: \"told\": The daemon is told of a route.",
        "5: \"whoever\", a sentence that begins with \"Whoever\": Whoever asks gets `xxxxxx`.",
        "7: \"is no\": There is no table.",
        "8: \"anew\": written anew \"quoted\" here",
        "8: \"of which\": a list, of which one is long",
        "9: a sentence that begins with \"What\": What it does.",
        "10: \"nobody\": {xxxx} nobody listens",
    ];
    assert_eq!(words_of("a.rs", source), expected);
    assert_eq!(words_of("src/vmlinux.c", "/*\n * Who asks it.\n */\nint told;\n").len(), 1);
}

#[test]
fn breaches_in_settings_and_pages_are_found() {
    let settings = "[a] # told once\nkey = \"that there is\" # a # b\n# Who reads.\n";
    assert_eq!(words_of("a.toml", settings).len(), 3);
    assert_eq!(words_of("dev", "#!/bin/sh\n# nothing more than a door\n\techo told\n").len(), 2);
    let page = "# What a page is\n\n```sh\ntold anew\n```\n| told | x |\n- It is\n  no good.\nIs this told? What?\n\nAsked, it says\nthat there are no routes.\n";
    let expected = [
        "1: a sentence that begins with \"What\": What a page is",
        "6: \"told\": told",
        "7: \"is no\": It is no good.",
        "9: \"told\": Is this told?",
        "11: \"says\", \"asked\", \"are no\": Asked, it says that there are no routes.",
    ];
    assert_eq!(words_of("a.md", page), expected);
    let comment = page.lines().map(|line| format!("// {line}\n")).collect::<String>();
    assert_eq!(words_of("a.rs", &comment).len(), expected.len() - 1, "comments may have the words of pages");
}

#[test]
fn long_sentences_are_found() {
    let words = |count: usize| vec!["word"; count].join(" ");
    let line = |count: usize| format!("// {}.\n", words(count));
    assert!(words_of("a.rs", &line(WORDS_MAX)).is_empty());
    assert!(words_of("a.rs", &line(WORDS_MAX + 1))[0].starts_with("1: 26 words"));
    // Two lines are one sentence, unless the first one ends it.
    assert_eq!(words_of("a.rs", &format!("// and so\n{}", line(WORDS_MAX))).len(), 1);
    assert!(words_of("a.rs", &format!("// Ends.\n{}", line(WORDS_MAX).to_uppercase())).is_empty());
    // A name of a literal is code, also between backticks.
    let literal = |count: usize| format!("let x = \"`{{name}}`: cause; {}\";", words(count));
    assert!(words_of("a.rs", &literal(LITERAL_WORDS_MAX)).is_empty());
    assert_eq!(words_of("a.rs", &literal(LITERAL_WORDS_MAX + 1)).len(), 1);
    // Pages have shorter ones.
    assert!(words_of("a.md", &words(WORDS_MAX)).is_empty());
    let long = words(WORDS_MAX + 1);
    assert!(words_of("a.md", &long)[0].starts_with("1: 26 words"));
}
