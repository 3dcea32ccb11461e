//! `trieline metrics serve`: what Prometheus gets, who may ask the daemon, and clients that misbehave.

mod names;
pub mod scraper;

use scraper::{OPENMETRICS, Scrape, Server, TEXT};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{binary_path, run};
use trieline_testbed::daemon::{Daemon, Leftovers, trieline};
use trieline_testbed::packets::{UdpSink, UdpStream};
use trieline_testbed::{eventually, needs_root, skip};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";

/// [gen] ── [node] ── [sink]: ten scrapes a second while packets pass, and each packet arrives.
#[test]
fn scrapes_lose_no_packet_and_count_each() {
    needs_root!();
    // (1) the daemon forwards, and the server answers
    let bed = Bed::routed();
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("trielined.toml");
    std::fs::write(folder.path().join("bad"), "203.0.113.0/24\n").expect("a file");
    let text = "devices = [\"n0\", \"n1\", \"n2\"]\n\
         [[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"source\"\naction = \"drop\"\n";
    std::fs::write(&config, text).expect("a file");
    let daemon = Daemon::start(&bed.node, &format!("--config {}", config.display()));
    let server = Server::start(&bed.node, &[]);
    let before = server.scrape(TEXT);
    assert_eq!(before.value("trieline_up"), 1.0);
    assert_eq!(before.value("trieline_devices{state=\"attached\"}"), 3.0);
    assert_eq!(before.value("trieline_filter_prefixes{filter=\"bad\",family=\"inet\"}"), 1.0);
    // (2) packets pass for three seconds, and every second ten scrapes come
    let sink = UdpSink::open(&bed.sink, "10.1.0.2:9".parse().expect("an address"));
    let stream = UdpStream::start(&bed.generator, "10.1.0.2:9".parse().expect("an address"), 2000);
    let begun = Instant::now();
    let mut last = 0.0;
    for number in 1..=30u32 {
        let forwarded = server.scrape(if number % 2 == 0 { TEXT } else { OPENMETRICS }).forwarded("n0");
        assert!(forwarded >= last, "{forwarded} after {last}");
        last = forwarded;
        bed.node.ip(&format!("route replace 10.77.{number}.0/24 via 10.1.0.2"));
        std::thread::sleep(
            (begun + number * Duration::from_millis(100)).saturating_duration_since(Instant::now()),
        );
    }
    let sent = stream.stop();
    assert_eq!(sink.close(), sent);
    // (3) the counts are those of the packets and of the changes
    let after = server.scrape(OPENMETRICS);
    assert_eq!(after.forwarded("n0") - before.forwarded("n0"), sent as f64);
    let updates = after.value("trieline_update_latency_seconds_count");
    assert!(updates >= 1.0);
    assert_eq!(after.value("trieline_update_latency_seconds_bucket{le=\"+Inf\"}"), updates);
    assert_eq!(
        after.value("trieline_routes{family=\"inet\"}") - before.value("trieline_routes{family=\"inet\"}"),
        30.0
    );
    // (4) the pinned counters outlive the daemon; without it, `up` is 0 and the answer still 200
    daemon.kill();
    let down = server.scrape(TEXT);
    assert_eq!((down.value("trieline_up"), down.forwarded("n0")), (0.0, 0.0));
    let names = ["trieline_up", "trieline_build_info", "trieline_scrape_duration_seconds"];
    assert_eq!(down.names, names.iter().map(|name| (*name).to_owned()).collect());
    let _daemon = Daemon::start(&bed.node, &format!("--config {}", config.display()));
    let again = server.scrape(TEXT);
    assert_eq!(again.value("trieline_up"), 1.0);
    assert!(again.forwarded("n0") >= after.forwarded("n0"));
}

