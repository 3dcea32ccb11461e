//! Packets that filters, SID hooks and tenants forbid come out nowhere, however a frame is dressed. The kernel alone lets them through, and
//! beside trielined they leave by no device and reach no socket.

use crate::bypass::nft;
use std::collections::BTreeMap;
use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use trieline_testbed::bed::Bed;
use trieline_testbed::daemon::{Daemon, status};
use trieline_testbed::random::Random;
use trieline_testbed::{craft, linux, needs_root, packets};

/// Sends frames, one a line of hex, as no socket of a kernel without VLAN devices would.
const MARKER: &[u8] = b"must not come out";
const NODE: [u8; 6] = [2, 0, 0, 0, 0, 1];
const OTHERS: [[u8; 6]; 3] = [[0xff; 6], [0x33, 0x33, 0, 0, 0, 1], [1, 0, 0x5e, 0, 0, 1]];
const FRAMES: usize = 400;

/// UDP that a socket takes: with a checksum over IPv6, without one over IPv4.
fn udp(source: &str, destination: &str) -> Vec<u8> {
    let mut datagram = craft::udp(MARKER);
    if source.contains('.') {
        datagram[6..8].fill(0);
        let mut packet = craft::ipv4(source, destination, MARKER, |_| {});
        packet.truncate(20);
        return [packet, datagram].concat();
    }
    datagram[6..8].fill(0);
    let mut sum = 17 + datagram.len() as u32;
    let addresses = craft::ipv6(source, destination, (17, &[]), |_| {})[8..].to_vec();
    for pair in [addresses, datagram.clone()].concat().chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], *pair.get(1).unwrap_or(&0)]));
    }
    while sum >> 16 != 0 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    datagram[6..8].copy_from_slice(&(!(sum as u16)).to_be_bytes());
    craft::ipv6(source, destination, (17, &datagram), |_| {})
}

/// A frame around a packet; the first ones plain, tagged once as 802.1ad, twice as 802.1Q, and to all.
fn dressed(packet: &[u8], number: usize, rng: &mut Random) -> Vec<u8> {
    let mut pick = |n| rng.below(n);
    let (mac, tags) = match number {
        0 => (NODE, vec![]),
        1 => (NODE, vec![0x88a8]),
        2 => (NODE, vec![0x8100, 0x8100]),
        3 => (OTHERS[0], vec![]),
        _ => {
            let mac = if pick(3) == 0 { OTHERS[pick(3)] } else { NODE };
            (mac, (0..pick(6)).map(|_| [0x8100u16, 0x88a8][pick(2)]).collect())
        }
    };
    let mut frame = [mac, [2, 0, 0, 0, 0, 0]].concat();
    for tag in tags {
        frame.extend([tag.to_be_bytes(), [(pick(8) << 5) as u8, 0]].concat());
    }
    frame.extend(if packet[0] >> 4 == 4 { [0x08, 0x00] } else { [0x86, 0xdd] });
    frame.extend(packet);
    if pick(4) == 0 {
        frame.resize(frame.len() + pick(40), 0xee);
    }
    frame
}

/// UDP sockets of the node, on port 9 of all its addresses, that count what they get.
struct Sockets {
    stop: Arc<AtomicBool>,
    got: Arc<AtomicUsize>,
    thread: std::thread::JoinHandle<()>,
}

