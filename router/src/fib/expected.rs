//! The entries that packets should meet, found again from the mirrored state, to be compared with the image and the actions.

use crate::fib::meaning::{Meaning, meaning};
use crate::fib::publish::Publisher;
use crate::fib::published::Published;
use crate::rib::family::{Decision, Family, NexthopState};
use crate::rib::mirror::Mirror;
use crate::rib::table::Ip;
use crate::xdp::action::Action;
use crate::xdp::rules::VALUE_THROW;
use trieline_lpm::Prefix;

/// An address family that the node routes.
pub trait Routed: Ip {
    /// Its routes and neighbours.
    fn family(mirror: &Mirror) -> &Family<Self>;
    /// Its tables in the image.
    fn published(publisher: &Publisher) -> &Published<Self>;
    /// The same, to be changed.
    fn published_mut(publisher: &mut Publisher) -> &mut Published<Self>;
}

impl Routed for u32 {
    fn family(mirror: &Mirror) -> &Family<Self> {
        &mirror.v4
    }
    fn published(publisher: &Publisher) -> &Published<Self> {
        &publisher.v4
    }
    fn published_mut(publisher: &mut Publisher) -> &mut Published<Self> {
        &mut publisher.v4
    }
}

impl Routed for u128 {
    fn family(mirror: &Mirror) -> &Family<Self> {
        &mirror.v6
    }
    fn published(publisher: &Publisher) -> &Published<Self> {
        &publisher.v6
    }
    fn published_mut(publisher: &mut Publisher) -> &mut Published<Self> {
        &mut publisher.v6
    }
}

/// The entry of a prefix, as the mirrored state wants it.
#[derive(Debug)]
pub struct Expected<A> {
    /// The decision.
    pub decision: Decision<A>,
    /// The number that the image should have.
    pub id: u32,
    /// The action that the dataplane should have under it; `None` where the next rule decides.
    pub action: Option<Action>,
}

/// The entry that table `number` should have for exactly `prefix`; `None`: none.
pub fn expected<A: Routed>(
    mirror: &Mirror,
    publisher: &Publisher,
    number: u32,
    prefix: Prefix<A>,
) -> Option<Expected<A>> {
    let nexthops = NexthopState::new(&mirror.nhgs, &mirror.kernel);
    let family = A::family(mirror);
    let decision = family.decide(number, prefix, nexthops)?;
    let has_default = publisher.action_index.has_default((A::NETLINK, number));
    let meaning = meaning(has_default, (family, nexthops), number, prefix, decision);
    let found = publisher.action_index.find((A::NETLINK, number), meaning);
    let (id, action) = found.map_or((VALUE_THROW, None), |(id, action)| (id, Some(action)));
    debug_assert!(meaning != Meaning::Throw || action.is_none());
    Some(Expected { decision, id, action })
}
