//! The packages in a fresh system: install, forward, upgrade under traffic, remove, purge.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Answer, binary, run_with};
use trieline_testbed::packets::{UdpSink, UdpStream};
use trieline_testbed::{eventually, needs_root, skip};

const PROGRAMS: [&str; 4] = ["trieline", "trielined", "trieline-trace", "trieline-lab"];

/// Where a package would leave traces of other programs: dpkg's own records, and logs.
const RECORDS: [&str; 5] = ["var/lib/dpkg", "var/log", "var/cache", "etc/group-", "etc/gshadow-"];

/// Makes the deb packages of the programs beside this test.
fn packages(folder: &Path) -> PathBuf {
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
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/package");
    // Quick to pack.
    let words = [
        "DPKG_DEB_COMPRESSOR_TYPE=gzip",
        "DPKG_DEB_COMPRESSOR_LEVEL=1",
        &script.display().to_string(),
        &from.display().to_string(),
        &out.display().to_string(),
        "deb",
    ];
    run_with("env", &words, "").ok();
    out
}

/// An archive of a small Debian system like this one, made once. None where it cannot be made.
fn archive() -> Option<PathBuf> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let built = binary("trieline").parent()?.parent()?.to_owned();
    let archive = built.join(format!("debian-{codename}.tar"));
    if !archive.is_file() {
        let unfinished = archive.with_extension(format!("{}.tar", std::process::id()));
        let path = unfinished.display().to_string();
        let words = [
            "600",
            "mmdebstrap",
            "--quiet",
            "--variant=essential",
            "--include=libelf1,passwd",
            codename,
            &path,
        ];
        let made = run_with("timeout", &words, "");
        if made.code != 0 {
            let _ = fs::remove_file(&unfinished);
            eprintln!("{made:?}");
            return None;
        }
        fs::rename(&unfinished, &archive).expect("the archive in its place");
    }
    Some(archive)
}

/// A system of its own in the node's network namespace, with its own mounts. Its processes end with it, and its pins go.
struct System {
    root: PathBuf,
    holder: Child,
}

