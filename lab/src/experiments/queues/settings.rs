//! The settings of a case on the devices of the topology: channels, the CPU of each TX queue, and ways to another CPU.

use std::{collections::BTreeSet, fs};

use rustix::thread::{CpuSet, Pid, sched_setaffinity};
use trieline_testbed::{command, namespace::Namespace};

use super::rows::Handoff;
use crate::{
    error::{During, Result},
    topology::Topology,
};

/// Gives the planes' ingresses two RX queues. It comes before any XDP program: Linux gives a queue that is added later no program.
pub fn two_rx_queues(topology: &Topology) -> Result<()> {
    for device in [&topology.n0, &topology.k0, &topology.f0] {
        channels(&topology.node, device.name, "rx", 2)?;
    }
    Ok(())
}

/// Sets the queues between egress and sink, which has no program meanwhile. A receiver never has fewer than its sender.
pub fn set_tx_queues(topology: &Topology, count: usize, cpus: [usize; 2]) -> Result<()> {
    let (sink, node) = ((&topology.sink, topology.s0.name, "rx"), (&topology.node, topology.n1.name, "tx"));
    let order = if count > 1 { [sink, node] } else { [node, sink] };
    for (namespace, device, kind) in order {
        channels(namespace, device, kind, count)?;
    }
    if count > 1 {
        for (queue, cpu) in cpus.into_iter().enumerate() {
            // As drivers of NICs do (XPS): each CPU has its own TX queue.
            write(&topology.node, &format!("{}/queues/tx-{queue}/xps_cpus", topology.n1.name), &mask(cpu))?;
        }
    }
    Ok(())
}

fn channels(namespace: &Namespace, device: &str, kind: &str, count: usize) -> Result<()> {
    let _inside = namespace.enter_here()?;
    command::output("ethtool", &["-L", device, kind, &count.to_string()])?;
    Ok(())
}

/// A CPU as sysfs takes it: words of 32 bits with commas between.
fn mask(cpu: usize) -> String {
    format!("{:x}{}", 1u32 << (cpu % 32), ",00000000".repeat(cpu / 32))
}

/// Writes a file of `/sys/class/net` as the namespace sees it.
fn write(namespace: &Namespace, file: &str, value: &str) -> Result<()> {
    let script = format!("echo {value} > /sys/class/net/{file}");
    command::ip(&["netns", "exec", namespace.name(), "sh", "-c", &script])?;
    Ok(())
}

/// Hands the frames of a device's first queue to another CPU, as long as this lives. A CPU map is the bench's work.
pub struct Handing<'t> {
    namespace: &'t Namespace,
    off: Option<(String, &'static str)>,
    /// Ids of the kernel's threads that poll the device.
    pub threads: Vec<i32>,
}

impl<'t> Handing<'t> {
    /// Begins.
    pub fn begin(
        namespace: &'t Namespace,
        device: &str,
        handoff: Handoff,
        cpu: usize,
    ) -> Result<Handing<'t>> {
        let mut handing = Handing { namespace, off: None, threads: Vec::new() };
        match handoff {
            Handoff::None | Handoff::Cpumap => {}
            Handoff::ThreadedNapi => {
                let before = threads(device);
                let file = format!("{device}/threaded");
                handing.off = Some((file.clone(), "0"));
                write(namespace, &file, "1")?;
                // Another network namespace may have a device of the name, whose threads are none of our business.
                for thread in threads(device).difference(&before).filter_map(|thread| Pid::from_raw(*thread))
                {
                    let mut set = CpuSet::new();
                    set.set(cpu);
                    sched_setaffinity(Some(thread), &set)
                        .during(|| format!("cannot pin the NAPI thread of {device}"))?;
                    handing.threads.push(thread.as_raw_nonzero().get());
                }
            }
            Handoff::Rps => {
                let file = format!("{device}/queues/rx-0/rps_cpus");
                handing.off = Some((file.clone(), "0"));
                write(namespace, &file, &mask(cpu))?;
            }
        }
        Ok(handing)
    }
}

impl Drop for Handing<'_> {
    fn drop(&mut self) {
        if let Some((file, value)) = self.off.take()
            && let Err(error) = write(self.namespace, &file, value)
        {
            tracing::warn!(%error, file, "hand-off not switched off");
        }
    }
}

/// The kernel's NAPI threads of devices of this name.
fn threads(device: &str) -> BTreeSet<i32> {
    let begin = format!("napi/{device}-");
    let found = fs::read_dir("/proc").into_iter().flatten().flatten().filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        fs::read_to_string(entry.path().join("comm")).ok()?.starts_with(&begin).then_some(pid)
    });
    found.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mask_has_a_word_for_every_32_processors() {
        assert_eq!((mask(0), mask(5), mask(31)), ("1".into(), "20".into(), "80000000".into()));
        assert_eq!((mask(32), mask(70)), ("1,00000000".into(), "40,00000000,00000000".into()));
    }
}
