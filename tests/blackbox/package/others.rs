//! The rpm packages and the tarball: what is in them, and that they run in a fresh system.

use super::system::archive;
use super::{PROGRAMS, fresh, named, notices, packages};
use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{run, run_with};
use trieline_testbed::{needs_root, skip};

/// Files that each way to install has, `*` for what differs.
const ROUTER: [&str; 13] = [
    "/usr/sbin/trieline",
    "/usr/sbin/trielined",
    "/usr/lib/systemd/system/trielined.service",
    "/usr/lib/systemd/system/trielined@.service",
    "/usr/lib/systemd/system/trieline-metrics.service",
    "/usr/lib/sysusers.d/trieline.conf",
    "/etc/trieline/trielined.toml",
    "/usr/share/trieline/trieline.rules.yml",
    "/usr/share/trieline/trieline.json",
    "/usr/share/doc/trieline/third-party.gz",
    "/usr/share/man/man8/trieline-node-check.8.gz",
    "/usr/share/man/man5/trielined.toml.5.gz",
    "/usr/share/bash-completion/completions/trieline",
];

#[track_caller]
fn has(what: &str, listed: &str, files: &[&str]) {
    let listed: BTreeSet<&str> = listed.lines().collect();
    let missing: Vec<_> = files.iter().filter(|file| !listed.contains(*file)).collect();
    assert!(missing.is_empty(), "{what} has no {missing:?}: {listed:#?}");
}

#[test]
fn rpm_packages_and_the_tarball_install_and_run() {
    needs_root!();
    let Some(archive) = archive() else {
        return skip("mmdebstrap cannot make a system: it needs Debian's archive");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let packages = packages(folder.path(), &["rpm", "tarball"]);
    let bed = Bed::new();
    let system = fresh(&archive, folder.path(), &bed);
    let before = (system.files(), system.accounts());
    let root = system.root.display().to_string();

    // (1) rpm: the lists, then all of them in the system, with their scripts
    let rpms: Vec<String> = named(&packages, ".rpm").iter().map(|path| path.display().to_string()).collect();
    let names: Vec<&str> = rpms.iter().filter_map(|path| Path::new(path).file_name()?.to_str()).collect();
    let expected = ["libtrieline-devel-", "libtrieline0-", "trieline-0", "trieline-lab-", "trieline-trace-"];
    assert!(
        names.len() == 5 && names.iter().zip(expected).all(|(name, begin)| name.starts_with(begin)),
        "{names:?}"
    );
    let list = |rpm: &str| run_with("rpm", &["-qlp", rpm], "").ok();
    has(names[2], &list(&rpms[2]), &ROUTER);
    let extcap =
        list(&rpms[2]).lines().filter(|file| file.ends_with("/wireshark/extcap/trieline-capture")).count();
    assert_eq!(extcap, 1, "{}", list(&rpms[2]));
    has(names[3], &list(&rpms[3]), &["/usr/sbin/trieline-lab"]);
    has(names[4], &list(&rpms[4]), &["/usr/sbin/trieline-trace"]);
    assert!(
        list(&rpms[0]).contains("/usr/include/trieline/trieline.h")
            && list(&rpms[1]).contains("/libtrieline.so.0")
    );
    let in_root = ["rpm", "--root", &root, "--dbpath", "/tmp/rpmdb"];
    // Debian's libraries are there, without a record of rpm.
    let words: Vec<&str> =
        in_root.into_iter().chain(["-i", "--nodeps"]).chain(rpms.iter().map(String::as_str)).collect();
    system.beside(&words).ok();
    for program in PROGRAMS {
        let version = system.run(&format!("{program} --version")).ok();
        assert!(version.starts_with(&format!("{program} ")), "{version}");
    }
    system.run("getent group trieline").ok();
    notices(&system, "trieline");
    let installed = ["trieline", "trieline-lab", "trieline-trace", "libtrieline0", "libtrieline-devel"];
    let verified =
        system.beside(&in_root.into_iter().chain(["-V", "--nodeps"]).chain(installed).collect::<Vec<_>>());
    assert_eq!((verified.code, verified.stdout.as_str()), (0, ""), "{verified:?}");
    system.beside(&in_root.into_iter().chain(["-e", "--nodeps"]).chain(installed).collect::<Vec<_>>()).ok();
    let left: Vec<String> = system.files().difference(&before.0).cloned().collect();
    assert!(left.is_empty(), "`rpm -e` leaves {left:?}");
    assert_eq!(system.accounts(), before.1, "`rpm -e` leaves users or groups");

    // (2) the tarball: one folder, whose etc and usr are copied to the root
    let tarballs = named(&packages, ".tar.xz");
    let [tarball] = &tarballs[..] else { panic!("{tarballs:?}") };
    run_with(
        "tar",
        &["-xJf", &tarball.display().to_string(), "-C", &system.path("tmp").display().to_string()],
        "",
    )
    .ok();
    let name = tarball
        .file_name()
        .and_then(|name| name.to_str()?.strip_suffix(".tar.xz").map(str::to_owned))
        .expect("a name");
    let unpacked = system.path(&format!("tmp/{name}"));
    let files =
        run_with("find", &[&unpacked.display().to_string(), "!", "-type", "d", "-printf", "/%P\n"], "").ok();
    has(&name, &files, &ROUTER);
    has(
        &name,
        &files,
        &[
            "/usr/sbin/trieline-trace",
            "/README",
            "/LICENSE-MIT",
            "/LICENSE-APACHE",
            "/LICENSE-GPL-2.0",
            "/LICENSE-BSD-2-Clause",
        ],
    );
    assert!(!files.contains("trieline-lab"), "{files}");
    let daemon = fs::read_link(unpacked.join("usr/sbin/trielined")).expect("a link");
    assert_eq!(daemon, Path::new("trieline"), "one program of two names");
    let readme = fs::read_to_string(unpacked.join("README")).expect("a README");
    let needed = run(&format!("readelf -d {}", unpacked.join("usr/sbin/trielined").display())).ok();
    let needed = needed.lines().filter(|line| line.contains("(NEEDED)"));
    for library in needed.filter_map(|line| line.split_once('[')?.1.strip_suffix(']')) {
        assert!(readme.contains(library), "the README does not name {library}: {readme}");
    }
    system.script(&format!("cp -a /tmp/{name}/etc /tmp/{name}/usr /")).ok();
    for program in ["trieline", "trielined", "trieline-trace"] {
        let version = system.run(&format!("{program} --version")).ok();
        assert!(version.starts_with(&format!("{program} ")), "{version}");
    }
    notices(&system, "trieline");
}
