//! Network namespaces by name (`ip netns`), with code run inside them.

use crate::command::{Answer, run, run_with};
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Once;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::JoinHandle;

static NEXT: AtomicU32 = AtomicU32::new(0);
static SWEEP: Once = Once::new();

/// A network namespace that ends with this value.
pub struct Namespace {
    name: String,
    state: tempfile::TempDir,
}

impl Namespace {
    /// Makes a namespace named `tlbb-<pid>-<n>-<role>` with its loopback up.
    pub fn new(role: &str) -> Self {
        SWEEP.call_once(sweep);
        let name = format!("tlbb-{}-{}-{role}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        run(&format!("ip netns add {name}")).ok();
        let namespace = Self { name, state: tempfile::tempdir().expect("a folder") };
        namespace.ip("link set lo up");
        namespace
    }

    /// Its name, as `ip -n` and `trieline -n` take it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its daemons keep what outlives them (systemd's `StateDirectory=`).
    pub fn state(&self) -> &std::path::Path {
        self.state.path()
    }

    /// Its inode, which names the daemon's pins and socket.
    pub fn inode(&self) -> u64 {
        File::open(self.path())
            .and_then(|file| file.metadata())
            .map(|metadata| metadata.ino())
            .expect("its inode")
    }

    fn path(&self) -> String {
        format!("/run/netns/{}", self.name)
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
        let path = format!("/proc/sys/{key}");
        let value = value.to_owned();
        // The files of /proc/sys/net belong to the namespace of the process that opens them.
        self.enter(move || std::fs::write(&path, value).unwrap_or_else(|error| panic!("{path}: {error}")));
    }

    /// Runs `work` on a thread of its own inside the namespace and waits for it.
    #[track_caller]
    pub fn enter<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        match self.spawn(work).join() {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// Starts `work` on a thread inside the namespace.
    pub fn spawn<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        let file = File::open(self.path()).expect("the namespace is there");
        std::thread::spawn(move || {
            let network = Some(rustix::thread::LinkNameSpaceType::Network);
            rustix::thread::move_into_link_name_space(file.as_fd(), network).expect("setns");
            work()
        })
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        // Devices at both ends of a veth pair go with either namespace; some may be gone already.
        let _ = run(&format!("ip netns del {}", self.name));
    }
}

/// Removes namespaces of test processes that were killed before they could.
fn sweep() {
    let Ok(entries) = std::fs::read_dir("/run/netns") else { return };
    for entry in entries.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let owner = name.strip_prefix("tlbb-").and_then(|rest| rest.split('-').next()).map(str::to_owned);
        if owner.is_some_and(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()) {
            let _ = run(&format!("ip netns del {name}"));
        }
    }
}
