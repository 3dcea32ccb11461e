//! Containers and systemd units by the names that people know them by: the cgroup of each.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::Value;

/// Digits of a container's id.
const ID_DIGITS: usize = 64;
/// Fewer digits are rather a name.
const SHORTEST_ID: usize = 4;
/// How deep cgroups are looked for; the kernel's own limit is rarely reached.
const DEEPEST: usize = 32;
/// Names that an error lists.
const NAMES_TOLD: usize = 5;

/// The cgroup of a container, by its name or by the first digits of its id. `cgroups` is where cgroups are mounted, `files` the root
/// of the file system, below which container engines keep their names.
pub fn container(cgroups: &Path, files: &Path, wanted: &str) -> Result<PathBuf> {
    let mut groups: BTreeMap<String, PathBuf> = BTreeMap::new();
    for group in below(cgroups) {
        let name = file_name(&group);
        // Podman's monitor is beside the container, not in it.
        if let Some(id) = id(&name).filter(|_| !name.contains("conmon")) {
            groups.entry(id).or_insert(group);
        } else if let Some(name) = name.strip_prefix("lxc.payload.") {
            groups.entry(name.to_owned()).or_insert(group);
        }
    }
    let names = names(files);
    let is_id = wanted.len() >= SHORTEST_ID && wanted.bytes().all(|digit| digit.is_ascii_hexdigit());
    let ids: Vec<&String> = match names.get(wanted) {
        Some(id) => vec![id],
        None => groups.keys().filter(|id| *id == wanted || is_id && id.starts_with(wanted)).collect(),
    };
    match ids[..] {
        [id] => match groups.get(id) {
            Some(group) => Ok(group.clone()),
            None => bail!("container {wanted} has no cgroup below {}: is it running?", cgroups.display()),
        },
        [] => {
            let running = names.iter().filter(|(_, id)| groups.contains_key(*id)).map(|(name, _)| name);
            let short = groups.keys().map(|id| id.get(..12).unwrap_or(id));
            bail!(
                "no container `{wanted}`{}",
                nearest(wanted, running.map(String::as_str).chain(short), "containers")
            )
        }
        _ => bail!("{} containers have ids that begin with {wanted}: expected more digits", ids.len()),
    }
}

/// The cgroup of a systemd unit; without an ending it is a service.
pub fn unit(cgroups: &Path, wanted: &str) -> Result<PathBuf> {
    const ENDINGS: [&str; 3] = [".service", ".scope", ".slice"];
    let is_unit = |name: &str| ENDINGS.iter().any(|ending| name.ends_with(ending));
    let full = if is_unit(wanted) { wanted.to_owned() } else { format!("{wanted}.service") };
    let units: Vec<PathBuf> = below(cgroups).into_iter().filter(|group| is_unit(&file_name(group))).collect();
    let found: Vec<&PathBuf> = units.iter().filter(|group| file_name(group) == full).collect();
    match found[..] {
        [group] => Ok(group.clone()),
        [] => {
            let names: Vec<String> = units.iter().map(|group| file_name(group)).collect();
            bail!("no running unit {full}{}", nearest(&full, names.iter().map(String::as_str), "units"))
        }
        _ => {
            let paths: Vec<String> = found.iter().map(|group| group.display().to_string()).collect();
            bail!("several units have the name {full}; choose one by --cgroup: {}", paths.join(", "))
        }
    }
}

/// All cgroups, those above before those below them.
fn below(root: &Path) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    let mut from = 0;
    for _ in 0..DEEPEST {
        let to = found.len();
        for at in from..to {
            let Ok(entries) = fs::read_dir(&found[at]) else { continue };
            let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
            let mut folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
            folders.sort();
            found.append(&mut folders);
        }
        from = to;
    }
    found.split_off(1)
}

fn file_name(path: &Path) -> String {
    path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default()
}

/// The id in the name of a container's cgroup: `docker-ID.scope`, `cri-containerd-ID.scope`, `libpod-ID.scope`, `crio-ID.scope`, `ID`.
fn id(name: &str) -> Option<String> {
    let mut parts = name.split(|letter: char| !letter.is_ascii_hexdigit());
    parts.find(|part| part.len() == ID_DIGITS).map(str::to_owned)
}

