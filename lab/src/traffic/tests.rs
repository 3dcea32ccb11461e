//! Made frames given to the receiver's program, and real ones between two namespaces: every count is as known.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libbpf_rs::ProgramInput;
use trieline_testbed::{
    command,
    namespace::{End, Namespace, mac, veth},
};

use super::*;
use crate::{
    frames::{Frame, Kind, MARK},
    netns, testing,
};

const NEAR: [u8; 6] = [2, 0, 0, 0, 0, 1];
const FAR: [u8; 6] = [2, 0, 0, 0, 0, 2];
const TO: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 7);

/// Two namespaces with a link: the sender's end and the receiver's.
struct Link {
    near: (Namespace, u32),
    far: (Namespace, u32),
}

fn link() -> Link {
    let (near, far) = (netns::create("gen").unwrap(), netns::create("sink").unwrap());
    let end = |namespace, device, mac| End { namespace, device, mac };
    veth(end(&near, "a0", NEAR), end(&far, "b0", FAR)).unwrap();
    for (namespace, device) in [(&near, "a0"), (&far, "b0")] {
        namespace.write_sysctl("net/ipv6/conf/all/disable_ipv6", "1").unwrap();
        namespace
            .ip_words(&["link", "set", device, "address", &mac(if device == "a0" { NEAR } else { FAR })])
            .unwrap();
        namespace.ip_words(&["link", "set", device, "up"]).unwrap();
        let _inside = namespace.enter_here().unwrap();
        command::output("ethtool", &["-K", device, "gro", "on"]).unwrap();
    }
    let (a, b) = (near.ifindex("a0").unwrap(), far.ifindex("b0").unwrap());
    Link { near: (near, a), far: (far, b) }
}

/// A marked frame as the sender makes it.
fn marked(kind: Kind, flow: u16, tag: u32, sequence: u32) -> Vec<u8> {
    let frame = kind.frame_of(kind.marked_bytes(), NEAR, FAR);
    let mut bytes = if kind.is_ipv4() { frame.towards4(TO) } else { frame.towards6(Ipv6Addr::LOCALHOST) };
    let mark = [
        &flow.to_ne_bytes()[..],
        &tag.to_ne_bytes(),
        &sequence.to_ne_bytes(),
        &crate::measure::monotonic_ns().to_ne_bytes(),
    ]
    .concat();
    bytes[kind.mark()..kind.mark() + MARK].copy_from_slice(&mark);
    bytes
}

/// Gives frames to the receiver's program, as if they came by device `device`; its verdicts.
fn give(receiver: &Receiver, frames: impl IntoIterator<Item = Vec<u8>>) -> Vec<u32> {
    let program = COMPILED().program_mut(&receiver.object, "receive").unwrap();
    let run = |frame: Vec<u8>| {
        let input = ProgramInput { data_in: Some(&frame), repeat: 1, ..Default::default() };
        program.test_run(input).unwrap().return_value
    };
    frames.into_iter().map(run).collect()
}

const DROP: u32 = 1;
const PASS: u32 = 2;

#[test]
fn lost_repeated_and_reordered_frames_are_counted_for_each_flow() {
    let Some(_alone) = testing::alone() else { return };
    let mut receiver = Receiver::new(3).unwrap();
    receiver.begin(7).unwrap();
    let numbers = |flow: u16, numbers: &[u32]| -> Vec<Vec<u8>> {
        numbers.iter().map(|number| marked(Kind::Ipv4, flow, 7, *number)).collect()
    };
    // Flow 0: in order. 1: 3 missing, 2 twice, 5 before 4, 1 a second time much later. 2: nothing.
    let verdicts = give(&receiver, numbers(0, &[0, 1, 2, 3]));
    assert_eq!(verdicts, [DROP; 4]);
    give(&receiver, numbers(1, &[0, 1, 2, 2, 5, 4, 6, 900, 1]));
    // Below the window of 1024, where a duplicate looks like a late frame.
    give(&receiver, numbers(1, &[2000, 7]));
    // Of another run, of a flow that is not expected, without a mark.
    let mut strange = vec![marked(Kind::Ipv4, 0, 8, 4), marked(Kind::Ipv4, 3, 7, 0)];
    let mut other = marked(Kind::Ipv4, 0, 7, 9);
    other[14 + 20 + 3] = 80;
    strange.push(other);
    assert_eq!(give(&receiver, strange), [DROP, DROP, PASS]);

    let received = receiver.received().unwrap();
    assert_eq!((received.frames, received.foreign, received.other), (15, 2, 1));
    let of = |flow: &FlowSeen| (flow.received, flow.duplicated, flow.reordered, flow.late, flow.next);
    assert_eq!(of(&received.flows[0]), (4, 0, 0, 0, 4));
    assert_eq!(of(&received.flows[1]), (11, 2, 2, 1, 2001));
    assert_eq!(received.flows[2], FlowSeen::default());
    let sent = Sent {
        frames: 0,
        first_ns: 0,
        last_ns: 0,
        stalls: 0,
        stalled: std::time::Duration::ZERO,
        flows: vec![5, 2001, 2],
        first_flow: 0,
        tag: 7,
    };
    assert_eq!(received.lost_by_flow(&sent), [1, 2001 - 9, 2]);
    assert_eq!(received.latency.count(), 15);
    assert!(received.first_ns().unwrap() <= received.last_ns().unwrap());

    // Another run begins with nothing.
    receiver.begin(8).unwrap();
    assert_eq!(receiver.received().unwrap().distinct(), 0);
    give(&receiver, [marked(Kind::Ipv4, 1, 8, 1)]);
    let flow = receiver.flow(1).unwrap();
    assert_eq!((flow.received, flow.duplicated, flow.reordered, flow.next), (1, 0, 0, 2));
}

