//! A trace under way: hooks attached, records read.

use std::collections::VecDeque;

use crate::backend::{Backend, Refusal};
use crate::decode::{Decoded, Decoding};
use crate::error::{Error, Result};
use crate::filter::{Cgroup, Filter};
use crate::hooks::Hooks;
use crate::options::Options;
use crate::payers::Payer;
use crate::record::{Event, Flags, Point, Record, Transport};
use crate::ring::{Inside, Noted, Ring, monotonic_ns};
use crate::rings::Rings;
use crate::runtime::Runtimes;
use crate::sends::Sends;
use crate::stamps::Stamps;

/// Hooks that are attached until this is dropped.
#[derive(Debug)]
pub struct Tracer {
    hooks: Hooks,
    /// The present filter.
    filter: Filter,
    ring: Ring,
    sends: Sends,
    decoding: Option<Decoding>,
    /// Where messages are joined by thread, and threads are not trusted in any process.
    runtimes: Option<Runtimes>,
    /// Events that wait for the runtime of the first one's process.
    held: VecDeque<(Event, Box<[u8]>)>,
    /// The bytes that only keep the place of an id.
    reserved: Option<u64>,
    /// Since when the hooks are off.
    off_ns: u64,
}

fn records(event: Event, each: &mut impl FnMut(Record)) {
    if let Event::Record(record) = event {
        each(record);
    }
}

/// Passes on an event, as far as it is one for others.
fn pass(
    event: Event,
    seen: &[u8],
    (sends, decoding, runtimes, reserved): (
        &mut Sends,
        &mut Option<Decoding>,
        &mut Option<Runtimes>,
        Option<u64>,
    ),
    each: &mut impl FnMut(Event),
) {
    let record = match event {
        Event::Record(record) | Event::Passed(record) => record,
        Event::Socket(socket) => {
            if let Some(decoding) = decoding {
                decoding.forget(socket.number);
            }
            return each(event);
        }
        Event::Ended { thread, .. } => {
            sends.forget(thread);
            if let Some(runtimes) = runtimes {
                runtimes.forget(thread);
            }
            return each(event);
        }
        // It has begun another program.
        Event::Process { process, .. } => {
            if let Some(runtimes) = runtimes {
                runtimes.forget(process);
            }
            return;
        }
        Event::Gap { time_ns } => {
            sends.lose();
            if let Some(decoding) = decoding {
                decoding.lose(time_ns);
            }
            return each(event);
        }
    };
    let Some(mut record) = sends.take(record) else { return };
    if let Some(runtime) = runtimes.as_mut().and_then(|runtimes| runtimes.new_one(record.process)) {
        each(Event::Process { process: record.process, runtime });
    }
    if reserved.is_some() && record.id == reserved {
        record = Record { id: None, flags: record.flags.with(Flags::ABSENT), ..record };
    }
    if record.point == Point::Arrived {
        return each(record.into());
    }
    match decoding {
        Some(decoding) => decoding.take(record, seen, &mut |record| each(Event::Record(record))),
        None => each(Event::Record(record)),
    }
}

/// Records that the tracer itself saw and missed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Records overwritten before they were read: exact, by their sequence numbers. Where the kernel counts: receives that it had no
    /// memory for.
    pub lost: u64,
    /// Events for which a hook was not run, as it was running already on that CPU.
    pub missed: u64,
    /// Records that came after younger ones had been passed on.
    pub late: u64,
    /// Records of a time in which others were lost, on another CPU: not passed on, as nothing shows which belong together.
    pub discarded: u64,
}

impl Tracer {
    /// Attaches the hooks.
    pub fn start(options: &Options) -> Result<Tracer> {
        options.check_filter()?;
        Tracer::attach(options)
    }

    /// The same for a filter that is known to be right.
    pub(crate) fn attach(options: &Options) -> Result<Tracer> {
        Tracer::attach_timed(options, false)
    }

    /// The same; `inside`: the hooks take their own times ([`Tracer::inside_ns`]).
    pub(crate) fn attach_timed(options: &Options, inside: bool) -> Result<Tracer> {
        options.check()?;
        let hooks = Hooks::attach(options, inside)?;
        let ring = Ring::map(&hooks, options)?;
        let sends = Sends::new(hooks.at_queue());
        let decoding = options.decode.clone().map(Decoding::new);
        let mut runtimes = options.looks_at_runtimes().then(Runtimes::default);
        if let Some(runtimes) = &mut runtimes {
            // These are known from the start, so nothing of theirs waits.
            for process in &options.filter.processes {
                runtimes.is_known(*process, true);
            }
        }
        let (filter, reserved) = (options.filter.clone(), options.stamp);
        Ok(Tracer {
            hooks,
            filter,
            ring,
            sends,
            decoding,
            runtimes,
            held: VecDeque::new(),
            reserved,
            off_ns: 0,
        })
    }

    /// The backend that holds.
    pub fn backend(&self) -> Backend {
        self.hooks.backend
    }

    /// Rungs that were tried before.
    pub fn refused(&self) -> &[Refusal] {
        &self.hooks.refused
    }

