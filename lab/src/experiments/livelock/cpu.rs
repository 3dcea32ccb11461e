//! Processor time of a trial: of threads by the scheduler's count, of softirq by the ticks of /proc/stat.

use std::fs;

use crate::{
    Error,
    error::{During, Result},
};

/// Readings at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Times {
    /// The reading thread, nanoseconds on a CPU.
    pub reader_ns: f64,
    /// The thread of threaded NAPI, likewise; 0 without one.
    pub napi_ns: f64,
    /// Softirq of the reader's CPU, nanoseconds.
    pub softirq_ns: f64,
    /// Softirq of the sender's CPU.
    pub sender_softirq_ns: f64,
}

impl Times {
    /// Reads them now.
    pub fn now(reader: i32, napi: Option<i32>, reader_cpu: usize, sender_cpu: usize) -> Result<Times> {
        let stat = read("/proc/stat")?;
        Ok(Times {
            reader_ns: thread_ns(reader)?,
            napi_ns: napi.map_or(Ok(0.0), thread_ns)?,
            softirq_ns: softirq_ns(&stat, reader_cpu)?,
            sender_softirq_ns: softirq_ns(&stat, sender_cpu)?,
        })
    }

    /// The time since an earlier reading, divided by a number of frames.
    pub fn since(self, before: Times, frames: u64) -> Times {
        let each = |now: f64, before: f64| (now - before).max(0.0) / frames as f64;
        Times {
            reader_ns: each(self.reader_ns, before.reader_ns),
            napi_ns: each(self.napi_ns, before.napi_ns),
            softirq_ns: each(self.softirq_ns, before.softirq_ns),
            sender_softirq_ns: each(self.sender_softirq_ns, before.sender_softirq_ns),
        }
    }
}

fn read(path: &str) -> Result<String> {
    fs::read_to_string(path).during(|| format!("cannot read {path}"))
}

/// The first number of a thread's schedstat: nanoseconds on a CPU (Documentation/scheduler/sched-stats.rst).
fn thread_ns(thread: i32) -> Result<f64> {
    let path = format!("/proc/{thread}/schedstat");
    let found = read(&path)?.split_whitespace().next().and_then(|word| word.parse().ok());
    found.ok_or(Error::Unread { path, expected: "a thread's time on a CPU" })
}

/// The seventh number of a CPU's line, in ticks of 10 ms (proc_stat(5)).
fn softirq_ns(stat: &str, cpu: usize) -> Result<f64> {
    const TICK_NS: f64 = 1e7;
    let name = format!("cpu{cpu}");
    let line = stat.lines().find(|line| line.split(' ').next() == Some(&name));
    let ticks = line.and_then(|line| line.split_whitespace().nth(7)?.parse::<f64>().ok());
    ticks
        .map(|ticks| ticks * TICK_NS)
        .ok_or_else(|| Error::Unread { path: "/proc/stat".into(), expected: "a CPU's softirq time" })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softirq_is_the_seventh_number_of_its_cpu() {
        let stat = "cpu  9 9 9 9 9 9 9 9 0 0\ncpu1 1 2 3 4 5 6 7 8 0 0\ncpu10 0 0 0 0 0 0 70 0 0 0\n";
        assert_eq!((softirq_ns(stat, 1).unwrap(), softirq_ns(stat, 10).unwrap()), (7e7, 7e8));
        assert!(softirq_ns(stat, 2).unwrap_err().to_string().contains("/proc/stat"));
    }

    #[test]
    fn times_are_shared_by_frames() {
        let before = Times { reader_ns: 100.0, ..Times::default() };
        let after = Times { reader_ns: 300.0, softirq_ns: 50.0, ..before };
        let each = after.since(before, 10);
        assert_eq!((each.reader_ns, each.softirq_ns, each.napi_ns), (20.0, 5.0, 0.0));
    }
}
