//! What a trace makes of its events: messages in processes, and their ways between them.

use trieline_trace::{Event, HopCounts, Hops, Joiner, Message, Options, Seen, Summary};

use super::records::RecordWriter;

/// Sends and receives of a stream that wait for their other end.
const WAITING: usize = 4096;

/// Joins what hooks have noted.
pub struct Following {
    joiner: Joiner,
    ways: Option<(Hops, Summary)>,
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
        let ways = (!options.clients.is_empty()).then(|| (Hops::new(WAITING), Summary::default()));
        Ok(Following { joiner: Joiner::new(options.by(), at_queue), ways, records })
    }

    /// The next event; whole messages go to `each`. One that is joined by its id does as its send comes, whose bytes are at hand then.
    pub fn take(&mut self, event: &Event, each: impl FnMut(Message)) {
        if let Some((hops, summary)) = &mut self.ways {
            hops.take(0, event, |hop| summary.add_hop(&hop));
        }
        if let Some(records) = &mut self.records {
            records.take(event);
        }
        if let Event::Record(record) = event {
            self.joiner.take(*record, each);
        }
    }

    /// The hooks go off for a while: what has been received is not seen to leave.
    pub fn pause(&mut self, each: impl FnMut(Message)) {
        self.joiner.finish(each);
    }

    /// There are no more.
    pub fn finish(&mut self, seen: Seen, each: impl FnMut(Message)) -> anyhow::Result<()> {
        self.joiner.finish(each);
        if let Some((hops, _)) = &mut self.ways {
            hops.finish();
        }
        self.records.take().map_or(Ok(()), |records| records.finish(seen))
    }

    /// What became of the records.
    pub fn counts(&self) -> trieline_trace::Counts {
        self.joiner.counts()
    }

    /// Times from process to process.
    pub fn ways(&self) -> Option<(&Summary, HopCounts)> {
        self.ways.as_ref().map(|(hops, summary)| (summary, hops.counts()))
    }
}
