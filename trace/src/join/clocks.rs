//! How far the clocks of hosts are apart, from messages that went both ways between them.
//!
//! Each way shows its delay and the difference of the clocks in one number. It is positive one way and negative the other (NTP, RFC 5905
//! section 8). Here the quickest message of each way is taken, as in Cristian's algorithm. Both delays are above zero, so half their sum
//! bounds the error. For that the send's time must be one before the message left: that of the device's queue. The end of a send may come
//! after the receive.

use std::collections::HashMap;

use super::hops::Hop;
use crate::record::Point;

/// A host's clock, compared with the first host's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offset {
    /// Nanoseconds that it is ahead.
    pub ns: i64,
    /// It is wrong by no more than this; below zero the clocks ran at different speeds, and nothing is known.
    pub bound_ns: i64,
}

/// The clocks of all hosts. `None`: no messages whose way is known from a device on went both ways between it and one whose clock is known.
/// `clocks`: of each host, what is the same in those that have one clock.
pub fn offsets<C: PartialEq>(clocks: &[C], hops: &[Hop]) -> Vec<Option<Offset>> {
    let mut known = vec![None; clocks.len()];
    if let Some(first) = known.first_mut() {
        *first = Some(Offset { ns: 0, bound_ns: 0 });
    }
    let quickest = quickest(hops);
    // A way over more hosts than one adds their bounds; each round may find a better one.
    for _ in 1..clocks.len() {
        for from in 0..clocks.len() {
            for to in 0..clocks.len() {
                let Some(base): Option<Offset> = known[from] else { continue };
                let apart = if clocks[from] == clocks[to] {
                    Some(Offset { ns: 0, bound_ns: 0 })
                } else {
                    between(from, to, &quickest)
                };
                if let Some(apart) = apart {
                    let found = Offset { ns: base.ns + apart.ns, bound_ns: base.bound_ns + apart.bound_ns };
                    if known[to].is_none_or(|old| found.bound_ns < old.bound_ns) && to != 0 {
                        known[to] = Some(found);
                    }
                }
            }
        }
    }
    known
}

/// Of each host to each other the quickest message, by the two clocks.
type Quickest = HashMap<(u8, u8), i64>;

fn quickest(hops: &[Hop]) -> Quickest {
    let mut quickest = Quickest::new();
    for hop in hops.iter().filter(|hop| hop.sent.point != Point::Sent) {
        let took = hop.received.time_ns.wrapping_sub(hop.sent.time_ns) as i64;
        quickest.entry(hop.hosts).and_modify(|best| *best = took.min(*best)).or_insert(took);
    }
    quickest
}

/// How far the second host's clock is ahead of the first's.
fn between(first: usize, second: usize, quickest: &Quickest) -> Option<Offset> {
    let took = |from: usize, to: usize| quickest.get(&(from as u8, to as u8)).copied();
    let (there, back) = took(first, second).zip(took(second, first))?;
    Some(Offset { ns: (there - back) / 2, bound_ns: (there + back) / 2 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::tests::record;
    use crate::record::{Record, Transport};

    fn hop(hosts: (u8, u8), sent: u64, received: u64) -> Hop {
        let at = |point, time| record(point, Transport::Tcp, 1, 1, time);
        Hop { sent: at(Point::Queued, sent), received: at(Point::Received, received), hosts }
    }

    #[test]
    fn offsets_come_from_the_fastest_message_in_each_direction() {
        // The second clock is 1000 ahead; delays are 30 and 40 at best.
        let hops = [
            hop((0, 1), 100, 100 + 1000 + 90),
            hop((0, 1), 200, 200 + 1000 + 30),
            hop((1, 0), 1300, 1300 - 1000 + 40),
            hop((1, 0), 1500, 1500 - 1000 + 400),
        ];
        let known = offsets(&["a", "b"], &hops);
        assert_eq!(known[1], Some(Offset { ns: 995, bound_ns: 35 }));
        assert_eq!(offsets(&["a", "b"], &hops[..2]), [known[0], None], "one way only");
        assert_eq!(offsets(&["a", "a"], &[])[1], Some(Offset { ns: 0, bound_ns: 0 }));
    }

    #[test]
    fn ends_of_sends_do_not_change_offsets() {
        let mut hops = vec![hop((0, 1), 100, 1130), hop((1, 0), 1300, 340)];
        let known = offsets(&["a", "b"], &hops);
        // The sender was kept from running inside its call: the message was there 4 ms before the call ended.
        let late = hop((0, 1), 4_000_200, 1230);
        hops.push(Hop { sent: Record { point: Point::Sent, ..late.sent }, ..late });
        assert_eq!(offsets(&["a", "b"], &hops), known);
        assert_eq!(offsets(&["a", "b"], &hops[1..])[1], None, "and is of no use to either");
    }

    /// Messages are looked at once, however many hosts there are: looked at again for each two hosts in each round, these took 15 s.
    #[test]
    fn many_hosts_cost_no_more_looks_at_their_messages() {
        const HOSTS: u8 = 32;
        let chain = (1..HOSTS).flat_map(|host| [(host - 1, host), (host, host - 1)]);
        let mut hops: Vec<Hop> = chain.map(|hosts| hop(hosts, 1000, 1010)).collect();
        hops.extend(std::iter::repeat_n(hop((0, 1), 1000, 1500), 100_000));
        let clocks: Vec<u8> = (0..HOSTS).collect();
        let time = || rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
        let before = time();
        let known = offsets(&clocks, &hops);
        let took = time().tv_sec - before.tv_sec;
        let last = Offset { ns: 0, bound_ns: 10 * i64::from(HOSTS - 1) };
        assert!(known.last() == Some(&Some(last)) && took < 5, "{took} s: {known:?}");
    }

    #[test]
    fn clocks_are_known_over_other_hosts() {
        let hops = [hop((0, 1), 0, 510), hop((1, 0), 500, 10), hop((1, 2), 500, 205), hop((2, 1), 200, 505)];
        let known = offsets(&[0, 1, 2, 2, 4], &hops);
        assert_eq!(known[2], Some(Offset { ns: 200, bound_ns: 15 }));
        assert_eq!((known[3], known[4]), (known[2], None));
    }
}
