//! A restart, an upgrade, a reload: the configuration holds, one bad thing does not keep the daemon away, and nothing is lost.

use crate::bypass::nft;
use crate::status;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{run, run_with};
use trieline_testbed::daemon::{Daemon, Leftovers, trieline};
use trieline_testbed::packets::{UdpSink, UdpStream};
use trieline_testbed::{craft, eventually, needs_root, patience};

pub const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const MARKER: &[u8] = b"restart-mark";

fn pins(bed: &Bed) -> PathBuf {
    format!("/sys/fs/bpf/trieline/netns-{}", bed.node.inode()).into()
}

/// A file's keys, or those of one of its tables, as `trielined` names them for one that it does not know.
fn keys(folder: &Path, text: &str) -> BTreeSet<String> {
    let file = folder.join("keys.toml");
    std::fs::write(&file, text).unwrap();
    let program = trieline_testbed::command::binary_path("trielined");
    let printed = run_with(&program, &["--check", "--config", file.to_str().unwrap()], "").stderr;
    let known = printed.split_once("known are ").unwrap_or_else(|| panic!("{printed}")).1;
    known.trim().split(", ").map(str::to_owned).collect()
}

/// Starts, is overrun, reloads and restarts with every key of the configuration, and looks at each one's effect. A key that the
/// daemon knows and this test does not makes it fail.
#[test]
fn every_key_of_the_configuration_holds() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("link add v7 type veth peer name v7x");
    bed.node.ip("link set v7 up");
    bed.node.ip("-6 route add fd00:e::/32 via fd00:1::2");
    bed.node.ip("sr tunsrc set fd00:1::1");
    bed.node.ip("route add 10.50.0.0/16 encap seg6 mode encap segs fd00:e::1 dev n1");
    bed.node.ip("-6 route add fd50::/32 via fd00:1::2");
    bed.node.ip("-6 route add fd00:c::1/128 encap seg6local action End.DT6 table main dev n1");
    nft(
        &bed.node,
        "table inet f {\nchain c {\ntype filter hook forward priority 0;\nip daddr 203.0.113.1 drop\n}\n}\n",
    );
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    write("bad", "203.0.113.0/24\n");
    write("inside", "2001:db8:bad::/48\n");
    let all = "devices = [\"n0\", \"n1\", \"n2\"]\ngeneric = true\nmap_type = \"array\"\nimage = \"16M\"\nnext_hops = 1000\n\
               receive_buffer = 8192\nbypass_netfilter = true\nmax_stale = \"77s\"\n\
               [srv6]\nrfc = true\n\
               [audit]\nrate = 7\n\
               [[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"source\"\naction = \"drop\"\n\
               [[filter]]\nname = \"inside\"\nfile = \"inside\"\nmatch = \"source\"\naction = \"drop\"\n\
               [[sid_hook]]\nname = \"clean\"\nsid = \"fd00:c::1\"\nfilters = [\"inside\"]\n\
               [[vrf]]\nname = \"red\"\ntable = 100\ndevices = [\"n2\"]\n\
               [[vlan]]\nname = \"v7\"\ndevice = \"n0\"\nid = 7\ntable = 300\n";
    write("trielined.toml", all);
    let over = craft::ipv4("10.0.0.2", "10.50.0.1", &craft::udp(MARKER), |header| header[1] = 0xb9);
    let filtered = craft::ipv4("203.0.113.9", "10.50.0.1", &craft::udp(MARKER), |_| {});
    let inner = |source: &str| craft::ipv6(source, "fd50::1", (17, &craft::udp(MARKER)), |_| {});
    let to_sid = |source: &str| craft::ipv6("fd00::2", "fd00:c::1", (41, &inner(source)), |_| {});
    let effects = |daemon: &Daemon| -> BTreeMap<&'static str, String> {
        let reported = trieline_testbed::daemon::status(&bed.node);
        let devices = reported["devices"].as_array().cloned().unwrap_or_default();
        let of = |dev: &str| devices.iter().find(|known| known["dev"] == dev).cloned().unwrap_or_default();
        let flag = |dev: &str, flag: &str| {
            of(dev)["flags"].as_array().is_some_and(|flags| flags.iter().any(|known| known == flag))
        };
        let frame = bed.send_ip(&over, MARKER).sink.into_iter().next().unwrap_or_else(|| vec![0; 128]);
        let sockets = bed.node.run("ss -f netlink -m -p").stdout;
        let of_daemon = format!("/{} ", daemon.pid());
        let buffer = |line: &str| {
            line.split_once("rb").and_then(|(_, rest)| rest.split(',').next().map(str::to_owned))
        };
        let mut buffers: Vec<_> = sockets
            .lines()
            .collect::<Vec<_>>()
            .windows(2)
            .filter(|pair| pair[0].contains("rtnl") && pair[0].contains(&of_daemon))
            .filter_map(|pair| buffer(pair[0]).or_else(|| buffer(pair[1])))
            .collect();
        buffers.sort();
        let dropped = bed.send_ip(&to_sid("2001:db8:bad::1"), MARKER).counts();
        let goes_on = bed.send_ip(&to_sid("2001:db8::1"), MARKER).counts();
        BTreeMap::from([
            (
                "devices",
                ["n0", "n1", "n2"].map(|dev| of(dev)["ifindex"].is_u64()).map(|is| is.to_string()).join(" "),
            ),
            ("generic", of("n0")["mode"].to_string()),
            ("map_type", reported["map_type"].to_string()),
            ("image", reported["image"]["bytes"].to_string()),
            ("next_hops", reported["actions"]["limit"].to_string()),
            ("receive_buffer", buffers.contains(&"16384".to_owned()).to_string()),
            ("bypass_netfilter", flag("n0", "forward4").to_string()),
            ("max_stale", reported["max_stale"].to_string()),
            ("audit", reported["audit"]["rate"].to_string()),
            (
                "srv6",
                format!("class {:02x} TTL {}", frame[14] << 4 | frame[15] >> 4, frame[14 + 40 + 24 + 8]),
            ),
            ("filter", format!("{:?}", bed.send_ip(&filtered, MARKER).counts())),
            ("sid_hook", format!("{dropped:?} {goes_on:?}")),
            ("vrf", flag("n2", "tenant").to_string()),
            ("vlan", devices.iter().any(|known| known["dev"] == "v7" && known["vlan"] == 7).to_string()),
        ])
    };
    let expected: BTreeMap<&str, String> = [
        ("devices", "true true true"),
        ("generic", "\"generic\""),
        ("map_type", "\"array\""),
        ("image", "16777216"),
        ("next_hops", "1000"),
        ("receive_buffer", "true"),
        ("bypass_netfilter", "true"),
        ("max_stale", "77.0"),
        ("audit", "7"),
        ("srv6", "class b9 TTL 63"),
        ("filter", "(0, 0, 0)"),
        ("sid_hook", "(0, 0, 0) (0, 1, 0)"),
        ("vrf", "true"),
        ("vlan", "true"),
    ]
    .map(|(key, effect)| (key, effect.to_owned()))
    .into();
    assert_eq!(
        keys(folder.path(), "nosuchkeyatall = 1"),
        expected.keys().map(|key| (*key).to_owned()).collect()
    );
    assert_eq!(keys(folder.path(), "[srv6]\nnosuchkeyatall = 1"), ["rfc".to_owned()].into());
    assert_eq!(keys(folder.path(), "[audit]\nnosuchkeyatall = 1"), ["rate".to_owned()].into());
    let args = format!("--config {}", folder.path().join("trielined.toml").display());
    let holds = |daemon: &Daemon, when: &str| {
        let mut last = BTreeMap::new();
        let held = eventually(5.0, || {
            last = effects(daemon);
            last == expected
        });
        assert!(held, "{when}: {last:#?}\n{}", daemon.log());
    };
    let overrun = |daemon: &Daemon| {
        let before = status::overruns(&bed.node);
        run(&format!("kill -STOP {}", daemon.pid())).ok();
        for what in ["add", "del"] {
            let address = |n: u32| std::net::Ipv4Addr::from(0x1400_0000 + n);
            let lines: String =
                (0..3000).map(|n| format!("route {what} {}/32 via 10.1.0.2\n", address(n))).collect();
            bed.node.ip_batch(&[], &lines).ok();
        }
        run(&format!("kill -CONT {}", daemon.pid())).ok();
        assert!(eventually(5.0, || status::overruns(&bed.node) > before), "no overrun");
    };
    let daemon = Daemon::start(&bed.node, &args);
    holds(&daemon, "start");
    overrun(&daemon);
    holds(&daemon, "overrun");
    trieline(&bed.node, "node reload").ok();
    holds(&daemon, "reload");
    overrun(&daemon);
    holds(&daemon, "overrun after a reload");
    daemon.kill();
    let daemon = Daemon::start(&bed.node, &args);
    holds(&daemon, "restart");
}

