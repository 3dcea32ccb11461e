//! What a trace makes of its events: messages in processes, and their ways between them.

use trieline_trace::{Event, HopCounts, Hops, Joiner, Message, Options, Summary};

/// Sends and receives of a stream that wait for their other end.
const WAITING: usize = 4096;

/// Joins what hooks have noted.
pub struct Following {
    joiner: Joiner,
    ways: Option<(Hops, Summary)>,
}

impl Following {
    /// For a trace with these options.
    pub fn new(options: &Options, at_queue: bool) -> Following {
        let ways = options.stages.then(|| (Hops::new(WAITING), Summary::default()));
        Following { joiner: Joiner::new(options.by(), at_queue), ways }
    }

    /// The next event; whole messages go to `each`.
    pub fn take(&mut self, event: &Event, each: impl FnMut(Message)) {
        if let Some((hops, summary)) = &mut self.ways {
            hops.take(0, event, |hop| summary.add_hop(&hop));
        }
        if let Event::Record(record) = event {
            self.joiner.take(*record, each);
        }
    }

    /// There are no more.
    pub fn finish(&mut self, each: impl FnMut(Message)) {
        self.joiner.finish(each);
        if let Some((hops, _)) = &mut self.ways {
            hops.finish();
        }
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
