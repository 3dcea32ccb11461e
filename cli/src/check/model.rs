//! The model of `node check`: the time of this node's program on this processor, and the processors for each device's line rate.

use serde::Serialize;
use trieline_router::daemon::rehearsal::PacketTime;

/// Bits of the smallest Ethernet frame on the wire, with preamble and gap.
const SMALLEST: f64 = 84.0 * 8.0;
/// The model, and its limits.
pub(super) const MODEL: &str = "a model: the program's time on this processor, run in maps of its own. It leaves out the driver's own cost, \
                     filters and SID hooks; `trieline lab run project` has published costs of drivers";

/// The model of one family.
#[derive(Debug, Serialize)]
pub(super) struct Model {
    family: &'static str,
    ns: f64,
    ns_low: f64,
    ns_high: f64,
    /// Million packets a second and processor.
    mpps: f64,
    /// Part of the random destinations that XDP forwards.
    forwarded: f64,
    /// Processors for the line rate of each device, smallest frames.
    cores: Vec<Cores>,
}

/// A device whose speed is not known has its name alone.
#[derive(Debug, Serialize)]
struct Cores {
    dev: String,
    speed_mbits: Option<u32>,
    line_mpps: Option<f64>,
    cores: Option<f64>,
}

fn rounded(number: f64, digits: i32) -> f64 {
    let by = 10_f64.powi(digits);
    (number * by).round() / by
}

impl Model {
    pub(super) fn new(family: &'static str, time: PacketTime, speeds: &[(String, Option<u32>)]) -> Self {
        let mpps = 1e3 / time.ns;
        let cores = speeds.iter().map(|(dev, speed)| {
            let line = speed.map(|speed| f64::from(speed) / SMALLEST);
            Cores {
                dev: dev.clone(),
                speed_mbits: *speed,
                line_mpps: line.map(|line| rounded(line, 2)),
                cores: line.map(|line| rounded(line / mpps, 1)),
            }
        });
        Self {
            family,
            ns: rounded(time.ns, 0),
            ns_low: rounded(time.ns_low, 0),
            ns_high: rounded(time.ns_high, 0),
            mpps: rounded(mpps, 2),
            forwarded: rounded(time.forwarded, 3),
            cores: cores.collect(),
        }
    }
}

impl std::fmt::Display for Model {
    /// A line for the family, and one for each device.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { family, ns, ns_low, ns_high, mpps, .. } = self;
        let forwarded = rounded(100.0 * self.forwarded, 1);
        writeln!(
            f,
            "model {family}: {ns} ns a packet ({ns_low} to {ns_high}), {mpps} Mpps a core; XDP forwards {forwarded} % of random destinations"
        )?;
        self.cores.iter().try_for_each(|cores| {
            let Cores { dev, speed_mbits: Some(speed), line_mpps: Some(line), cores: Some(cores) } = cores
            else {
                return writeln!(f, "  {}: speed unknown, so line rate and cores are unknown", cores.dev);
            };
            writeln!(f, "  {dev}: {speed} Mbit/s of 64-byte frames are {line} Mpps: {cores} cores")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_rate_and_cores() {
        let time = PacketTime { ns: 100.0, ns_low: 90.0, ns_high: 120.0, forwarded: 0.5 };
        let model = Model::new("IPv4", time, &[("eth0".into(), Some(10_000)), ("tun0".into(), None)]);
        let [eth0, tun0] = &model.cores[..] else { panic!("{model:?}") };
        assert_eq!((model.mpps, eth0.line_mpps, eth0.cores), (10.0, Some(14.88), Some(1.5)));
        assert_eq!((tun0.line_mpps, tun0.cores), (None, None));
        let text = model.to_string();
        assert!(text.contains("eth0: 10000 Mbit/s of 64-byte frames are 14.88 Mpps: 1.5 cores"), "{text}");
        assert!(text.contains("tun0: speed unknown"), "{text}");
    }
}
