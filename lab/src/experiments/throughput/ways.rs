//! The way of a plane's frames: where they are sent, and the devices whose counters say where they were lost.

use trieline_testbed::{command, namespace::Namespace};

use super::{case::Plane, counters::Counters, devices::OwnDevice};
use crate::{
    Error, Result,
    topology::{Device, Topology},
};

/// Room for the largest frame with outer headers.
const MTU: &str = "1700";

/// The namespaces of the planes on veth.
pub(super) struct Nodes<'t> {
    pub own: &'t Topology,
    /// Of plane `flowtable`: trielined forwards nothing where netfilter has rules for forwarded packets.
    pub ruled: Option<&'t Topology>,
}

/// Where a plane's frames are sent, and where they come back.
pub(super) struct Way<'t> {
    pub plane: Plane,
    /// None: the calling thread's.
    pub from: Option<&'t Namespace>,
    pub out: u32,
    pub near: [u8; 6],
    pub far: [u8; 6],
    /// The thread of the kernel's that polls the node's ingress.
    pub napi: Option<i32>,
    pub watched: Vec<Watched<'t>>,
}

/// A device whose counters say where frames were lost.
pub(super) struct Watched<'t> {
    namespace: Option<&'t Namespace>,
    pub device: String,
    pub role: Role,
}

/// The meaning of a full TX ring, or a drop by XDP, at a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    /// The generator's device.
    Generator,
    /// The node's.
    Node,
    /// The receiver's: its program drops what arrives, too.
    End,
}

impl Watched<'_> {
    pub fn read(&self) -> Result<Counters> {
        let _inside = self.namespace.map(Namespace::enter_here).transpose()?;
        Counters::read(&self.device)
    }
}

impl<'t> Way<'t> {
    /// Through a plane of the lab's own.
    pub fn veth(plane: Plane, topology: &'t Topology, ingress: &'t Device, napi: Option<i32>) -> Way<'t> {
        let Topology { source, node, n1, .. } = topology;
        let out = topology.towards(ingress);
        let watched = |device: &Device| Watched {
            namespace: Some(node),
            device: device.name.to_owned(),
            role: Role::Node,
        };
        let (near, far) = (out.mac, ingress.mac);
        let watched = vec![watched(ingress), watched(n1)];
        Way { plane, from: Some(source), out: out.index, near, far, napi, watched }
    }

    /// Between two devices of this machine. Those of `node` have counters of a node on this machine.
    pub fn devices(tx: &OwnDevice, rx: &OwnDevice, to: Option<[u8; 6]>, node: &[String]) -> Way<'t> {
        let watched = |device: &String, role| Watched { namespace: None, device: device.clone(), role };
        let mut all = vec![watched(&tx.name, Role::Generator), watched(&rx.name, Role::End)];
        all.extend(node.iter().map(|device| watched(device, Role::Node)));
        let (near, far) = (tx.mac, to.unwrap_or(rx.mac));
        Way { plane: Plane::Device, from: None, out: tx.index, near, far, napi: None, watched: all }
    }

    /// Whether its frames come in by this device.
    pub fn is_by(&self, topology: &Topology, ingress: &Device) -> bool {
        self.from.is_some_and(|from| from.name() == topology.source.name()) && self.far == ingress.mac
    }
}

/// The way of a plane.
pub(super) fn way<'a, 't>(ways: &'a [Way<'t>], plane: Plane) -> Result<&'a Way<'t>> {
    let why = || Error::Traffic(format!("no way leads through plane {}", plane.name()));
    ways.iter().find(|way| way.plane == plane).ok_or_else(why)
}

/// The topology of a plane on veth, and the device that its frames come in by; none if it has no node.
pub(super) fn ingress<'t>(plane: Plane, nodes: &Nodes<'t>) -> Option<(Plane, &'t Topology, &'t Device)> {
    let own = nodes.own;
    let (topology, device) = match plane {
        Plane::Kernel | Plane::KernelTcSink | Plane::Device => (own, &own.k0),
        Plane::Flowtable => (nodes.ruled?, &nodes.ruled?.n0),
        Plane::Fib => (own, &own.f0),
        Plane::Xdp => (own, &own.n0),
        Plane::Redirect => (own, &own.r0),
    };
    Some((plane, topology, device))
}

/// Makes room for the largest frame on the way, and gives the ingress its NAPI, which gets a thread, before any XDP program is there.
pub(super) fn widen(topology: &Topology, ingress: &Device) -> Result<()> {
    let Topology { source, node, sink, n1, s0, .. } = topology;
    let ends = [(source, topology.towards(ingress)), (node, ingress), (node, n1), (sink, s0)];
    for (namespace, device) in ends {
        namespace.ip_words(&["link", "set", device.name, "mtu", MTU])?;
    }
    let _inside = node.enter_here()?;
    command::output("ethtool", &["-K", ingress.name, "gro", "on"])?;
    Ok(())
}
