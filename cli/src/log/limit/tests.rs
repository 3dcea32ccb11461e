//! Lines at set times, through the limits.

use super::*;
use tracing_subscriber::layer::SubscriberExt;

/// The lines that the limits let through, with a clock that the test sets.
#[derive(Default)]
struct Log {
    state: Mutex<State>,
    clock: Mutex<Option<Instant>>,
    lines: Mutex<Vec<String>>,
}

impl Log {
    fn now(&self) -> Instant {
        *self.clock.lock().unwrap().get_or_insert_with(Instant::now)
    }

    fn pass(&self, seconds: f64) {
        let later = self.now() + Duration::from_secs_f64(seconds);
        *self.clock.lock().unwrap() = Some(later);
    }

    fn put(&self, event: &Event<'_>) {
        self.lines.lock().unwrap().push(Kept::of(event).line());
    }

    fn due(&self, all: bool) {
        let due = self.state.lock().unwrap().due(self.now(), all);
        due.iter().for_each(|line| line.write(|event| self.put(event)));
    }

    fn taken(&self) -> Vec<String> {
        std::mem::take(&mut self.lines.lock().unwrap())
    }
}

struct Through(std::sync::Arc<Log>);

impl<S: Subscriber> Layer<S> for Through {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let decision = self.0.state.lock().unwrap().decide(Kept::of(event), self.0.now());
        let lines = decision.before.iter().chain(&decision.instead);
        lines.for_each(|line| line.write(|event| self.0.put(event)));
        if decision.passes {
            self.0.put(event);
        }
    }
}

fn with_log(act: impl FnOnce(&Log)) {
    let log = std::sync::Arc::new(Log::default());
    let subscriber = tracing_subscriber::registry().with(Through(log.clone()));
    tracing::subscriber::with_default(subscriber, || act(&log));
}

fn up(dev: &str, number: u32) {
    tracing::info!(dev, number, cause = %"a flap", "up");
}

fn down(dev: &str) {
    tracing::warn!(dev, "down");
}

#[test]
fn the_last_line_of_a_flood_is_logged_with_the_count() {
    with_log(|log| {
        (0..1000).for_each(|number| up("eth0", number));
        let lines = log.taken();
        assert_eq!(lines.len(), BURST as usize);
        assert_eq!(lines[0], "up dev=\"eth0\" number=0 cause=a flap");
        log.pass(9.9);
        log.due(false);
        assert_eq!(log.taken(), [""; 0]);
        log.pass(0.2);
        log.due(false);
        assert_eq!(log.taken(), ["up (979 more like this left out) dev=\"eth0\" number=999 cause=a flap"]);
        log.pass(1000.0);
        log.due(false);
        assert_eq!(log.taken(), [""; 0]);
        (0..30).for_each(|number| up("eth0", number));
        assert_eq!(log.taken().len(), BURST as usize);
        log.due(true);
        assert_eq!(log.taken(), ["up (9 more like this left out) dev=\"eth0\" number=29 cause=a flap"]);
    });
}

#[test]
fn a_line_in_time_counts_those_before_it() {
    with_log(|log| {
        (0..25).for_each(|number| up("eth0", number));
        log.taken();
        log.pass(10.0);
        up("eth0", 25);
        assert_eq!(log.taken(), ["up (5 more like this left out) dev=\"eth0\" number=25 cause=a flap"]);
    });
}

#[test]
fn each_subject_has_a_limit_of_its_own() {
    with_log(|log| {
        (0..100).for_each(|number| up("eth0", number));
        log.taken();
        up("eth1", 0);
        assert_eq!(log.taken(), ["up dev=\"eth1\" number=0 cause=a flap"]);
    });
}

#[test]
fn the_last_line_about_a_subject_is_its_state() {
    with_log(|log| {
        for number in 0..1000 {
            up("eth0", number);
            down("eth0");
        }
        assert_eq!(log.taken().len(), 2 * BURST as usize);
        // `up` is held, and `down` may come: the line before it comes first.
        (0..5).for_each(|_| {
            log.pass(10.0);
            log.due(false);
            log.taken();
        });
        up("eth0", 1);
        (0..100).for_each(|number| up("eth0", number));
        log.taken();
        down("eth0");
        let lines = log.taken();
        assert_eq!(lines.last().unwrap(), "down dev=\"eth0\"");
        assert!(lines[0].starts_with("up (") && lines.len() == 2, "{lines:?}");
        log.pass(60.0);
        log.due(false);
        assert_eq!(log.taken(), [""; 0]);
    });
}

#[test]
fn memory_is_bounded() {
    with_log(|log| {
        for device in 0..SUBJECTS + 1000 {
            up(&format!("eth{device}"), 0);
        }
        assert_eq!(log.taken().len(), SUBJECTS + BURST as usize);
        assert_eq!(log.state.lock().unwrap().buckets.len(), SUBJECTS + 1);
        log.pass(3600.0);
        log.due(false);
        log.taken();
        log.pass(3600.0);
        up("one more", 0);
        assert_eq!(log.taken().len(), 1);
        assert_eq!(log.state.lock().unwrap().buckets.len(), 1);
    });
}
