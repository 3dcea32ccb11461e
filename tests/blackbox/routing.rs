//! Routing daemons: BIRD and FRR as Debian ships them. They take a table by BGP and put it into the kernel, and the mirror is the kernel's,
//! prefix by prefix. It stays so through the life of a router. A link flaps, a session is reset, a routing daemon is killed and comes back
//! (graceful restart), a trielined is killed and comes back meanwhile.
//!
//! The table has 20,000 prefixes. `TRIELINE_BGP_TABLE=FILE` names a file with others, one prefix a line.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Instant;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{run, run_with};
use trieline_testbed::daemon::{Daemon, Leftovers, trieline};
use trieline_testbed::namespace::Namespace;
use trieline_testbed::random::Random;
use trieline_testbed::{eventually, needs_root, skip};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const PREFIXES: usize = 20_000;
/// A prefix of every table, and an address in it.
const MARKED: (&str, &str) = ("198.18.0.0/15", "198.18.7.7:9");

/// Prefixes of a table as of the Internet, in 20.0.0.0/6: nested, most of them /24.
fn generated(count: usize) -> BTreeSet<String> {
    let mut rng = Random::new(14);
    let mut prefixes = BTreeSet::new();
    while prefixes.len() < count {
        let len = rng.pick(&[12, 14, 16, 18, 19, 20, 21, 22, 22, 23, 24, 24, 24, 24, 24, 24]);
        let address = 0x1400_0000 | (rng.bits() as u32 & 0x03ff_ffff & (u32::MAX << (32 - len)));
        prefixes.insert(format!("{}/{len}", std::net::Ipv4Addr::from(address)));
    }
    prefixes
}

fn table() -> BTreeSet<String> {
    let Ok(file) = std::env::var("TRIELINE_BGP_TABLE") else { return generated(PREFIXES) };
    let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{file}: {error}"));
    // Routes of the test's own links are left out.
    let theirs = |line: &&str| !line.contains(':') && !line.starts_with("10.") && !line.starts_with("0.");
    text.lines().filter(theirs).map(str::to_owned).collect()
}

/// How much longer a table takes than that of 20,000 prefixes.
fn patience(prefixes: &BTreeSet<String>) -> f64 {
    20.0 + prefixes.len() as f64 / 5000.0
}

/// A process of a routing daemon in a namespace, with files of its own. Dropping it kills that process.
struct Process(Child);

impl Process {
    fn start(namespace: &Namespace, directory: &Path, line: &str) -> Self {
        let log =
            std::fs::OpenOptions::new().create(true).append(true).open(directory.join("log")).expect("a log");
        let child = Command::new("ip")
            .args(["netns", "exec", namespace.name()])
            .args(line.split_whitespace())
            .current_dir(directory)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a log"))
            .stderr(log)
            .spawn();
        Self(child.expect("ip starts"))
    }