#[test]
fn a_mark_is_found_behind_every_kind_of_headers() {
    let Some(_alone) = testing::alone() else { return };
    let mut receiver = Receiver::new(1).unwrap();
    receiver.begin(1).unwrap();
    let sid = Ipv6Addr::LOCALHOST;
    let kinds = [Kind::Ipv4, Kind::Ipv6, Kind::Srv6(sid), Kind::Srv6Ipv6(sid), Kind::Transit];
    for (i, kind) in kinds.into_iter().enumerate() {
        assert_eq!(give(&receiver, [marked(kind, 0, 1, i as u32)]), [DROP], "{kind:?}");
        // Cut off inside the mark.
        let mut short = marked(kind, 0, 1, 99);
        short.truncate(kind.mark() + MARK - 1);
        assert_eq!(give(&receiver, [short]), [PASS], "{kind:?}");
    }
    let seen = receiver.flow(0).unwrap();
    assert_eq!((seen.received, seen.reordered, seen.next), (5, 0, 5));
}

#[test]
fn all_frames_of_two_senders_at_once_arrive_in_order_and_with_their_lengths() {
    let Some(_alone) = testing::alone() else { return };
    let link = link();
    let frames: Vec<Frame> = [60, 590, 1514].map(|bytes| Kind::Ipv4.frame_of(bytes, NEAR, FAR)).into();
    let many = Flows::within(TO, 24, 100, 1);
    let few = Flows::by_port(IpAddr::V4(TO), 3).in_order([0, 0, 1, 2]).numbered_from(100);
    let mut receiver = Receiver::new(few.count()).unwrap();
    receiver.attach(&link.far.0, link.far.1).unwrap();
    receiver.expect(&[vec![link.far.1; 100], vec![link.far.1 + 1]].concat()).unwrap();

    let load = Load { pattern: vec![0, 0, 1, 2], ..Load::paced(20_000.0, 1000).on(0) };
    let other = Load { tag: load.tag, ..Load::paced(10_000.0, 400).on(1) };
    receiver.begin(load.tag).unwrap();
    let first = Sender::new(&frames, &many).unwrap().start(&link.near.0, link.near.1, load).unwrap();
    let second = Sender::new(&frames[..1], &few).unwrap().start(&link.near.0, link.near.1, other).unwrap();
    let (first, second) = (first.join().unwrap().1, second.join().unwrap().1);
    assert_eq!((first.frames, second.frames), (1000, 400));
    assert_eq!(second.flows, [200, 100, 100]);
    assert!(first.flows.iter().all(|count| *count == 10));
    // Pacing cannot be faster than asked for, but for the burst that follows a stall.
    assert!(first.elapsed().as_secs_f64() > (1000.0 - 33.0) / 20_000.0, "{:?}", first.elapsed());

    let received = receiver.settled(1400).unwrap();
    assert_eq!((received.frames, received.foreign), (1400, 0));
    assert_eq!((received.lost(&first), received.lost(&second)), (0, 0));
    assert_eq!((received.duplicated(), received.reordered()), (0, 0));
    assert_eq!(received.bytes, 250 * (60 + 60 + 590 + 1514) + 400 * 60);
    assert_eq!(received.strayed(), 200, "flow 100 was expected elsewhere");
    assert!(received.latency.quantile(0.5) > 0 && received.latency.count() == 1400);
}

#[test]
fn a_run_ends_when_it_is_stopped_and_the_sender_can_run_again() {
    let Some(_alone) = testing::alone() else { return };
    let link = link();
    let kind = Kind::Ipv6;
    let flows = Flows::to([IpAddr::V6(Ipv6Addr::LOCALHOST)]);
    assert!(Sender::new(&[kind.frame(NEAR, FAR)], &flows).is_err(), "no room for a mark");
    let frame = kind.frame_of(kind.marked_bytes(), NEAR, FAR);
    assert!(
        Sender::new(std::slice::from_ref(&frame), &Flows::to([IpAddr::V4(TO)])).is_err(),
        "another family"
    );
    let mut receiver = Receiver::new(1).unwrap();
    receiver.attach(&link.far.0, link.far.1).unwrap();
    let load = Load::paced(1000.0, 10_000);
    receiver.begin(load.tag).unwrap();
    let running = Sender::new(&[frame], &flows).unwrap().start(&link.near.0, link.near.1, load).unwrap();
    while running.sent().unwrap() < 5 {
        std::thread::yield_now();
    }
    running.stop().unwrap();
    let (mut sender, sent) = running.join().unwrap();
    assert!((5..10_000).contains(&sent.frames), "{}", sent.frames);
    assert_eq!(receiver.settled(sent.frames).unwrap().lost(&sent), 0);
    let load = Load::unpaced(5000);
    receiver.begin(load.tag).unwrap();
    let sent = sender.run(&link.near.0, link.near.1, &load).unwrap();
    assert_eq!(sent.frames, 5000);
    assert_eq!(receiver.settled(5000).unwrap().lost(&sent), 0);
}