impl Sockets {
    fn open(bed: &Bed) -> Self {
        let (stop, got) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = bed.node.spawn({
            let (stop, got) = (stop.clone(), got.clone());
            move || {
                let socket = UdpSocket::bind("[::]:9").expect("port 9");
                socket.set_read_timeout(Some(Duration::from_millis(20))).expect("a timeout");
                ready.send(()).expect("the opener waits");
                let mut bytes = [0; 2048];
                while !stop.load(Ordering::Acquire) {
                    while socket.recv(&mut bytes).is_ok_and(|len| bytes[..len].starts_with(MARKER)) {
                        got.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        });
        is_ready.recv().expect("the sockets open");
        Self { stop, got, thread }
    }

    fn close(self) -> usize {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the sockets end");
        self.got.load(Ordering::Relaxed)
    }
}

/// Sends the frames; how many leave the node, and how many its sockets get.
fn out(bed: &Bed, frames: &[Vec<u8>]) -> (usize, usize) {
    let sockets = Sockets::open(bed);
    let seen = bed.watch(MARKER, || packets::send_frames(&bed.generator, "g0", frames));
    (seen.sink.len() + seen.side.len(), sockets.close())
}

fn drops(bed: &Bed) -> BTreeMap<String, u64> {
    let counters = status(&bed.node)["counters"].as_array().cloned().unwrap_or_default();
    let named =
        counters.iter().filter_map(|c| Some((c["name"].as_str()?.to_owned(), c["packets"].as_u64()?)));
    named.filter(|(_, packets)| *packets > 0).collect()
}

/// A node with SIDs, and routes beyond its own addresses.
fn bed() -> Bed {
    let bed = Bed::new();
    bed.warm();
    for line in [
        "route add 10.50.0.0/16 via 10.1.0.2",
        "route add 10.60.0.0/16 via 10.2.0.2",
        "-6 route add 2001:db8:50::/48 via fd00:1::2",
        "-6 route add 2001:db8:60::/48 via fd00:2::2",
        "-6 route add fd00:a::6/128 encap seg6local action End.DT6 table main dev n1",
        "-6 route add fd00:a::7/128 encap seg6local action End.DT6 table main dev n1",
        "-6 route add fd00:a::1/128 encap seg6local action End dev n1",
    ] {
        bed.node.ip(line);
    }
    bed
}

/// Sends the same frames through the kernel alone, where many come out, and beside a daemon, where none may. `allowed` are those that the
/// daemon lets through all the same.
fn nothing_comes_out(
    what: &str,
    config: &str,
    files: &[(&str, &str)],
    prepare: &dyn Fn(&Bed),
    packets: &dyn Fn(&mut Random) -> Vec<Vec<u8>>,
) {
    let bed = bed();
    prepare(&bed);
    let folder = tempfile::tempdir().expect("a folder");
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    let file = folder.path().join("trielined.toml");
    std::fs::write(&file, format!("devices = [\"n0\", \"n1\", \"n2\"]\n{config}")).expect("a file");
    let mut rng = Random::new(14);
    let frames: Vec<_> = (0..FRAMES)
        .flat_map(|number| {
            // Packets that belong together come the same way.
            let (packets, seed) = (packets(&mut rng), rng.bits());
            packets.into_iter().map(move |packet| dressed(&packet, number, &mut Random::new(seed)))
        })
        .collect();
    let (left, received) = out(&bed, &frames);
    assert!(left > FRAMES / 8, "{what}: {left} left the kernel alone, {received} reached its sockets");
    let daemon = Daemon::start(&bed.node, &format!("--config {}", file.display()));
    let (left, received) = out(&bed, &frames);
    assert_eq!((left, received), (0, 0), "{what}: left, reached a socket; {:?}", drops(&bed));
    // All of them are counted.
    let counted: u64 = drops(&bed).values().sum();
    assert!(counted >= FRAMES as u64, "{what}: {counted} counted, {:?}", drops(&bed));
    drop(daemon);
}

/// The packet behind `headers` of extension headers, in two fragments. The first one ends within a header, whose end and what follows
/// are harmless in its frame's trailer. In the second they lead to what the packet has.
fn fragments(packet: &[u8], rng: &mut Random) -> Vec<Vec<u8>> {
    let options = |next: u8, eights: u8| {
        // One option that is passed over: Linux takes at most seven bytes of padding.
        let mut header = vec![next, eights, 0x1e, 4 + 8 * eights, 0, 0, 0, 0];
        header.resize(8 + 8 * usize::from(eights), 0);
        header
    };
    let whole = [options(60, 1), options(packet[6], 0), packet[40..].to_vec()].concat();
    let id = (rng.bits() as u32).to_be_bytes();
    let fragment = |field: u16, bytes: &[u8]| {
        let header = [&[60, 0][..], &field.to_be_bytes(), &id, bytes].concat();
        let mut fragment = packet[..40].to_vec();
        fragment[6] = 44;
        fragment[4..6].copy_from_slice(&(header.len() as u16).to_be_bytes());
        [fragment, header].concat()
    };
    let trailer = [&[0; 8][..], &options(58, 0), &[128, 0, 0, 0, 0, 0, 0, 1]].concat();
    vec![[fragment(1, &whole[..8]), trailer].concat(), fragment(8, &whole[8..])]
}

/// A packet that says it is shorter than it is, and begins with hop-by-hop options: then Linux reads on.
fn without_length(packet: &[u8]) -> Vec<u8> {
    let mut longer = [&packet[..40], &[packet[6], 0, 1, 4, 0, 0, 0, 0], &packet[40..]].concat();
    longer[4..7].fill(0);
    longer
}

#[test]
fn filters_hold_whatever_the_frame() {
    needs_root!();
    let config = "[[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"source\"\naction = \"drop\"\n";
    let files = [("bad", "203.0.113.0/24\n2001:db8:bad::/48\n")];
    nothing_comes_out("filters", config, &files, &|_| {}, &|rng| {
        vec![if rng.below(2) == 0 {
            udp("203.0.113.9", rng.pick(&["10.50.0.1", "10.60.0.1", "10.0.0.1", "10.2.0.1"]))
        } else {
            udp("2001:db8:bad::1", rng.pick(&["2001:db8:50::1", "2001:db8:60::1", "fd00::1", "fd00:2::1"]))
        }]
    });
}

#[test]
fn sid_hooks_hold_whichever_way_their_sid_is_reached() {
    needs_root!();
    let config = "[[filter]]\nname = \"inside\"\nfile = \"inside\"\nmatch = \"source\"\naction = \"drop\"\n\
                  [[sid_hook]]\nname = \"clean\"\nsid = \"fd00:a::6\"\nfilters = [\"inside\"]\n";
    nothing_comes_out("sid_hooks", config, &[("inside", "2001:db8:bad::/48\n")], &|_| {}, &|rng| {
        let inner = udp("2001:db8:bad::1", rng.pick(&["2001:db8:50::1", "2001:db8:60::1", "fd00:2::1"]));
        let (sid, end, other) = ("fd00:a::6", "fd00:a::1", "fd00:a::7");
        let plain = craft::ipv6("fd00::2", sid, (41, &inner), |_| {});
        let by = |segments: &[&str], left: u8, to: &str, inner: &[u8]| {
            let header = craft::srh(segments, left, (41, inner));
            craft::ipv6("fd00::2", to, (43, &header), |_| {})
        };
        let mut version = plain.clone();
        version[0] = 0x45;
        vec![match rng.below(11) {
            0 => plain,
            1 => by(&[sid], 0, sid, &inner),
            2 => by(&[sid, end], 1, end, &inner),
            3 => by(&[sid, end, end], 2, end, &inner),
            4 => by(&[sid, "fd00::1"], 1, "fd00::1", &inner),
            5 => craft::ipv6("fd00::2", other, (41, &plain), |_| {}),
            6 => craft::ipv6("fd00::2", other, (41, &by(&[sid, end], 1, end, &inner)), |_| {}),
            // Linux does not look at the version of a packet inside.
            7 => craft::ipv6("fd00::2", other, (41, &version), |_| {}),
            8 => without_length(&by(&[sid, "fd00::1"], 1, "fd00::1", &inner)),
            _ => return fragments(&by(&[sid, "fd00::1"], 1, "fd00::1", &inner), rng),
        }]
    });
}

#[test]
fn tenants_stay_apart_whatever_the_frame() {
    needs_root!();
    let config = "[[vrf]]\nname = \"red\"\ntable = 100\ndevices = [\"n0\"]\n";
    let own = |bed: &Bed| {
        bed.node.ip("-6 route add local fd00::1/128 dev lo table 100");
    };
    nothing_comes_out("tenants", config, &[], &own, &|rng| {
        let source = rng.pick(&["10.0.0.2", "240.1.1.1"]);
        let source6 = rng.pick(&["fd00::2", "fe80::9"]);
        vec![match rng.below(7) {
            0 | 1 => udp(source, rng.pick(&["10.60.0.1", "10.50.0.1", "10.2.0.1", "10.1.0.1"])),
            2 | 3 => udp(source6, rng.pick(&["2001:db8:60::1", "2001:db8:50::1", "fd00:2::1", "fd00:1::1"])),
            4 => by_own_address(rng),
            5 => without_length(&by_own_address(rng)),
            _ => return fragments(&by_own_address(rng), rng),
        }]
    });
}

/// A packet to the node itself, which leads out of it.
fn by_own_address(rng: &mut Random) -> Vec<u8> {
    let inner = udp("fd00::2", rng.pick(&["2001:db8:60::1", "fd00:2::1"]));
    let header = craft::srh(&["fd00:a::7", "fd00::1"], 1, (41, &inner));
    craft::ipv6("fd00::2", "fd00::1", (43, &header), |_| {})
}

/// NEXT-C-SID leads to a SID with a function.
fn sid_hooks_hold_behind_next_csid(what: &str, table: &str, prepare: &dyn Fn(&Bed)) {
    needs_root!();
    if linux() < (6, 6) {
        return;
    }
    let config = "[[filter]]\nname = \"inside\"\nfile = \"inside\"\nmatch = \"source\"\naction = \"drop\"\n\
                  [[sid_hook]]\nname = \"clean\"\nsid = \"fd00:c:6::\"\nfilters = [\"inside\"]\n";
    let sids = |bed: &Bed| {
        bed.node.ip("-6 route add fd00:c:6::/128 encap seg6local action End.DT6 table main dev n1");
        let sid = "fd00:c:1::/48 encap seg6local action End flavors next-csid lblen 32 nflen 16 dev n1";
        bed.node.ip(&format!("-6 route add {sid} table {table}"));
        prepare(bed);
    };
    nothing_comes_out(what, config, &[("inside", "2001:db8:bad::/48\n")], &sids, &|rng| {
        let inner = udp("2001:db8:bad::1", rng.pick(&["2001:db8:50::1", "2001:db8:60::1", "fd00:2::1"]));
        let to = rng.pick(&["fd00:c:1:6::", "fd00:c:1:1:6::", "fd00:c:1:1:1:6::"]);
        vec![craft::ipv6("fd00::2", to, (41, &inner), |_| {})]
    });
}

/// The SID of NEXT-C-SID is in a table that only rules name.
#[test]
fn sid_hooks_hold_behind_next_csid_of_another_table() {
    sid_hooks_hold_behind_next_csid("another table", "77", &|bed| {
        bed.node.ip("-6 rule add pref 100 from fd00::/64 lookup 77");
    });
}

/// Its route is left to the kernel, because netfilter looks at some packets.
#[test]
fn sid_hooks_hold_behind_next_csid_that_the_kernel_does() {
    sid_hooks_hold_behind_next_csid("netfilter", "main", &|bed| {
        let rule = "ip6 daddr 2001:db8:99::/48 counter drop";
        nft(
            &bed.node,
            &format!("table ip6 f {{\n chain f {{\n type filter hook forward priority 0;\n {rule}\n }}\n}}"),
        );
    });
}

/// A packet in IPv4 of a protocol.
fn in_ipv4(source: &str, destination: &str, protocol: u8, inner: &[u8]) -> Vec<u8> {
    let mut packet = craft::ipv4(source, destination, inner, |p| p[9] = protocol);
    packet.drain(20..28);
    let length = packet.len() as u16;
    packet[2..4].copy_from_slice(&length.to_be_bytes());
    packet[10..12].fill(0);
    let words = packet[..20].chunks(2).map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])));
    let sum = words.sum::<u32>();
    let sum = (sum >> 16) + (sum & 0xffff);
    packet[10..12].copy_from_slice(&(!((sum >> 16) + sum) as u16).to_be_bytes());
    packet
}