/// A device that refuses (another program, no native XDP) or has a number above 65535 does not keep a restarting daemon away.
#[test]
fn one_device_does_not_stop_a_restart() {
    needs_root!();
    let bed = Bed::routed();
    Daemon::start(&bed.node, DEVICES).kill();
    let _leftovers = Leftovers(&bed.node);
    // (1) n2 is now a device without native XDP, as after the change of a NIC
    bed.node.ip("link del n2");
    bed.node.ip("tuntap add dev n2x mode tap");
    bed.node.ip("link set n2x name n2");
    let tunnel = bed.node.try_ip("link add n2t type gre local 10.1.0.1 remote 10.1.0.2");
    let refuses = if tunnel.code == 0 {
        bed.node.ip("link del n2");
        bed.node.ip("link set n2t name n2");
        true
    } else {
        // This kernel has no such device: lo refuses as well.
        bed.node.ip("link del n2");
        false
    };
    let devices = if refuses { DEVICES.to_owned() } else { "--dev n0 --dev n1 --dev lo".into() };
    let daemon = Daemon::start(&bed.node, &devices);
    bed.becomes("the others", "10.50.0.1:9", (0, 5, 0));
    let reported = trieline_testbed::daemon::status(&bed.node);
    let name = if refuses { "n2" } else { "lo" };
    assert!(
        reported["refused"][0]["dev"] == name
            && reported["refused"][0]["reason"].as_str().is_some_and(|why| !why.is_empty()),
        "{reported:#}\n{}",
        daemon.log()
    );
    assert!(trieline(&bed.node, "node status").ok().contains("refused: "));
    daemon.kill();
    // (2) n2 is there again, with a number above 65535: it is a device like any other, in both directions, and so is its VLAN
    if refuses {
        bed.node.ip("link del n2");
    }
    bed.node.ip(&format!(
        "link add n2 index 70000 address 02:00:00:00:00:20 type veth peer name t9 netns {}",
        bed.side.name()
    ));
    bed.side.ip("link set t9 address 02:00:00:00:00:21");
    for (namespace, device, host) in [(&bed.node, "n2", 1), (&bed.side, "t9", 2)] {
        namespace.ip(&format!("addr add 10.2.0.{host}/24 dev {device}"));
        namespace.ip(&format!("link set {device} up"));
        namespace.run(&format!("ethtool -K {device} tx off gro on")).ok();
    }
    bed.side.ip("route replace default via 10.2.0.1");
    bed.node.run("ping -c 1 -W 2 10.2.0.2").ok();
    bed.node.ip("route add 10.60.0.0/16 via 10.2.0.2");
    let daemon = Daemon::start(&bed.node, DEVICES);
    bed.becomes("to number 70000", "10.60.0.1:9", (0, 0, 5));
    let before = status::forwarded(&bed.node);
    let to: SocketAddr = "10.50.0.1:9".parse().unwrap();
    trieline_testbed::packets::send_udp(&bed.side, to, MARKER, 5).expect("sent");
    assert!(eventually(2.0, || status::forwarded(&bed.node) >= before + 5), "from number 70000");
    // (3) it goes; the others' ports are set as before
    bed.node.ip("link del n2");
    bed.node.sysctl("net.ipv4.conf.n0.forwarding", "0");
    let off = |reported: &Value| {
        let n0 = reported["devices"]
            .as_array()
            .and_then(|all| all.iter().find(|known| known["dev"] == "n0").cloned());
        n0.is_some_and(|n0| !n0["flags"].to_string().contains("forward4"))
    };
    assert!(eventually(5.0, || off(&trieline_testbed::daemon::status(&bed.node))), "{}", daemon.log());
}

