//! The live view of a trace: rate, percentiles, losses and cost of every interval, on standard error.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write as _};

use anyhow::Result;
use clap::ValueEnum;
use hdrhistogram::Histogram;
use serde_json::{Value, json};
use trieline_trace::{By, Stage};

use super::interval::{Interval, Now};
use super::sink::About;
use crate::calibrate::{self, CostJson, LiveJson};
use crate::report::{few, micros, not_joined, stage_json, stage_name};
use trieline_terminal::{CLEAR, aligned};

const QUANTILES: [(&str, f64); 3] = [("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// When there is one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum When {
    /// On a terminal, unless a traced command writes there, too
    #[default]
    Auto,
    /// Always; a line for each stage if it is not a terminal
    Always,
    /// Never
    Never,
}

/// How intervals are shown.
#[derive(Clone, Debug)]
pub struct Live {
    form: Form,
    /// The tracer's own cost, as measured at the start: in words and in JSON.
    cost: String,
    cost_json: Value,
    is_by_thread: bool,
    /// Remarks that lines have shown already: the cost, the pairs of windows of `--live-cost`, a hint.
    is_cost_said: bool,
    pairs_said: Option<usize>,
    is_hint_said: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Screen,
    Lines,
    Json,
}

impl Live {
    /// The view, if there is one.
    pub fn new(when: When, about: &About) -> Option<Live> {
        let About { json, has_command, .. } = *about;
        let is_terminal = io::stderr().is_terminal();
        let is_wanted = match when {
            When::Auto => is_terminal && !has_command && !json,
            When::Always => true,
            When::Never => false,
        };
        let form = match (json, is_terminal && !has_command) {
            (true, _) => Form::Json,
            (false, true) => Form::Screen,
            (false, false) => Form::Lines,
        };
        let cost_json = json!(about.cost.as_ref().ok().map(CostJson::from));
        let cost = about.cost_text();
        is_wanted.then(|| Live {
            form,
            cost,
            cost_json,
            is_by_thread: about.by == By::Thread,
            is_cost_said: false,
            pairs_said: None,
            is_hint_said: false,
        })
    }

    /// Shows an interval.
    pub fn show(&mut self, interval: &Interval) -> Result<()> {
        let text = match self.form {
            Form::Screen => format!("{CLEAR}{}", self.screen(interval)),
            Form::Lines => format!("{}{}", lines(interval), self.news(interval)),
            Form::Json => format!("{}\n", self.json(interval)),
        };
        Ok(io::stderr().lock().write_all(text.as_bytes())?)
    }

    fn screen(&self, interval: &Interval) -> String {
        let mut text = format!("{}\n\n", head(interval));
        let mut rows = vec![
            ["microseconds", "a second", "p50", "p99", "p99.9", "in all", "p50", "p99", "p99.9"]
                .map(String::from)
                .to_vec(),
        ];
        for (stage, all) in interval.all.stages() {
            let times = of(interval, stage);
            let mut row = vec![stage_name(stage), rate(interval, times)];
            row.extend(quantiles(times));
            row.push(all.len().to_string());
            row.extend(quantiles(Some(all)));
            rows.push(row);
        }
        text.push_str(&aligned(&rows, 1));
        let _ = write!(text, "\n{}", self.costs(interval));
        text
    }

    /// Cost, measured at the start and meanwhile.
    fn costs(&self, interval: &Interval) -> String {
        let live = interval.now.live.as_ref().map(calibrate::live_text);
        let hint = self.hint(interval.now).map(|hint| hint + "\n").unwrap_or_default();
        format!("{hint}{}\n{}", self.cost, live.unwrap_or_default())
    }

    fn hint(&self, now: &Now) -> Option<String> {
        hint(now).filter(|_| self.is_by_thread)
    }

    /// Of costs and hints what has not been said yet: lines stay, unlike a screen.
    fn news(&mut self, interval: &Interval) -> String {
        let mut text = String::new();
        if !std::mem::replace(&mut self.is_cost_said, true) {
            let _ = writeln!(text, "{}", self.cost);
        }
        let pairs = interval.now.live.as_ref().map(|live| live.pairs);
        if std::mem::replace(&mut self.pairs_said, pairs) != pairs {
            text += &interval.now.live.as_ref().map(calibrate::live_text).unwrap_or_default();
        }
        let hint = self.hint(interval.now).filter(|_| !self.is_hint_said);
        self.is_hint_said |= hint.is_some();
        text += &hint.map(|hint| hint + "\n").unwrap_or_default();
        text
    }

    fn json(&self, interval: &Interval) -> Value {
        let stages = |summary: &trieline_trace::Summary| -> Vec<Value> {
            summary.stages().map(|(stage, times)| stage_json(stage, times)).collect()
        };
        json!({
            "seconds": (interval.from + interval.length).as_secs_f64(),
            "interval": interval.length.as_secs_f64(),
            "messages": interval.times.messages(),
            "stages": stages(interval.times),
            "in_all": stages(interval.all),
            "lost": interval.now.seen.lost,
            "missed": interval.now.seen.missed,
            "not_joined": not_joined(&interval.now.counts),
            "hint": self.hint(interval.now),
            "cost": self.cost_json,
            "live": interval.now.live.map(LiveJson::from),
            "waiting": interval.now.waiting,
        })
    }
}

/// A hint how to see more messages, if the percentiles of a trace by threads are of few.
fn hint(now: &Now) -> Option<String> {
    let share = few(&now.counts)?;
    Some(format!(
        "{share} % of the receives are ambiguous (several before a send): these percentiles are of the rest; --decode or --id tells such messages \
         apart"
    ))
}

/// A stage's times in an interval, if it had any.
fn of<'a>(interval: &'a Interval, stage: &Stage) -> Option<&'a Histogram<u64>> {
    interval.times.stages().find(|(other, _)| *other == stage).map(|(_, times)| times)
}

