//! Messages as spans to an OpenTelemetry collector: OTLP 1.x over HTTP, in JSON. A thread of its own, which the trace never waits for,
//! sends them.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};
use trieline_router::capture::pcapng::epoch_ns;
use trieline_trace::Message;

use super::sink::{About, Sink};
use super::threads::{Thread, Threads};

/// Spans that wait to be sent; beyond it they are left out and counted.
const WAITING: usize = 8192;
/// Spans of a request.
const BATCH: usize = 512;
/// How long spans wait for their batch to be full.
const LONGEST: Duration = Duration::from_secs(1);
/// How long a collector may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Where a collector takes spans, if the URL has no path.
const PATH: &str = "/v1/traces";

/// `http://HOST:PORT`, or with a path.
pub fn url(text: &str) -> Result<String, String> {
    let Some(rest) = text.strip_prefix("http://") else {
        return Err("expected http://HOST:PORT; for TLS let a collector on this machine pass spans on".into());
    };
    match rest.split_once('/') {
        _ if rest.is_empty() || rest.starts_with('/') => Err("expected a host after http://".into()),
        Some((host, "")) => Ok(format!("http://{host}{PATH}")),
        Some(_) => Ok(text.to_owned()),
        None => Ok(format!("{text}{PATH}")),
    }
}

/// `1/N`.
pub fn sample(text: &str) -> Result<u64, String> {
    let every = text.strip_prefix("1/").and_then(|every| every.parse().ok());
    every.filter(|every| *every > 0).ok_or_else(|| "expected 1/N, as in 1/100".into())
}

struct Span {
    message: Message,
    receiver: Thread,
    sender: Thread,
}

/// Counts of the spans.
#[derive(Default)]
struct Sent {
    taken: u64,
    failed: u64,
    last_failure: Option<String>,
}

/// Every so many messages a span.
pub struct Otlp {
    url: String,
    every: u64,
    messages: u64,
    left_out: u64,
    threads: Threads,
    spans: Option<SyncSender<Span>>,
    is_over: Arc<AtomicBool>,
    worker: Option<JoinHandle<Sent>>,
}

impl Otlp {
    /// Starts the thread; nothing is sent yet.
    pub fn start(url: &str, every: u64, about: &About) -> Result<Otlp> {
        let (spans, waiting) = sync_channel(WAITING);
        let is_over = Arc::new(AtomicBool::new(false));
        let collector = Collector::new(url, &about.cost_text(), Arc::clone(&is_over));
        let worker = Builder::new().name("otlp".into()).spawn(move || collector.run(&waiting));
        Ok(Otlp {
            url: url.to_owned(),
            every,
            messages: 0,
            left_out: 0,
            threads: Threads::default(),
            spans: Some(spans),
            is_over,
            worker: Some(worker.context("cannot start the thread that sends spans")?),
        })
    }
}

impl Sink for Otlp {
    fn take(&mut self, message: &Message) -> Result<()> {
        self.messages += 1;
        if !self.messages.is_multiple_of(self.every) {
            return Ok(());
        }
        let receiver = self.threads.get(&message.received).clone();
        let sender = self.threads.get(&message.sent).clone();
        let span = Span { message: *message, receiver, sender };
        if let Some(spans) = &self.spans
            && let Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) = spans.try_send(span)
        {
            self.left_out += 1;
        }
        Ok(())
    }

    fn ended(&mut self, thread: u32) {
        self.threads.forget(thread);
    }

    fn finish(&mut self) -> Result<Vec<String>> {
        self.is_over.store(true, Ordering::Relaxed);
        self.spans = None;
        let Some(worker) = self.worker.take() else { return Ok(Vec::new()) };
        let sent = worker.join().map_err(|_| anyhow!("the thread that sends spans has panicked"))?;
        let mut note = format!(
            "{} spans sent to {}, {} failed, {} left out because the collector was slow",
            sent.taken, self.url, sent.failed, self.left_out
        );
        if let Some(failure) = sent.last_failure {
            note += &format!("; the last failure: {failure}");
        }
        Ok(vec![note])
    }
}

/// The sender.
struct Collector {
    agent: ureq::Agent,
    url: String,
    cost: String,
    /// From CLOCK_MONOTONIC to 1970.
    epoch_ns: u64,
    ids: RandomState,
    next_id: u64,
    is_over: Arc<AtomicBool>,
    /// Whether the last request failed as a whole.
    is_unreachable: bool,
    sent: Sent,
}

impl Collector {
    fn new(url: &str, cost: &str, is_over: Arc<AtomicBool>) -> Collector {
        let agent = ureq::Agent::config_builder()
            .timeout_global(Some(TIMEOUT))
            .http_status_as_error(false)
            .build()
            .into();
        Collector {
            agent,
            url: url.to_owned(),
            cost: cost.to_owned(),
            epoch_ns: epoch_ns(),
            ids: RandomState::new(),
            next_id: 0,
            is_over,
            is_unreachable: false,
            sent: Sent::default(),
        }
    }

    fn run(mut self, spans: &Receiver<Span>) -> Sent {
        let mut batch = Vec::with_capacity(BATCH);
        loop {
            let is_last = fill(&mut batch, spans);
            if !batch.is_empty() {
                self.send(&batch);
                batch.clear();
            }
            if is_last {
                return self.sent;
            }
            if self.is_over.load(Ordering::Relaxed) && self.is_unreachable {
                // At the end, the tracer does not wait for a collector that does not answer.
                self.sent.failed += spans.iter().count() as u64;
                return self.sent;
            }
        }
    }