/// A bad file of a filter: a restart keeps the set in force and says so; where there is none, a start refuses.
#[test]
fn a_bad_filter_file_keeps_the_set_in_force() {
    needs_root!();
    let bed = Bed::routed();
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("a file");
    let filter = |name: &str| {
        format!("[[filter]]\nname = \"{name}\"\nfile = \"{name}\"\nmatch = \"source\"\naction = \"drop\"\n")
    };
    let head = "devices = [\"n0\", \"n1\", \"n2\"]\n";
    write("trielined.toml", &format!("{head}{}", filter("bad")));
    write("bad", "203.0.113.0/24\n");
    let args = format!("--config {}", folder.path().join("trielined.toml").display());
    let filtered = craft::ipv4("203.0.113.9", "10.50.0.1", &craft::udp(MARKER), |_| {});
    let counts = || bed.send_ip(&filtered, MARKER).counts();
    Daemon::start(&bed.node, &args).kill();
    let _leftovers = Leftovers(&bed.node);
    // (1) cut short while the daemon is away
    write("bad", "203.0.113.0/24\n10.0.0.300\n");
    let daemon = Daemon::start(&bed.node, &args);
    assert_eq!(counts(), (0, 0, 0));
    bed.becomes("others", "10.50.0.1:9", (0, 5, 0));
    assert!(daemon.log().contains("10.0.0.300"), "{}", daemon.log());
    let reported = trieline(&bed.node, "-j filter list").json();
    assert!(reported[0]["problem"].as_str().is_some_and(|why| why.contains("10.0.0.300")), "{reported:#}");
    // (2) so does the next restart, and a good file ends it
    daemon.kill();
    let daemon = Daemon::start(&bed.node, &args);
    assert_eq!(counts(), (0, 0, 0));
    write("bad", "198.51.100.0/24\n");
    trieline(&bed.node, "filter reload").ok();
    assert_eq!(counts(), (0, 1, 0), "{}", daemon.log());
    assert!(trieline(&bed.node, "-j filter list").json()[0]["problem"].is_null());
    // (3) a filter that was never in force is not silently absent: no start, and the old filters hold
    write("bad", "203.0.113.0/24\n");
    trieline(&bed.node, "filter reload").ok();
    daemon.kill();
    write("trielined.toml", &format!("{head}{}{}", filter("bad"), filter("more")));
    write("more", "nonsense\n");
    Daemon::refused(&bed.node, &args).fails(1, &["more", "nonsense"]);
    assert_eq!(counts(), (0, 0, 0));
    // (4) the maps are made again meanwhile, so that no set is in force: the last good copy of the file
    write("bad", "10.0.0.300\n");
    write("trielined.toml", &format!("image = \"16M\"\n{head}{}", filter("bad")));
    let daemon = Daemon::start(&bed.node, &args);
    assert!(daemon.log().contains("the old tables forward until new ones are there"), "{}", daemon.log());
    assert_eq!(counts(), (0, 0, 0));
    let problem = || trieline(&bed.node, "-j filter list").json()[0]["problem"].as_str().map(str::to_owned);
    assert!(problem().is_some_and(|why| why.contains("10.0.0.300")), "{}", daemon.log());
    // (5) no room for a set beside the one in force: this one stays
    let large = |first: &str| {
        let others =
            (0..700_000u32).map(|n| std::net::Ipv4Addr::from(n.wrapping_mul(2_654_435_761) | 1 << 31));
        std::iter::once(first.to_owned())
            .chain(others.map(|host| host.to_string()))
            .collect::<Vec<_>>()
            .join("\n")
    };
    write("bad", &large("203.0.113.0/24"));
    trieline(&bed.node, "filter reload").ok();
    assert_eq!((counts(), problem()), ((0, 0, 0), None));
    daemon.kill();
    write("bad", &large("198.51.100.0/24"));
    let daemon = Daemon::start(&bed.node, &args);
    assert_eq!(counts(), (0, 0, 0));
    assert!(problem().is_some_and(|why| why.contains("does not fit")), "{}", daemon.log());
    bed.becomes("routes are followed", "10.50.0.1:9", (0, 5, 0));
}

