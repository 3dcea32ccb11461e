//! The settings of a NIC that follow from the figures, as commands.

use super::toeplitz::Key;

/// Lines for a NIC with so many queues; `weights` balance the Zipf flows of this run, as an example for elephants.
pub fn lines(queues: usize, weights: &[usize]) -> Vec<String> {
    let weights: Vec<String> = weights.iter().map(usize::to_string).collect();
    vec![
        "# One queue for each core that forwards; DEV is the device.".into(),
        format!("ethtool -L DEV combined {queues}"),
        "# Addresses and ports choose the queue. Drivers often leave out the ports of UDP.".into(),
        "ethtool -N DEV rx-flow-hash udp4 sdfn".into(),
        "ethtool -N DEV rx-flow-hash udp6 sdfn".into(),
        "# A symmetric key, if a firewall or NAT wants both directions on one core. Else keep the driver's random key.".into(),
        format!("ethtool -X DEV hkey {} equal {queues}", Key::SYMMETRIC),
        "# A few flows carry most packets: fewer entries for their queue (these weights are of this run's flows).".into(),
        format!("ethtool -X DEV weight {}", weights.join(" ")),
        "# SRv6 from Linux headends: a flow label of each flow (RFC 6438), on every headend.".into(),
        "sysctl -w net.ipv6.seg6_flowlabel=1".into(),
        "# It helps if the NIC hashes the label: letter l (Linux 6.18 and a driver that can).".into(),
        "ethtool -N DEV rx-flow-hash udp6 sdfnl".into(),
        "# Else: SIDs to queues by hand (a tunnel still has one queue), or a CPU map by the inner packet.".into(),
        "ethtool -N DEV flow-type ip6 dst-ip SID action QUEUE".into(),
    ]
}
