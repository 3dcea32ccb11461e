//! How busy the machine is with other work before and after an experiment: figures from a busy one are not for the docs.

use std::{
    fs,
    sync::OnceLock,
    time::{Duration, Instant},
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, ser::SerializeMap};

use crate::{Error, Result};

/// How long each look takes.
const LOOK: Duration = Duration::from_millis(250);
/// From so many busy CPUs on a machine is called busy.
const BUSY: f64 = 0.1;
/// How long after an experiment the kernel may be busy with what the experiment left: it frees maps and namespaces behind it.
const AFTER: Duration = Duration::from_secs(5);

/// CPUs that were busy when the experiment began, and when its result was first asked for: nothing of ours runs at either time.
#[derive(Clone, Debug)]
pub struct Load {
    start: f64,
    end: OnceLock<f64>,
}

impl Load {
    /// Looks, before an experiment begins. Takes a quarter of a second.
    pub fn start() -> Self {
        Self { start: busy_cpus(), end: OnceLock::new() }
    }

    /// An error if other work has not ended within `patience`.
    ///
    /// # Errors
    /// [`Error::BusyMachine`].
    pub fn insist_quiet(patience: Duration) -> Result<()> {
        let cpus = quietest(patience);
        if cpus < BUSY {
            return Ok(());
        }
        let cores = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
        Err(Error::BusyMachine { cpus, cores })
    }

    /// Busy CPUs at the start and at the end. The first call is the end.
    pub fn cpus(&self) -> (f64, f64) {
        (self.start, *self.end.get_or_init(|| quietest(AFTER)))
    }

    /// Whether the times of the experiment are worth little.
    pub fn is_busy(&self) -> bool {
        let (start, end) = self.cpus();
        start.max(end) >= BUSY
    }

    /// The text for captions; empty for a quiet machine.
    pub fn caption(&self) -> String {
        let (start, end) = self.cpus();
        if !self.is_busy() {
            return String::new();
        }
        format!("; THE MACHINE WAS BUSY: other work took {start:.1} CPUs at the start, {end:.1} at the end")
    }
}

impl Serialize for Load {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        let (start, end) = self.cpus();
        let mut map = serializer.serialize_map(Some(3))?;
        map.serialize_entry("busy", &self.is_busy())?;
        map.serialize_entry("cpus_at_start", &start)?;
        map.serialize_entry("cpus_at_end", &end)?;
        map.end()
    }
}

impl<'de> Deserialize<'de> for Load {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> std::result::Result<Load, D::Error> {
        #[derive(Deserialize)]
        struct Saved {
            cpus_at_start: f64,
            cpus_at_end: f64,
        }
        let Saved { cpus_at_start, cpus_at_end } = Saved::deserialize(deserializer)?;
        Ok(Load { start: cpus_at_start, end: OnceLock::from(cpus_at_end) })
    }
}

/// CPUs' time in ticks since the machine started: busy, and all of it.
fn ticks() -> Option<(u64, u64)> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    parse(stat.lines().next()?)
}

/// The first line of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait, irq, softirq, steal; guests are in user and nice.
fn parse(line: &str) -> Option<(u64, u64)> {
    let ticks: Vec<u64> =
        line.strip_prefix("cpu ")?.split_whitespace().take(8).map_while(|word| word.parse().ok()).collect();
    let all: u64 = ticks.iter().sum();
    let idle: u64 = ticks.get(3..5)?.iter().sum();
    Some((all - idle, all))
}

/// The fewest CPUs that are busy in a look, until the machine is quiet or `patience` is over.
fn quietest(patience: Duration) -> f64 {
    let end = Instant::now() + patience;
    let mut least = f64::INFINITY;
    while least >= BUSY && (least.is_infinite() || Instant::now() < end) {
        least = least.min(busy_cpus());
    }
    least
}

/// CPUs that are busy while this thread sleeps; 0 where the kernel does not say.
fn busy_cpus() -> f64 {
    let before = ticks();
    std::thread::sleep(LOOK);
    let (Some(before), Some(after)) = (before, ticks()) else { return 0.0 };
    let (busy, all) = (after.0.saturating_sub(before.0), after.1.saturating_sub(before.1));
    let cpus = std::thread::available_parallelism().map_or(1, |cpus| cpus.get());
    busy as f64 / all.max(1) as f64 * cpus as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_is_not_busy() {
        assert_eq!(parse("cpu  10 1 20 500 50 2 3 4 0 0"), Some((40, 590)));
        assert_eq!(parse("cpu0 10 1 20 500 50 2 3 4 0 0"), None);
        assert_eq!(parse("cpu  10 1"), None);
    }

    #[test]
    fn a_busy_machine_is_reported() {
        let load = |start: f64, end: f64| Load { start, end: OnceLock::from(end) };
        assert!(!load(0.02, 0.05).is_busy() && load(0.02, 0.05).caption().is_empty());
        for load in [load(1.5, 0.0), load(0.0, 1.5)] {
            assert!(load.is_busy() && load.caption().contains("1.5"), "{load:?}");
            assert_eq!(serde_json::to_value(&load).unwrap()["busy"], true);
        }
    }
}
