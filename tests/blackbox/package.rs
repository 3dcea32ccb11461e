//! The packages in a fresh system: install, forward, scrape, upgrade under traffic, remove, purge.

mod others;
pub mod system;

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Child;
use system::{System, archive};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary, run, run_with};
use trieline_testbed::packets::{UdpSink, UdpStream};
use trieline_testbed::{eventually, needs_root, skip};

const PROGRAMS: [&str; 4] = ["trieline", "trielined", "trieline-trace", "trieline-lab"];

/// Makes packages of these kinds of the programs beside this test.
pub fn packages(folder: &Path, kinds: &[&str]) -> PathBuf {
    let (from, out) = (folder.join("built"), folder.join("packages"));
    fs::create_dir(&from).expect("a folder");
    let built = binary("trieline").parent().expect("a folder").to_owned();
    for name in PROGRAMS.iter().chain(&["libtrieline.so", "libtrieline.a"]) {
        let found = [built.clone(), built.join("deps")]
            .map(|place| place.join(name))
            .into_iter()
            .find(|path| path.is_file());
        symlink(found.unwrap_or_else(|| panic!("no {name} in {}", built.display())), from.join(name))
            .expect("a link");
    }
    let [script, from, out_path] =
        [Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/package"), from, out.clone()]
            .map(|path| path.display().to_string());
    // Quick to pack.
    let quick = ["DPKG_DEB_COMPRESSOR_TYPE=gzip", "DPKG_DEB_COMPRESSOR_LEVEL=1", "XZ_OPT=-0"];
    let words: Vec<&str> =
        quick.into_iter().chain([&*script, &*from, &*out_path]).chain(kinds.iter().copied()).collect();
    run_with("env", &words, "").ok();
    let sums = ["-c", "cd \"$0\" && sha256sum --check --quiet SHA256SUMS", &out_path];
    run_with("sh", &sums, "").ok();
    out
}

/// The packages in a folder whose names end so.
pub fn named(folder: &Path, end: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("packages").map(|entry| entry.expect("an entry").path());
    let mut found: Vec<PathBuf> = entries.filter(|path| path.to_string_lossy().ends_with(end)).collect();
    found.sort();
    found
}

/// The router's package among them.
pub fn router(debs: &[PathBuf]) -> &Path {
    let is_router = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("trieline_"))
    };
    debs.iter().find(is_router).expect("the router's package")
}

/// A fresh system in a folder, with its state before anything is installed.
pub fn fresh(archive: &Path, folder: &Path, bed: &Bed) -> System {
    let root = folder.join("root");
    fs::create_dir(&root).expect("a folder");
    run_with("tar", &["-xf", &archive.display().to_string(), "-C", &root.display().to_string()], "").ok();
    System::start(root, bed)
}

pub fn terminate(mut child: Child) {
    run_with("kill", &["-TERM", &child.id().to_string()], "").ok();
    assert!(eventually(20.0, || !matches!(child.try_wait(), Ok(None))), "trielined does not end");
}

/// The next version of a package, which dpkg upgrades to.
fn next_version(package: &Path, folder: &Path) -> PathBuf {
    let (tree, next) = (folder.join("next"), folder.join("next.deb"));
    let [from, tree, to] = [package, &tree, &next].map(|path| path.display().to_string());
    run_with("dpkg-deb", &["-R", &from, &tree], "").ok();
    run_with("sed", &["-i", "s/^Version: .*/&+next/", &format!("{tree}/DEBIAN/control")], "").ok();
    run_with("dpkg-deb", &["--root-owner-group", "-Zgzip", "-z1", "-b", &tree, &to], "").ok();
    next
}

/// The commands of docs/install.md from the package to forwarding.
pub fn commands() -> Vec<String> {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/install.md");
    let page = fs::read_to_string(page).expect("docs/install.md");
    let (_, block) = page.split_once("```sh\nsudo apt install").expect("the commands");
    let (block, _) = block.split_once("\n```").expect("the end of the block");
    format!("apt install{block}").lines().map(|line| line.trim_start_matches("sudo ").to_owned()).collect()
}

