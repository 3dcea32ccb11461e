//! Functions bound to SIDs: filters on the packet inside, samples in a file, while End.DX4 goes on.

use serde_json::Value;
use std::path::Path;
use trieline_tests::bed::Bed;
use trieline_tests::command::{run, run_with};
use trieline_tests::daemon::{Daemon, Leftovers, trieline};
use trieline_tests::{craft, eventually, packets, root};

const MARKER: &[u8] = b"to a segment";

fn bed_with_sids() -> Bed {
    let bed = Bed::new();
    bed.warm();
    bed.node.ip("route add 10.9.9.9/32 via 10.1.0.2");
    for sid in ["fd00:c::1", "fd00:c::2"] {
        bed.node.ip(&format!("-6 route add {sid}/128 encap seg6local action End.DX4 nh4 10.9.9.9 dev n1"));
    }
    bed
}

fn packet(sid: &str, source: &str) -> Vec<u8> {
    let inner = craft::ipv4(source, "10.77.0.1", MARKER, |_| {});
    craft::ipv6("fd00::2", sid, (4, &inner), |_| {})
}

fn sids(bed: &Bed) -> Vec<Value> {
    trieline(&bed.node, "-j sid show").json().as_array().cloned().unwrap_or_default()
}

fn captured(file: &Path) -> usize {
    let file = file.display().to_string();
    run_with("tcpdump", &["-nn", "-r", &file], "").ok().lines().count()
}

/// [gen] ═(IPv6)═ [node: function, then End.DX4] ──(IPv4)── [sink]
#[test]
fn functions_are_called_before_the_behaviour() {
    if !root() {
        return;
    }
    let bed = bed_with_sids();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a file");
    let devices = "devices = [\"n0\", \"n1\", \"n2\"]\n";
    let config = format!(
        "{devices}\
         [[filter]]\nname = \"inside\"\nfile = \"inside\"\nmatch = \"source\"\naction = \"drop\"\n\
         [[function]]\nname = \"clean\"\nsid = \"fd00:c::1\"\nfilters = [\"inside\"]\n\
         [[function]]\nname = \"look\"\nsid = \"fd00:c::2\"\npcap = \"look.pcapng\"\nsnap = 60\n"
    );
    write("trielined.toml", &config);
    write("inside", "10.66.0.0/16\n");
    let daemon = Daemon::start(&bed.node, &format!("--config {}", path("trielined.toml").display()));
    // (1) the filter is asked for the packet inside, at its SID only, and not at devices
    let sent = |sid: &str, source: &str| bed.send_ip(&packet(sid, source), MARKER).counts();
    assert_eq!(sent("fd00:c::1", "10.66.0.1"), (0, 0, 0));
    assert_eq!(sent("fd00:c::1", "10.67.0.1"), (0, 1, 0));
    assert_eq!(sent("fd00:c::2", "10.66.0.1"), (0, 1, 0));
    // also for what the kernel does, as behind an atomic fragment's header
    let inner = |source| craft::ipv4(source, "10.77.0.1", MARKER, |_| {});
    let atomic = |source| [&[4, 0, 0, 0, 0, 0, 0, 1], &inner(source)[..]].concat();
    let fragment = |source| craft::ipv6("fd00::2", "fd00:c::1", (44, &atomic(source)), |_| {});
    assert_eq!(bed.send_ip(&fragment("10.66.0.1"), MARKER).counts(), (0, 0, 0));
    assert_eq!(bed.send_ip(&fragment("10.67.0.1"), MARKER).counts(), (1, 1, 0));
    // (2) the other SID's packets are in the file, and nothing else is
    let look = path("look.pcapng");
    assert_eq!(sent("fd00:c::2", "10.67.0.1"), (0, 1, 0));
    assert!(eventually(3.0, || captured(&look) == 2), "{} packets", captured(&look));
    // for root alone
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&look).expect("a sample").permissions());
    assert_eq!(mode & 0o777, 0o600);
    // (3) all of it is told
    let told = sids(&bed);
    assert_eq!(told.len(), 2, "{told:?}");
    let of = |sid: &str| told.iter().find(|told| told["dst"] == sid).expect("the SID")["function"].clone();
    assert_eq!(
        (&of("fd00:c::1")["name"], &of("fd00:c::1")["filters"][0]),
        (&"clean".into(), &"inside".into())
    );
    assert_eq!((&of("fd00:c::2")["kind"], &of("fd00:c::2")["frames"]), (&"pcap".into(), &2.into()));
    // Two routes alike but for their SID are counted apart.
    let packets = |sid: &str| &told.iter().find(|told| told["dst"] == sid).expect("the SID")["packets"];
    assert_eq!((packets("fd00:c::1"), packets("fd00:c::2")), (&1.into(), &2.into()), "{told:?}");
    let text = trieline(&bed.node, "sid show").ok();
    assert!(text.contains("function clean filter inside") && text.contains("2 frames"), "{text}");
    assert_eq!(trieline(&bed.node, "-j filter show").json()[0]["packets"], 2);
    // (4) the set is reloaded as any other
    write("inside", "10.67.0.0/16\n");
    trieline(&bed.node, "filter reload inside").ok();
    assert_eq!(sent("fd00:c::1", "10.66.0.1"), (0, 1, 0));
    assert_eq!(sent("fd00:c::1", "10.67.0.1"), (0, 0, 0));
    // (5) a configuration that is wrong changes nothing; one without functions takes them away
    let reload = |text: &str| {
        write("trielined.toml", text);
        run(&format!("kill -HUP {}", daemon.pid())).ok();
    };
    reload(&format!("{config}[[function]]\nname = \"x\"\nsid = \"fd00:c::3\"\nfilters = [\"none\"]\n"));
    assert!(eventually(3.0, || daemon.log().contains("no filter is named")), "{}", daemon.log());
    assert_eq!(sent("fd00:c::1", "10.67.0.1"), (0, 0, 0));
    reload(&format!(
        "{config}[[function]]\nname = \"x\"\nsid = \"fd00:c::3\"\nprogram = \"/sys/fs/bpf/none\"\n"
    ));
    assert!(eventually(3.0, || daemon.log().contains("/sys/fs/bpf/none")), "{}", daemon.log());
    assert_eq!(sent("fd00:c::1", "10.67.0.1"), (0, 0, 0), "the functions before are off:\n{}", daemon.log());
    reload(devices);
    assert!(eventually(3.0, || sent("fd00:c::1", "10.67.0.1") == (0, 1, 0)), "{}", daemon.log());
    assert!(sids(&bed).iter().all(|sid| sid.get("function").is_none()));
    // (6) the file was completed
    assert!(
        run_with("tail", &["-c", "200", &look.display().to_string()], "").stdout.contains("for the rate")
    );
}

