//! Faults under traffic: a daemon that dies at any time, neighbours that never answer, links that flap. Also files cut off while they are
//! written, routes that only the kernel can follow. No packet is lost or changed by any of it that the kernel would have delivered.

use crate::status;
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use trieline_testbed::bed::Bed;
use trieline_testbed::command::run;
use trieline_testbed::daemon::{self, Daemon, Leftovers};
use trieline_testbed::packets::{Received, Tap, UdpSink, UdpStream};
use trieline_testbed::random::Random;
use trieline_testbed::{craft, eventually, needs_root};

const DEVICES: &str = "--dev n0 --dev n1 --dev n2";
const MARKER: &[u8] = b"at fault";
const KILLS: u32 = 100;

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address with a port")
}

/// kill -9 at 100 random times, also before it has taken over. Every packet of both families arrives once and as it was sent, and
/// XDP forwards all the time.
#[test]
fn killed_at_random_a_hundred_times() {
    needs_root!();
    let bed = Bed::routed();
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    bed.sink.ip("-6 addr add fd50::1/128 dev lo nodad");
    let fill: String =
        (0..20_000u32).map(|n| format!("route add 20.{}.{}.0/24 via 10.2.0.2\n", n >> 8, n & 0xff)).collect();
    bed.node.ip_batch(&[], &fill).ok();
    let _leftovers = Leftovers(&bed.node);
    let started = Instant::now();
    Daemon::start(&bed.node, DEVICES).kill();
    // On a busy machine a start takes longer than the half second that it takes at most elsewhere.
    let longest = (2 * started.elapsed().as_millis() as usize).clamp(500, 4000);
    let before = status::forwarded(&bed.node);
    let targets = [address("10.50.0.1:7000"), address("[fd50::1]:7000")];
    let sinks = targets.map(|to| UdpSink::open(&bed.sink, to));
    let streams = targets.map(|to| UdpStream::start(&bed.generator, to, 2000));
    let mut rng = Random::new(9);
    let mut ready = 0;
    for kill in 0..KILLS {
        let (daemon, notify) = Daemon::spawn(&bed.node, DEVICES);
        // Routes change whether somebody follows or not.
        bed.node.ip(&format!("route replace 10.60.{}.0/24 via 10.{}.0.2", kill % 7, 1 + kill % 2));
        std::thread::sleep(Duration::from_millis(rng.below(longest) as u64));
        notify.set_nonblocking(true).expect("a socket");
        ready += u32::from(notify.recv(&mut [0; 512]).is_ok());
        daemon.kill();
    }
    let daemon = Daemon::start(&bed.node, DEVICES);
    let sent = streams.map(UdpStream::stop);
    let received = sinks.map(UdpSink::close_checked);
    assert!(ready > 0 && ready < KILLS, "{ready} of {KILLS} were killed after they had taken over");
    for (packets, received) in sent.into_iter().zip(received) {
        assert!(packets > 10_000, "only {packets} packets were sent");
        assert_eq!(received, Received { packets, twice: 0, wrong: 0 });
    }
    let forwarded = status::forwarded(&bed.node) - before;
    let counters = &daemon::status(&bed.node)["counters"];
    assert_eq!(forwarded, sent.iter().sum::<u64>(), "packets that XDP did not forward: {counters:#}");
    // The last daemon knows the changes that came while none ran.
    for kill in KILLS - 7..KILLS {
        let expected = if kill % 2 == 0 { (0, 5, 0) } else { (0, 0, 5) };
        assert_eq!(
            bed.send(&format!("10.60.{}.1:9", kill % 7), "after", 5).counts(),
            expected,
            "{}",
            daemon.log()
        );
    }
}