/// Runs a command as user `nobody`; dropping this ends it.
struct Nobody(std::process::Child);

impl Nobody {
    fn run(words: &[&str]) -> Self {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]).args(words);
        Self(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("setpriv starts"))
    }
}

impl Drop for Nobody {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Another user cannot take the lock or the pins' directory, nor command; a lock that somebody holds is not said to be a daemon.
#[test]
fn other_users_cannot_block_a_daemon() {
    needs_root!();
    let bed = Bed::routed();
    let daemon = Daemon::start(&bed.node, DEVICES);
    let run_folder = Path::new("/run/trieline");
    let of = |extension: &str| run_folder.join(format!("netns-{}.{extension}", bed.node.inode()));
    let mode = |path: &Path| std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&of("lock")), mode(&of("sock"))), (0o600, 0o600));
    assert_eq!((mode(&pins(&bed)), mode(pins(&bed).parent().unwrap())), (0o700, 0o700));
    assert_eq!(mode(run_folder) & 0o022, 0);
    // The daemon looks who asks, whatever the socket's mode says.
    std::fs::set_permissions(of("sock"), PermissionsExt::from_mode(0o666)).unwrap();
    let status = |user: &str| {
        let program = trieline_testbed::command::binary_path("trieline");
        let name = bed.node.name();
        let words = ["netns", "exec", name, "setpriv", user, "--clear-groups", &program, "node", "status"];
        run_with("ip", &words, "")
    };
    status("--reuid=0").ok();
    assert_ne!(status("--reuid=65534").code, 0);
    daemon.kill();
    let _leftovers = Leftovers(&bed.node);
    for held in [of("lock"), pins(&bed)] {
        let _holder = Nobody::run(&["flock", "-x", held.to_str().unwrap(), "sleep", "20"]);
        std::thread::sleep(Duration::from_millis(300));
        Daemon::start(&bed.node, DEVICES).kill();
    }
    // A lock of before, with a mode of before, is closed to others; held by another of root's, the message names that one.
    std::fs::set_permissions(of("lock"), PermissionsExt::from_mode(0o644)).unwrap();
    Daemon::start(&bed.node, DEVICES).kill();
    assert_eq!(mode(&of("lock")), 0o600);
    let mut holder = Command::new("flock")
        .args(["-x", "--no-fork", of("lock").to_str().unwrap(), "sleep", "20"])
        .spawn()
        .expect("flock starts");
    std::thread::sleep(Duration::from_millis(300));
    let refusal = Daemon::refused(&bed.node, DEVICES);
    let pid = holder.id().to_string();
    let _ = holder.kill();
    let _ = holder.wait();
    refusal.fails(1, &["is locked by process", &pid]);
}