fn rate(interval: &Interval, times: Option<&Histogram<u64>>) -> String {
    let messages = times.map_or(0, Histogram::len);
    format!("{:.0}", messages as f64 / interval.length.as_secs_f64())
}

fn quantiles(times: Option<&Histogram<u64>>) -> [String; 3] {
    QUANTILES.map(|(_, quantile)| times.map_or("-".into(), |times| micros(times.value_at_quantile(quantile))))
}

fn head(interval: &Interval) -> String {
    let now = interval.now;
    let waiting = now.waiting.as_ref().map(|why| format!("; waiting: {why}")).unwrap_or_default();
    format!(
        "{:.1} s: {:.0} messages a second, {} in all; {} lost, {} missed, {} not joined{waiting}",
        (interval.from + interval.length).as_secs_f64(),
        interval.times.messages() as f64 / interval.length.as_secs_f64(),
        interval.all.messages(),
        now.seen.lost,
        now.seen.missed,
        not_joined(&now.counts),
    )
}

fn lines(interval: &Interval) -> String {
    let mut text = format!("{}\n", head(interval));
    for (stage, all) in interval.all.stages() {
        let times = of(interval, stage);
        let said = |values: [String; 3]| format!("p50 {} p99 {} p99.9 {}", values[0], values[1], values[2]);
        let _ = writeln!(
            text,
            "  {}: {} a second, {} us; in all {}, {} us",
            stage_name(stage),
            rate(interval, times),
            said(quantiles(times)),
            all.len(),
            said(quantiles(Some(all))),
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use trieline_trace::{Counts, Seen, Summary};

    #[test]
    fn lines_say_costs_and_hints_once() {
        let (form, cost, cost_json) = (Form::Lines, "cost: little".to_owned(), Value::Null);
        let (is_cost_said, pairs_said, is_hint_said) = (false, None, false);
        let mut live =
            Live { form, cost, cost_json, is_by_thread: true, is_cost_said, pairs_said, is_hint_said };
        let counts = Counts { received: 5000, ambiguous: 3800, ..Counts::default() };
        let now = Now { counts, seen: Seen::default(), ways: None, live: None, waiting: None };
        let (times, all) = (&Summary::default(), &Summary::default());
        let interval =
            Interval { from: Duration::ZERO, length: Duration::from_secs(1), times, all, now: &now };
        let first = live.news(&interval);
        assert!(
            first.contains("cost: little") && first.contains("76 % of the receives are ambiguous"),
            "{first}"
        );
        assert!(first.contains("--decode or --id"), "{first}");
        assert_eq!(live.news(&interval), "");
        // By an id: nothing more to advise.
        assert!(Live { is_by_thread: false, ..live }.hint(&now).is_none());
    }
}
