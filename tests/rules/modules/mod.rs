//! Inside a crate, modules have floors, too, and use each other in no circle.

mod rule;
mod source;
mod tables;

use crate::imports::metadata;
use rule::{breaches, circles, folders, inside};
use source::{Crate, Edge};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use tables::{APART, FLOORS, KNOWN};

/// The libraries and programs of a package: their modules on the top, and the uses between modules.
#[derive(Default)]
struct Package {
    modules: BTreeSet<String>,
    edges: Vec<Edge>,
}

impl Package {
    fn add(&mut self, target: &Crate) {
        self.modules.extend(target.top());
        self.edges.extend(target.edges());
    }

    /// Lets a module in a folder stand at the top.
    fn set_apart(&mut self, module: &str) {
        let path: Vec<&str> = module.split("::").collect();
        let within = |full: &mut Vec<String>| {
            if full.iter().zip(&path).filter(|(one, other)| one == other).count() == path.len() {
                full.splice(..path.len(), [module.to_owned()]);
            }
        };
        for edge in &mut self.edges {
            within(&mut edge.from);
            within(&mut edge.to);
        }
        self.modules.insert(module.to_owned());
    }
}

fn packages() -> BTreeMap<String, Package> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("tests/ is in the tree");
    let root = root.canonicalize().expect("the tree is there");
    let metadata = metadata();
    let mut found: BTreeMap<String, Package> = BTreeMap::new();
    for package in metadata["packages"].as_array().expect("packages") {
        let name = package["name"].as_str().expect("a name").to_owned();
        let held = found.entry(name).or_default();
        for target in package["targets"].as_array().expect("targets") {
            let kinds = target["kind"].as_array().expect("kinds");
            if kinds.iter().any(|kind| ["bin", "lib", "staticlib", "cdylib"].iter().any(|one| kind == one)) {
                let file = Path::new(target["src_path"].as_str().expect("a path"));
                let file = file.canonicalize().expect("a source");
                let file = file.strip_prefix(&root).expect("a source of the tree");
                held.add(&Crate::read(file, &|file| std::fs::read_to_string(root.join(file)).ok()));
            }
        }
    }
    for (package, module) in APART {
        found.get_mut(*package).expect("a package of APART").set_apart(module);
    }
    found
}

/// A package, a folder of it, and the modules of a circle there, separated by blanks.
type Circle = (String, String, String);