/// Names the node's devices by the page's command.
pub fn name_devices(system: &System) {
    let command = commands()[1].replace("\"eth1\", \"eth2\"", "\"n0\", \"n1\", \"n2\"");
    assert!(command.starts_with("sed ") && command.contains("n2"), "{command}");
    system.script(&command).ok();
}

/// bash completes the installed commands.
fn completes(system: &System) {
    for program in ["trieline", "trielined"] {
        let script = format!(
            ". /usr/share/bash-completion/completions/{program}; complete -p {program}; COMP_WORDS=({program} --v); COMP_CWORD=1"
        );
        let registered = system.script(&script).ok();
        assert!(registered.contains(&format!("-F _{program}")), "{registered}");
    }
    let script = ". /usr/share/bash-completion/completions/trieline; COMP_WORDS=(trieline node ch); COMP_CWORD=2; \
                  _trieline trieline ch node; echo \"${COMPREPLY[@]}\"";
    assert_eq!(system.script(script).ok().trim(), "check");
}

/// Wireshark's folder has the capture, and it answers from there.
fn extcap(system: &System) {
    let link = "$(ls /usr/lib/*/wireshark/extcap/trieline-capture)";
    let listed = system.script(&format!("{link} --extcap-interfaces")).ok();
    assert!(listed.contains("interface {value=trieline}"), "{listed}");
}

/// The notices of what the programs link.
fn notices(system: &System, package: &str) {
    let notices = system.script(&format!("zcat /usr/share/doc/{package}/third-party.gz")).ok();
    for (heading, text) in [
        ("\nstandard library of rustc ", "The Rust Project Developers"),
        ("\nlibc6 ", "GNU Lesser General Public"),
        ("\nlibgcc-s1 ", "GCC Runtime Library Exception"),
        ("\nlibelf1 ", "elfutils"),
        ("\nzlib1g ", "Jean-loup Gailly"),
        ("\nlibbpf-sys ", "BSD"),
    ] {
        let (_, rest) =
            notices.split_once(heading).unwrap_or_else(|| panic!("{package}: no notices of {heading}"));
        assert!(rest.contains(text), "{package}: {heading} without {text}");
    }
}

/// The recipe of the image: the file that it copies is one package, and the system that has this package has its entry point.
fn container(system: &System, debs: &[PathBuf]) {
    let recipe = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/Containerfile");
    let recipe = fs::read_to_string(recipe).expect("a recipe");
    let steps: Vec<(&str, &str)> = recipe
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once(' '))
        .collect();
    let names: Vec<&str> = steps.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["FROM", "ARG", "COPY", "RUN", "ENTRYPOINT"]);
    let release = fs::read_to_string(system.path("etc/os-release")).expect("a release");
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).expect("a name");
    assert_eq!(steps[0].1, format!("debian:{codename}-slim"), "packages need this system's libraries");
    let (from, to) = steps[2].1.split_once(' ').expect("two paths");
    let architecture = run("dpkg --print-architecture").ok();
    let from = from.replace(&format!("${{{}}}", steps[1].1), architecture.trim());
    let (begin, end) = from.split_once('*').expect("a pattern");
    let name = |path: &&PathBuf| {
        path.file_name().is_some_and(|name| {
            let name = name.to_string_lossy();
            name.starts_with(begin) && name.ends_with(end)
        })
    };
    assert_eq!(debs.iter().filter(name).count(), 1, "{from} of {debs:?}");
    assert!(steps[3].1.contains(&format!("{to}{begin}*")), "RUN installs what COPY brings: {}", steps[3].1);
    run_with("sh", &["-n", "-c", steps[3].1], "").ok();
    let entry: Vec<String> = serde_json::from_str(steps[4].1).expect("a list of words");
    system.run(&format!("{} --version", entry.join(" "))).ok();
}