/// Names of containers with their ids, as Docker, Podman and nerdctl keep them on disk.
fn names(files: &Path) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    let json = |path: &Path| -> Option<Value> { serde_json::from_slice(&fs::read(path).ok()?).ok() };
    let folders = |path: &str| fs::read_dir(files.join(path)).into_iter().flatten().flatten();
    for folder in folders("var/lib/docker/containers") {
        let known = json(&folder.path().join("config.v2.json"));
        if let Some(name) = known.as_ref().and_then(|known| known["Name"].as_str()) {
            names.insert(name.trim_start_matches('/').to_owned(), file_name(&folder.path()));
        }
    }
    for folder in folders("var/lib/containers/storage") {
        let known = json(&folder.path().join("containers.json")).unwrap_or_default();
        for container in known.as_array().into_iter().flatten() {
            let Some(id) = container["id"].as_str() else { continue };
            for name in container["names"].as_array().into_iter().flatten().filter_map(Value::as_str) {
                names.insert(name.to_owned(), id.to_owned());
            }
        }
    }
    // /var/lib/nerdctl/ADDRESS/names/NAMESPACE/NAME holds the id.
    for group in below(&files.join("var/lib/nerdctl")) {
        if group.parent().is_some_and(|above| above.ends_with("names")) {
            for file in fs::read_dir(group).into_iter().flatten().flatten() {
                let id = fs::read_to_string(file.path()).unwrap_or_default();
                names.insert(file.file_name().to_string_lossy().into_owned(), id.trim().to_owned());
            }
        }
    }
    names
}

/// The names nearest to one that nothing has, for an error.
fn nearest<'a>(wanted: &str, names: impl Iterator<Item = &'a str>, what: &str) -> String {
    let mut names: Vec<&str> = names.collect();
    names.sort_by(|one, two| {
        let far = |name: &str| strsim::damerau_levenshtein(wanted, name);
        far(one).cmp(&far(two)).then(one.cmp(two))
    });
    names.dedup();
    names.truncate(NAMES_TOLD);
    if names.is_empty() {
        format!(": no {what} run here")
    } else {
        format!("; nearest: {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(root: &Path, path: &str) -> PathBuf {
        let full = root.join(path);
        fs::create_dir_all(&full).unwrap();
        full
    }

    fn file(root: &Path, path: &str, content: &str) {
        folder(root, Path::new(path).parent().unwrap().to_str().unwrap());
        fs::write(root.join(path), content).unwrap();
    }

    fn says(result: Result<PathBuf>) -> String {
        result.unwrap_err().to_string()
    }

    #[test]
    fn containers_have_names_and_ids() {
        let root = tempfile::tempdir().unwrap();
        let (groups, files) = (root.path().join("cgroup"), root.path().join("files"));
        let [web, data, pod, gone] = ["a1", "b2", "a3", "c4"].map(|start| start.repeat(32));
        let docker = folder(&groups, &format!("system.slice/docker-{web}.scope"));
        folder(&groups, &format!("system.slice/docker-{web}.scope/inner"));
        folder(&groups, &format!("machine.slice/libpod-conmon-{data}.scope"));
        let podman = folder(&groups, &format!("machine.slice/libpod-{data}.scope"));
        let kube = folder(&groups, &format!("kubepods/besteffort/pod1/{pod}"));
        let lxc = folder(&groups, "lxc.payload.box");
        file(&files, &format!("var/lib/docker/containers/{web}/config.v2.json"), r#"{"Name": "/web"}"#);
        file(&files, &format!("var/lib/docker/containers/{gone}/config.v2.json"), r#"{"Name": "/gone"}"#);
        let podmans = format!(r#"[{{"id": "{data}", "names": ["data"]}}]"#);
        file(&files, "var/lib/containers/storage/overlay-containers/containers.json", &podmans);
        file(&files, "var/lib/nerdctl/1935db59/names/default/pod", &format!("{pod}\n"));

        let find = |wanted: &str| container(&groups, &files, wanted);
        for (wanted, expected) in [("web", &docker), (&web[..12], &docker), (&web, &docker), ("box", &lxc)] {
            assert_eq!(&find(wanted).unwrap(), expected);
        }
        assert_eq!((find("data").unwrap(), find("pod").unwrap()), (podman, kube));
        assert!(says(find("gone")).contains("is it running?"));
        assert!(says(find("wbe")).contains("no container `wbe`; nearest: web, "), "{}", says(find("wbe")));
        folder(&groups, &format!("system.slice/docker-a1a1{}.scope", "0".repeat(60)));
        assert!(says(find("a1a1")).contains("2 containers have ids that begin with a1a1"));
        let nothing = tempfile::tempdir().unwrap();
        assert!(says(container(nothing.path(), nothing.path(), "web")).contains("no containers run here"));
    }

    #[test]
    fn units_are_services_unless_named_otherwise() {
        let root = tempfile::tempdir().unwrap();
        let nginx = folder(root.path(), "system.slice/nginx.service");
        let slice = folder(root.path(), "user.slice");
        folder(root.path(), "user.slice/user-1.slice/user@1.service/app.slice/sync.service");
        folder(root.path(), "user.slice/user-2.slice/user@2.service/app.slice/sync.service");
        let find = |wanted: &str| unit(root.path(), wanted);
        assert_eq!((find("nginx").unwrap(), find("nginx.service").unwrap()), (nginx.clone(), nginx));
        assert_eq!(find("user.slice").unwrap(), slice);
        assert!(says(find("nginy")).contains("no running unit nginy.service; nearest: nginx.service, "));
        assert!(
            says(find("sync")).contains("several units have the name sync.service; choose one by --cgroup")
        );
    }
}