impl System {
    fn start(root: PathBuf, bed: &Bed) -> Self {
        let script = "cd \"$1\"; mount -t proc proc proc; mount -t sysfs sys sys; mount -t bpf bpf sys/fs/bpf; mount -t tmpfs run run; \
                      touch tmp/mounted; exec sleep 900";
        let namespace = format!("--net=/run/netns/{}", bed.node.name());
        let holder = Command::new("unshare")
            .args(["--mount", "--propagation", "private", "nsenter", &namespace, "sh", "-ec", script, "sh"])
            .arg(&root)
            .stdin(Stdio::null())
            .spawn()
            .expect("unshare starts");
        let system = Self { root, holder };
        assert!(eventually(10.0, || system.path("tmp/mounted").exists()), "cannot mount");
        fs::remove_file(system.path("tmp/mounted")).expect("the mark goes");
        system
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// How a command begins that runs in the system.
    fn inside(&self) -> Vec<String> {
        let words = ["nsenter", "--mount", "--net", "--target", &self.holder.id().to_string(), "chroot"];
        words.map(str::to_owned).into_iter().chain([self.root.display().to_string()]).collect()
    }

    fn run(&self, line: &str) -> Answer {
        let mut words = self.inside();
        words.extend(
            ["env", "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"]
                .map(str::to_owned),
        );
        words.extend(line.split_whitespace().map(str::to_owned));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        run_with(words[0], &words[1..], "")
    }

    /// Starts the command of the installed unit as systemd does.
    fn launch(&self) -> (Child, UnixDatagram) {
        let unit = fs::read_to_string(self.path("usr/lib/systemd/system/trielined.service")).expect("a unit");
        let command = unit.lines().find_map(|line| line.strip_prefix("ExecStart=")).expect("a command");
        let _ = fs::remove_file(self.path("tmp/notify"));
        let notify = UnixDatagram::bind(self.path("tmp/notify")).expect("a socket");
        notify.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
        let words = self.inside();
        let log = fs::File::create(self.path("tmp/log")).expect("a log");
        let child = Command::new(&words[0])
            .args(&words[1..])
            .args(command.split_whitespace())
            .env("NOTIFY_SOCKET", "/tmp/notify")
            .env("STATE_DIRECTORY", "/var/lib/trieline")
            .env("NO_COLOR", "1")
            .stdin(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("nsenter starts");
        (child, notify)
    }

    /// The same, until it notifies that it forwards.
    fn started(&self) -> Child {
        let (mut child, notify) = self.launch();
        let mut message = [0; 512];
        let ready = eventually(30.0, || {
            let length = notify.recv(&mut message).unwrap_or(0);
            message[..length].starts_with(b"READY=1") || !matches!(child.try_wait(), Ok(None))
        });
        let log = fs::read_to_string(self.path("tmp/log")).unwrap_or_default();
        assert!(ready && matches!(child.try_wait(), Ok(None)), "{log}");
        child
    }

    /// All files of the system itself, without what is mounted and without records.
    fn files(&self) -> BTreeSet<String> {
        let root = self.root.display().to_string();
        let listed = run_with("find", &[&root, "-xdev", "-printf", "%P\n"], "").ok();
        let record = |name: &&str| !RECORDS.iter().any(|record| name.starts_with(record));
        listed.lines().filter(record).filter(|name| !name.starts_with("tmp/")).map(str::to_owned).collect()
    }
}

impl Drop for System {
    fn drop(&mut self) {
        let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
        for process in processes
            .filter(|process| fs::read_link(process.path().join("root")).is_ok_and(|root| root == self.root))
        {
            run_with("kill", &["-KILL", &process.file_name().to_string_lossy()], "");
        }
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

fn terminate(mut child: Child) {
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

#[test]
fn a_fresh_system_installs_forwards_upgrades_and_purges() {
    needs_root!();
    let Some(archive) = archive() else {
        return skip("mmdebstrap cannot make a system: it needs Debian's archive");
    };
    let folder = tempfile::tempdir().expect("a folder");
    let packages = packages(folder.path());
    let debs: Vec<PathBuf> = fs::read_dir(&packages)
        .expect("packages")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|end| end == "deb"))
        .collect();
    assert_eq!(debs.len(), 5, "{debs:?}");
    let sums = ["-c", "cd \"$0\" && sha256sum --check --quiet SHA256SUMS", &packages.display().to_string()];
    run_with("sh", &sums, "").ok();
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

    let root = folder.path().join("root");
    fs::create_dir(&root).expect("a folder");
    run_with("tar", &["-xf", &archive.display().to_string(), "-C", &root.display().to_string()], "").ok();
    let bed = Bed::routed();
    let system = System::start(root, &bed);
    let before = system.files();
    for deb in &debs {
        let name = deb.file_name().expect("a name");
        fs::copy(deb, system.path("tmp").join(name)).expect("a copy");
    }
    let deb = debs
        .iter()
        .find(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("trieline_")));
    let deb = deb.expect("the router's package");
    fs::copy(next_version(deb, folder.path()), system.path("tmp/next.deb")).expect("a copy");
    let install = format!("dpkg -i /tmp/{}", deb.file_name().expect("a name").to_string_lossy());
    system.run(&install).ok();
    for file in [
        "usr/share/man/man5/trielined.toml.5.gz",
        "usr/share/man/man8/trieline-node-status.8.gz",
        "usr/share/doc/trieline/copyright",
    ] {
        assert!(system.path(file).is_file(), "no {file}");
    }

    // As it comes it names no device, and says so.
    let (mut child, _notify) = system.launch();
    assert!(eventually(10.0, || !matches!(child.try_wait(), Ok(None))), "it runs without devices");
    let log = fs::read_to_string(system.path("tmp/log")).expect("a log");
    assert!(log.contains("/etc/trieline/trielined.toml: no devices"), "{log}");
    let file = system.path("etc/trieline/trielined.toml");
    let text = fs::read_to_string(&file).expect("a configuration");
    fs::write(&file, text.replace("#devices = [\"eth1\", \"eth2\"]", "devices = [\"n0\", \"n1\", \"n2\"]"))
        .expect("a configuration");

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
    assert!(
        fs::read_to_string(&file).expect("a configuration").contains("devices = [\"n0\""),
        "an upgrade changed the configuration"
    );

    system.run("dpkg --remove trieline").ok();
    assert!(
        eventually(5.0, || !matches!(daemon.try_wait(), Ok(None))),
        "`dpkg --remove` leaves trielined running"
    );
    bed.becomes("removed", "10.50.0.1:9", (5, 5, 0));
    for place in ["/sys/fs/bpf/trieline", "/run/trieline"] {
        system.run(&format!("ls {place}")).fails(2, &["No such file"]);
    }
    for device in ["n0", "n1", "n2"] {
        let shown = bed.node.ip(&format!("link show dev {device}"));
        assert!(!shown.contains("xdp"), "{shown}");
    }
    assert!(file.is_file(), "`dpkg --remove` keeps the configuration");
    system.run("dpkg --purge trieline").ok();
    let left: Vec<String> = system.files().difference(&before).cloned().collect();
    assert!(left.is_empty(), "`dpkg --purge` leaves {left:?}");

    // The other packages fit beside it and each other.
    let names: Vec<String> = debs
        .iter()
        .map(|deb| format!("/tmp/{}", deb.file_name().expect("a name").to_string_lossy()))
        .collect();
    system.run(&format!("dpkg --unpack --force-depends {}", names.join(" "))).ok();
    for program in PROGRAMS {
        system.run(&format!("{program} --version")).ok();
    }
    lintian.join().expect("lintian runs").ok();
}
