//! Network namespaces by name (`ip netns`), made, entered by a thread, and gone when dropped.

use crate::command::{self, Answer, run, run_with};
use crate::error::{During, Result};
use rustix::net::{AddressFamily, SocketType};
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Once, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Where `ip netns` keeps namespaces.
const HOME: &str = "/run/netns";

/// The first word of the names of tests' namespaces.
const TESTS: &str = "tlbb";

/// A network namespace that ends with this value, and everything inside it.
#[derive(Debug)]
pub struct Namespace {
    name: String,
    file: File,
    state: OnceLock<tempfile::TempDir>,
}

impl Namespace {
    /// Makes a namespace named `PREFIX-<pid>-<n>-ROLE`, whose loopback is down.
    pub fn create(prefix: &str, role: &str) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{}-{number}-{role}", std::process::id());
        command::ip(&["netns", "add", &name])?;
        let path = format!("{HOME}/{name}");
        match File::open(&path).during(|| format!("cannot open {path}")) {
            Ok(file) => Ok(Self { name, file, state: OnceLock::new() }),
            Err(error) => {
                let _ = command::ip(&["netns", "del", &name]);
                Err(error)
            }
        }
    }

    /// Makes one for a test, with its loopback up. The first call removes what tests left that were killed.
    #[track_caller]
    pub fn new(role: &str) -> Self {
        static SWEEP: Once = Once::new();
        SWEEP.call_once(|| {
            for leftover in leftovers(TESTS) {
                let _ = leftover.remove();
            }
        });
        let namespace = Self::create(TESTS, role).unwrap_or_else(|error| panic!("{error}"));
        namespace.ip("link set lo up");
        namespace
    }

    /// Its name, as `ip -n` and `trieline -n` take it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its daemons keep what outlives them (systemd's `StateDirectory=`).
    pub fn state(&self) -> Result<&Path> {
        if self.state.get().is_none() {
            let folder = tempfile::tempdir().during(|| "cannot make a folder for the daemon".into())?;
            let _ = self.state.set(folder);
        }
        Ok(self.state.get().map_or(Path::new(""), tempfile::TempDir::path))
    }

    /// Its inode, which names the daemon's pins and socket.
    pub fn inode(&self) -> u64 {
        self.file.metadata().expect("its inode").ino()
    }

    /// Moves the calling thread in until the guard is dropped.
    pub fn enter_here(&self) -> Result<Entered> {
        let path = "/proc/thread-self/ns/net";
        let back = File::open(path).during(|| format!("cannot open {path}"))?;
        switch(&self.file).during(|| format!("cannot enter namespace {}", self.name))?;
        Ok(Entered { back })
    }

    /// `ip -n NAME WORDS`.
    pub fn ip_words(&self, words: &[&str]) -> Result<String> {
        command::ip(&[&["-n", self.name()], words].concat())
    }

    /// Writes a file of `/proc/sys`, such as `net/ipv4/ip_forward`. Those of `net` belong to the namespace of the thread that opens them.
    pub fn write_sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = format!("/proc/sys/{key}");
        let _inside = self.enter_here()?;
        fs::write(&path, value).during(|| format!("cannot write {value} to {path}"))
    }

    /// The index of one of its devices.
    pub fn ifindex(&self, device: &str) -> Result<u32> {
        let _inside = self.enter_here()?;
        let any = rustix::net::socket(AddressFamily::UNIX, SocketType::DGRAM, None);
        any.and_then(|socket| rustix::net::netdevice::name_to_index(&socket, device))
            .during(|| format!("cannot find device {device} in {}", self.name))
    }

    /// `ip -n NAME ARGS`; panics when it fails.
    #[track_caller]
    pub fn ip(&self, args: &str) -> String {
        self.try_ip(args).ok()
    }

    /// `ip -n NAME ARGS`.
    #[track_caller]
    pub fn try_ip(&self, args: &str) -> Answer {
        run(&format!("ip -n {} {args}", self.name))
    }

    /// `ip -n NAME OPTIONS -batch -` with these lines; without `-force` in the options every line must succeed.
    #[track_caller]
    pub fn ip_batch(&self, options: &[&str], lines: &str) -> Answer {
        let mut args = vec!["-n", self.name.as_str()];
        args.extend(options);
        args.extend(["-batch", "-"]);
        run_with("ip", &args, lines)
    }

    /// Runs a command line inside the namespace.
    #[track_caller]
    pub fn run(&self, line: &str) -> Answer {
        run(&format!("ip netns exec {} {line}", self.name))
    }

    /// Sets a sysctl of the namespace, e.g. `net.ipv4.ip_forward`, `1`. As with sysctl(8), a key with slashes may have dots
    /// in a device's name.
    #[track_caller]
    pub fn sysctl(&self, key: &str, value: &str) {
        let key = if key.contains('/') { key.to_owned() } else { key.replace('.', "/") };
        self.write_sysctl(&key, value).unwrap_or_else(|error| panic!("{error}"));
    }

    /// Runs `work` on a thread of its own inside the namespace and waits for it.
    #[track_caller]
    pub fn enter<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let work = || {
            switch(&self.file).expect("setns");
            work()
        };
        std::thread::scope(|scope| match scope.spawn(work).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        })
    }

    /// Starts `work` on a thread inside the namespace.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let file = self.file.try_clone().expect("a descriptor");
        std::thread::spawn(move || {
            switch(&file).expect("setns");
            work()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Devices at both ends of a veth pair go with either namespace.
        if let Err(error) = command::ip(&["netns", "del", &self.name]) {
            tracing::warn!(namespace = self.name, %error, "namespace not removed");
        }
    }
}

