//! The rule: in each folder of a crate the modules form no circle. A module uses only those of its own floor and lower ones.

use super::source::Edge;
use std::collections::{BTreeMap, BTreeSet};

/// The file of the folder itself among the modules of a folder.
const FOLDER: &str = "self";

/// One use between two modules of a folder. A module's own folder counts as the module.
pub(super) struct Use<'edges> {
    from: &'edges str,
    to: &'edges str,
    edge: &'edges Edge,
}

/// The uses between the modules of each folder. The crate root is the folder with the empty path.
///
/// The folder's own file takes part: it may use the files in the folder, or they may use it. A `pub use` there only names them.
pub(super) fn folders(edges: &[Edge]) -> BTreeMap<String, Vec<Use<'_>>> {
    let mut found: BTreeMap<String, Vec<Use<'_>>> = BTreeMap::new();
    for edge in edges {
        let common = edge.from.iter().zip(&edge.to).take_while(|(one, other)| one == other).count();
        let part = |path: &'_ [String]| -> Option<usize> { (path.len() > common).then_some(common) };
        let from = part(&edge.from).map_or(FOLDER, |at| edge.from[at].as_str());
        let to = part(&edge.to).map_or(FOLDER, |at| edge.to[at].as_str());
        if from != FOLDER || !edge.exported {
            found.entry(edge.from[..common].join("::")).or_default().push(Use { from, to, edge });
        }
    }
    found
}

/// The sets of modules that use each other in a circle.
pub(super) fn circles<'edges>(uses: &[Use<'edges>]) -> Vec<BTreeSet<&'edges str>> {
    let mut direct: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for one in uses {
        direct.entry(one.from).or_default().insert(one.to);
    }
    let reached = |from: &'edges str| {
        let mut seen = BTreeSet::new();
        let mut next = vec![from];
        while let Some(module) = next.pop() {
            next.extend(direct.get(module).into_iter().flatten().filter(|to| seen.insert(**to)));
        }
        seen
    };
    let reach: BTreeMap<&str, BTreeSet<&str>> = direct.keys().map(|from| (*from, reached(from))).collect();
    let mut found: Vec<BTreeSet<&str>> = Vec::new();
    for (from, tos) in &reach {
        if tos.contains(from) && !found.iter().any(|circle| circle.contains(from)) {
            found.push(
                tos.iter()
                    .copied()
                    .filter(|to| reach.get(to).is_some_and(|back| back.contains(from)))
                    .collect(),
            );
        }
    }
    found
}

/// The uses inside a circle, one a line and a pair of modules.
pub(super) fn inside(circle: &BTreeSet<&str>, uses: &[Use<'_>]) -> String {
    let mut pairs = BTreeSet::new();
    uses.iter()
        .filter(|one| {
            circle.contains(one.from) && circle.contains(one.to) && pairs.insert((one.from, one.to))
        })
        .map(|one| format!("\n    {}: {} uses {}", one.edge.place, one.from, target(one.edge)))
        .collect()
}

/// Breaches of a crate's table of floors, lowest first, in words. `modules` are the crate's modules on the top.
pub(super) fn breaches(floors: &[&str], modules: &BTreeSet<&str>, uses: &[Use<'_>]) -> Vec<String> {
    let mut floor: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for (number, line) in (1..).zip(floors) {
        for module in line.split_whitespace() {
            if floor.insert(module, number).is_some() {
                found.push(format!("{module} is in the table twice"));
            }
            if !modules.contains(module) {
                found.push(format!("{module} is in the table and not in the crate"));
            }
        }
    }
    for module in modules.iter().filter(|module| !floor.contains_key(**module)) {
        found.push(format!("{module} has no floor"));
    }
    for Use { from, to, edge } in uses {
        if let (Some(own), Some(other)) = (floor.get(from), floor.get(to))
            && other > own
        {
            found.push(format!(
                "{}: {from} (floor {own}) uses {} (floor {other}): only its own floor and lower ones",
                edge.place,
                target(edge)
            ));
        }
    }
    found
}

fn target(edge: &Edge) -> String {
    let mut path = vec!["crate"];
    path.extend(edge.to.iter().map(String::as_str));
    path.extend(edge.item.as_deref());
    path.join("::")
}
