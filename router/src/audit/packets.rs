//! Packets through the very program that the devices have, over the tables that they have, beside the kernel's routes and neighbours.

use super::answer::{Answer, ask, kernel_text};
use super::{Difference, Part, family_name};
use crate::dataplane::frames::{frame4, frame6};
use crate::dataplane::test_run::{Outcome, TestRun};
use crate::fib::expected::Routed;
use crate::kernel::TABLE_MAIN;
use crate::kernel::socket::Netlink;
use crate::rib::mirror::Mirror;
use crate::xdp::action_map::Used;
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
    let (Some(out), Some(destination)) = (outcome.out, outcome.frame.first_chunk::<6>()) else {
        return Ok(Look::Passed);
    };
    let answer = ask(socket, to, 0)?;
    let mut ways: Vec<Used> = Vec::new();
    if let Answer::Route { nhg, .. } = &answer {
        for hop in &nhg.hops {
            if hop.encap.is_some() {
                return Ok(Look::Passed);
            }
            ways.extend(state.adjacency_of_neighbour(hop.gateway.unwrap_or(to.ip()), hop.ifindex));
        }
        if ways.is_empty() {
            return Ok(Look::Passed);
        }
    }
    if ways.iter().any(|way| (way.ifindex, &way.destination) == (out, destination)) {
        return Ok(Look::Forwarded);
    }
    let mac = destination.map(|byte| format!("{byte:02x}")).join(":");
    Ok(Look::Elsewhere(Box::new(Difference {
        part: Part::Packet,
        family: family_name(A::NETLINK).into(),
        table: TABLE_MAIN,
        prefix: Prefix::host(to).to_string(),
        address: Some(to.ip().to_string()),
        kernel: Some(kernel_text(&answer, state)),
        mirror: None,
        image: Some(format!("out {} to {mac}", state.kernel.name(out))),
    })))
}