/// The process of a unit that the stand-in runs.
fn system_process(system: &System, unit: &str) -> PathBuf {
    let pid = fs::read_to_string(system.path(&format!("tmp/{unit}.pid"))).expect("a process");
    Path::new("/proc").join(pid.trim())
}

/// Whether a process runs: one that has ended and is not collected yet has no program any more.
fn runs(process: &Path) -> bool {
    fs::read_link(process.join("exe")).is_ok()
}

/// Where systemd runs, the upgrade's own script restarts the daemon and the server of metrics, under traffic; Prometheus' answers go on.
fn restarts(system: &System, bed: &Bed, install: &str) {
    let stand_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("blackbox/package/systemctl");
    fs::copy(stand_in, system.path("usr/bin/systemctl")).expect("a copy");
    system.run("mkdir -p /run/systemd/system").ok();
    let units = ["trielined.service", "trieline-metrics.service"];
    system.run(&format!("systemctl start {}", units.join(" "))).ok();
    let scrape = || system.run("curl -sf --max-time 5 http://127.0.0.1:9464/metrics").stdout;
    let answers = |what: &str| {
        let found = eventually(20.0, || scrape().contains("\ntrieline_devices{state=\"attached\"} 3\n"));
        assert!(
            found,
            "{what}: {}\n{}",
            scrape(),
            system.run("cat /tmp/trieline-metrics.service.log").stdout
        );
    };
    answers("installed");
    let address: SocketAddr = "10.50.0.1:7001".parse().expect("an address");
    let sink = UdpSink::open(&bed.sink, address);
    let stream = UdpStream::start(&bed.generator, address, 1000);
    for line in [install, "dpkg -i /tmp/next.deb"] {
        let before = units.map(|unit| system_process(system, unit));
        system.run(line).ok();
        for (unit, before) in units.iter().zip(&before) {
            let now = system_process(system, unit);
            assert!(now != *before && !runs(before) && runs(&now), "`{line}` did not restart {unit}");
        }
        answers(line);
    }
    let log = fs::read_to_string(system.path("tmp/systemctl.log")).expect("a log");
    assert!(log.starts_with("start ") && log.contains("\ndaemon-reload"), "{log}");
    let sent = stream.stop();
    assert_eq!(sink.close(), sent, "packets lost in a restart");
    bed.becomes("restarted", "10.50.0.1:9", (0, 5, 0));
}

