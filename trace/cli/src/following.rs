//! Messages in processes, and their ways between them, out of a trace's events.

use trieline_trace::{Event, HopCounts, Hops, Joiner, Message, Options, Passes, Point, Seen, Summary};

use crate::records::RecordWriter;

/// How many sends and receives may come, of all streams together, before the other end of one.
const WAITING: usize = 1 << 17;

/// Results outside of processes.
#[derive(Clone, Copy)]
pub struct HopResults<'a> {
    /// Times of each part.
    pub times: &'a Summary,
    /// Counts of the records, if ways from process to process are followed.
    pub hops: Option<HopCounts>,
    /// Arrivals at devices that are on a way and that are not, where those are noted.
    pub passes: Option<(u64, u64)>,
}

/// Joins what hooks have noted.
pub struct Following {
    joiner: Joiner,
    hops: Option<Hops>,
    passes: Option<Passes>,
    ways: Summary,
    records: Option<RecordWriter>,
}

impl Following {
    /// For a trace with these options, which is on; what hooks note goes to `records`, too.
    pub fn new(
        options: &Options,
        at_queue: bool,
        mut records: Option<RecordWriter>,
    ) -> anyhow::Result<Following> {
        if let Some(records) = &mut records {
            records.begin(options.by(), at_queue)?;
        }
        Ok(Following {
            joiner: Joiner::new(options.by(), at_queue),
            hops: (!options.clients.is_empty()).then(|| Hops::new(WAITING)),
            passes: options.arrivals.then(|| Passes::new(WAITING)),
            ways: Summary::default(),
            records,
        })
    }

    /// The next event; whole messages go to `each`. One that is joined by its id does as its send comes, whose bytes are at hand then.
    pub fn take(&mut self, event: &Event, each: impl FnMut(Message)) {
        let Following { hops, passes, ways, .. } = self;
        if let (Some(passes), Event::Passed(record)) = (&mut *passes, event) {
            passes.take(0, *record);
        }
        let mut is_joined = false;
        if let Some(hops) = hops {
            hops.take(0, event, |hop| {
                is_joined = true;
                ways.add_hop(&hop);
                let parts =
                    passes.as_mut().map(|passes| passes.split(&hop, |_, record| Some(record.time_ns)));
                parts.iter().flatten().for_each(|part| ways.add_hop(part));
            });
        }
        if let (false, Some(passes), Event::Record(record)) = (is_joined, passes, event)
            && record.point == Point::Received
        {
            passes.received(0, *record).iter().for_each(|part| ways.add_hop(part));
        }
        if let Some(records) = &mut self.records {
            records.take(event);
        }
        self.joiner.event(event, each);
    }

    /// All events up to then have been taken.
    pub fn drain(&mut self, until_ns: u64, each: impl FnMut(Message)) {
        self.joiner.drain(until_ns, each);
    }

    /// There are no more.
    ///
    /// # Errors
    /// The file of records could not be written.
    pub fn finish(&mut self, seen: Seen, each: impl FnMut(Message)) -> anyhow::Result<()> {
        self.joiner.finish(each);
        if let Some(hops) = &mut self.hops {
            hops.finish();
        }
        if let Some(passes) = &mut self.passes {
            passes.finish();
        }
        self.records.take().map_or(Ok(()), |records| records.finish(seen))
    }

    /// Why the file of records could not be written, once: it is closed.
    pub fn failure(&mut self) -> Option<anyhow::Error> {
        let failed = self.records.as_mut()?.failure()?;
        self.records = None;
        Some(failed)
    }

    /// Counts of the records.
    pub fn counts(&self) -> trieline_trace::Counts {
        self.joiner.counts()
    }

    /// Times outside of processes.
    pub fn ways(&self) -> Option<HopResults<'_>> {
        let (hops, passes) = (self.hops.as_ref(), self.passes.as_ref());
        (hops.is_some() || passes.is_some()).then(|| HopResults {
            times: &self.ways,
            hops: hops.map(Hops::counts),
            passes: passes.map(Passes::counts),
        })
    }
}