#[test]
fn modules_use_each_other_in_no_circle() {
    let mut found: BTreeMap<Circle, String> = BTreeMap::new();
    for (name, package) in &packages() {
        for (folder, uses) in folders(&package.edges) {
            for circle in circles(&uses) {
                let members = circle.iter().copied().collect::<Vec<_>>().join(" ");
                found.insert((name.clone(), folder.clone(), members), inside(&circle, &uses));
            }
        }
    }
    let known: BTreeSet<Circle> = KNOWN
        .iter()
        .map(|(package, folder, members)| {
            let mut members: Vec<&str> = members.split_whitespace().collect();
            members.sort_unstable();
            ((*package).to_owned(), (*folder).to_owned(), members.join(" "))
        })
        .collect();
    let mut wrong: Vec<String> = Vec::new();
    for ((package, folder, members), uses) in found.iter().filter(|(circle, _)| !known.contains(*circle)) {
        wrong.push(format!("{package}, folder {folder:?}: {members} use each other in a circle:{uses}"));
    }
    for (package, folder, members) in known.iter().filter(|circle| !found.contains_key(*circle)) {
        wrong
            .push(format!("{package}, folder {folder:?}: {members} form this circle no more: correct KNOWN"));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn modules_use_their_own_floor_and_lower_ones() {
    let mut wrong = Vec::new();
    let packages = packages();
    for (name, package) in &packages {
        let floors = FLOORS.iter().find(|(package, _)| package == name).map_or(&[][..], |(_, floors)| floors);
        let folders = folders(&package.edges);
        let uses = folders.get("").map_or(&[][..], Vec::as_slice);
        let modules = package.modules.iter().map(String::as_str).collect();
        wrong.extend(breaches(floors, &modules, uses).into_iter().map(|breach| format!("{name}: {breach}")));
    }
    let stale = FLOORS.iter().filter(|(name, _)| !packages.contains_key(*name));
    wrong.extend(stale.map(|(name, _)| format!("{name} has floors and is not in the workspace")));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The modules and uses of a crate with these files.
fn planted(files: &[(&str, &str)]) -> Package {
    let text = |path: &Path| {
        let file = files.iter().find(|(file, _)| Path::new(file) == path);
        file.map(|(_, text)| (*text).to_owned())
    };
    let mut package = Package::default();
    package.add(&Crate::read(Path::new("lib.rs"), &text));
    package
}

/// The circles of each folder, each as its modules.
fn found(files: &[(&str, &str)]) -> Vec<(String, Vec<String>)> {
    let package = planted(files);
    let mut found = Vec::new();
    for (folder, uses) in folders(&package.edges) {
        for circle in circles(&uses) {
            found.push((folder.clone(), circle.iter().map(|module| (*module).to_owned()).collect()));
        }
    }
    found
}

#[test]
fn a_circle_of_modules_is_found() {
    let root = ("lib.rs", "mod fib; mod rib; mod table; pub use table::Table;");
    let fib = ("fib.rs", "use crate::Table; pub struct Fib(Table);");
    let table = |text| [root, fib, ("rib.rs", ""), ("table.rs", text)];
    let circle = [(String::new(), vec!["fib".to_owned(), "table".to_owned()])];
    let closed = [
        "use crate::fib; pub struct Table;",
        "pub struct Table; fn size() { let _ = super::fib::Fib::new(); }",
        "pub struct Table; fn print() { println!(\"{}\", crate::fib::NAME); }",
        "pub use inner::Table; mod inner { use super::super::fib::Fib; pub struct Table; }",
        "#[arg(value_parser = crate::fib::parse)] pub struct Table;",
        "#[cfg(not(test))] use crate::{rib, fib::Fib}; pub struct Table;",
    ];
    for text in closed {
        assert_eq!(found(&table(text)), circle, "{text}");
    }
    let open = [
        "use crate::rib; pub struct Table;",
        "/// Not [`crate::fib::Fib`].\npub struct Table; // crate::fib::Fib",
        "pub struct Table; const NAME: &str = \"crate::fib::Fib\";",
        "pub struct Table; #[cfg(test)] mod tests { use crate::fib::Fib; }",
        "pub struct Table; #[cfg(all(test, loom))] use crate::fib::Fib;",
        "pub struct Table; impl Table { #[cfg(test)] fn f() { crate::fib::f() } }",
    ];
    for text in open {
        assert_eq!(found(&table(text)), [], "{text}");
    }
}

#[test]
fn a_circle_through_the_folders_file_is_found() {
    let files = |text| [("lib.rs", "mod rib;"), ("rib/mod.rs", text), ("rib/route.rs", "use super::Metric;")];
    let circle = [("rib".to_owned(), vec!["route".to_owned(), "self".to_owned()])];
    for text in [
        "mod route; use route::Route; pub struct Metric;",
        "mod route; pub use route::Route; pub struct Metric; struct Rib(Route);",
    ] {
        assert_eq!(found(&files(text)), circle, "{text}");
    }
    // The file only names what is in the folder.
    assert_eq!(found(&files("mod route; pub use route::Route; pub struct Metric;")), []);
}

#[test]
fn a_breach_of_module_floors_is_found() {
    let package = planted(&[
        ("lib.rs", "mod kernel; mod rib; mod fib;"),
        ("kernel/mod.rs", "pub mod route;"),
        ("kernel/route.rs", "\nuse crate::rib::Rib;"),
        ("rib.rs", "use super::kernel::route; pub struct Rib;"),
        ("fib.rs", ""),
    ]);
    let folders = folders(&package.edges);
    let modules: BTreeSet<&str> = package.modules.iter().map(String::as_str).collect();
    let all = breaches(&["kernel", "rib", "fib"], &modules, &folders[""]);
    let one = "kernel/route.rs:2: kernel (floor 1) uses crate::rib::Rib (floor 2): only its own floor and lower ones";
    assert_eq!(all, [one]);
    assert_eq!(breaches(&["kernel rib fib"], &modules, &folders[""]), Vec::<String>::new());
    let table = breaches(&["kernel rib", "daemon"], &modules, &folders[""]);
    assert_eq!(table, ["daemon is in the table and not in the crate", "fib has no floor"]);
}