#[test]
fn a_fresh_system_installs_forwards_upgrades_and_purges() {
    needs_root!();
    let Some(archive) = archive() else {
        return skip("mmdebstrap cannot make a system: it needs Debian's archive");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let debs = named(&packages(folder.path(), &["deb"]), ".deb");
    assert_eq!(debs.len(), 5, "{debs:?}");
    let lintian = std::thread::spawn({
        let paths: Vec<String> = debs.iter().map(|path| path.display().to_string()).collect();
        move || {
            // The default address of MAINTAINER has no host.
            let words = [
                "--allow-root",
                "--fail-on",
                "error",
                "--suppress-tags",
                "bogus-mail-host,bogus-mail-host-in-debian-changelog",
            ];
            let paths = paths.iter().map(String::as_str);
            run_with("lintian", &words.into_iter().chain(paths).collect::<Vec<_>>(), "")
        }
    });

    let bed = Bed::routed();
    bed.node.ip("link set lo up");
    let system = fresh(&archive, folder.path(), &bed);
    let before = (system.files(), system.accounts());
    for deb in &debs {
        let name = deb.file_name().expect("a name");
        fs::copy(deb, system.path("tmp").join(name)).expect("a copy");
    }
    let deb = router(&debs);
    fs::copy(next_version(deb, folder.path()), system.path("tmp/next.deb")).expect("a copy");
    let install = format!("dpkg -i /tmp/{}", deb.file_name().expect("a name").to_string_lossy());
    system.run(&install).ok();
    for file in [
        "usr/share/man/man5/trielined.toml.5.gz",
        "usr/share/man/man8/trieline-node-status.8.gz",
        "usr/share/doc/trieline/copyright",
        "usr/share/fish/vendor_completions.d/trieline.fish",
        "usr/share/zsh/vendor-completions/_trielined",
    ] {
        assert!(system.path(file).is_file(), "no {file}");
    }
    completes(&system);
    extcap(&system);
    notices(&system, "trieline");
    container(&system, &debs);

    // As it comes it names no device, and says so.
    let (mut child, _notify) = system.launch();
    assert!(eventually(10.0, || !matches!(child.try_wait(), Ok(None))), "it runs without devices");
    let log = fs::read_to_string(system.path("tmp/log")).expect("a log");
    assert!(log.contains("/etc/trieline/trielined.toml: no devices"), "{log}");
    let file = system.path("etc/trieline/trielined.toml");
    name_devices(&system);

    let mut daemon = system.started();
    bed.becomes("installed", "10.50.0.1:9", (0, 5, 0));
    assert!(system.run("trieline node status").ok().contains("n0"));

    // The files change under traffic, the daemon that runs goes on; then the new one takes its place.
    let address: SocketAddr = "10.50.0.1:7000".parse().expect("an address");
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    let sink = UdpSink::open(&bed.sink, address);
    let stream = UdpStream::start(&bed.generator, address, 1000);
    let flows = || {
        let seen = sink.received();
        assert!(eventually(10.0, || sink.received() > seen + 200), "packets do not arrive");
    };
    flows();
    for line in [install.as_str(), "dpkg -i /tmp/next.deb"] {
        system.run(line).ok();
        assert!(matches!(daemon.try_wait(), Ok(None)), "`{line}` ended trielined");
        flows();
        terminate(daemon);
        flows();
        daemon = system.started();
        flows();
    }
    let sent = stream.stop();
    let received = sink.close();
    assert_eq!(received, sent, "packets lost in an upgrade");
    bed.becomes("upgraded", "10.50.0.1:9", (0, 5, 0));
    terminate(daemon);
    restarts(&system, &bed, &install);
    let daemon = system_process(&system, "trielined.service");
    assert!(
        fs::read_to_string(&file).expect("a configuration").contains("devices = [\"n0\""),
        "an upgrade changed the configuration"
    );

    system.run("dpkg --remove trieline").ok();
    assert!(!runs(&daemon), "`dpkg --remove` leaves trielined running");
    bed.becomes("removed", "10.50.0.1:9", (5, 5, 0));
    for place in ["/sys/fs/bpf/trieline", "/run/trieline"] {
        system.run(&format!("ls {place}")).fails(2, &["No such file"]);
    }
    let pins = system.run("ls /sys/fs/bpf").ok();
    assert!(!pins.contains("trieline"), "{pins}");
    for device in ["n0", "n1", "n2"] {
        let shown = bed.node.ip(&format!("link show dev {device}"));
        assert!(!shown.contains("xdp"), "{shown}");
    }
    assert!(file.is_file(), "`dpkg --remove` keeps the configuration");
    system.run("dpkg --purge trieline").ok();
    fs::remove_file(system.path("usr/bin/systemctl")).expect("the stand-in goes");
    let left: Vec<String> = system.files().difference(&before.0).cloned().collect();
    assert!(left.is_empty(), "`dpkg --purge` leaves {left:?}");
    assert_eq!(system.accounts(), before.1, "`dpkg --purge` leaves users or groups");

    // The other packages fit beside it and each other.
    let names: Vec<String> = debs
        .iter()
        .map(|deb| format!("/tmp/{}", deb.file_name().expect("a name").to_string_lossy()))
        .collect();
    system.run(&format!("dpkg --unpack --force-depends {}", names.join(" "))).ok();
    for program in PROGRAMS {
        system.run(&format!("{program} --version")).ok();
    }
    for package in ["trieline-trace", "trieline-lab", "libtrieline0", "libtrieline-dev"] {
        notices(&system, package);
    }
    lintian.join().expect("lintian runs").ok();
}
