//! The log of `trielined`: lines of text on standard error, or entries of the journal with a field for each value. It never has more
//! than the limits allow.

mod kept;
mod limit;

use kept::Kept;
use limit::Limits;
pub use limit::write_left_out;
use rustix::fs::fstat;
use tracing::level_filters::LevelFilter;
use tracing::{Event, Subscriber};
use tracing_journald::{Priority, PriorityMappings};
use tracing_subscriber::fmt;
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// Begins the log. `verbose`: with the lines for debugging.
pub fn begin(verbose: bool) {
    let level = if verbose { LevelFilter::DEBUG } else { LevelFilter::INFO };
    let journal = is_journal().then(Journal::open).flatten();
    let text = journal.is_none().then(text);
    tracing_subscriber::registry().with(text).with(journal).with(Limits::default()).with(level).init();
}

/// Lines of text. The journal has its own time and no colours.
fn text<S: Subscriber + for<'s> LookupSpan<'s>>() -> Box<dyn Layer<S> + Send + Sync> {
    let colour = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
        && std::io::IsTerminal::is_terminal(&std::io::stderr());
    let layer = fmt::layer().with_writer(std::io::stderr).with_target(false).with_ansi(colour);
    if is_journal() { layer.without_time().boxed() } else { layer.boxed() }
}

/// Whether standard error is a stream to the journal: systemd.exec(5), `JOURNAL_STREAM`.
fn is_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    fstat(rustix::stdio::stderr()).is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

/// Entries of the journal: the text of a line as `MESSAGE`, and each of its values as a field, `TRIELINE_DEV` for `dev`.
struct Journal(tracing_journald::Layer);

impl Journal {
    /// `None`: the journal's socket is not there, and lines go to its stream.
    fn open() -> Option<Self> {
        let priorities = PriorityMappings {
            error: Priority::Error,
            warn: Priority::Warning,
            info: Priority::Informational,
            debug: Priority::Debug,
            trace: Priority::Debug,
        };
        let layer = tracing_journald::layer().ok()?;
        let layer = layer.with_syslog_identifier("trielined".into()).with_priority_mappings(priorities);
        Some(Self(layer.with_field_prefix(Some("TRIELINE".into()))))
    }
}

impl<S: Subscriber + for<'s> LookupSpan<'s>> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        // `journalctl` shows the message alone.
        let kept = Kept::of(event);
        kept.with_message(&kept.line(), |event| self.0.on_event(event, context));
    }
}