/// The calling thread is in another namespace; dropping leaves it.
#[derive(Debug)]
pub struct Entered {
    back: File,
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Err(error) = switch(&self.back) {
            tracing::error!(%error, "thread could not return to its network namespace");
        }
    }
}

fn switch(to: impl AsFd) -> rustix::io::Result<()> {
    move_into_link_name_space(to.as_fd(), Some(LinkNameSpaceType::Network))
}

/// One end of a veth pair.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Where it is.
    pub namespace: &'a Namespace,
    /// Its name there.
    pub device: &'a str,
    /// Its MAC address.
    pub mac: [u8; 6],
}

/// Joins two namespaces by a veth pair, both ends down.
pub fn veth(near: End, far: End) -> Result<()> {
    let macs = [near, far].map(|end| mac(end.mac));
    let words = ["name", near.device, "netns", near.namespace.name(), "address", &macs[0], "type", "veth"];
    let peer = ["peer", "name", far.device, "netns", far.namespace.name(), "address", &macs[1]];
    command::ip(&[&["link", "add"], &words[..], &peer[..]].concat()).map(drop)
}

/// A MAC address as `ip` writes it.
pub fn mac(bytes: [u8; 6]) -> String {
    bytes.map(|byte| format!("{byte:02x}")).join(":")
}

/// A namespace whose maker is gone: a run that was killed before it could remove it.
#[derive(Debug)]
pub struct Leftover {
    /// Its name.
    pub name: String,
    /// The process that made it.
    pub maker: u32,
}

/// Namespaces named `PREFIX-<pid>-<n>-<role>` whose process is gone.
pub fn leftovers(prefix: &str) -> Vec<Leftover> {
    let dead = |maker: &u32| !Path::new(&format!("/proc/{maker}")).exists();
    let found = |name: String| Some(Leftover { maker: maker(prefix, &name).filter(dead)?, name });
    names().filter_map(found).collect()
}

/// This process's namespaces of that prefix that are still there.
pub fn left(prefix: &str) -> Vec<String> {
    names().filter(|name| maker(prefix, name) == Some(std::process::id())).collect()
}

fn names() -> impl Iterator<Item = String> {
    let there = fs::read_dir(HOME).into_iter().flatten().flatten();
    there.map(|entry| entry.file_name().to_string_lossy().into_owned())
}

/// The process that made a namespace of this name; none when the name is not of our form.
fn maker(prefix: &str, name: &str) -> Option<u32> {
    let mut parts = name.strip_prefix(prefix)?.strip_prefix('-')?.splitn(3, '-');
    let (pid, number, role) = (parts.next()?, parts.next()?, parts.next()?);
    number.parse::<u32>().ok().filter(|_| !role.is_empty())?;
    pid.parse().ok()
}

impl Leftover {
    /// Ends every `trielined` in it: the run that started it cannot any more.
    pub fn end_daemons(&self) {
        let listed = command::ip(&["netns", "pids", &self.name]).unwrap_or_default();
        for pid in listed.lines().filter_map(|line| line.trim().parse().ok()) {
            let is_daemon =
                || fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name == "trielined\n");
            let Some(process) = Pid::from_raw(pid).filter(|_| is_daemon()) else { continue };
            let _ = kill_process(process, Signal::TERM);
            let until = Instant::now() + Duration::from_secs(5);
            while is_daemon() && Instant::now() < until {
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Ends its daemons and removes it.
    pub fn remove(&self) -> Result<()> {
        self.end_daemons();
        command::ip(&["netns", "del", &self.name]).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_our_form_have_a_maker() {
        assert_eq!(maker("tllab", "tllab-1234-0-gen"), Some(1234));
        for other in
            ["tllab", "tllab-1234", "tllab-1234-gen", "tllab-x-0-gen", "tllab-1-0-", "tllabs-1-0-gen", "x"]
        {
            assert_eq!(maker("tllab", other), None, "{other}");
        }
    }

    #[test]
    fn a_thread_returns_and_a_namespace_goes_after_a_panic() {
        crate::needs_root!();
        let here = || fs::read_link("/proc/thread-self/ns/net").unwrap();
        let (before, name) = (here(), OnceLock::new());
        let panicked = std::panic::catch_unwind(|| {
            let namespace = Namespace::new("panics");
            name.set(namespace.name().to_owned()).unwrap();
            let _inside = namespace.enter_here().unwrap();
            assert_ne!(here(), before);
            panic!("on purpose");
        });
        assert!(panicked.is_err());
        assert_eq!(here(), before);
        assert!(!Path::new(HOME).join(name.get().unwrap()).exists());
    }
}
