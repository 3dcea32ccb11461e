//! The cost of a trace for its processes, while it is on. Hooks go off in short windows at random times. The kernel's counts of these
//! processes then are compared with the window beside it, in which the hooks are on.

use std::collections::hash_map::RandomState;
use std::fs;
use std::hash::BuildHasher;
use std::path::Path;
use std::time::{Duration, Instant};

use trieline_sampling::Median;

use crate::error::Result;
use crate::record::Event;
use crate::tracer::Tracer;
use crate::usage::cpu_ns;

/// Length of a window.
const WINDOW: Duration = Duration::from_millis(100);
/// Between two pairs of windows at least, and at most so much more.
const BETWEEN: Duration = Duration::from_millis(600);
const MORE_MS: u64 = 400;
/// Between two pairs of windows, this part of the trace's age at least. Each changes the kernel's code on all CPUs twice, so a trace of
/// a day has some 150 of them and not 80,000.
const SHARE: u32 = 16;

/// Compares windows with hooks and without.
#[derive(Debug)]
pub struct Live {
    processes: Vec<u32>,
    started: Instant,
    random: RandomState,
    step: Step,
    until: Instant,
    begun: Option<(Instant, Kernel)>,
    /// For each pair of windows, the one with hooks in front: packets and processor time a second. The first window of a pair is over.
    windows: Vec<[Option<Rates>; 2]>,
    off_since: Option<Instant>,
    paused: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Between,
    First { on: bool },
    Second { on: bool },
}

/// The kernel's counts.
#[derive(Clone, Debug)]
struct Kernel {
    packets: u64,
    /// Of each process, if it is there, that of threads that have ended as well.
    cpu_ns: Vec<Option<u64>>,
}

#[derive(Clone, Copy, Debug)]
struct Rates {
    packets: f64,
    cpu: f64,
    cpu_per_packet: f64,
}

impl Rates {
    /// Of a window.
    fn between(before: &Kernel, after: &Kernel, seconds: f64) -> Rates {
        let packets = after.packets.saturating_sub(before.packets) as f64;
        let processes = before.cpu_ns.iter().zip(&after.cpu_ns);
        // A process that came or went meanwhile is in neither.
        let cpu_ns: u64 =
            processes.filter_map(|(before, after)| Some((*after)?.saturating_sub((*before)?))).sum();
        let cpu_ns = cpu_ns as f64;
        Rates { packets: packets / seconds, cpu: cpu_ns / seconds, cpu_per_packet: cpu_ns / packets }
    }
}

/// The measured cost.
#[derive(Clone, Copy, Debug)]
pub struct LiveCost {
    /// Pairs of windows.
    pub pairs: usize,
    /// Time that the hooks were off.
    pub paused: Duration,
    /// Change of the packets a second in the processes' network namespace (UDP and TCP, both ways), in percent of those without hooks; NaN
    /// without any. In percent, with the interval.
    pub packets: Median,
    /// The same of the processes' processor time: of one that has no time to spare nothing, as it does less in the same time.
    pub cpu: Median,
    /// The same of their processor time a packet, which tells then.
    pub cpu_per_packet: Median,
}

impl Live {
    /// For these processes.
    pub fn new(processes: &[u32]) -> Live {
        let mut live = Live {
            processes: processes.to_vec(),
            started: Instant::now(),
            random: RandomState::new(),
            step: Step::Between,
            until: Instant::now(),
            begun: None,
            windows: Vec::new(),
            off_since: None,
            paused: Duration::ZERO,
        };
        live.until += live.between();
        live
    }

    /// To be called every few milliseconds: switches the hooks when it is time. As they go off, what they noted before is passed
    /// on; the first event after that is a gap.
    ///
    /// # Errors
    /// The hooks could not be attached again.
    pub fn turn(&mut self, tracer: &mut Tracer, each: impl FnMut(Event)) -> Result<()> {
        if Instant::now() < self.until {
            return Ok(());
        }
        let (next, on, length) = match self.step {
            Step::Between => {
                let on = self.random().is_multiple_of(2);
                self.windows.push([None; 2]);
                (Step::First { on }, on, WINDOW)
            }
            Step::First { on } => {
                self.end(on);
                (Step::Second { on: !on }, !on, WINDOW)
            }
            Step::Second { on } => {
                self.end(on);
                (Step::Between, true, self.between())
            }
        };
        match (self.off_since, on) {
            (None, false) => {
                tracer.stop_events(each);
                self.off_since = Some(Instant::now());
            }
            (Some(since), true) => {
                tracer.resume()?;
                self.paused += since.elapsed();
                self.off_since = None;
            }
            _ => {}
        }
        // Switching takes its time, which is in no window.
        self.step = next;
        self.until = Instant::now() + length;
        self.begun =
            if next == Step::Between { None } else { self.count().map(|count| (Instant::now(), count)) };
        Ok(())
    }

    /// The cost so far.
    pub fn cost(&self) -> LiveCost {
        let percent = |of: fn(&Rates) -> f64| {
            let pairs =
                self.windows.iter().filter_map(|[on, off]| Some((of(on.as_ref()?), of(off.as_ref()?))));
            Median::of(
                pairs
                    .filter(|(on, off)| on.is_finite() && *off > 0.0 && off.is_finite())
                    .map(|(on, off)| (on / off - 1.0) * 100.0)
                    .collect(),
            )
        };
        LiveCost {
            pairs: self.windows.iter().filter(|pair| pair.iter().all(Option::is_some)).count(),
            paused: self.paused + self.off_since.map_or(Duration::ZERO, |since| since.elapsed()),
            packets: percent(|rates| rates.packets),
            cpu: percent(|rates| rates.cpu),
            cpu_per_packet: percent(|rates| rates.cpu_per_packet),
        }
    }

