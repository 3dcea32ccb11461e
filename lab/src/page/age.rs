//! Whether documents are older than the code that they measure.

use std::path::Path;

use serde::Serialize;
use trieline_testbed::command;

use super::contents::Page;
use crate::experiments::LIST;

/// A document that is older than its code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Old {
    /// The experiment.
    pub experiment: &'static str,
    /// When it was measured, UTC.
    pub measured: String,
    /// The last commit of the folders that it measures, UTC.
    pub changed: String,
    /// These folders.
    pub code: Vec<String>,
}

impl Page {
    /// The documents that are older than the last commit of the folders that they measure, in the repository at `root`. None without a
    /// repository: a source archive does not know.
    pub fn old(&self, root: &Path) -> Vec<Old> {
        let entries = self.entries.iter().filter_map(|entry| {
            let listed = LIST.iter().find(|listed| listed.name == entry.finished.experiment())?;
            let mut code: Vec<String> = listed.code.iter().map(|folder| (*folder).to_owned()).collect();
            code.push(format!("lab/src/experiments/{}", listed.name.replace('-', "_")));
            let measured = entry.finished.machine().date.clone();
            let changed = last_commit(root, &code)?;
            (measured < changed).then_some(Old { experiment: listed.name, measured, changed, code })
        });
        entries.collect()
    }
}

impl Old {
    /// In a line.
    pub fn text(&self) -> String {
        let Old { experiment, measured, changed, code } = self;
        format!(
            "{experiment}: measured {measured}, before the last change ({changed}) of {}; measure again",
            code.join(", ")
        )
    }
}

/// When a commit last changed these folders, as documents have it.
fn last_commit(root: &Path, folders: &[String]) -> Option<String> {
    let root = root.display().to_string();
    let mut words = vec!["TZ=UTC", "git", "-C", &root, "log", "-1", "--format=%cd"];
    words.extend(["--date=format-local:%Y-%m-%dT%H:%M:%SZ", "--"]);
    words.extend(folders.iter().map(String::as_str));
    let text = command::output("env", &words).ok()?;
    Some(text.trim().to_owned()).filter(|date| !date.is_empty())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_document_before_the_last_commit_of_its_code_is_old() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path();
        let page = super::super::tests::dated("2026-03-01T00:00:00Z");
        assert!(page.old(root).is_empty(), "no repository");
        let name = root.display().to_string();
        let commit = |file: &str, date: &str| {
            let file = root.join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(&file, date).unwrap();
            let git = |words: &[&str]| {
                let date = format!("GIT_COMMITTER_DATE={date}");
                let identity = ["-c", "user.name=a", "-c", "user.email=a@b", "-C", &name];
                command::output("env", &[&[date.as_str(), "git"][..], &identity, words].concat()).unwrap();
            };
            git(&["init", "-q", "."]);
            git(&["add", "."]);
            git(&["commit", "-q", "-m", "x"]);
        };
        commit("docs/x.md", "2026-06-01T00:00:00Z");
        commit("lpm/src/x.rs", "2026-02-28T23:59:59Z");
        assert!(page.old(root).is_empty());
        commit("lpm/src/x.rs", "2026-03-01T09:00:00+09:00");
        assert!(page.old(root).is_empty(), "the same moment");
        commit("lpm/src/x.rs", "2026-03-01T00:00:01Z");
        let [old] = &page.old(root)[..] else { panic!("{:?}", page.old(root)) };
        assert_eq!((old.experiment, old.changed.as_str()), ("map-ops", "2026-03-01T00:00:01Z"));
        assert!(old.text().starts_with("map-ops: measured 2026-03-01T00:00:00Z, before the last change"));
    }
}