/// A next hop that never answers: packets are the kernel's, which says so to their sender; all others are forwarded.
#[test]
fn a_neighbour_that_never_resolves() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add 10.50.0.0/16 via 10.1.0.77");
    bed.node.ip("-6 route add fd50::/32 via fd00:1::77");
    bed.node.ip("route add 10.51.0.0/16 via 10.1.0.2");
    let _daemon = Daemon::start(&bed.node, DEVICES);
    for to in ["10.50.0.1", "fd50::1"] {
        let reported = bed.generator.run(&format!("ping -n -c 2 -W 5 {to}"));
        assert!(reported.code == 1 && reported.stdout.to_lowercase().contains("unreachable"), "{reported:?}");
        let port = if to.contains(':') { format!("[{to}]:9") } else { format!("{to}:9") };
        assert_eq!(bed.send(&port, "unanswered", 5).counts(), (5, 0, 0), "{to}");
    }
    assert_eq!(bed.send("10.51.0.1:9", "beside it", 5).counts(), (0, 5, 0));
    assert!(daemon::status(&bed.node)["unresolved"].as_u64() >= Some(2));
}

/// A link that goes down and up all the time. Once it stays up the daemon's routes are the kernel's, and packets to the other link
/// are all delivered meanwhile.
#[test]
fn a_link_that_flaps() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.sysctl("net.ipv6.conf.n1.keep_addr_on_down", "1");
    bed.node.ip("route add 10.51.0.0/16 via 10.2.0.2");
    bed.side.ip("addr add 10.51.0.1/32 dev lo");
    let daemon = Daemon::start(&bed.node, DEVICES);
    let to = address("10.51.0.1:7000");
    let sink = UdpSink::open(&bed.side, to);
    let stream = UdpStream::start(&bed.generator, to, 1000);
    let mut rng = Random::new(3);
    for _ in 0..60 {
        bed.node.ip("link set n1 down");
        std::thread::sleep(Duration::from_millis(rng.below(30) as u64));
        bed.node.ip("link set n1 up");
        std::thread::sleep(Duration::from_millis(rng.below(30) as u64));
    }
    let sent = stream.stop();
    assert_eq!(sink.close_checked(), Received { packets: sent, twice: 0, wrong: 0 });
    for (route, to) in [
        ("route replace 10.50.0.0/16 via 10.1.0.2", "10.50.0.1:9"),
        ("-6 route replace fd50::/32 via fd00:1::2", "[fd50::1]:9"),
    ] {
        assert!(eventually(5.0, || bed.node.try_ip(route).code == 0), "{route} is refused");
        let forwards = eventually(8.0, || bed.send(to, "steady", 5).counts() == (0, 5, 0));
        assert!(forwards, "{to} is not forwarded:\n{}", daemon.log());
    }
}

/// A configuration that is cut off anywhere, as while it is written, changes nothing; whole, it counts.
#[test]
fn a_half_written_file_changes_nothing() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    let file = tempfile::NamedTempFile::new().expect("a file");
    let whole = "devices = [\n  \"n0\",\n  \"n1\",\n]\n";
    std::fs::write(file.path(), whole).expect("written");
    let daemon = Daemon::start(&bed.node, &format!("--config {}", file.path().display()));
    let forwards = || bed.send("10.1.0.2:9", "as before", 2).counts() == (0, 2, 0);
    assert!(forwards());
    let end = whole.rfind(']').expect("a bracket");
    for (cut, content) in (0..=end).step_by(3).enumerate() {
        std::fs::write(file.path(), &whole[..content]).expect("written");
        run(&format!("kill -HUP {}", daemon.pid())).ok();
        let printed = || daemon.log().matches("not reloaded").count() == cut + 1;
        assert!(eventually(5.0, printed), "cut off after {content} bytes:\n{}", daemon.log());
        assert!(forwards(), "cut off after {content} bytes:\n{}", daemon.log());
    }
    std::fs::write(file.path(), whole.replace("n1", "n2")).expect("written");
    run(&format!("kill -HUP {}", daemon.pid())).ok();
    assert!(eventually(5.0, || bed.send("10.2.0.2:9", "again", 2).counts() == (0, 0, 2)), "{}", daemon.log());
}

