//! The house has floors: a box may use boxes on floors below its own, never one above or beside it.

use serde_json::Value;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

/// The floor of every box. A new workspace member has to be given one here.
const FLOORS: &[(&str, u32)] = &[
    ("trieline-testbed", 0),
    ("trieline-sampling", 0),
    ("trieline-lpm", 1),
    ("trieline-trace", 1),
    ("trieline-terminal", 1),
    ("trieline-plot", 1),
    ("trieline-bpf", 2),
    ("trieline-draw", 2),
    ("trieline-capi", 3),
    ("trieline-router", 3),
    ("trieline-lab", 3),
    ("trieline-cli", 5),
    ("trieline-trace-cli", 5),
    ("trieline-acl", 4),
];

/// Workspace members outside the boxes: no box may depend on them, and they see trieline only from outside. They may use floor 0, which
/// knows nothing of trieline.
const OUTSIDE: &[&str] = &["trieline-tests"];

/// The boxes of commands, and what commands print with. Only they may have these crates at run time.
const FACES: &[&str] =
    &["trieline-cli", "trieline-trace-cli", "trieline-lab", "trieline-draw", "trieline-terminal"];
const FACE_ONLY: &[&str] =
    &["anyhow", "clap", "indicatif", "toml", "tracing-journald", "tracing-subscriber", "sd-notify"];

/// Crates that an operator's programs may not link, through any box: pictures, rivals, an HTTP client.
const OPERATOR: &str = "trieline-cli";
const NOT_FOR_OPERATORS: &[&str] = &[
    "trieline-lab",
    "trieline-trace",
    "trieline-testbed",
    "plotters",
    "maud",
    "ureq",
    "libloading",
    "prefix-trie",
    "hdrhistogram",
];

/// Boxes that may talk to BPF themselves.
const BPF_BOXES: &[&str] =
    &["trieline-bpf", "trieline-router", "trieline-trace", "trieline-lab", "trieline-acl"];

struct Edge {
    name: String,
    /// `None` is a run-time dependency, otherwise `dev` or `build`.
    kind: Option<String>,
}

/// The workspace, as `cargo metadata` describes it.
pub(super) fn metadata() -> Value {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--no-deps", "--offline", "--manifest-path"])
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .output()
        .expect("cargo metadata starts");
    assert!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata prints JSON")
}

fn packages() -> BTreeMap<String, Vec<Edge>> {
    let text = |value: &Value| value.as_str().expect("a string").to_owned();
    metadata()["packages"]
        .as_array()
        .expect("packages")
        .iter()
        .map(|package| {
            let edges = package["dependencies"].as_array().expect("dependencies");
            let edge = |edge: &Value| Edge {
                name: text(&edge["name"]),
                kind: edge["kind"].as_str().map(str::to_owned),
            };
            (text(&package["name"]), edges.iter().map(edge).collect())
        })
        .collect()
}

fn floor(name: &str) -> Option<u32> {
    FLOORS.iter().find(|(box_name, _)| *box_name == name).map(|(_, floor)| *floor)
}

/// Breaches of the floors in a dependency graph, in words.
fn breaches(packages: &BTreeMap<String, Vec<Edge>>) -> Vec<String> {
    let mut found = Vec::new();
    for (name, edges) in packages {
        let own = floor(name);
        if own.is_none() && !OUTSIDE.contains(&name.as_str()) {
            found.push(format!("{name} has no floor: add it to FLOORS"));
        }
        for edge in edges {
            let kind = edge.kind.as_deref().unwrap_or("run-time");
            if OUTSIDE.contains(&edge.name.as_str()) {
                found.push(format!("{name} depends on {} ({kind}), which is not a box", edge.name));
            }
            let Some(other) = floor(&edge.name) else { continue };
            match own {
                Some(own) if other < own => {}
                Some(own) => found.push(format!(
                    "{name} (floor {own}) depends on {} (floor {other}, {kind}): only lower floors",
                    edge.name
                )),
                None if other == 0 => {}
                None => {
                    found.push(format!("{name} looks at trieline from outside, but imports {}", edge.name))
                }
            }
        }
    }
    found
}

#[test]
fn boxes_import_only_lower_floors() {
    let found = breaches(&packages());
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn a_breach_is_found() {
    let edge = |name: &str, kind: Option<&str>| Edge { name: name.into(), kind: kind.map(str::to_owned) };
    let graph = BTreeMap::from([
        ("trieline-lab".to_owned(), vec![edge("trieline-router", None)]),
        ("trieline-lpm".to_owned(), vec![edge("trieline-router", Some("dev"))]),
        ("trieline-new".to_owned(), vec![]),
        ("trieline-router".to_owned(), vec![edge("trieline-lpm", None), edge("trieline-tests", Some("dev"))]),
    ]);
    let found = breaches(&graph);
    assert_eq!(found.len(), 4, "{found:#?}");
}

#[test]
fn only_commands_print_and_read_configuration() {
    for (name, edges) in packages() {
        for edge in edges.iter().filter(|edge| edge.kind.is_none()) {
            assert!(
                FACES.contains(&name.as_str()) || !FACE_ONLY.contains(&edge.name.as_str()),
                "{name} depends on {}: only {FACES:?} print or read configuration",
                edge.name
            );
        }
    }
}

/// The lab starts namespaces and the daemon at run time, for its experiments.
#[test]
fn only_the_lab_links_the_test_bed() {
    for (name, edges) in packages() {
        let links = edges.iter().any(|edge| edge.kind.is_none() && edge.name == "trieline-testbed");
        let may = name == "trieline-lab" || OUTSIDE.contains(&name.as_str());
        assert!(may || !links, "{name} depends on trieline-testbed outside its tests");
    }
}

#[test]
fn an_operators_programs_link_no_lab() {
    let output = Command::new(env!("CARGO"))
        .args(["tree", "-p", OPERATOR, "-e", "normal", "--prefix", "none", "--format", "{p}", "--offline"])
        .arg("--manifest-path")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../Cargo.toml"))
        .output()
        .expect("cargo tree starts");
    assert!(output.status.success(), "cargo tree: {}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("cargo tree prints text");
    let linked: Vec<&str> = text.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(linked.contains(&"trieline-router"), "{text}");
    for name in NOT_FOR_OPERATORS {
        assert!(!linked.contains(name), "{OPERATOR} links {name}");
    }
}

#[test]
fn only_the_bpf_boxes_import_libbpf() {
    // Tests from outside make pins as another version would have left them.
    for (name, edges) in packages().into_iter().filter(|(name, _)| !OUTSIDE.contains(&name.as_str())) {
        // Tests may break what their box stands on.
        let imports = edges.iter().filter(|edge| edge.kind.as_deref() != Some("dev"));
        for edge in imports.filter(|edge| edge.name.starts_with("libbpf") || edge.name == "aya") {
            assert!(BPF_BOXES.contains(&name.as_str()), "{name} depends on {}", edge.name);
        }
    }
}

/// The crates of fuzz targets are outside the workspace, with lock files of their own: a change of a box's dependencies must reach them.
#[test]
fn lock_files_of_fuzz_targets_are_current() {
    for folder in ["lpm/fuzz", "router/fuzz"] {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(folder).join("Cargo.toml");
        let output = Command::new(env!("CARGO"))
            .args(["metadata", "--format-version", "1", "--locked", "--manifest-path"])
            .arg(manifest)
            .output()
            .expect("cargo metadata starts");
        let why = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success(),
            "{folder}: run `cargo metadata` there, and commit its Cargo.lock: {why}"
        );
    }
}
