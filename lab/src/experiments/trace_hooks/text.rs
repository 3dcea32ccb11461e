//! The result for people: a table.

use trieline_terminal::aligned;

use super::Outcome;
use crate::{experiments::trace_overhead::whole, report::Report};

impl Report for Outcome {
    fn text(&self) -> String {
        let heads = ["hooks", "work", "who", "count", "base", "delta", "low", "high", "events"];
        let mut rows = vec![heads.map(String::from).to_vec()];
        for row in &self.rows {
            let mut cells =
                vec![row.hooks.to_owned(), row.work.into(), row.who.into(), row.count.to_string()];
            cells.extend([row.base_ns, row.delta_ns, row.ci_low, row.ci_high].map(whole));
            cells.push(row.events.map_or("-".into(), |events| events.to_string()));
            rows.push(cells);
        }
        let p = &self.parameters;
        format!(
            "{}\nns; {};\n{};\n{} of {} rounds\n",
            aligned(&rows, 3),
            p.timed,
            p.hooks,
            p.rounds,
            p.rounds_made
        )
    }
}
