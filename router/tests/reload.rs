//! A reload whose last step the kernel refuses: devices, filters and SID hooks stay as they were.
#![allow(clippy::unwrap_used, reason = "a test")]

use libbpf_rs::MapHandle;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use trieline_router::api::instance::Instance;
use trieline_router::daemon::{Command, Config, ControlSource, Daemon};
use trieline_router::rib::tenant::Tenants;
use trieline_router::sid_hook::rule::What;
use trieline_router::{AttachMode, Dataplane, Options};
use trieline_router::{FilterAction, FilterMatch, FilterRule, SidHookRule};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::needs_root;

const IMAGE: u64 = 16 << 20;
const ACTIONS: u32 = 1024;
/// As the daemon has them for such an image.
const TABLES: u32 = (IMAGE / 1024) as u32;

/// Asks for one reload, then for the end.
struct Script {
    wake: (UnixStream, UnixStream),
    config: Option<Config>,
    end: Instant,
}

impl ControlSource for Script {
    fn wake(&self) -> BorrowedFd<'_> {
        self.wake.0.as_fd()
    }

    fn command(&mut self) -> Option<Command> {
        match &self.config {
            Some(_) => Some(Command::Reload),
            None => (Instant::now() > self.end).then_some(Command::Stop),
        }
    }

    fn configuration(&mut self) -> Result<Config, String> {
        self.config.take().ok_or_else(|| "asked once".into())
    }
}

fn config(devices: &[&str], file: &std::path::Path, sids: &[&str]) -> Config {
    let name = file.file_stem().unwrap().to_str().unwrap().to_owned();
    let sid_hook = |sid: &&str| SidHookRule {
        name: sid.replace(':', "-"),
        sid: sid.parse().unwrap(),
        what: What::Filter { filters: vec![name.clone()] },
    };
    Config {
        devices: devices.iter().map(|&name| name.to_owned()).collect(),
        mode: AttachMode::Generic,
        map_type: None,
        image_bytes: IMAGE,
        actions: ACTIONS,
        receive_buffer: 1 << 20,
        filters: vec![FilterRule {
            file: Some(file.into()),
            ..FilterRule::new(name.clone(), FilterMatch::Source, FilterAction::Drop)
        }],
        bypass_netfilter: false,
        rfc: false,
        max_stale: None,
        sid_hooks: sids.iter().map(sid_hook).collect(),
        tenants: Tenants::default(),
        audit_rate: 100,
    }
}

/// Devices that are attached to, names of the filters in lists, SIDs with functions.
fn state(dataplane: &mut Dataplane) -> (BTreeSet<u32>, Vec<String>, Vec<String>) {
    let attached = dataplane.attachments().unwrap().into_iter().map(|known| known.ifindex).collect();
    let lists =
        (0..8).flat_map(|list| dataplane.filters().list(list)).map(|filter| filter.rule.name).collect();
    let sids = dataplane.sid_hooks().get().unwrap().into_keys().map(|sid| sid.to_string()).collect();
    (attached, lists, sids)
}

/// Takes everything down, when dropped.
struct Detached(PathBuf);

impl Drop for Detached {
    fn drop(&mut self) {
        let _ = trieline_router::detach_all(&self.0);
    }
}

#[test]
fn a_reload_whose_sid_hooks_are_refused_changes_nothing() {
    needs_root!();
    let namespace = Namespace::new("reload");
    for device in ["n0", "n1"] {
        namespace.ip(&format!("link add {device} type veth peer name p{device}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let [before, after] = ["before", "after"].map(|file| folder.path().join(format!("{file}.txt")));
    std::fs::write(&before, "192.0.2.0/24\n").unwrap();
    std::fs::write(&after, "198.51.100.0/24\n2001:db8::/32\n").unwrap();
    let (attached, filters, sids) = namespace.enter(|| {
        let pins = Instance::current().unwrap().pins();
        let _detached = Detached(pins.clone());
        let mut daemon = Daemon::start(config(&["n0"], &before, &["fd00:a::1"])).unwrap();
        // The kernel takes no more SIDs.
        MapHandle::from_pinned_path(pins.join("sid_hooks")).unwrap().freeze().unwrap();
        let wanted = config(&["n0", "n1"], &after, &["fd00:a::1", "fd00:a::2"]);
        let end = Instant::now() + Duration::from_secs(3);
        let mut script = Script { wake: UnixStream::pair().unwrap(), config: Some(wanted), end };
        daemon.run(&mut script).unwrap();
        drop(daemon);
        let options = Options {
            pins: pins.clone(),
            image_bytes: IMAGE,
            tables: TABLES,
            actions: ACTIONS,
            adjacencies: ACTIONS,
            rules: 2 * TABLES,
            // As in generic mode.
            frags: false,
            ..Options::default()
        };
        state(&mut Dataplane::open(&options).unwrap())
    });
    assert_eq!((attached.len(), filters, sids), (1, vec!["before".into()], vec!["fd00:a::1".into()]));
}