/// Pins of another version, of an unknown shape, or made with other options: a start replaces them under traffic, and not one packet is
/// lost. Back as well as forth, and after a start that was killed at any point of it.
#[test]
fn other_pins_are_replaced_without_a_loss() {
    needs_root!();
    let bed = Bed::routed();
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    let address: SocketAddr = "10.50.0.1:7000".parse().unwrap();
    let sink = UdpSink::open(&bed.sink, address);
    let daemon = Daemon::start(&bed.node, &format!("{DEVICES} --image 16M"));
    let stream = UdpStream::start(&bed.generator, address, 2000);
    let _leftovers = Leftovers(&bed.node);
    let instance = pins(&bed).join("instance");
    let aside = PathBuf::from(format!("{}-aside", pins(&bed).display()));
    let version = |version: u32| {
        let map = MapHandle::from_pinned_path(&instance).expect("the instance record");
        let mut record = map.lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        record[..4].copy_from_slice(&version.to_ne_bytes());
        map.update(&0u32.to_ne_bytes(), &record, MapFlags::ANY).unwrap();
    };
    let shape = || {
        std::fs::remove_file(&instance).unwrap();
        let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
            sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as _,
            ..Default::default()
        };
        let mut map = MapHandle::create(MapType::Array, Some("instance"), 4, 200, 1, &options).unwrap();
        map.pin(&instance).unwrap();
    };
    let check = |daemon: &Daemon, what: &str| {
        let before = status::forwarded(&bed.node);
        assert!(
            eventually(3.0, || status::forwarded(&bed.node) > before + 50),
            "{what}: XDP does not forward"
        );
        assert!(!aside.exists(), "{what}: the old tables are left");
        let log = daemon.log();
        assert!(log.contains("the old tables forward until new ones are there"), "{what}: {log}");
        bed.node.ip("route replace 10.60.0.0/16 via 10.2.0.2");
        bed.becomes(what, "10.60.0.1:9", (0, 0, 5));
    };
    let restarted = |daemon: Daemon, change: &dyn Fn(), args: &str, what: &str| {
        daemon.kill();
        change();
        let daemon = Daemon::start(&bed.node, &format!("{DEVICES} {args}"));
        check(&daemon, what);
        daemon
    };
    // (0) a build with verdicts that this one does not know: their numbers had free places, so the pins stay, with all counters
    let counters = pins(&bed).join("counters");
    let counter = |change: Option<u64>| {
        let map = MapHandle::from_pinned_path(&counters).expect("the counters");
        let mut cpus = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
        if let Some(packets) = change {
            cpus[0][127 * 8..][..8].copy_from_slice(&packets.to_ne_bytes());
            map.update_percpu(&0u32.to_ne_bytes(), &cpus, MapFlags::ANY).unwrap();
        }
        u64::from_ne_bytes(cpus[0][127 * 8..][..8].try_into().unwrap())
    };
    assert!(eventually(3.0, || status::forwarded(&bed.node) > 100));
    let before = status::forwarded(&bed.node);
    daemon.kill();
    counter(Some(7));
    let daemon = Daemon::start(&bed.node, &format!("{DEVICES} --image 16M"));
    assert!(!daemon.log().contains("the old tables"), "{}", daemon.log());
    assert!(status::forwarded(&bed.node) >= before && counter(None) == 7, "counters are lost");
    // (1) an upgrade, a downgrade, a record of unknown shape, other options
    let same = "--image 16M";
    let daemon = restarted(daemon, &|| version(9), same, "from an older version");
    let daemon = restarted(daemon, &|| version(4711), same, "from a newer version");
    let daemon = restarted(daemon, &shape, same, "from an unknown shape");
    let daemon = restarted(daemon, &|| {}, "--image 32M", "another image");
    let daemon = restarted(daemon, &|| {}, "--image 32M --next-hops 1000", "other next_hops");
    let mut daemon =
        restarted(daemon, &|| {}, "--image 32M --next-hops 1000 --map-type array", "another map type");
    // (2) killed while it does so: what is in force forwards, and the next start tidies up
    for pause in [5, 60, 120, 200, 300, 450] {
        daemon.kill();
        version(9);
        let (starting, _notify) = Daemon::spawn(&bed.node, &format!("{DEVICES} {same}"));
        std::thread::sleep(Duration::from_millis((pause as f64 * patience()) as u64));
        starting.kill();
        let before = stream.sent();
        assert!(eventually(2.0, || stream.sent() > before + 100));
        daemon = Daemon::start(&bed.node, &format!("{DEVICES} {same}"));
        assert!(!aside.exists());
        bed.becomes("killed in between", "10.50.0.1:9", (0, 5, 0));
    }
    let sent = stream.stop();
    assert_eq!(sink.close(), sent, "packets lost");
    drop(daemon);
    assert!(!pins(&bed).exists() && !aside.exists());
}

