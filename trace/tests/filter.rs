//! The filter: whom it traces by cgroup and name. A process that is left out is left out, whatever else holds of it.

#![allow(clippy::unwrap_used)]

mod common;

use std::fs;
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;

use trieline_testbed::{needs_root, skip};
use trieline_trace::{Cgroup, Client, Filter, Options, Tracer, Transport};

#[test]
fn a_tracer_does_not_trace_itself() {
    needs_root!();
    let own = std::process::id();
    for (except, clients, expected) in
        [(None, Vec::new(), 20), (Some(own), Vec::new(), 0), (Some(own), vec![Client::Process(own)], 0)]
    {
        let filter = Filter { except, ..Filter::default() };
        assert_eq!(passed(filter, clients), expected, "without {except:?}");
    }
}

#[test]
fn processes_of_a_cgroup_and_below_it_are_traced_and_no_others() {
    needs_root!();
    let Ok(root) = Cgroup::root() else { return skip("no cgroup2 is mounted") };
    let above = root.join(format!("trieline-filter-{}", std::process::id()));
    let (own, below, beside) = (above.join("own"), above.join("own/below"), above.join("beside"));
    if fs::create_dir(&above).is_err() {
        return skip("no cgroup can be made here");
    }
    [&own, &below, &beside].into_iter().for_each(|group| fs::create_dir(group).unwrap());
    let enter = |group: &Path| fs::write(group.join("cgroup.procs"), std::process::id().to_string()).unwrap();
    enter(&own);
    let seen = [&root, &above, &own, &below, &beside].map(|group| {
        let cgroup = Some(Cgroup::open(group).unwrap());
        passed(Filter { cgroup, ..Filter::default() }, Vec::new())
    });
    enter(&root);
    [&below, &own, &beside, &above].into_iter().for_each(|group| fs::remove_dir(group).unwrap());
    assert_eq!(seen, [20, 20, 20, 0, 0]);
}

#[test]
fn a_name_is_compared_whole() {
    needs_root!();
    // As long as a name can be.
    fs::write("/proc/self/comm", "filter-by-names").unwrap();
    let of = |name: &str| passed(Filter { comm: Some(name.to_owned()), ..Filter::default() }, Vec::new());
    let names = ["filter-by-names", "filter-by-namez", "zilter-by-names", "filter-b"];
    assert_eq!(names.map(of), [20, 0, 0, 0]);
}

/// Records of ten messages that this process sends to itself.
fn passed(filter: Filter, clients: Vec<Client>) -> usize {
    let to = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let from = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    from.connect(to.local_addr().unwrap()).unwrap();
    let port = Some(to.local_addr().unwrap().port());
    let filter = Filter { port, transports: vec![Transport::Udp], ..filter };
    let mut tracer = Tracer::start(&Options { clients, ..Options::new(filter) }).unwrap();
    for _ in 0..10 {
        from.send(&[7; 64]).unwrap();
        to.recv(&mut [0; 64]).unwrap();
    }
    let mut seen = 0;
    tracer.stop(|_| seen += 1);
    seen
}
