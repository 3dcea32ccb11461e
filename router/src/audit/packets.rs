//! Packets through the very program that the devices have, over the tables that they have: each is compared with the kernel's route and
//! neighbour.

use super::answer::{Answer, ask, kernel_text};
use super::{Difference, Kind, Part, family_name};
use crate::dataplane::frames::{frame4, frame6};
use crate::dataplane::test_run::{Outcome, TestRun};
use crate::fib::expected::Routed;
use crate::kernel::link::mac_text;
use crate::kernel::route::{Nexthop, kind};
use crate::kernel::socket::Netlink;
use crate::kernel::{TABLE_LOCAL, TABLE_MAIN};
use crate::rib::mirror::Mirror;
use crate::xdp::action::DropReason;
use crate::xdp::action_map::Used;
use crate::xdp::counters::Kind as Fate;
use crate::xdp::ports::Port;
use crate::xdp::table_ids::{TABLE4, TABLE6};
use std::net::IpAddr;
use std::time::Duration;
use trieline_lpm::Prefix;

/// A difference that is the same at so many looks stays: the program may meet a route before or after the kernel's answer changes.
const LOOKS: u8 = 10;
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Why packets could not be tried.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The kernel did not answer.
    #[error(transparent)]
    Netlink(#[from] crate::kernel::socket::Error),
    /// The program did not run.
    #[error(transparent)]
    Dataplane(#[from] crate::xdp::error::Error),
}

/// The fates of packets.
#[derive(Debug, Default)]
pub struct Tried {
    /// Packets that the program sent where the kernel would.
    pub forwarded: u64,
    /// Packets that it left to the kernel or dropped, or for which the kernel's next hop is not known.
    pub passed: u64,
    /// Those that it sent elsewhere.
    pub differences: Vec<Difference>,
}

/// The look at one packet.
enum Look {
    Forwarded,
    Passed,
    Elsewhere(Box<Difference>),
}

/// Runs the program on a packet to each destination, as if it came in by a port whose packets ask local and main.
pub fn try_packets(
    test_run: &TestRun,
    ports: &[(u32, Option<u16>, Port)],
    destinations: &[IpAddr],
) -> Result<Tried, Error> {
    let mut socket = Netlink::route()?;
    let mut tried = Tried::default();
    let mut state = Mirror::default();
    state.dump_kernel_state(&mut socket)?;
    for (number, destination) in destinations.iter().enumerate() {
        let is_v4 = destination.is_ipv4();
        // The source is the next destination of the family.
        let mut others = destinations.iter().cycle().skip(number + 1);
        let Some(source) = others.find(|other| other.is_ipv4() == is_v4) else { continue };
        let asks_main = |port: &&(u32, Option<u16>, Port)| {
            let (_, vlan, port) = port;
            let forwards = if is_v4 { port.flags.forward4 } else { port.flags.forward6 };
            vlan.is_none() && forwards && if is_v4 { port.table4 == TABLE4 } else { port.table6 == TABLE6 }
        };
        let Some((ifindex, _, port)) = ports.iter().find(asks_main) else {
            tried.passed += 1;
            continue;
        };
        let mut last: Option<Box<Difference>> = None;
        for seen in 1..=LOOKS {
            let look = match (destination, source) {
                (IpAddr::V4(to), IpAddr::V4(from)) => {
                    let frame = frame4(port.mac, u32::from(*to), u32::from(*from));
                    look(&test_run.run(*ifindex, &frame)?, u32::from(*to), &state, &mut socket)?
                }
                (IpAddr::V6(to), IpAddr::V6(from)) => {
                    let frame = frame6(port.mac, u128::from(*to), u128::from(*from));
                    look(&test_run.run(*ifindex, &frame)?, u128::from(*to), &state, &mut socket)?
                }
                _ => Look::Passed,
            };
            match look {
                Look::Forwarded => tried.forwarded += 1,
                // It changes all the time.
                Look::Elsewhere(now) if last.as_ref().is_some_and(|last| *last != now) => tried.passed += 1,
                Look::Passed => tried.passed += 1,
                Look::Elsewhere(now) if seen == LOOKS => tried.differences.push(*now),
                Look::Elsewhere(now) => {
                    last = Some(now);
                    std::thread::sleep(PAUSE);
                    state.dump_kernel_state(&mut socket)?;
                    continue;
                }
            }
            break;
        }
    }
    Ok(tried)
}

fn look<A: Routed>(
    outcome: &Outcome,
    to: A,
    state: &Mirror,
    socket: &mut Netlink,
) -> Result<Look, crate::kernel::socket::Error> {
    let is_blackhole = outcome.verdict.kind == Fate::Drop
        && outcome.verdict.name == DropReason::Blackhole.name()
        && outcome.filter.is_none();
    let sent = match (outcome.out, outcome.frame.first_chunk::<6>()) {
        (Some(ifindex), Some(destination)) => {
            Some(Used { ifindex, vlan: tag(&outcome.frame), destination: *destination })
        }
        _ if is_blackhole => None,
        _ => return Ok(Look::Passed),
    };
    let answer = ask(socket, to, 0)?;
    let mut ways: Vec<Used> = Vec::new();
    match &answer {
        // Rules chose another table for packets of this node than local and main, which the port's packets ask.
        Answer::Route { table, .. } if ![TABLE_LOCAL, TABLE_MAIN].contains(table) => return Ok(Look::Passed),
        Answer::Route { nhg, .. } if nhg.kind == kind::UNICAST => {
            if nhg.hops.iter().any(|hop| hop.encap.is_some()) {
                return Ok(Look::Passed);
            }
            let way =
                |hop: &Nexthop| state.adjacency_of_neighbour(hop.gateway.unwrap_or(to.ip()), hop.ifindex);
            ways.extend(nhg.hops.iter().filter_map(way));
            if ways.is_empty() {
                return Ok(Look::Passed);
            }
        }
        _ if sent.is_none() => return Ok(Look::Passed),
        _ => {}
    }
    if sent.is_some_and(|sent| ways.contains(&sent)) {
        return Ok(Look::Forwarded);
    }
    let image = sent.map_or_else(
        || format!("drop {}", outcome.verdict.name),
        |Used { ifindex, vlan, destination }| {
            let vlan = vlan.map(|vlan| format!(" vlan {vlan}")).unwrap_or_default();
            format!("out {}{vlan} to {}", state.kernel.name(ifindex), mac_text(&destination))
        },
    );
    Ok(Look::Elsewhere(Box::new(Difference {
        part: Part::Packet,
        kind: Kind::Packet,
        family: family_name(A::NETLINK).into(),
        table: TABLE_MAIN,
        prefix: Prefix::host(to).to_string(),
        address: Some(to.ip().to_string()),
        kernel: Some(kernel_text(&answer, state)),
        mirror: None,
        image: Some(image),
    })))
}

/// The id of the frame's 802.1Q tag.
fn tag(frame: &[u8]) -> Option<u16> {
    match frame.get(12..16)? {
        [0x81, 0x00, high, low] => Some(u16::from_be_bytes([high & 0x0f, *low])),
        _ => None,
    }
}