/// A daemon that starts over the pins of another, with the functions in another order: at no moment is a SID's packet given to
/// another SID's function.
#[test]
fn functions_in_another_order_are_not_mixed_up() {
    if !root() {
        return;
    }
    let bed = bed_with_sids();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a file");
    let filter = |name: &str, action: &str| {
        format!("[[filter]]\nname = \"{name}\"\nfile = \"all\"\nmatch = \"source\"\naction = \"{action}\"\n")
    };
    let function = |sid: u8, filter: &str| {
        format!("[[function]]\nname = \"f{sid}\"\nsid = \"fd00:c::{sid}\"\nfilters = [\"{filter}\"]\n")
    };
    let head = format!("devices = [\"n0\", \"n1\"]\n{}{}", filter("none", "drop"), filter("some", "count"));
    write("all", "0.0.0.0/0\n");
    let args = format!("--config {}", path("trielined.toml").display());
    let _leftovers = Leftovers(&bed.node);
    write("trielined.toml", &format!("{head}{}{}", function(1, "none"), function(2, "some")));
    Daemon::start(&bed.node, &args).kill();
    write("trielined.toml", &format!("{head}{}{}", function(2, "some"), function(1, "none")));
    let ready = std::sync::atomic::AtomicBool::new(false);
    let mut sent = 0;
    let seen = bed.watch(MARKER, || {
        std::thread::scope(|scope| {
            let daemon = scope.spawn(|| {
                let _daemon = Daemon::start(&bed.node, &args);
                ready.store(true, std::sync::atomic::Ordering::Release);
                std::thread::sleep(std::time::Duration::from_millis(200));
            });
            while !ready.load(std::sync::atomic::Ordering::Acquire) && !daemon.is_finished() {
                packets::send_ip(&bed.generator, &packet("fd00:c::1", "10.66.0.1"));
                sent += 1;
            }
        });
    });
    assert!(sent > 50, "only {sent} packets were sent");
    assert_eq!(seen.counts(), (0, 0, 0), "of {sent} packets that the first function drops");
}

/// A SID whose filters give way to a sample: no packet comes by when the one is no more and the other not yet.
#[test]
fn filters_hold_until_something_else_does() {
    if !root() {
        return;
    }
    let bed = bed_with_sids();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a file");
    let head = "devices = [\"n0\", \"n1\"]\n\
         [[filter]]\nname = \"none\"\nfile = \"all\"\nmatch = \"source\"\naction = \"drop\"\n\
         [[function]]\nname = \"f\"\nsid = \"fd00:c::1\"\n";
    write("all", "0.0.0.0/0\n");
    write("trielined.toml", &format!("{head}filters = [\"none\"]\n"));
    let _daemon = Daemon::start(&bed.node, &format!("--config {}", path("trielined.toml").display()));
    write("trielined.toml", &format!("{head}pcap = \"look.pcapng\"\nsnap = 60\n"));
    let ready = std::sync::atomic::AtomicBool::new(false);
    let mut sent = 0;
    let seen = bed.watch(MARKER, || {
        std::thread::scope(|scope| {
            let reload = scope.spawn(|| {
                std::thread::sleep(std::time::Duration::from_millis(50));
                trieline(&bed.node, "node reload").ok();
                std::thread::sleep(std::time::Duration::from_millis(50));
                ready.store(true, std::sync::atomic::Ordering::Release);
            });
            while !ready.load(std::sync::atomic::Ordering::Acquire) && !reload.is_finished() {
                packets::send_ip(&bed.generator, &packet("fd00:c::1", "10.66.0.1"));
                sent += 1;
            }
        });
    });
    let (_, arrived, _) = seen.counts();
    assert!(sent > 50 && arrived > 0 && arrived < sent, "{arrived} of {sent}");
    let look = path("look.pcapng");
    assert!(eventually(5.0, || captured(&look) >= arrived), "{} of {arrived}", captured(&look));
    assert_eq!(captured(&look), arrived, "packets that arrived are those that were sampled");
}