/// Segment lists of 32: in XDP or by the kernel, what arrives is the same. `node status` names processing that only the kernel can do.
#[test]
fn long_segment_lists_and_unknown_ways() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("sr tunsrc set fd00:1::1");
    bed.node.ip("-6 route add fd00:e::/32 via fd00:1::2");
    let segments = |count: u32| (1..=count).map(|n| format!("fd00:e::{n:x}")).collect::<Vec<_>>().join(",");
    for count in [16, 31, 32] {
        bed.node.ip(&format!(
            "route add 10.60.{count}.0/24 encap seg6 mode encap segs {} dev n1",
            segments(count)
        ));
    }
    let packet = |count: u32| craft::ipv4("10.0.0.2", &format!("10.60.{count}.1"), MARKER, |_| {});
    let sent = || [16, 31, 32].map(|count| bed.send_ip(&packet(count), MARKER).sink);
    let kernel = sent();
    assert_eq!(kernel[2][0].len(), 14 + 40 + 8 + 32 * 16 + 28 + MARKER.len());
    // Another kind of tunnel: nothing for XDP.
    let other = bed.node.try_ip("route add 10.61.0.0/24 encap ip id 7 dst 10.1.0.2 dev n1").code == 0;
    let _daemon = Daemon::start(&bed.node, DEVICES);
    assert_eq!(sent(), kernel, "the kernel's frames right");
    if other {
        let left = daemon::status(&bed.node)["punted"].to_string();
        assert!(left.contains("type 2"), "{left}");
    } else {
        println!("EXPECTED SKIP: this kernel has no `encap ip`");
    }
}

/// A table that rules name fills more than half of the image and changes as a whole. While it does not fit, its packets are the kernel's.
/// None is decided by the next rule's table.
#[test]
fn a_full_image_leads_nowhere_else() {
    needs_root!();
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add default via 10.2.0.2");
    bed.node.ip("rule add from 10.0.0.0/24 lookup 100");
    bed.node.ip("route add 10.50.0.1/32 via 10.1.0.2 table 100");
    bed.sink.ip("addr add 10.50.0.1/32 dev lo");
    let routes = |gateway: &str| -> String {
        let address = |n: u32| std::net::Ipv4Addr::from(0x1400_0000 + (n << 7));
        (0..30_000).map(|n| format!("route replace {}/32 via {gateway} table 100\n", address(n))).collect()
    };
    bed.node.ip_batch(&[], &routes("10.1.0.2")).ok();
    let daemon = Daemon::start(&bed.node, &format!("{DEVICES} --image 1M --receive-buffer 4096"));
    bed.becomes("before", "10.50.0.1:9", (0, 5, 0));
    let target = address("10.50.0.1:7000");
    let (passed, astray) = (Tap::open(&bed.node), Tap::open(&bed.side));
    let stream = UdpStream::start(&bed.generator, target, 5000);
    let before = status::overruns(&bed.node);
    for gateway in ["10.1.0.9", "10.1.0.2"] {
        // Asleep, so that nothing is followed one by one.
        run(&format!("kill -STOP {}", daemon.pid())).ok();
        bed.node.ip_batch(&[], &routes(gateway)).ok();
        run(&format!("kill -CONT {}", daemon.pid())).ok();
        std::thread::sleep(Duration::from_millis(500));
    }
    bed.becomes("afterwards", "10.50.0.1:9", (0, 5, 0));
    assert!(stream.stop() > 1000, "the stream stood still");
    assert!(status::overruns(&bed.node) > before, "every change was followed: the test proves nothing");
    let count = |frames: Vec<Vec<u8>>| {
        frames.iter().filter(|frame| frame.get(30..34) == Some(&[10, 50, 0, 1])).count()
    };
    assert_eq!(count(astray.close()), 0, "packets of table 100 left by the main table");
    assert!(count(passed.close()) > 0, "the image was never full: the test proves nothing");
}