/// Tunnels that take packets from anybody: the kernel's fallback devices, and GRE by a key and over IPv6.
fn tunnels(bed: &Bed) {
    bed.node.ip("link add tgre type gre local 10.0.0.1 remote any key 7");
    bed.node.ip("link add tgre6 type ip6gre local fd00::1 remote ::");
    for name in ["tunl0", "sit0", "tgre", "tgre6"] {
        bed.node.ip(&format!("link set {name} up"));
    }
}

#[test]
#[ignore = "needs sit and GRE: run in tests/vm"]
fn sid_hooks_hold_behind_tunnels() {
    needs_root!();
    let config = "[[filter]]\nname = \"inside\"\nfile = \"inside\"\nmatch = \"source\"\naction = \"drop\"\n\
                  [[sid_hook]]\nname = \"clean\"\nsid = \"fd00:a::6\"\nfilters = [\"inside\"]\n";
    nothing_comes_out("tunnels", config, &[("inside", "2001:db8:bad::/48\n")], &tunnels, &|rng| {
        let inner = udp("2001:db8:bad::1", rng.pick(&["2001:db8:50::1", "2001:db8:60::1", "fd00:2::1"]));
        let plain = craft::ipv6("fd00::2", "fd00:a::6", (41, &inner), |_| {});
        let gre = |kind: u16, packet: &[u8]| {
            [&[0x20, 0][..], &kind.to_be_bytes(), &7u32.to_be_bytes(), packet].concat()
        };
        vec![match rng.below(4) {
            0 => in_ipv4("10.0.0.2", rng.pick(&["10.0.0.1", "10.2.0.1"]), 41, &plain),
            1 => in_ipv4("10.0.0.2", "10.0.0.1", 47, &gre(0x86dd, &plain)),
            2 => {
                in_ipv4("10.0.0.2", "10.0.0.1", 47, &gre(0x800, &in_ipv4("10.0.0.2", "10.0.0.1", 41, &plain)))
            }
            _ => craft::ipv6("fd00::2", "fd00::1", (47, &[&[0, 0, 0x86, 0xdd][..], &plain].concat()), |_| {}),
        }]
    });
}

/// A tunnel takes packets to groups of the link, too.
#[test]
#[ignore = "needs IPIP and sit: run in tests/vm"]
fn filters_hold_for_tunnels_to_groups() {
    needs_root!();
    let config = "[[filter]]\nname = \"bad\"\nfile = \"bad\"\nmatch = \"source\"\naction = \"drop\"\n";
    nothing_comes_out("groups", config, &[("bad", "10.0.0.2/32\n")], &tunnels, &|rng| {
        let group = rng.pick(&["224.0.0.1", "10.0.0.1"]);
        vec![if rng.below(2) == 0 {
            in_ipv4("10.0.0.2", group, 4, &udp("10.0.0.7", rng.pick(&["10.50.0.1", "10.60.0.1"])))
        } else {
            in_ipv4("10.0.0.2", group, 41, &udp("fd00::7", rng.pick(&["2001:db8:50::1", "2001:db8:60::1"])))
        }]
    });
}
