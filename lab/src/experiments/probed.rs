//! The lab's own hooks, loaded once and attached for as long as something is timed: what the experiments whose names begin with `trace-`
//! share.

use std::{
    mem::{offset_of, size_of},
    path::Path,
};

use libbpf_rs::{Link, MapCore, MapFlags, Object};
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

use crate::{
    Result,
    error::During,
    object::{self, Compiled, compiled, get, types::lab_hooks},
};

const TRACEFS: &str = "/sys/kernel/tracing";
const OBJECT: Compiled = compiled!("trace");

/// The work of a hook (`enum lab_work`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Work {
    /// Nothing.
    Empty,
    /// Asks whether the process is the traced one, and counts.
    Filter,
    /// And reads the clock; each of the following as well.
    Clock,
    /// A record into a ring of the CPU in a section, claimed by an atomic addition.
    RingSection,
    /// The same, claimed by a plain one.
    RingPlain,
    /// A record into an array that is looked up.
    RingArray,
    /// BPF's ring buffer, without wakeups.
    Ringbuf,
    /// The time by thread in a hash: put at the receive, taken and deleted at the send.
    Hash,
    /// The time in the task's storage.
    Task,
}

impl Work {
    /// As in a row.
    pub fn name(self) -> &'static str {
        [
            "empty",
            "filter",
            "clock",
            "ring-section",
            "ring-plain-claim",
            "ring-array",
            "ringbuf",
            "hash-insert-delete",
            "task-storage",
        ][self as usize]
    }
}

/// Where the kernel's tracepoints are named: mounted for the experiment where it is not.
pub struct Tracefs {
    is_ours: bool,
}

impl Tracefs {
    /// Sees to it that it is there.
    pub fn mount() -> Result<Tracefs> {
        let is_ours = !Path::new(TRACEFS).join("events").exists();
        if is_ours {
            let done = mount("nodev", TRACEFS, "tracefs", MountFlags::empty(), None);
            done.during(|| format!("cannot mount {TRACEFS}, which attaching to tracepoints needs"))?;
        }
        Ok(Tracefs { is_ours })
    }
}

impl Drop for Tracefs {
    fn drop(&mut self) {
        if self.is_ours
            && let Err(error) = unmount(TRACEFS, UnmountFlags::DETACH)
        {
            tracing::warn!(%error, "{TRACEFS} not unmounted");
        }
    }
}

/// Programs of `bpf/trace.bpf.c` in the kernel, attached or not.
pub struct Probed {
    object: Object,
    programs: &'static [&'static str],
    links: Vec<Link>,
}

/// Their records so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Noted {
    /// Receives.
    pub received: u64,
    /// Sends.
    pub sent: u64,
    /// Events that a store did not take.
    pub refused: u64,
}

impl Probed {
    /// Loads them for one process. The paper's hashes have room for so many `messages`.
    pub fn load(
        programs: &'static [&'static str],
        work: Work,
        process: u32,
        messages: u32,
    ) -> Result<Probed> {
        let mut open = OBJECT.open()?;
        let mut config = [0; size_of::<lab_hooks>()];
        let tgid = offset_of!(lab_hooks, tgid);
        config[tgid..tgid + 4].copy_from_slice(&process.to_ne_bytes());
        let at = offset_of!(lab_hooks, work);
        config[at..at + 4].copy_from_slice(&(work as u32).to_ne_bytes());
        for mut map in open.maps_mut() {
            match map.name().to_str() {
                Some(name) if name.ends_with(".rodata") => map.set_initial_value(&config),
                Some("received_ns" | "sent_ns") => map.set_max_entries(messages),
                _ => Ok(()),
            }
            .during(|| "cannot set the work of hooks".into())?;
        }
        for mut program in open.progs_mut() {
            let wanted = program.name().to_str().is_some_and(|name| programs.contains(&name));
            program.set_autoload(wanted);
        }
        Ok(Probed { object: OBJECT.load(open)?, programs, links: Vec::new() })
    }

    /// Attaches them.
    pub fn on(&mut self) -> Result<()> {
        for name in self.programs {
            let program = OBJECT.program_mut(&self.object, name)?;
            self.links.push(program.attach().during(|| format!("cannot attach {name}"))?);
        }
        Ok(())
    }

    /// Detaches them.
    pub fn off(&mut self) {
        self.links.clear();
    }

    /// The counts so far.
    pub fn noted(&self) -> Result<Noted> {
        let bytes = object::read(&OBJECT.map(&self.object, ".bss.noted")?)?;
        let events = offset_of!(object::types::lab_noted, events);
        Ok(Noted {
            received: object::word(&bytes, events),
            sent: object::word(&bytes, events + 8),
            refused: get!(bytes, lab_noted.refused),
        })
    }

    /// Messages with both times in the paper's hashes.
    pub fn joined(&self) -> Result<u64> {
        let (received, sent) =
            (OBJECT.map(&self.object, "received_ns")?, OBJECT.map(&self.object, "sent_ns")?);
        let mut joined = 0;
        for id in received.keys() {
            let found = sent.lookup(&id, MapFlags::ANY).during(|| "cannot look a message up".into())?;
            joined += u64::from(found.is_some());
        }
        Ok(joined)
    }

    /// Empties the paper's hashes.
    pub fn forget(&self) -> Result<()> {
        for name in ["received_ns", "sent_ns"] {
            let map = OBJECT.map(&self.object, name)?;
            for id in map.keys().collect::<Vec<_>>() {
                map.delete(&id).during(|| "cannot take a message out of a hash".into())?;
            }
        }
        Ok(())
    }

    /// Reads BPF's ring buffer empty; how many records were there.
    pub fn drain(&self) -> Result<u64> {
        let map = OBJECT.map(&self.object, "ringbuf")?;
        let mut records = 0;
        {
            let failed = || "cannot read the ring buffer".to_owned();
            let mut builder = libbpf_rs::RingBufferBuilder::new();
            let count = |_: &[u8]| {
                records += 1;
                0
            };
            builder.add(&map, count).during(failed)?;
            builder.build().during(failed)?.consume().during(failed)?;
        }
        Ok(records)
    }
}

/// A cell of nanoseconds; fewer than six rounds have no interval.
pub fn whole(ns: f64) -> String {
    if ns.is_nan() { "-".into() } else { format!("{ns:.0}") }
}
