//! SID hooks: filters on the packet inside, samples in a file, while End.DX4 goes on.

use serde_json::Value;
use std::path::Path;
use trieline_testbed::bed::Bed;
use trieline_testbed::command::{run, run_with};
use trieline_testbed::daemon::{Daemon, Leftovers, is_generic, trieline};
use trieline_testbed::{craft, eventually, needs_root, packets};

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

/// [gen] ═(IPv6)═ [node: SID hook, then End.DX4] ──(IPv4)── [sink]
#[test]
fn sid_hooks_are_called_before_the_behaviour() {
    needs_root!();
    let bed = bed_with_sids();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a file");
    let devices = "devices = [\"n0\", \"n1\", \"n2\"]\n";
    let config = format!(
        "{devices}\
         [[filter]]\nname = \"inside\"\nfile = \"inside\"\nmatch = \"source\"\naction = \"drop\"\n\
         [[sid_hook]]\nname = \"clean\"\nsid = \"fd00:c::1\"\nfilters = [\"inside\"]\n\
         [[sid_hook]]\nname = \"look\"\nsid = \"fd00:c::2\"\npcap = \"look.pcapng\"\nsnap = 60\n"
    );
    write("trielined.toml", &config);
    write("inside", "10.66.0.0/16\n");
    // Where the sample goes, somebody laid a link to another file.
    write("kept", "of another");
    std::os::unix::fs::symlink(path("kept"), path("look.pcapng")).expect("a link");
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
    assert_eq!(std::fs::read_to_string(path("kept")).expect("the other file"), "of another");
    // for root alone
    let mode =
        std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&look).expect("a sample").permissions());
    assert_eq!(mode & 0o777, 0o600);
    // (3) `sid show` has all of it
    let reported = sids(&bed);
    assert_eq!(reported.len(), 2, "{reported:?}");
    let of = |sid: &str| {
        reported.iter().find(|reported| reported["dst"] == sid).expect("the SID")["sid_hook"].clone()
    };
    assert_eq!(
        (&of("fd00:c::1")["name"], &of("fd00:c::1")["filters"][0]),
        (&"clean".into(), &"inside".into())
    );
    let sample = of("fd00:c::2");
    assert_eq!((&sample["pcap"], &sample["frames"]), (&look.display().to_string().into(), &2.into()));
    // Two routes alike but for their SID are counted apart.
    let packets =
        |sid: &str| &reported.iter().find(|reported| reported["dst"] == sid).expect("the SID")["packets"];
    assert_eq!((packets("fd00:c::1"), packets("fd00:c::2")), (&1.into(), &2.into()), "{reported:?}");
    let text = trieline(&bed.node, "sid show").ok();
    assert!(text.contains("hook clean filter inside") && text.contains("2 frames"), "{text}");
    assert_eq!(trieline(&bed.node, "-j filter show").json()[0]["packets"], 2);
    // (4) the set is reloaded as any other
    write("inside", "10.67.0.0/16\n");
    trieline(&bed.node, "filter reload inside").ok();
    assert_eq!(sent("fd00:c::1", "10.66.0.1"), (0, 1, 0));
    assert_eq!(sent("fd00:c::1", "10.67.0.1"), (0, 0, 0));
    // (5) a configuration that is wrong changes nothing; one without SID hooks takes them away
    let reload = |text: &str| {
        write("trielined.toml", text);
        run(&format!("kill -HUP {}", daemon.pid())).ok();
    };
    reload(&format!("{config}[[sid_hook]]\nname = \"x\"\nsid = \"fd00:c::3\"\nfilters = [\"none\"]\n"));
    assert!(eventually(3.0, || daemon.log().contains("no filter is named")), "{}", daemon.log());
    assert_eq!(sent("fd00:c::1", "10.67.0.1"), (0, 0, 0));
    reload(&format!(
        "{config}[[sid_hook]]\nname = \"x\"\nsid = \"fd00:c::3\"\nprogram = \"/sys/fs/bpf/none\"\n"
    ));
    assert!(eventually(3.0, || daemon.log().contains("/sys/fs/bpf/none")), "{}", daemon.log());
    assert_eq!(sent("fd00:c::1", "10.67.0.1"), (0, 0, 0), "the SID hooks before are off:\n{}", daemon.log());
    reload(devices);
    assert!(eventually(3.0, || sent("fd00:c::1", "10.67.0.1") == (0, 1, 0)), "{}", daemon.log());
    assert!(sids(&bed).iter().all(|sid| sid.get("sid_hook").is_none()));
    // (6) the file was completed
    assert!(
        run_with("tail", &["-c", "200", &look.display().to_string()], "").stdout.contains("for the rate")
    );
}

