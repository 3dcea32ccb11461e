//! The result of `structures` as the tables of a document: one for each kind of table.

use std::fmt::Write as _;

use super::{
    Outcome,
    document::{Family, Figure, Measured, Row, title},
};

/// Sections and tables in Markdown.
pub fn markdown(outcome: &Outcome) -> String {
    let mut text = summary(&outcome.rows);
    for family in Family::ALL {
        let rows: Vec<&Row> = outcome.rows.iter().filter(|row| row.family == family).collect();
        if rows.is_empty() {
            continue;
        }
        let _ = writeln!(text, "### {}\n", family.title());
        for case in rows.chunk_by(|one, two| one.table == two.table) {
            table(&mut text, case);
        }
    }
    text
}

/// A line a table: trieline, and the best of the others by each measure.
fn summary(rows: &[Row]) -> String {
    let mut text = String::from(
        "| table | trieline: MiB | prefix ns | dependent ns | smallest other: MiB | fastest other: prefix ns (MiB) | dependent ns (MiB) |\n\
         |---|--:|--:|--:|--:|--:|--:|\n",
    );
    for case in rows.chunk_by(|one, two| one.table == two.table) {
        let measured =
            |row: &Row| Some((row.structure, row.measured.clone()?)).filter(|(name, _)| *name != "trieline");
        let others: Vec<(&str, Measured)> = case.iter().filter_map(measured).collect();
        let least =
            |by: fn(&Measured) -> f64| others.iter().min_by(|(_, one), (_, two)| by(one).total_cmp(&by(two)));
        let ours = case.iter().find(|row| row.structure == "trieline").and_then(|row| row.measured.as_ref());
        let (Some(ours), Some(small), Some(fast), Some(soon)) =
            (ours, least(|m| m.bytes as f64), least(|m| m.prefix.ns), least(|m| m.dependent.ns))
        else {
            continue;
        };
        let _ = writeln!(
            text,
            "| {} | {} | {:.1} | {:.1} | {} {} | {} {:.1} ({}) | {} {:.1} ({}) |",
            case[0].table,
            mebibytes(ours.bytes),
            ours.prefix.ns,
            ours.dependent.ns,
            small.0,
            mebibytes(small.1.bytes),
            fast.0,
            fast.1.prefix.ns,
            mebibytes(fast.1.bytes),
            soon.0,
            soon.1.dependent.ns,
            mebibytes(soon.1.bytes)
        );
    }
    text.push('\n');
    text
}

fn table(text: &mut String, case: &[&Row]) {
    let rounds = case.iter().find_map(|row| row.measured.as_ref()).map_or(0, |measured| measured.rounds);
    let _ = writeln!(text, "**{}**, {rounds} rounds\n", title(case[0]));
    text.push_str(
        "| structure | MiB | build ms | prefix ns | rand ns | dependent ns | no popcount ns | lines | pages | steps |\n\
         |---|--:|--:|--:|--:|--:|--:|--:|--:|--:|\n",
    );
    let mut refused = Vec::new();
    for row in case {
        match (&row.measured, &row.refused) {
            (Some(measured), _) => line(text, row.structure, measured),
            (None, why) => {
                refused.push(format!("{} ({})", row.structure, why.as_deref().unwrap_or("refused")))
            }
        }
    }
    if !refused.is_empty() {
        let _ = write!(text, "\nDoes not hold it: {}.\n", refused.join("; "));
    }
    text.push('\n');
}

fn line(text: &mut String, structure: &str, measured: &Measured) {
    let name = if structure == "trieline" { "**trieline**" } else { structure };
    let range = |figure: &Figure| format!("{:.1} ({:.1}–{:.1})", figure.ns, figure.min, figure.max);
    let _ = writeln!(
        text,
        "| {name} | {} | {:.0} | {} | {:.1} | {:.1} | {:.1} | {:.2} / {} | {:.2} / {} | {} |",
        mebibytes(measured.bytes),
        measured.build_ms,
        range(&measured.prefix),
        measured.rand.ns,
        measured.dependent.ns,
        measured.arithmetic.ns,
        measured.lines,
        measured.lines_max,
        measured.pages,
        measured.pages_max,
        measured.steps_max
    );
}

/// With two digits that mean something.
fn mebibytes(bytes: u64) -> String {
    let mebibytes = bytes as f64 / f64::from(1 << 20);
    if mebibytes < 10.0 { format!("{mebibytes:.2}") } else { format!("{mebibytes:.1}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_their_digits() {
        assert_eq!((mebibytes(1 << 19), mebibytes(64 << 20)), ("0.50".into(), "64.0".into()));
    }
}
