//! A fresh Debian system for packages: an archive made once, and a chroot with mounts and network of its own.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{Answer, binary, run_with};
use trieline_testbed::eventually;

/// Packages beside Debian's essential ones: the dependencies of trieline's, and a client for its metrics.
const INCLUDED: &str = "libelf1,passwd,curl";

/// Where a package would leave traces of other programs: dpkg's own records, and logs.
const RECORDS: [&str; 5] = ["var/lib/dpkg", "var/log", "var/cache", "etc/group-", "etc/gshadow-"];

/// An archive of a small Debian system like this one, made once. None where it cannot be made.
pub fn archive() -> Option<PathBuf> {
    static ARCHIVE: OnceLock<Option<PathBuf>> = OnceLock::new();
    // Tests run at the same time: the first one makes it, the others wait.
    ARCHIVE.get_or_init(make_archive).clone()
}

fn make_archive() -> Option<PathBuf> {
    let release = fs::read_to_string("/etc/os-release").unwrap_or_default();
    let codename = release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="))?;
    let built = binary("trieline").parent()?.parent()?.to_owned();
    let archive = built.join(format!("debian-{codename}-{}.tar", INCLUDED.replace(',', "-")));
    if !archive.is_file() {
        let unfinished = archive.with_extension(format!("{}.tar", std::process::id()));
        let path = unfinished.display().to_string();
        let words = [
            "600",
            "mmdebstrap",
            "--quiet",
            "--variant=essential",
            &format!("--include={INCLUDED}"),
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
pub struct System {
    pub root: PathBuf,
    holder: Child,
}

impl System {
    pub fn start(root: PathBuf, bed: &Bed) -> Self {
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

    pub fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// How a command begins that runs in the system.
    fn inside(&self) -> Vec<String> {
        let words = ["nsenter", "--mount", "--net", "--target", &self.holder.id().to_string(), "chroot"];
        words.map(str::to_owned).into_iter().chain([self.root.display().to_string()]).collect()
    }

    pub fn run(&self, line: &str) -> Answer {
        self.words(&line.split_whitespace().collect::<Vec<_>>())
    }

    /// Runs a script of bash.
    pub fn script(&self, script: &str) -> Answer {
        self.words(&["bash", "-ec", script])
    }

    fn words(&self, command: &[&str]) -> Answer {
        let inside = self.inside();
        let environment = ["env", "DEBIAN_FRONTEND=noninteractive", "PATH=/usr/sbin:/usr/bin:/sbin:/bin"];
        let words: Vec<&str> =
            inside.iter().map(String::as_str).chain(environment).chain(command.iter().copied()).collect();
        run_with(words[0], &words[1..], "")
    }

    /// Runs a program of this machine that works on the system's files, in its mount and network namespaces.
    pub fn beside(&self, command: &[&str]) -> Answer {
        let inside = self.inside();
        // Without the last two words, which enter the system's root.
        let words: Vec<&str> =
            inside[..inside.len() - 2].iter().map(String::as_str).chain(command.iter().copied()).collect();
        run_with(words[0], &words[1..], "")
    }

    /// Users and groups.
    pub fn accounts(&self) -> Vec<String> {
        ["etc/passwd", "etc/shadow", "etc/group", "etc/gshadow"]
            .map(|file| fs::read_to_string(self.path(file)).unwrap_or_default())
            .into()
    }

    /// Starts the command of the installed unit as systemd does.
    pub fn launch(&self) -> (Child, UnixDatagram) {
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
    pub fn started(&self) -> Child {
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
    pub fn files(&self) -> BTreeSet<String> {
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