/// A reload does what it can, and says by words and exit code what waits for a restart, which then follows it without a detach.
#[test]
fn reload_lists_keys_that_need_a_restart() {
    needs_root!();
    let bed = Bed::routed();
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("trielined.toml");
    let write =
        |text: &str| std::fs::write(&file, format!("devices = [\"n0\", \"n1\", \"n2\"]\n{text}")).unwrap();
    write("image = \"16M\"\n");
    let args = format!("--config {}", file.display());
    let daemon = Daemon::start(&bed.node, &args);
    write("image = \"32M\"\nnext_hops = 1000\n[srv6]\nrfc = true\n");
    let text = trieline(&bed.node, "node reload");
    assert!(text.code == 1 && text.stdout.contains("image") && text.stdout.contains("restart"), "{text:?}");
    let json = trieline(&bed.node, "-j node reload");
    assert_eq!(json.code, 1, "{json:?}");
    let reported: Value = serde_json::from_str(&json.stdout).unwrap();
    assert_eq!(reported, serde_json::json!({ "reloaded": true, "waits": ["image", "next_hops"] }));
    // Settings that need not wait are in force.
    let ecn = |reported: &Value| reported["devices"].to_string().contains("\"ecn\"");
    assert!(eventually(3.0, || ecn(&trieline_testbed::daemon::status(&bed.node))));
    let program = trieline_testbed::command::binary_path("trielined");
    let check =
        run_with(&program, &["-n", bed.node.name(), "--check", "--config", file.to_str().unwrap()], "");
    assert!(check.code == 0 && check.stdout.contains("image"), "{check:?}");
    daemon.stop();
    let daemon = Daemon::start(&bed.node, &args);
    assert_eq!(trieline_testbed::daemon::status(&bed.node)["image"]["bytes"], 32 << 20, "{}", daemon.log());
    bed.becomes("after the restart", "10.50.0.1:9", (0, 5, 0));
    trieline(&bed.node, "node reload").ok();
}