    fn send(&mut self, batch: &[Span]) {
        let count = batch.len() as u64;
        let body = self.request(batch).to_string();
        let answer = self.post(&body);
        self.is_unreachable = answer.is_err();
        match answer {
            Ok(rejected) => {
                let rejected = rejected.min(count);
                self.sent.taken += count - rejected;
                self.sent.failed += rejected;
                if rejected > 0 {
                    self.sent.last_failure = Some(format!("{rejected} spans rejected"));
                }
            }
            Err(error) => {
                self.sent.failed += count;
                self.sent.last_failure = Some(format!("{error:#}"));
            }
        }
    }

    /// How many spans the collector has rejected.
    fn post(&self, body: &str) -> Result<u64> {
        let mut answer = self.agent.post(&self.url).content_type("application/json").send(body)?;
        let status = answer.status();
        let text = answer.body_mut().read_to_string()?;
        if !status.is_success() {
            return Err(anyhow!("{status}: {}", text.trim()));
        }
        // An answer without it, or of another form, has taken all (OTLP, "Partial success").
        let rejected = serde_json::from_str::<Value>(&text).ok().and_then(|answer| {
            let rejected = &answer["partialSuccess"]["rejectedSpans"];
            rejected.as_u64().or_else(|| rejected.as_str()?.parse().ok())
        });
        Ok(rejected.unwrap_or(0))
    }

    /// `ExportTraceServiceRequest` (opentelemetry-proto, in its JSON form: ids in hexadecimal, 64-bit numbers as strings).
    fn request(&mut self, batch: &[Span]) -> Value {
        let mut processes: BTreeMap<(u32, &str), Vec<Value>> = BTreeMap::new();
        for span in batch {
            let process = (span.receiver.process, span.receiver.process_name.as_str());
            let value = self.span(span);
            processes.entry(process).or_default().push(value);
        }
        let scope = json!({
            "name": "trieline", "version": env!("CARGO_PKG_VERSION"),
            "attributes": [text("trieline.own_cost", &self.cost)],
        });
        let resources: Vec<Value> = processes
            .into_iter()
            .map(|((number, name), spans)| {
                let attributes = [text("service.name", name), integer("process.pid", number.into())];
                json!({
                    "resource": { "attributes": attributes },
                    "scopeSpans": [{ "scope": scope, "spans": spans }],
                })
            })
            .collect();
        json!({ "resourceSpans": resources })
    }

    fn span(&mut self, span: &Span) -> Value {
        let Message { received, sent, reads } = span.message;
        let mut id = || {
            self.next_id += 1;
            self.ids.hash_one(self.next_id).max(1)
        };
        let mut attributes = vec![
            text("network.transport", received.transport.name()),
            text("trieline.left_by", sent.transport.name()),
            text("trieline.left_at", sent.point.name()),
            integer("thread.id", received.thread.into()),
            text("thread.name", &span.receiver.name),
            integer("trieline.sender.thread.id", sent.thread.into()),
            text("trieline.sender.thread.name", &span.sender.name),
            integer("trieline.received.bytes", received.bytes.into()),
            integer("trieline.sent.bytes", sent.bytes.into()),
            integer("trieline.reads", reads.into()),
        ];
        attributes.extend(received.id.map(|id| text("trieline.message.id", &id.to_string())));
        json!({
            "traceId": format!("{:016x}{:016x}", id(), id()),
            "spanId": format!("{:016x}", id()),
            "name": format!("{} to {}", received.transport, sent.transport),
            "kind": 1, // internal
            "startTimeUnixNano": (self.epoch_ns + received.time_ns).to_string(),
            "endTimeUnixNano": (self.epoch_ns + sent.time_ns).to_string(),
            "attributes": attributes,
        })
    }
}

/// Waits for a span, and then for more until there are enough or the first has waited long enough. Whether there will be no more.
fn fill(batch: &mut Vec<Span>, spans: &Receiver<Span>) -> bool {
    let Ok(first) = spans.recv() else { return true };
    batch.push(first);
    let since = Instant::now();
    while batch.len() < BATCH {
        match spans.recv_timeout(LONGEST.saturating_sub(since.elapsed())) {
            Ok(span) => batch.push(span),
            Err(RecvTimeoutError::Timeout) => return false,
            Err(RecvTimeoutError::Disconnected) => return true,
        }
    }
    false
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn integer(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_without_a_path_is_a_collectors() {
        assert_eq!(url("http://[::1]:4318"), Ok("http://[::1]:4318/v1/traces".into()));
        assert_eq!(url("http://host/"), Ok("http://host/v1/traces".into()));
        assert_eq!(url("http://host/a/b"), Ok("http://host/a/b".into()));
        for bad in ["https://host", "host:4318", "http://", "http:///v1"] {
            assert!(url(bad).unwrap_err().contains("http://"), "{bad}");
        }
        assert_eq!((sample("1/1"), sample("1/250")), (Ok(1), Ok(250)));
        for bad in ["", "10", "1/0", "2/3", "1/x"] {
            assert!(sample(bad).unwrap_err().contains("1/100"), "{bad}");
        }
    }
}