    fn end(&mut self, on: bool) {
        let (Some((begun, before)), Some(after)) = (self.begun.take(), self.count()) else { return };
        let rates = Rates::between(&before, &after, begun.elapsed().as_secs_f64());
        if let Some(pair) = self.windows.last_mut() {
            pair[usize::from(!on)] = Some(rates);
        }
    }

    fn random(&self) -> u64 {
        self.random.hash_one((self.windows.len(), self.step == Step::Between))
    }

    fn between(&self) -> Duration {
        pause(self.started.elapsed()) + Duration::from_millis(self.random() % MORE_MS)
    }

    /// `None`: none of the processes is left.
    fn count(&self) -> Option<Kernel> {
        let cpu_ns: Vec<_> = self.processes.iter().map(|process| cpu_ns(*process)).collect();
        let mut there = self.processes.iter().zip(&cpu_ns).filter(|(_, ns)| ns.is_some());
        let (process, _) = there.next()?;
        let net = Path::new("/proc").join(process.to_string()).join("net");
        let text = |name: &str| fs::read_to_string(net.join(name)).unwrap_or_default();
        Some(Kernel { packets: packets(&text("snmp")) + packets6(&text("snmp6")), cpu_ns })
    }
}

/// From one pair of windows to the next, in a trace of this age.
fn pause(age: Duration) -> Duration {
    BETWEEN.max(age / SHARE)
}

/// Datagrams and segments, both ways, of IPv4's UDP and of TCP (`/proc/PID/net/snmp`: a line of names, then one of numbers).
fn packets(snmp: &str) -> u64 {
    let lines: Vec<&str> = snmp.lines().collect();
    let pairs = lines.windows(2).filter(|pair| {
        ["Udp:", "Tcp:"].iter().any(|head| pair.iter().all(|line| line.split(' ').next() == Some(head)))
    });
    let counts = pairs.flat_map(|pair| pair[0].split(' ').zip(pair[1].split(' ')));
    let wanted = ["InDatagrams", "OutDatagrams", "InSegs", "OutSegs"];
    counts.filter(|(name, _)| wanted.contains(name)).filter_map(|(_, count)| count.parse::<u64>().ok()).sum()
}

/// Datagrams of IPv6's UDP (`/proc/PID/net/snmp6`: a name and a number a line); TCP has no counts of its own there.
fn packets6(snmp6: &str) -> u64 {
    let lines = snmp6.lines().filter_map(|line| line.split_once(char::is_whitespace));
    let wanted = lines.filter(|(name, _)| ["Udp6InDatagrams", "Udp6OutDatagrams"].contains(name));
    wanted.filter_map(|(_, count)| count.trim().parse::<u64>().ok()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_counts_are_found() {
        let snmp = "Ip: Forwarding InReceives\nIp: 1 99\nTcp: InSegs OutSegs RetransSegs\nTcp: 10 20 5\n\
                    Udp: InDatagrams NoPorts OutDatagrams\nUdp: 100 7 200\nUdpLite: InDatagrams\nUdpLite: 1000\n";
        assert_eq!(packets(snmp), 330);
        assert_eq!(packets6("Udp6InDatagrams   \t3\nUdp6NoPorts 9\nUdp6OutDatagrams\t4\n"), 7);
        assert!(Live::new(&[u32::MAX]).count().is_none());
    }

    #[test]
    fn a_long_trace_attaches_its_hooks_seldom() {
        let pairs = |length: u64| {
            let (mut age, mut pairs) = (Duration::ZERO, 0);
            while age < Duration::from_secs(length) {
                age += pause(age) + 2 * WINDOW;
                pairs += 1;
            }
            pairs
        };
        assert!((10..=15).contains(&pairs(10)), "{}", pairs(10));
        assert!(pairs(600) < 90 && pairs(86_400) < 180, "{} {}", pairs(600), pairs(86_400));
    }

    #[test]
    fn threads_that_have_ended_are_counted() {
        let own = Live::new(&[std::process::id()]);
        let before = own.count().unwrap();
        let worker = std::thread::spawn(|| {
            let started = Instant::now();
            while started.elapsed() < Duration::from_millis(200) {
                std::hint::black_box(0);
            }
            rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime).tv_nsec
        });
        let ran_ns = worker.join().unwrap() as f64;
        let rates = Rates::between(&before, &own.count().unwrap(), 1.0);
        assert!(rates.cpu >= ran_ns, "{rates:?}: {ran_ns}");
    }

    #[test]
    fn a_process_that_goes_is_in_neither_count() {
        let kernel = |packets, first, second| Kernel { packets, cpu_ns: vec![first, second] };
        let rates = Rates::between(&kernel(0, Some(9_000), Some(100)), &kernel(10, None, Some(300)), 0.1);
        assert_eq!((rates.packets, rates.cpu, rates.cpu_per_packet), (100.0, 2000.0, 20.0));
    }
}