/// Clients that send nothing, no end of a line, too much, nonsense, or never read: scrapes go on, and the process does not grow.
#[test]
fn clients_that_misbehave_delay_no_scrape() {
    needs_root!();
    let bed = Bed::routed();
    let _daemon = Daemon::start(&bed.node, DEVICES);
    let server = Server::start(&bed.node, &[]);
    server.scrape(TEXT);
    let resident = server.resident_kib();
    // (1) nonsense, another path, another method, a header without an end
    for (request, status) in [
        (b"\x16\x03\x01\x02\x00\x01\r\n\r\n".to_vec(), "400"),
        (b"GET / HTTP/1.1\r\n\r\n".to_vec(), "404"),
        (b"DELETE /metrics HTTP/1.1\r\n\r\n".to_vec(), "405"),
        ([b"GET /metrics HTTP/1.1\r\nX-Long: ".as_slice(), &[b'a'; 8 << 10]].concat(), "431"),
    ] {
        let answer = server.answer_to(&request);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
    // (2) 300 connections that stay open: silent, in the middle of a line, and scrapes that are not read
    let held: Vec<_> = (0..300)
        .map(|number| {
            let mut stream = server.connect();
            let part: &[u8] = match number % 3 {
                0 => b"",
                1 => b"GET /metrics HTTP/1.1\r\nHost: node",
                _ => b"GET /metrics HTTP/1.1\r\n\r\n",
            };
            // The server may have closed it already.
            let _ = stream.write_all(part);
            stream
        })
        .collect();
    for _ in 0..10 {
        let begun = Instant::now();
        assert_eq!(server.scrape(OPENMETRICS).value("trieline_up"), 1.0);
        // They have five seconds each: had the scrape waited for one, it would have taken as long.
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
    // (3) one that sends without an end is closed
    let mut flood = server.connect();
    flood.set_write_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    let sent = (0..64 << 10).take_while(|_| flood.write_all(&[b'a'; 1 << 10]).is_ok()).count();
    assert!(sent < 64 << 10, "the server took 64 MiB");
    let grown = server.resident_kib().saturating_sub(resident);
    assert!(grown < 16 << 10, "{grown} KiB more than before");
    drop(held);
    // (4) a daemon that is stopped is one that does not answer
    let pid = trieline_testbed::daemon::status(&bed.node)["pid"].to_string();
    run(&format!("kill -STOP {pid}")).ok();
    let scrape = server.scrape(TEXT);
    run(&format!("kill -CONT {pid}")).ok();
    assert_eq!(scrape.value("trieline_up"), 0.0);
    assert!(scrape.value("trieline_scrape_duration_seconds") < 10.0);
    assert_eq!(server.scrape(TEXT).value("trieline_up"), 1.0);
}

/// Group `trieline`, made for a test if the machine has none.
struct Group {
    is_ours: bool,
    id: u32,
}

impl Group {
    fn make() -> Self {
        let find = || run("getent group trieline");
        let is_ours = find().code != 0;
        if is_ours {
            run("groupadd --system trieline").ok();
        }
        let id = find().ok().split(':').nth(2).and_then(|id| id.parse().ok()).expect("a group");
        Self { is_ours, id }
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if self.is_ours {
            let _ = run("groupdel trieline");
        }
    }
}

/// A user of the group may ask, and serve metrics; others may not, and only root may change something.
#[test]
fn the_group_may_ask_and_change_nothing() {
    needs_root!();
    let group = Group::make();
    let bed = Bed::routed();
    // A daemon with umask 077 may have made the folder.
    let run_folder = std::path::Path::new("/run/trieline");
    if run_folder.exists() {
        std::fs::set_permissions(run_folder, PermissionsExt::from_mode(0o700)).expect("permissions");
    }
    let _daemon = Daemon::start(&bed.node, DEVICES);
    // The binaries may lie where other users may not go.
    let folder =
        tempfile::Builder::new().permissions(PermissionsExt::from_mode(0o755)).tempdir().expect("a folder");
    let program = folder.path().join("trieline").display().to_string();
    run(&format!("cp {} {program}", binary_path("trieline"))).ok();
    // (1) the socket for questions is the group's, that for commands root's alone
    let of = |extension: &str| format!("/run/trieline/netns-{}.{extension}", bed.node.inode());
    let found = |path: &str| {
        let found = std::fs::symlink_metadata(path).expect("a socket");
        (found.mode() & 0o777, found.uid(), found.gid())
    };
    assert_eq!(found(&of("read.sock")), (0o660, 0, group.id));
    assert_eq!(found(&of("sock")), (0o600, 0, 0));
    // (2) a member may ask, another user may not
    let user = |id: u32, words: &str| {
        let name = bed.node.name();
        run(&format!(
            "nsenter --net=/run/netns/{name} setpriv --reuid 65534 --regid {id} --clear-groups timeout 20 {program} {words}"
        ))
    };
    assert_eq!(user(group.id, "-j node status").json()["running"], true);
    assert!(user(group.id, "route show 10.50.0.0/16").ok().contains("10.50.0.0/16"));
    user(65534, "-j node status").fails(1, &["root", "group trieline"]);
    // (3) nor may a member change something, by the command or by hand
    user(group.id, "node reload").fails(1, &["root"]);
    user(group.id, "filter reload").fails(1, &["root"]);
    for request in ["{\"command\":\"reconfigure\"}\n", "{\"command\":\"reload\",\"filter\":null}\n"] {
        let mut stream = UnixStream::connect(of("read.sock")).expect("a connection");
        stream.write_all(request.as_bytes()).expect("a request");
        let mut answer = [0; 256];
        let len = stream.read(&mut answer).expect("an answer");
        let answer = String::from_utf8_lossy(&answer[..len]).into_owned();
        assert!(answer.contains("only answers questions"), "{answer}");
    }
    // (4) readers that keep their connections take no place of root's
    let held: Vec<_> = (0..40).map(|_| UnixStream::connect(of("read.sock")).expect("a connection")).collect();
    trieline(&bed.node, "node status").ok();
    drop(held);
    // (5) the server needs no more than the group
    let id = group.id.to_string();
    let wrap = [
        "setpriv",
        "--reuid=65534",
        "--regid",
        &id,
        "--clear-groups",
        "--bounding-set=-all",
        "--no-new-privs",
    ];
    let server = Server::start_as(&bed.node, &wrap, &program);
    assert_eq!(server.scrape(TEXT).value("trieline_up"), 1.0);
}

/// 64 devices: each is in the answer, and the time of a scrape is printed.
#[test]
fn sixty_four_devices_are_scraped() {
    needs_root!();
    let (node, _far, args) = crate::bed::with_devices(64);
    let daemon = Daemon::start(&node, args.trim());
    let _leftovers = Leftovers(&node);
    let server = Server::start(&node, &[]);
    let mut times: Vec<f64> = (0..41)
        .map(|_| {
            let scrape = server.scrape(OPENMETRICS);
            assert_eq!(scrape.value("trieline_devices{state=\"attached\"}"), 64.0);
            scrape.value("trieline_scrape_duration_seconds") * 1e3
        })
        .collect();
    times.sort_by(f64::total_cmp);
    println!("scrape of 64 devices: median {:.2} ms, from {:.2} to {:.2} ms", times[20], times[0], times[40]);
    drop(daemon);
}

/// docs/metrics.md has each metric with its type and labels; the alerts and the dashboard use no other.
#[test]
fn documentation_alerts_and_dashboard_have_the_names_of_the_server() {
    needs_root!();
    let bed = Bed::routed();
    // A bed that has a sample of each metric. It has a filter, a sample of a SID, a way out that XDP does not have, drops, and a firewall.
    bed.node.ip("route add 10.80.0.0/16 via 10.2.0.2");
    bed.node.ip("-6 route add fd00:c::1/128 encap seg6local action End.DT6 table main dev n1");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("bad"), "203.0.113.0/24\n10.55.0.0/16\nnonsense\n").expect("a file");
    let config = folder.path().join("trielined.toml");
    let text = "devices = [\"n0\", \"n1\", \"late0\"]\n\
         [[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"destination\"\naction = \"drop\"\nskip_bad = true\n\
         [[sid_hook]]\nname = \"look\"\nsid = \"fd00:c::1\"\npcap = \"look.pcapng\"\n";
    std::fs::write(&config, text).expect("a file");
    let _daemon = Daemon::start(&bed.node, &format!("--config {}", config.display()));
    let server = Server::start(&bed.node, &[]);
    for to in ["10.50.0.1:9", "10.55.0.1:9", "10.80.0.1:9"] {
        bed.send(to, "counted", 3);
    }
    bed.node.run("nft add table inet fw").ok();
    bed.node.run("nft add chain inet fw forward { type filter hook forward priority 0 ; }").ok();
    bed.node.run("nft add rule inet fw forward udp dport 53 drop").ok();
    let passes = |scrape: &Scrape| {
        scrape.labels_of("trieline_bypassed").get("passes").is_some_and(|values| values.contains("true"))
    };
    assert!(eventually(10.0, || passes(&server.scrape(TEXT))), "the rule does not stop XDP");
    let scrape = server.scrape(TEXT);
    let documented = names::documented();
    let types = documented.iter().map(|(name, (kind, _))| (name.clone(), kind.clone())).collect();
    assert_eq!(scrape.types, types, "the server, then docs/metrics.md");
    let empty: Vec<_> = documented.keys().filter(|name| !scrape.names.contains(*name)).collect();
    assert!(empty.is_empty(), "the bed brings no sample of {empty:?}");
    for (name, (_, labels)) in &documented {
        let of_server: BTreeSet<String> = scrape.labels_of(name).into_keys().collect();
        assert_eq!(&of_server, labels, "{name}: the server, then docs/metrics.md");
    }
    let used = names::used();
    let count = used.iter().flat_map(names::Used::names).collect::<BTreeSet<_>>().len();
    assert!(count > 20, "{count} metrics");
    let unknown: Vec<_> = used.iter().flat_map(|used| used.unknown(&scrape)).collect();
    assert!(unknown.is_empty(), "packaging/ uses {unknown:?}");
    if run("which promtool").code != 0 {
        return skip("promtool is not installed (package prometheus)");
    }
    run(&format!("promtool check rules {}", names::RULES)).ok();
    run(&format!("promtool test rules {}", names::ALERTS)).ok();
    let text = server.answer_to(b"GET /metrics HTTP/1.1\r\n\r\n");
    let (_, body) = text.split_once("\r\n\r\n").expect("a body");
    trieline_testbed::command::run_with("promtool", &["check", "metrics"], body).ok();
}
