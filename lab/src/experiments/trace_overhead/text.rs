//! The result for people: a table and a picture.

use std::fmt::Write as _;

use trieline_plot::bars;
use trieline_terminal::aligned;

use super::{Method, NAME, Outcome, groups};
use crate::{
    Result,
    report::{Picture, Report},
};

impl Report for Outcome {
    fn text(&self) -> String {
        let heads = [
            "method",
            "transport",
            "broker",
            "messages",
            "delta",
            "low",
            "high",
            "x memory",
            "cpu",
            "low",
            "high",
            "x memory",
            "p50",
            "p99",
            "lost",
            "matched",
            "paper",
        ];
        let mut rows = vec![heads.map(String::from).to_vec()];
        let count = |count: Option<u64>| count.map_or("-".into(), |count| count.to_string());
        for row in &self.rows {
            let mut cells = vec![
                row.method.name().to_owned(),
                row.transport.into(),
                row.broker.name().into(),
                row.messages.to_string(),
            ];
            let [delta, cpu] = [
                (row.delta_ns, row.ci_low, row.ci_high, row.ratio_to_memory),
                (row.cpu_ns, row.cpu_ci_low, row.cpu_ci_high, row.cpu_ratio_to_memory),
            ];
            for (ns, low, high, ratio) in [delta, cpu] {
                cells.extend([ns, low, high].map(whole));
                cells.push(format!("{ratio:.2}"));
            }
            cells.extend([row.p50.to_string(), row.p99.to_string(), count(row.lost), count(row.matched)]);
            cells.push(row.published_delta_ns.map_or("-".into(), |ns| format!("{ns:.0}")));
            rows.push(cells);
        }
        let p = &self.parameters;
        let mut shares = String::new();
        for row in &self.rows {
            let of = |method| {
                self.rows.iter().find(|one| {
                    (one.transport, one.broker, one.method) == (row.transport, row.broker, method)
                })
            };
            if let (Some(ns), Some(low), Some(high), Some(bystander)) =
                (row.traced_ns, row.traced_low, row.traced_high, of(Method::Bystander))
            {
                let _ = writeln!(
                    shares,
                    "{} {}: a machine with the tracer on it pays {} [{}..{}] ({}); being traced adds {} [{}..{}] ({} - {})",
                    row.transport,
                    row.broker.name(),
                    whole(bystander.delta_ns),
                    whole(bystander.ci_low),
                    whole(bystander.ci_high),
                    bystander.method.name(),
                    whole(ns),
                    whole(low),
                    whole(high),
                    row.method.name(),
                    bystander.method.name(),
                );
            }
        }
        format!(
            "{}\n{shares}ns a message; delta: {};\ncpu: {};\n{} of {} rounds, one message per {} us\n",
            aligned(&rows, 3),
            p.delta,
            p.cpu,
            p.rounds,
            p.rounds_made,
            p.gap_us
        )
    }

    fn pictures(&self) -> Result<Vec<Picture>> {
        let title = "The time that taking times in a broker adds to a message's way";
        let unit = "nanoseconds, median of the rounds' differences with its 95 % interval";
        let svg = bars::picture(title, unit, &self.caption(), "hooks", &groups(&self.rows))?;
        Ok(vec![Picture { name: NAME.to_owned(), svg }])
    }
}

/// A cell; fewer than six rounds have no interval.
pub(in crate::experiments) fn whole(ns: f64) -> String {
    if ns.is_nan() { "-".into() } else { format!("{ns:.0}") }
}