/// A daemon that starts over the pins of another, with the SID hooks in another order. At no moment is a SID's packet given to
/// another SID's SID hook.
#[test]
fn sid_hooks_in_another_order_are_not_mixed_up() {
    needs_root!();
    let bed = bed_with_sids();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a file");
    let filter = |name: &str, action: &str| {
        format!("[[filter]]\nname = \"{name}\"\nfile = \"all\"\nmatch = \"source\"\naction = \"{action}\"\n")
    };
    let sid_hook = |sid: u8, filter: &str| {
        format!("[[sid_hook]]\nname = \"f{sid}\"\nsid = \"fd00:c::{sid}\"\nfilters = [\"{filter}\"]\n")
    };
    let head = format!("devices = [\"n0\", \"n1\"]\n{}{}", filter("none", "drop"), filter("some", "count"));
    write("all", "0.0.0.0/0\n");
    let args = format!("--config {}", path("trielined.toml").display());
    let _leftovers = Leftovers(&bed.node);
    write("trielined.toml", &format!("{head}{}{}", sid_hook(1, "none"), sid_hook(2, "some")));
    Daemon::start(&bed.node, &args).kill();
    write("trielined.toml", &format!("{head}{}{}", sid_hook(2, "some"), sid_hook(1, "none")));
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
    assert_eq!(seen.counts(), (0, 0, 0), "of {sent} packets that the first SID hook drops");
}

