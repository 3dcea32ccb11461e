//! `trieline table draw` and `trieline lab draw`. The talk's examples as Graphviz text are compared with checked ones; the way of each
//! lookup, the pictures of docs/tries.md, and mistakes explained. `TRIELINE_RECORD=1` writes the Graphviz texts again.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use trieline_testbed::command::{Answer, binary_path, run_with};

/// Structures that the lab draws, and the image, which `table draw` draws.
const STRUCTURES: [&str; 6] = ["binary", "patricia", "perfect", "relaxed", "fib", IMAGE];
const IMAGE: &str = "image";

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(name)
}

/// A table of docs/tries.
fn example(name: &str) -> String {
    folder("../docs/tries").join(name).to_string_lossy().into_owned()
}

#[track_caller]
fn trieline(words: &[&str], args: &[&str]) -> Answer {
    run_with(&binary_path("trieline"), &[words, args].concat(), "")
}

/// `table draw`.
#[track_caller]
fn draw(args: &[&str]) -> Answer {
    trieline(&["table", "draw"], args)
}

/// `lab draw` of a structure, or `table draw` of the image.
#[track_caller]
fn draw_as(structure: &str, args: &[&str]) -> Answer {
    match structure {
        IMAGE => draw(args),
        _ => trieline(&["lab", "draw", "--structure", structure], args),
    }
}

/// The node whose label begins so, with its colour and all that leads to it.
#[track_caller]
fn node<'a>(dot: &'a str, label: &str) -> &'a str {
    let found =
        dot.lines().find(|line| line.contains("[label=") && !line.contains("->") && line.contains(label));
    found.unwrap_or_else(|| panic!("no `{label}` in {dot}"))
}

#[test]
fn examples_are_drawn_as_recorded() {
    let record = std::env::var_os("TRIELINE_RECORD").is_some();
    for (table, lookups) in [("keys", &["0011", "1100"][..]), ("routes", &["192.168.192.123"])] {
        let file = example(&format!("{table}.txt"));
        for (structure, lookup) in
            STRUCTURES.iter().flat_map(|one| lookups.iter().map(move |lookup| (one, lookup)))
        {
            let drawn = draw_as(structure, &[&file, "--lookup", lookup, "--format", "dot"]).ok();
            let golden = folder("blackbox/draw").join(format!("{table}-{structure}-{lookup}.dot"));
            if record {
                std::fs::write(&golden, &drawn).expect("written");
            }
            let expected = std::fs::read_to_string(&golden).unwrap_or_default();
            assert_eq!(drawn, expected, "{}", golden.display());
        }
    }
}

/// 192.168.192.123 is in none of the /18s: the kernel's trie finds an empty slot, then 192.168.128.0/18, and only then what it looks for.
#[test]
fn the_way_back_is_drawn() {
    let routes = example("routes.txt");
    let dot = draw_as("fib", &[&routes, "--lookup", "192.168.192.123", "--format", "dot"]).ok();
    assert!(dot.contains("prefix 192.168.0.0/16, value 3; 6 visits, 4 of them after going back"), "{dot}");
    assert!(node(&dot, "128.0.0.0/1").contains("visit 1\""));
    assert!(node(&dot, "192.168.0.0/16\\nskips").contains("visit 2, 3, 5"));
    assert!(node(&dot, "192.168.128.0/18 5").contains("visit 4\""));
    assert!(node(&dot, "> 192.168.0.0/16 3").contains("visit 6\""));
    assert!(!node(&dot, "172.16.0.0/24 2").contains("visit"));
    // Two ways are tried after the first: dashed.
    assert_eq!(dot.lines().filter(|line| line.contains("->") && line.contains("dashed")).count(), 2);
}

/// The same answer whatever the structure, and 1100 has none.
#[test]
fn structures_agree() {
    for structure in STRUCTURES {
        let lookup = |file: &str, addr: &str| {
            draw_as(structure, &[&example(file), "--lookup", addr, "--format", "dot"]).ok()
        };
        assert!(lookup("keys.txt", "0011").contains("value 4; "), "{structure}");
        assert!(lookup("keys.txt", "1100").contains("lookup of 1100: no prefix; "), "{structure}");
        assert!(lookup("routes.txt", "192.168.192.123").contains("value 3; "), "{structure}");
        assert!(lookup("routes.txt", "10.0.0.1").contains("lookup of 10.0.0.1: no prefix; "), "{structure}");
    }
}

