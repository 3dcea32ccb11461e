//! Plane `flowtable`: the kernel with an nftables flowtable. It has a node of its own, since trielined forwards nothing where netfilter has
//! rules for forwarded packets.

use trieline_testbed::{Error as Testbed, command};

use super::{
    bench::Bench,
    case::{Plane, Sample},
    path::Path,
};
use crate::{
    Context, Error, Result,
    experiments::options::Run,
    generator::Generator,
    sinks::{Sink, Sinks},
    topology::Topology,
};

/// The only path: the destinations of one route are few flows.
const PATH: Path = Path::Ipv4;
/// The second packet of a flow puts it into the flowtable. The sink does not answer, so the rule asks for no state.
const RULES: &str = "table inet lab {
    flowtable fast { hook ingress priority 0; devices = { n0, n1 }; }
    counter slow { }
    chain forward { type filter hook forward priority 0; policy accept; counter name slow; meta l4proto udp flow add @fast; }
}";
/// Frames of a probe, several of each flow.
const PROBE: u64 = 1024;
/// Frames of a turn that the chain may see: two of each flow, twice, since flows expire between turns.
const SLOW: u64 = 512;

/// The rules of a node's kernel: its flowtable, and the chain that counts what the flowtable does not forward.
pub(in crate::experiments) struct Rules<'t>(&'t Topology);

impl<'t> Rules<'t> {
    /// Sets them.
    ///
    /// # Errors
    /// The kernel does not take them: the reason, in words.
    pub(in crate::experiments) fn set(topology: &'t Topology) -> std::result::Result<Rules<'t>, String> {
        let set = || {
            let _inside = topology.node.enter_here()?;
            // The NAPI that a veth end needs to take XDP frames.
            command::output("ethtool", &["-K", topology.n0.name, "gro", "on"])?;
            command::output("nft", &[RULES])
        };
        set().map(|_| Rules(topology)).map_err(|error| reason(&error))
    }

    /// Frames so far that were not forwarded by the flowtable.
    pub(in crate::experiments) fn slow(&self) -> Result<u64> {
        let _inside = self.0.node.enter_here()?;
        let text = command::output("nft", &["-j", "list", "counter", "inet", "lab", "slow"])?;
        packets(&text).ok_or(Error::Unread { path: "nft -j list counter".into(), expected: "packets" })
    }
}

/// The node with its rules.
pub(super) struct Flowtable<'t> {
    bench: Bench<'t>,
    rules: Rules<'t>,
}

impl<'t> Flowtable<'t> {
    /// Sets the rules. None, with the reason in the account, if the kernel does not take them.
    pub(super) fn start(
        topology: &'t Topology,
        generator: &'t Generator,
        run: &Run,
        context: &'t Context<'t>,
    ) -> Result<Option<Flowtable<'t>>> {
        let rules = match Rules::set(topology) {
            Ok(rules) => rules,
            Err(why) => {
                run.account.refuse(Plane::Flowtable.name(), PATH.name(), &why);
                return Ok(None);
            }
        };
        let bench = Bench { topology, generator, sinks: Sinks::attach(topology)?, fib: None, context };
        let mut flowtable = Flowtable { bench, rules };
        // The flows begin.
        flowtable.send(PROBE)?;
        Ok(Some(flowtable))
    }

    /// A turn; refused if its frames went another way than by the flowtable.
    pub(super) fn turn(&mut self, frames: u64) -> Result<Sample> {
        let before = self.rules.slow()?;
        let sample = self.send(frames)?;
        let slow = self.rules.slow()? - before;
        let refused = (slow > SLOW)
            .then(|| format!("{slow} of {frames} frames went by the rules, expected at most {SLOW}"));
        Ok(Sample { refused, ..sample })
    }

    fn send(&mut self, frames: u64) -> Result<Sample> {
        let ingress = self.bench.topology.n0.clone();
        self.bench.turn(PATH.name(), PATH.kind(), &ingress, Sink::Xdp, frames)
    }
}

/// The packets of the counter that nft lists.
fn packets(text: &str) -> Option<u64> {
    let listed: serde_json::Value = serde_json::from_str(text).ok()?;
    listed["nftables"].as_array()?.iter().find_map(|one| one["counter"]["packets"].as_u64())
}

/// The reason why the kernel took none, in the words of nft's first line.
fn reason(error: &Testbed) -> String {
    match error {
        Testbed::Command { stderr, .. } => {
            let line = stderr.lines().find_map(|line| line.split_once("Error: ")).map_or("", |(_, why)| why);
            format!("cannot create a flowtable: {line}")
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_is_read_from_the_output_of_nft() {
        let text = r#"{"nftables": [{"metainfo": {"version": "1.0.6"}},
            {"counter": {"family": "inet", "name": "slow", "table": "lab", "handle": 2, "packets": 77, "bytes": 9}}]}"#;
        assert_eq!(packets(text), Some(77));
        assert_eq!(packets(r#"{"nftables": []}"#), None);
        assert_eq!(packets("Error: no such table"), None);
    }

    #[test]
    fn the_reason_is_nfts() {
        let stderr =
            "/dev/stdin:2:13-16: Error: Could not process rule: No such file or directory\n  flowtable fast"
                .into();
        let error = Testbed::Command { command: "nft".into(), code: Some(1), stderr };
        let expected = "cannot create a flowtable: Could not process rule: No such file or directory";
        assert_eq!(reason(&error), expected);
    }
}