/// A SID changes from filters to a sample: no packet passes between the end of one and the start of the other.
#[test]
fn filters_hold_until_something_else_does() {
    needs_root!();
    let bed = bed_with_sids();
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let write = |name: &str, text: &str| std::fs::write(path(name), text).expect("a file");
    let head = "devices = [\"n0\", \"n1\"]\n\
         [[filter]]\nname = \"none\"\nfile = \"all\"\nmatch = \"source\"\naction = \"drop\"\n\
         [[sid_hook]]\nname = \"f\"\nsid = \"fd00:c::1\"\n";
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

/// An XDP program that returns a value (`TRIELINE_SID_HOOK_GO_ON` or an XDP action), pinned.
fn pin_program(folder: &Path, returns: u32, path: &Path) {
    let source = folder.join("program.c");
    let section = if is_generic() { "xdp" } else { "xdp.frags" };
    let text = format!(
        "struct xdp_md;\n__attribute__((section(\"{section}\"), used)) int returns(struct xdp_md *ctx) {{ return {returns}; }}\n\
         char terms[] __attribute__((section(\"license\"), used)) = \"GPL\";\n"
    );
    std::fs::write(&source, text).expect("a file");
    let object = folder.join("program.o");
    run(&format!("clang-19 -target bpf -O2 -c {} -o {}", source.display(), object.display())).ok();
    let opened = libbpf_rs::ObjectBuilder::default().open_file(&object).expect("an object");
    let loaded = opened.load().expect("a program");
    loaded.progs_mut().next().expect("one").pin(path).expect("pinned");
}

/// Removes a pin when dropped.
struct Pin(std::path::PathBuf);

impl Drop for Pin {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A pinned program or a sample's folder is gone: the daemon starts all the same, also if it makes new tables. The program of before stays
/// in force, a SID without one drops, and both are as configured once they can be.
#[test]
fn sid_hooks_that_are_gone_do_not_stop_a_restart() {
    needs_root!();
    let bed = bed_with_sids();
    bed.node.ip("-6 route add fd00:c::3/128 encap seg6local action End.DX4 nh4 10.9.9.9 dev n1");
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    let pin = Pin(format!("/sys/fs/bpf/tlbb-mine-{}", bed.node.inode()).into());
    let program = |name: &str, sid: u8| {
        let pin = pin.0.display();
        format!("[[sid_hook]]\nname = \"{name}\"\nsid = \"fd00:c::{sid}\"\nprogram = \"{pin}\"\n")
    };
    let config = |more: &str| {
        let text = format!(
            "devices = [\"n0\", \"n1\", \"n2\"]\nimage = \"16M\"\n{}\
             [[sid_hook]]\nname = \"look\"\nsid = \"fd00:c::2\"\npcap = \"samples/look.pcapng\"\nsnap = 60\n{more}",
            program("mine", 1)
        );
        std::fs::write(path("trielined.toml"), text).expect("a file");
    };
    config("");
    let args = format!("--config {}", path("trielined.toml").display());
    let sent = |sid: &str| bed.send_ip(&packet(sid, "10.66.0.1"), MARKER).counts();
    let dropped = |name: &str| {
        let reported = trieline_testbed::daemon::status(&bed.node);
        let counters = reported["counters"].as_array().cloned().unwrap_or_default();
        counters
            .iter()
            .find(|counter| counter["name"] == name)
            .and_then(|counter| counter["packets"].as_u64())
    };
    // (1) where nothing is in force, a start refuses
    Daemon::refused(&bed.node, &args).fails(1, &["hook mine", "tlbb-mine"]);
    std::fs::create_dir(path("samples")).expect("a folder");
    pin_program(folder.path(), 1, &pin.0);
    Daemon::start(&bed.node, &args).kill();
    let _leftovers = Leftovers(&bed.node);
    assert_eq!((sent("fd00:c::1"), dropped("sid_hook_drop")), ((0, 0, 0), Some(1)));
    // (2) both are gone, and a program that never was is new: a restart, then one with new tables, by the program of before
    std::fs::remove_file(&pin.0).expect("unpinned");
    std::fs::remove_dir_all(path("samples")).expect("removed");
    config(&program("new", 3));
    for (what, more, counted) in [("a restart", "", 2), ("new tables", " --next-hops 1000", 1)] {
        let daemon = Daemon::start(&bed.node, &format!("{args}{more}"));
        let log = daemon.log();
        assert_eq!(
            (sent("fd00:c::1"), dropped("sid_hook_drop")),
            ((0, 0, 0), Some(counted)),
            "{what}: {log}"
        );
        assert_eq!((sent("fd00:c::2"), sent("fd00:c::3")), ((0, 1, 0), (0, 0, 0)), "{what}: {log}");
        assert_eq!(dropped("sid_hook_missing"), Some(1), "{what}: {log}");
        for expected_text in
            ["hook mine", "the previous program stays attached", "hook look", "hook new", "dropped"]
        {
            assert!(log.contains(expected_text), "{what}: {expected_text}: {log}");
        }
        let reported = trieline_testbed::daemon::status(&bed.node);
        assert_eq!(reported["problems"].as_array().map(Vec::len), Some(3), "{reported:#}");
        assert!(sids(&bed).iter().all(|sid| sid["sid_hook"]["problem"].is_string()));
        let text = trieline(&bed.node, "node status").ok() + &trieline(&bed.node, "sid show").ok();
        assert!(text.contains("problem hook new") && text.contains("problem: hook look"), "{text}");
        daemon.kill();
    }
    // (3) both are there again: in force without a reload
    let _daemon = Daemon::start(&bed.node, &format!("{args} --next-hops 1000"));
    pin_program(folder.path(), 64, &pin.0);
    std::fs::create_dir(path("samples")).expect("a folder");
    let problems = || trieline_testbed::daemon::status(&bed.node)["problems"].as_array().map(Vec::len);
    assert!(eventually(5.0, || problems() == Some(0)), "{:#}", trieline_testbed::daemon::status(&bed.node));
    for sid in ["fd00:c::1", "fd00:c::2", "fd00:c::3"] {
        assert_eq!(sent(sid), (0, 1, 0), "{sid}");
    }
    assert!(eventually(3.0, || captured(&path("samples/look.pcapng")) == 1));
}

/// As many samples as there is room for. A restart cannot give each a place of its own beside the old ones, so it takes the old places.
#[test]
fn many_samples_do_not_stop_a_restart() {
    needs_root!();
    let bed = bed_with_sids();
    let folder = tempfile::tempdir().expect("a folder");
    let mut text = "devices = [\"n0\", \"n1\"]\nimage = \"16M\"\n".to_owned();
    for number in 1..=40 {
        text += &format!(
            "[[sid_hook]]\nname = \"f{number}\"\nsid = \"fd00:c::{number:x}\"\npcap = \"{number}.pcapng\"\nsnap = 60\n"
        );
    }
    std::fs::write(folder.path().join("trielined.toml"), text).expect("a file");
    let args = format!("--config {}", folder.path().join("trielined.toml").display());
    Daemon::start(&bed.node, &args).kill();
    let _leftovers = Leftovers(&bed.node);
    let _daemon = Daemon::start(&bed.node, &args);
    for sid in ["fd00:c::1", "fd00:c::2"] {
        assert_eq!(bed.send_ip(&packet(sid, "10.66.0.1"), MARKER).counts(), (0, 1, 0));
    }
    for number in 1..=2 {
        let file = folder.path().join(format!("{number}.pcapng"));
        assert!(eventually(3.0, || captured(&file) == 1), "{} has {}", file.display(), captured(&file));
    }
}