/// `./dev draw` makes them by the same list.
#[test]
fn the_pictures_of_the_page_match_the_commands() {
    let tries = folder("../docs/tries");
    let page = std::fs::read_to_string(folder("../docs/tries.md")).expect("the page");
    let list = std::fs::read_to_string(tries.join("pictures")).expect("the list");
    let mut names = BTreeSet::new();
    for line in list.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (name, command, file) = (words[0], &words[1..3], example(words[3]));
        let drawn = trieline(command, &[&[file.as_str()], &words[4..]].concat()).ok();
        let committed = std::fs::read_to_string(tries.join(format!("{name}.svg"))).unwrap_or_default();
        assert!(drawn == committed, "docs/tries/{name}.svg is not what `{line}` draws: run ./dev draw");
        assert!(page.contains(&format!("(tries/{name}.svg)")), "{name}.svg is not on the page");
        names.insert(format!("{name}.svg"));
    }
    let files =
        std::fs::read_dir(&tries).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let pictures =
        files.map(|name| name.to_string_lossy().into_owned()).filter(|name| name.ends_with(".svg"));
    assert_eq!(pictures.collect::<BTreeSet<_>>(), names);
}

/// An image's own table, and the same table built from its prefixes; to a file, with what was drawn on standard output.
#[test]
fn files_are_drawn_and_written() {
    let files = tempfile::tempdir().expect("a directory");
    let path = |name: &str| files.path().join(name).to_string_lossy().into_owned();
    let list = path("list");
    std::fs::write(&list, "10.0.0.0/8 ad\n10.1.0.0/16 de\n2001:db8::/32 <us>\n").expect("written");
    let image = path("list.img");
    run_with(&binary_path("trieline"), &["table", "build", &list, "-o", &image], "").ok();
    let body = |answer: Answer| {
        let text = answer.ok();
        text.split_once("</title>").map(|(_, body)| body.replace("list.img", "list")).expect("a title")
    };
    assert_eq!(body(draw(&[&list, "--lookup", "10.1.2.3"])), body(draw(&[&image, "--lookup", "10.1.2.3"])));
    assert!(body(draw(&["-6", &list])).contains("&lt;us&gt;"));
    // The default route's answer stands in the root.
    let routes = path("routes");
    std::fs::write(&routes, "default via 192.0.2.1\n10.0.0.0/8 via 192.0.2.2\n").expect("written");
    for structure in STRUCTURES {
        let args = ["--labels", "addresses", "--lookup", "11.0.0.0", "--format", "dot", &routes];
        let dot = draw_as(structure, &args).ok();
        assert!(dot.contains("prefix 0.0.0.0/0, value via 192.0.2.1; "), "{structure}: {dot}");
        assert!(dot.contains("> 0.0.0.0/0 via 192.0.2.1"), "{structure}: {dot}");
    }
    let svg = path("to.svg");
    let reported = draw_as("fib", &["-j", &list, "-4", "-o", &svg]).json();
    assert_eq!(
        (reported["structure"].as_str(), reported["prefixes"].as_u64()),
        (Some("Linux's fib_trie"), Some(2))
    );
    assert!(std::fs::read_to_string(&svg).expect("a file").starts_with("<svg xmlns="));
    assert!(draw(&["-4", &list, "-o", &svg]).ok().contains("trieline's image; 2 prefixes"));
}

#[test]
fn mistakes_are_explained() {
    let (keys, routes) = (example("keys.txt"), example("routes.txt"));
    draw_as("avl", &[&keys]).fails(2, &["avl", "binary, patricia, perfect, relaxed, fib"]);
    draw_as("relaxed", &[&keys, "--threshold", "121"]).fails(2, &["121", "0..=120"]);
    draw_as("fib", &[&keys, "--root-threshold", "30"]).fails(2, &["--structure relaxed only"]);
    draw(&[&keys, "--lookup", "2001:db8::1"]).fails(2, &["2001:db8::1 is IPv6", "expected IPv4"]);
    draw(&[&keys, "--lookup", "0012"]).fails(2, &["0012", "expected an address", "0011"]);
    draw(&[&keys, "--format", "png"]).fails(2, &["png", "svg, dot"]);
    draw(&[&keys, "-6"]).fails(1, &[&keys, "expected at least one"]);
    draw_as("fib", &[&keys, "-6"]).fails(1, &[&keys, "expected at least one"]);
    draw_as("binary", &[&routes, "--most", "40"]).fails(1, &["44 nodes and leaves", "--most 44"]);
    draw(&[&routes, "--most", "10"]).fails(1, &["15 runs of slots", "at most 10"]);
    draw_as("relaxed", &[&routes, "--threshold", "0"]).fails(1, &["8388608 slots", "higher threshold"]);
    draw(&[&routes, "-o", "/no/such/directory/to.svg"]).fails(1, &["/no/such/directory/to.svg"]);
    draw(&["/no/such/file"]).fails(1, &["/no/such/file"]);
    let drawn_by = |words: &str, input: &str| {
        run_with(&binary_path("trieline"), &words.split(' ').collect::<Vec<_>>(), input)
    };
    let lab = "lab draw - --structure fib";
    drawn_by(lab, "10.0.0.0/8 1\n10.1.0.0/16\n").fails(1, &["10.1.0.0/16 has no value", "all or none"]);
    // Both families.
    for command in ["table draw -", lab] {
        drawn_by(command, "10.0.0.0/8\n2001:db8::/32\n").fails(2, &["IPv4 and IPv6", "expected -4 or -6"]);
    }
}