    /// Hooks that are attached, and who pays for each.
    pub fn payers(&self) -> Vec<Payer> {
        self.hooks.payers()
    }

    /// Memory that the hooks write into.
    pub fn rings(&self) -> Rings {
        self.hooks.rings
    }

    /// How many programs have been attached since the start, those that were attached again counted again. Each time the kernel's code is
    /// changed on all CPUs.
    pub fn attachments(&self) -> usize {
        self.hooks.attachments
    }

    /// Traces the processes of another cgroup from now on, where the trace is of one: the same service, started again.
    ///
    /// # Errors
    /// The kernel's answer; the trace is not of a cgroup.
    pub fn follow(&mut self, cgroup: Cgroup) -> Result<()> {
        if self.filter.cgroup.is_none() {
            return Err(Error::Argument("the trace is not of a cgroup".into()));
        }
        self.filter.cgroup = Some(cgroup);
        self.hooks.aim(&self.filter)
    }

    /// Traces other processes from now on, with the same options.
    pub(crate) fn aim(&mut self, filter: &Filter) -> Result<()> {
        self.hooks.aim(filter)
    }

    /// Passes on all that was noted, while the hooks are on: for who knows that nothing is noted meanwhile.
    pub(crate) fn drain(&mut self, mut each: impl FnMut(Record)) {
        self.read(true, |event| records(event, &mut each));
    }

    /// Whether UDP and TCP are noted at the device's queue.
    pub fn at_queue(&self) -> bool {
        self.hooks.at_queue()
    }

    /// Passes on what was noted up to about a millisecond ago, in the order of time. Nothing wakes the caller: call it every few
    /// milliseconds; a CPU's ring holds [`Options::slots`] records. A caller that joins them has to know of gaps: [`Tracer::poll_events`].
    pub fn poll(&mut self, mut each: impl FnMut(Record)) {
        self.poll_events(|event| records(event, &mut each));
    }

    /// The same with the sockets that are new, where those are noted ([`Options::stages`]).
    pub fn poll_events(&mut self, each: impl FnMut(Event)) {
        self.read(false, each);
    }

    /// Detaches the hooks and passes on the rest. [`Tracer::resume`] attaches them again.
    pub fn stop(&mut self, mut each: impl FnMut(Record)) {
        self.stop_events(|event| records(event, &mut each));
    }

    /// The same with what [`Tracer::poll_events`] has.
    pub fn stop_events(&mut self, each: impl FnMut(Event)) {
        self.off_ns = monotonic_ns();
        self.hooks.switch_off();
        self.read(true, each);
    }

    fn read(&mut self, all: bool, mut each: impl FnMut(Event)) {
        let Tracer { ring, runtimes: Some(_), held, .. } = self else {
            let Tracer { ring, sends, decoding, reserved, .. } = self;
            return ring.poll(all, |Noted { event, seen }| {
                pass(event, seen, (sends, decoding, &mut None, *reserved), &mut each);
            });
        };
        ring.poll(all, |Noted { event, seen }| held.push_back((event, seen.into())));
        let Tracer { sends, decoding, runtimes, reserved, held, .. } = self;
        while let Some((event, seen)) = held.pop_front() {
            if let (Event::Record(Record { process, .. }), Some(runtimes)) = (event, &mut *runtimes)
                && !runtimes.is_known(process, all)
            {
                // And all that comes behind it.
                held.push_front((event, seen));
                return;
            }
            pass(event, &seen, (sends, decoding, runtimes, *reserved), &mut each);
        }
    }

    /// Counts of stamped messages ([`Options::stamp`]).
    pub fn stamps(&self) -> Result<Stamps> {
        Stamps::read(&self.hooks.map("stamps")?)
    }

    /// Counts of bytes that the decoder could not read.
    pub fn decoded(&self) -> Decoded {
        self.decoding.as_ref().map(Decoding::decoded).unwrap_or_default()
    }

    /// Time that the hooks spent inside T2 so far, nanoseconds in all. Of receives it is from the clock on and another reading of the
    /// clock, of sends up to the clock.
    pub(crate) fn inside_ns(&self) -> Inside {
        self.ring.inside_ns()
    }

    /// Hooks that run for a message, over TCP at least.
    pub(crate) fn fires(&self, transport: Transport) -> usize {
        self.hooks.fires(transport)
    }

    /// Attaches them again. Messages of the meantime are not known: the next event is [`Event::Gap`].
    pub fn resume(&mut self) -> Result<()> {
        self.hooks.switch_on().map_err(Error::bpf("cannot attach the hooks"))?;
        self.ring.was_off(self.off_ns);
        Ok(())
    }

    /// Events up to this time (`CLOCK_MONOTONIC`) have been passed on.
    pub fn passed_ns(&self) -> u64 {
        let held_ns = self.held.iter().find_map(|(event, _)| event.time_ns());
        self.ring.until_ns().min(held_ns.unwrap_or(u64::MAX))
    }

    /// Counts of missed records so far.
    pub fn seen(&self) -> Seen {
        let Tracer { ring, hooks, .. } = self;
        Seen { lost: ring.lost(), missed: hooks.missed(), late: ring.late(), discarded: ring.discarded() }
    }
}