    /// As by the OOM killer: it can say nothing to its peers.
    fn kill(mut self) {
        self.0.kill().and_then(|()| self.0.wait()).expect("it ends");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn write(directory: &Path, name: &str, text: &str) {
    std::fs::write(directory.join(name), text).expect("a file is written");
}

/// The peer, in the sink: BIRD with the table as static routes.
struct Peer {
    _process: Process,
    directory: tempfile::TempDir,
}

impl Peer {
    fn start(bed: &Bed, prefixes: &BTreeSet<String>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut routes = String::new();
        for prefix in prefixes.iter().map(String::as_str).chain([MARKED.0]) {
            let _ = writeln!(routes, "route {prefix} unreachable;");
        }
        write(directory.path(), "routes", &routes);
        let config = "router id 10.1.0.2;
protocol device {}
protocol static table1 {
  ipv4;
  include \"routes\";
}
protocol bgp node { local 10.1.0.2 as 65002; neighbor 10.1.0.1 as 65001; graceful restart on; connect delay time 1; connect retry time 1;
  error wait time 1, 2; ipv4 { import none; export all; next hop self; }; }
";
        write(directory.path(), "peer.conf", config);
        let line = "bird -f -c peer.conf -s peer.ctl";
        Self { _process: Process::start(&bed.sink, directory.path(), line), directory }
    }

    fn tell(&self, command: &str) {
        run(&format!("birdc -s {} {command}", self.directory.path().join("peer.ctl").display())).ok();
    }
}

/// A routing daemon beside trielined, in the node.
trait Router {
    fn start(bed: &Bed) -> Self;
    /// Its processes are killed, and started again.
    fn restart(&mut self, bed: &Bed);
    /// Resets its session with the peer.
    fn reset(&self);
    /// Whether its session is up and has received so many prefixes. Before that a restart is not a graceful one.
    fn has(&self, count: usize) -> bool;
    fn log(&self) -> String;
    /// The option of `trieline node audit` for it, and a protocol of its routes in the kernel.
    fn audited(&self) -> (String, &'static str);
}

struct Bird {
    process: Option<Process>,
    directory: tempfile::TempDir,
}

impl Bird {
    fn run(&mut self, bed: &Bed, option: &str) {
        let line = format!("bird -f {option} -c bird.conf -s bird.ctl");
        self.process = Some(Process::start(&bed.node, self.directory.path(), &line));
    }
}

impl Router for Bird {
    fn start(bed: &Bed) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let config = "router id 10.1.0.1;
graceful restart wait 30;
protocol device {}
protocol kernel { ipv4 { import none; export where source = RTS_BGP; }; persist; graceful restart on; }
protocol bgp peer { local 10.1.0.1 as 65001; neighbor 10.1.0.2 as 65002; graceful restart on; connect delay time 1; connect retry time 1;
  error wait time 1, 2; ipv4 { import all; export none; }; }
";
        write(directory.path(), "bird.conf", config);
        let mut bird = Self { process: None, directory };
        bird.run(bed, "");
        bird
    }

    fn restart(&mut self, bed: &Bed) {
        self.process.take().expect("it runs").kill();
        self.run(bed, "-R"); // recovers from a graceful restart
    }

    fn reset(&self) {
        run(&format!("birdc -s {} restart peer", self.directory.path().join("bird.ctl").display())).ok();
    }

    fn has(&self, count: usize) -> bool {
        let socket = self.directory.path().join("bird.ctl");
        let printed = run(&format!("birdc -s {} show protocols all peer", socket.display())).stdout;
        printed.contains("Established") && printed.contains(&format!(" {count} imported"))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn audited(&self) -> (String, &'static str) {
        (format!("--bird={}", self.directory.path().join("bird.ctl").display()), "bird")
    }
}

struct Frr {
    _zebra: Process,
    bgpd: Option<Process>,
    directory: tempfile::TempDir,
}

impl Frr {
    /// A daemon with all its sockets and files in its directory.
    fn run(bed: &Bed, directory: &Path, name: &str, options: &str) -> Process {
        let at = directory.display();
        let line = format!(
            "/usr/lib/frr/{name} -u frr -g frr -f {at}/{name}.conf -i {at}/{name}.pid --vty_socket {at} -z {at}/zserv.api -P 0 \
             --log stdout {options}"
        );
        Process::start(&bed.node, directory, &line)
    }

    fn bgpd(&mut self, bed: &Bed) {
        self.bgpd = Some(Self::run(bed, self.directory.path(), "bgpd", "-l 10.1.0.1"));
    }
}

impl Router for Frr {
    fn start(bed: &Bed) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        // FRR's daemons give root up.
        run(&format!("chown frr:frr {}", directory.path().display())).ok();
        write(directory.path(), "zebra.conf", "ip nht resolve-via-default\n");
        let config = "router bgp 65001
 bgp router-id 10.1.0.1
 no bgp ebgp-requires-policy
 bgp graceful-restart
 bgp graceful-restart preserve-fw-state
 bgp graceful-restart select-defer-time 2
 neighbor 10.1.0.2 remote-as 65002
 neighbor 10.1.0.2 timers connect 1
";
        write(directory.path(), "bgpd.conf", config);
        let zebra = Self::run(bed, directory.path(), "zebra", "");
        let socket = directory.path().join("zserv.api");
        assert!(eventually(10.0, || socket.exists()), "zebra does not come up");
        let mut frr = Self { _zebra: zebra, bgpd: None, directory };
        frr.bgpd(bed);
        frr
    }

    fn restart(&mut self, bed: &Bed) {
        self.bgpd.take().expect("it runs").kill();
        self.bgpd(bed);
    }

    fn reset(&self) {
        let directory = self.directory.path().display().to_string();
        run_with("vtysh", &["--vty_socket", &directory, "-c", "clear bgp *"], "").ok();
    }

    fn has(&self, count: usize) -> bool {
        let directory = self.directory.path().display().to_string();
        let ask = ["--vty_socket", &directory, "-c", "show bgp ipv4 unicast summary json"];
        let printed = run_with("vtysh", &ask, "").stdout;
        printed.contains("\"state\":\"Established\"") && printed.contains(&format!("\"pfxRcd\":{count},"))
    }

    fn log(&self) -> String {
        std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default()
    }

    fn audited(&self) -> (String, &'static str) {
        (format!("--frr={}", self.directory.path().display()), "bgp")
    }
}

/// Gateway and device by prefix, of the routes by BGP in the output of `ip route` or `trieline route show`.
fn routes(text: &str) -> BTreeMap<String, String> {
    let word = |line: &str, key: &str| {
        let mut words = line.split_whitespace().skip_while(|word| *word != key);
        words.nth(1).unwrap_or_default().to_owned()
    };
    let bgp = text.lines().filter(|line| ["bgp", "bird"].contains(&word(line, "proto").as_str()));
    let route = |line: &str| {
        let prefix = line.split_whitespace().next().unwrap_or_default().to_owned();
        (
            prefix,
            format!("via {} dev {} metric {}", word(line, "via"), word(line, "dev"), word(line, "metric")),
        )
    };
    bgp.map(route).collect()
}

/// Waits until the kernel has `count` routes and trielined the same; returns how long that took.
#[track_caller]
fn equal(bed: &Bed, count: usize, seconds: f64, what: &str, log: impl Fn() -> String) -> f64 {
    let begun = Instant::now();
    let (mut kernel, mut ours) = (BTreeMap::new(), BTreeMap::new());
    let same = eventually(seconds, || {
        kernel = routes(&bed.node.ip("-4 route show"));
        if kernel.len() != count {
            return false;
        }
        ours = routes(&trieline(&bed.node, "-4 route show").ok());
        kernel == ours
    });
    if !same {
        let differing = kernel.iter().find(|(prefix, way)| ours.get(*prefix) != Some(way));
        let log = log();
        let tail = log.get(log.len().saturating_sub(3000)..).unwrap_or_default();
        panic!(
            "{what}: expected {count} routes, the kernel has {}, the mirror {}, first difference {differing:?}\n{tail}",
            kernel.len(),
            ours.len()
        );
    }
    begun.elapsed().as_secs_f64()
}

/// All that a router lives through.
fn follows<R: Router>(name: &str, programs: &[&str]) {
    needs_root!();
    if let Some(missing) = programs.iter().find(|program| !PathBuf::from(program).exists()) {
        skip(&format!("{missing} is not installed"));
        return;
    }
    let prefixes = table();
    let (count, seconds) = (prefixes.len() + usize::from(!prefixes.contains(MARKED.0)), patience(&prefixes));
    let bed = Bed::new();
    bed.warm();
    // Packets of the table end at the sink.
    bed.sink.ip("route del default");
    bed.sink.ip("route add 10.0.0.0/24 via 10.1.0.1");
    let _leftovers = Leftovers(&bed.node);
    let daemon = Daemon::start(&bed.node, &format!("{DEVICES} --image 256M"));
    let peer = Peer::start(&bed, &prefixes);
    let mut router = R::start(&bed);
    let mut times = Vec::new();
    times.push(("table", equal(&bed, count, seconds, "the table", || router.log())));
    bed.becomes("by BGP", MARKED.1, (0, 5, 0));
    // (1) the link to the peer flaps: all routes go and come back
    bed.node.ip("link set n1 down");
    equal(&bed, 0, seconds, "link down", || router.log());
    bed.node.ip("link set n1 up");
    times.push(("flap", equal(&bed, count, seconds, "link up", || router.log())));
    bed.becomes("after the flap", MARKED.1, (0, 5, 0));
    // (2) the session is reset, from both sides
    router.reset();
    peer.tell("restart node");
    assert!(eventually(seconds, || router.has(count)), "the session after the reset\n{}", router.log());
    times.push(("reset", equal(&bed, count, seconds, "session reset", || router.log())));
    bed.becomes("after the reset", MARKED.1, (0, 5, 0));
    // (3) trielined is killed, the table changes, trielined comes back: routes that went meanwhile are gone
    peer.tell("disable table1");
    daemon.kill();
    equal_kernel(&bed, 0, seconds);
    let _daemon = Daemon::start(&bed.node, &format!("{DEVICES} --image 256M"));
    equal(&bed, 0, seconds, "withdrawn while trielined was not there", || router.log());
    peer.tell("enable table1");
    times.push(("restart", equal(&bed, count, seconds, "announced again", || router.log())));
    assert!(eventually(seconds, || router.has(count)), "the session\n{}", router.log());
    bed.becomes("announced again", MARKED.1, (0, 5, 0));
    // (4) the routing daemon is killed and comes back: graceful restart, XDP forwards all the time
    router.restart(&bed);
    for _ in 0..10 {
        let seen = bed.send(MARKED.1, "restarting", 5).counts();
        assert_eq!(seen, (0, 5, 0), "while {name} restarts\n{}", router.log());
    }
    assert!(eventually(seconds, || router.has(count)), "the session after the restart\n{}", router.log());
    times.push(("graceful", equal(&bed, count, seconds, "graceful restart", || router.log())));
    bed.becomes("at the end", MARKED.1, (0, 5, 0));
    // (5) the audit compares kernel, mirror and image, and the routing daemon's routes with the kernel's, both ways
    let (option, protocol) = router.audited();
    let answer = trieline(&bed.node, &format!("-j node audit {option}")).json();
    assert_eq!((&answer["equal"], &answer["rib"][0]["routes"]), (&true.into(), &count.into()), "{answer:#}");
    bed.node.ip(&format!("route add 203.0.113.0/24 via 10.1.0.2 proto {protocol}"));
    let answer = trieline(&bed.node, &format!("node audit {option}"));
    assert_eq!(answer.code, 1, "{answer:?}");
    let wanted = format!("203.0.113.0/24: {name}: no route; kernel: via 10.1.0.2 dev n1");
    assert!(answer.stdout.contains(&wanted), "{answer:?}");
    bed.node.ip("route del 203.0.113.0/24");
    if protocol == "bird" {
        // FRR puts it back at once.
        bed.node.ip(&format!("route del {}", MARKED.0));
        let answer = trieline(&bed.node, &format!("node audit {option}"));
        assert_eq!(answer.code, 1, "{answer:?}");
        let wanted = format!("{}: {name}: via 10.1.0.2 dev n1; kernel: no route", MARKED.0);
        assert!(answer.stdout.contains(&wanted), "{answer:?}");
    }
    println!("{name}: {count} prefixes, seconds until kernel and mirror are equal: {times:?}");
}

/// Waits until the kernel has so many routes, without trielined.
#[track_caller]
fn equal_kernel(bed: &Bed, count: usize, seconds: f64) {
    assert!(eventually(seconds, || routes(&bed.node.ip("-4 route show")).len() == count), "{count} routes");
}

#[test]
fn bird_is_followed() {
    follows::<Bird>("BIRD", &["/usr/sbin/bird", "/usr/sbin/birdc"]);
}

#[test]
fn frr_is_followed() {
    follows::<Frr>("FRR", &["/usr/lib/frr/zebra", "/usr/lib/frr/bgpd", "/usr/bin/vtysh", "/usr/sbin/bird"]);
}
