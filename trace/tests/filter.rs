//! The filter: a process that is left out is left out, whatever else holds of it.

#![allow(clippy::unwrap_used)]

mod common;

use std::net::{Ipv4Addr, UdpSocket};

use trieline_testbed::needs_root;
use trieline_trace::{Client, Filter, Options, Tracer, Transport};

#[test]
fn a_tracer_does_not_trace_itself() {
    needs_root!();
    let to = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let port = to.local_addr().unwrap().port();
    from.connect((Ipv4Addr::LOCALHOST, port)).unwrap();
    let own = std::process::id();
    for (except, clients, expected) in
        [(None, Vec::new(), 20), (Some(own), Vec::new(), 0), (Some(own), vec![Client::Process(own)], 0)]
    {
        let filter =
            Filter { port: Some(port), transports: vec![Transport::Udp], except, ..Filter::default() };
        let mut tracer = Tracer::start(&Options { clients, ..Options::new(filter) }).unwrap();
        for _ in 0..10 {
            from.send(&[7; 64]).unwrap();
            to.recv(&mut [0; 64]).unwrap();
        }
        let mut seen = 0;
        tracer.stop(|_| seen += 1);
        assert_eq!(seen, expected, "without {except:?}");
    }
}
