//! The cost that is stated is of what is traced, and measuring it seldom changes the kernel's code.

#![allow(clippy::unwrap_used, clippy::expect_used)]

mod common;

use std::sync::{Mutex, PoisonError};

use trieline_testbed::needs_root;
use trieline_trace::{Cost, Effort, Error, Filter, Options, Tracer, Transport, calibrate};

const EFFORT: Effort = Effort { rounds: 16, chunks: 2, messages: 100 };

/// A pair of sockets that is measured counts its messages: those of another test of this process would count, too.
static ONE: Mutex<()> = Mutex::new(());

/// `None`: the machine is too restless.
fn cost(transports: &[Transport], change: impl Fn(&mut Options)) -> Option<Cost> {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let filter = Filter { processes: vec![1], transports: transports.to_vec(), ..Filter::default() };
    let mut options = Options::new(filter);
    change(&mut options);
    for _ in 0..5 {
        match calibrate(&options, EFFORT) {
            Err(Error::Restless { .. }) => {}
            done => return Some(done.unwrap()),
        }
    }
    println!("EXPECTED SKIP: the processor changes its speed too often");
    None
}

#[test]
fn the_cost_is_of_the_transports_that_are_traced() {
    needs_root!();
    let all = &Transport::SOCKETS[..];
    for transports in [all, &[Transport::Tcp], &[Transport::UnixStream, Transport::UnixDatagram]] {
        let Some(cost) = cost(transports, |_| ()) else { continue };
        assert!(!cost.transports.is_empty());
        assert!(cost.transports.iter().all(|one| transports.contains(&one.transport)), "{cost:?}");
        let queue = cost.payers.iter().any(|payer| payer.hook == "net_dev_queue");
        let internet = transports.iter().any(|transport| *transport <= Transport::Tcp);
        assert!(queue == internet && cost.packet_ns().is_some() == queue, "{cost:?}");
        for one in &cost.transports {
            let at_queue = one.transport <= Transport::Tcp;
            assert!(one.base_ns > 0.0 && one.traced.value > one.bystander.value - one.base_ns, "{one:?}");
            assert_eq!(one.hooks, if at_queue { 3 } else { 2 }, "{one:?}");
        }
    }
    // Unix sockets have no port.
    if let Some(cost) = cost(all, |options| options.filter.port = Some(80)) {
        assert!(cost.transports.iter().all(|one| one.transport <= Transport::Tcp), "{cost:?}");
    }
}

/// Each program that is attached or detached has the kernel change its code on all CPUs. It was done for each round and case: 16 rounds
/// attached these three programs 100 times, and 120 rounds 700 times.
#[test]
fn measuring_attaches_few_programs() {
    needs_root!();
    if let Some(cost) = cost(&Transport::SOCKETS, |_| ()) {
        // Four blocks of four rounds, attached for every other one; at most eight. Once more for what the hooks time themselves.
        let most = cost.payers.len() * (1 + 1 + 8 / 2);
        assert!((1..=most).contains(&cost.attachments), "{cost:?}");
    }
    let filter = Filter { processes: vec![std::process::id()], ..Filter::default() };
    let mut tracer = Tracer::start(&Options::new(filter)).unwrap();
    let once = tracer.attachments();
    assert_eq!(once, tracer.payers().len());
    tracer.stop(|_| ());
    tracer.resume().unwrap();
    assert_eq!(tracer.attachments(), 2 * once);
}

/// Large records on a small budget: the samples fit into the ring, whatever it holds.
#[test]
fn small_rings_are_measured_too() {
    needs_root!();
    let small = |options: &mut Options| options.slots = 16;
    if let Some(cost) = cost(&[Transport::Udp, Transport::UnixStream], small) {
        assert!(cost.transports.iter().all(|one| one.traced.value.is_finite()), "{cost:?}");
    }
    let filter = Filter { processes: vec![std::process::id()], ..Filter::default() };
    let rings =
        |rings_max| Tracer::start(&Options { rings_max, ..Options::new(filter.clone()) }).unwrap().rings();
    let (large, least) = (rings(64 << 20), rings(1));
    assert!(
        large.bytes <= 65 << 20 && large.slots > least.slots && least.slots == 256,
        "{large:?} {least:?}"
    );
}
