//! README.md and docs/ against the programs: they accept every command of the pages, and the configuration page has every key and flag.

use std::collections::{BTreeMap, BTreeSet};
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

/// Fills a placeholder as a reader would: with a number if only numbers are accepted, else with the word itself.
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

/// The help proves nothing if a program prints it before it has read the words in front.
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

/// The first cells of the tables of docs/configuration.md: keys by their section, flags under `flags`.
fn configuration_page() -> BTreeMap<String, BTreeSet<String>> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
    let page = fs::read_to_string(page).expect("the page can be read");
    let (mut section, mut cells) = (String::new(), BTreeMap::<String, BTreeSet<String>>::new());
    for line in page.lines() {
        // A heading names its section, or the head of a table does: "key of `[[vrf]]`".
        if line.starts_with("## ") || line.starts_with("| key of") {
            let name = line.split('`').nth(1).map(|name| name.trim_matches(['[', ']']).to_owned());
            section =
                name.unwrap_or_else(|| if line.contains("Flags") { "flags".into() } else { String::new() });
        } else if let Some(cell) = line.strip_prefix("| `") {
            cells.entry(section.clone()).or_default().extend(cell.split('`').next().map(str::to_owned));
        }
    }
    cells
}

/// The keys that trielined knows in a section, from its answer to one that does not exist.
fn known_keys(section: &str) -> BTreeSet<String> {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    fs::write(file.path(), format!("{section}\nnosuchkeyatall = 1\n")).expect("it can be written");
    let path = file.path().to_string_lossy().into_owned();
    let answer = run_with(&binary_path("trielined"), &["--check", "--config", &path], "");
    let Some((_, keys)) = answer.stderr.split_once("known are ") else {
        panic!("no list of keys: {answer:?}")
    };
    keys.split(',').map(|key| key.trim().to_owned()).collect()
}

#[test]
fn the_configuration_page_has_every_key_and_flag() {
    let page = configuration_page();
    let mut top = known_keys("");
    for section in ["srv6", "filter", "sid_hook", "vrf", "vlan"] {
        assert!(top.remove(section), "{section} is a section");
        let head = if section == "srv6" { format!("[{section}]") } else { format!("[[{section}]]") };
        assert_eq!(page[section], known_keys(&head), "{head}: the page, then trielined");
    }
    assert_eq!(page[""], top, "keys at the top level: the page, then trielined");

    // Of `-n, --netns NETNS` the long flag.
    let long = |cell: &str| cell.split([' ', '=']).find(|word| word.starts_with("--")).map(str::to_owned);
    let help = run_with(&binary_path("trielined"), &["--help"], "").ok();
    let options = help.lines().map(str::trim_start).filter(|line| line.starts_with('-'));
    let mut flags: BTreeSet<String> = options.filter_map(long).collect();
    flags.retain(|flag| !["--help", "--version"].contains(&flag.as_str()));
    let of_page: BTreeSet<String> = page["flags"].iter().filter_map(|cell| long(cell)).collect();
    assert_eq!(of_page, flags, "flags: the page, then trielined");
}

/// The session of the README as it stands there, with this build, prints what the README shows; on a busy machine other counts of packets.
#[test]
fn the_readmes_session_works() {
    if !trieline_tests::root() {
        return;
    }
    let readme = Path::new(env!("CARGO_MANIFEST_DIR")).join("../README.md");
    let readme = fs::read_to_string(readme).expect("README.md can be read");
    let blocks = readme.split("```sh\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let session = blocks.map(|(block, _)| block).find(|block| block.contains("ip netns add"));
    let (path, session) = session.and_then(|block| block.split_once('\n')).expect("a session");
    assert_eq!(path, "export PATH=$PWD/target/release:$PATH");
    let folder = binary_path("trielined");
    let folder = Path::new(&folder).parent().expect("a folder");
    // Names of namespaces of its own: other tests and the machine may have the same.
    let script = format!(
        "mount -t tmpfs none /run/netns\nexport PATH={}:$PATH\n{session}\necho the end\n",
        folder.display()
    );
    fs::create_dir_all("/run/netns").expect("/run/netns");
    let expected = [
        "4 packets transmitted, 4 received",
        "10.2.0.2 in 10.2.0.2 dev rb  [forward out rb",
        " forward ipv4",
        "detached from 2 devices",
        "the end",
    ];
    // The session gives trielined two seconds to start: on a busy machine some try has them.
    let mut printed = String::new();
    let shown = (0..3).any(|_| {
        let answer = run_with("unshare", &["--mount", "sh"], &script);
        printed = format!("{}{}", answer.stdout, answer.stderr);
        expected.iter().all(|text| printed.contains(text))
    });
    assert!(shown, "expected {expected:?} in\n{printed}");
}
