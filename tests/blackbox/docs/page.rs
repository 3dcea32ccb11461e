//! The blocks of a page: the commands that it shows, their output, and the files that it lists.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A block of a page in ``` fences.
#[derive(Debug, Clone, PartialEq)]
pub struct Block {
    /// The line of the opening fence, from 1.
    pub line: usize,
    /// The word behind the fence.
    pub language: String,
    /// Its lines.
    pub lines: Vec<String>,
    /// The text of an HTML comment `<!-- test: TEXT -->` in the line before the fence.
    pub remark: Option<String>,
}

/// A command as a page shows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Shown {
    /// Its first line, from 1.
    pub line: usize,
    /// The text that a reader types.
    pub text: String,
    /// The lines that the page shows below it; `None`: the page does not show its output.
    pub output: Option<Vec<String>>,
}

/// One thing that a reader does.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    /// Types a command.
    Command(Shown),
    /// Writes a file: a TOML block whose first line is `# /PATH`.
    File { path: String, text: String },
    /// Reads lines that the commands before have printed: a block with the remark `prints`.
    Printed { line: usize, lines: Vec<String> },
}

pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// README.md and the pages in docs/.
pub fn pages() -> Vec<PathBuf> {
    let docs = fs::read_dir(root().join("docs")).expect("docs/ is there");
    let docs = docs.map(|entry| entry.expect("docs/ can be read").path());
    let docs = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    let mut pages: Vec<PathBuf> = docs.chain([root().join("README.md")]).collect();
    pages.sort();
    pages
}

/// All blocks of a page.
pub fn blocks(page: &str) -> Vec<Block> {
    let (mut all, mut open) = (Vec::new(), None::<Block>);
    let mut before = "";
    for (line, text) in (1..).zip(page.lines()) {
        let fence = text.trim_start().strip_prefix("```");
        match (open.take(), fence) {
            (Some(block), Some(_)) => all.push(block),
            (Some(mut block), None) => {
                block.lines.push(text.to_owned());
                open = Some(block);
            }
            (None, Some(language)) => {
                let remark = before.strip_prefix("<!-- test: ").and_then(|rest| rest.strip_suffix(" -->"));
                let remark = remark.map(str::to_owned);
                open = Some(Block { line, language: language.to_owned(), lines: Vec::new(), remark });
            }
            (None, None) => {}
        }
        before = text;
    }
    all
}

impl Block {
    /// Whether a reader types what it shows.
    pub fn is_typed(&self) -> bool {
        ["sh", "bash", "console"].contains(&self.language.as_str())
    }

    /// Why a test does not run it, if none does.
    pub fn not_run(&self) -> Option<&str> {
        self.remark.as_deref().and_then(|remark| remark.strip_prefix("not run: "))
    }

    /// The commands that it shows.
    pub fn commands(&self) -> Vec<Shown> {
        let numbered = (self.line + 1..).zip(&self.lines);
        if self.language == "console" {
            let mut all: Vec<Shown> = Vec::new();
            for (line, text) in numbered {
                match (text.strip_prefix("# ").or(text.strip_prefix("$ ")), all.last_mut()) {
                    (Some(typed), _) => {
                        all.push(Shown { line, text: typed.to_owned(), output: Some(Vec::new()) });
                    }
                    (None, Some(last)) => last.output.get_or_insert_default().push(text.clone()),
                    (None, None) => panic!("line {line}: expected a prompt (`# ` or `$ `): {text}"),
                }
            }
            return all;
        }
        let mut all = Vec::new();
        let mut open: Option<Shown> = None;
        for (line, text) in numbered {
            let shown = match open.take() {
                Some(mut shown) => {
                    shown.text = format!("{}\n{text}", shown.text);
                    shown
                }
                None if text.trim().is_empty() => continue,
                None => Shown { line, text: text.clone(), output: None },
            };
            if is_whole(&shown.text) {
                all.push(shown);
            } else {
                open = Some(shown);
            }
        }
        assert_eq!(open, None, "a command does not end");
        all
    }
}

/// Whether the shell needs no further line.
fn is_whole(text: &str) -> bool {
    // Only these may go on; the shell itself decides.
    if !text.contains("<<") && !text.ends_with('\\') && !text.contains("do") && !text.contains('\n') {
        return true;
    }
    let answer = Command::new("bash").args(["-n", "-c", text]).output().expect("bash is installed");
    answer.status.success() && answer.stderr.is_empty() && !text.ends_with('\\')
}

/// All that a reader of the page does, in order, without the blocks that no test runs.
pub fn steps(page: &str) -> Vec<Step> {
    let mut all = Vec::new();
    for block in blocks(page).into_iter().filter(|block| block.not_run().is_none()) {
        if block.is_typed() {
            all.extend(block.commands().into_iter().map(Step::Command));
        } else if block.remark.as_deref() == Some("prints") {
            all.push(Step::Printed { line: block.line + 1, lines: block.lines });
        } else if let Some(path) = block.lines.first().and_then(|line| line.strip_prefix("# /")) {
            all.push(Step::File { path: format!("/{path}"), text: block.lines.join("\n") + "\n" });
        }
    }
    all
}

#[test]
fn a_page_is_read_as_a_reader_does() {
    let page = "```toml\n# /etc/x\na = 1\n```\n```sh\na   # why\n\nfor i in 1 2; do\n  b\ndone\n```\n\n\
                <!-- test: not run: builds -->\n```sh\nc\n```\n```console\n# d\nprinted\n$ e\n```\n\
                <!-- test: prints -->\n```text\nf\n```\n";
    let shown = |line, text: &str, output: Option<&[&str]>| {
        let output = output.map(|lines| lines.iter().map(|line| (*line).to_owned()).collect());
        Step::Command(Shown { line, text: text.into(), output })
    };
    let expected = [
        Step::File { path: "/etc/x".into(), text: "# /etc/x\na = 1\n".into() },
        shown(6, "a   # why", None),
        shown(8, "for i in 1 2; do\n  b\ndone", None),
        shown(18, "d", Some(&["printed"])),
        shown(20, "e", Some(&[])),
        Step::Printed { line: 24, lines: vec!["f".into()] },
    ];
    assert_eq!(steps(page), expected);
    assert_eq!(blocks(page)[2].not_run(), Some("builds"));
}
