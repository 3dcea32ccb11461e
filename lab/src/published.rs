//! Published figures about LPM_TRIE and about tracing, carried beside the source: each file begins with a line that names its origin.

use crate::{Error, Result};

const OPERATIONS: (&str, &str) = ("lpm_trie_ops_10k.csv", include_str!("../published/lpm_trie_ops_10k.csv"));
const CURVE: (&str, &str) =
    ("lpm_trie_lookup_curve.csv", include_str!("../published/lpm_trie_lookup_curve.csv"));
const OVERHEAD: (&str, &str) = ("trace_overhead.csv", include_str!("../published/trace_overhead.csv"));

/// An operation on a trie of 10,000 entries.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// `lookup update delete free`.
    pub name: String,
    /// Million a second.
    pub mops: f64,
    /// Standard deviation of that.
    pub stddev: f64,
    /// Nanoseconds each.
    pub ns: f64,
}

/// A lookup in a trie of so many entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Entries.
    pub entries: u32,
    /// Nanoseconds.
    pub ns: f64,
}

/// The operations, and where they are from.
pub fn operations() -> Result<(&'static str, Vec<Operation>)> {
    read(OPERATIONS, |fields| {
        let [name, rate, deviation, ns] = fields[..] else { return None };
        let million = |text: &str| text.parse::<f64>().ok().map(|rate| rate / 1e6);
        Some(Operation {
            name: name.into(),
            mops: million(rate)?,
            stddev: million(deviation)?,
            ns: ns.parse().ok()?,
        })
    })
}

/// The lookups by entries, ascending, and where they are from.
pub fn curve() -> Result<(&'static str, Vec<Point>)> {
    read(CURVE, |fields| {
        let [entries, _, ns] = fields[..] else { return None };
        Some(Point { entries: entries.parse().ok()?, ns: ns.parse().ok()? })
    })
}

/// Nanoseconds that each way to take times in a broker adds to a message's way, and where they are from.
pub fn overhead() -> Result<(&'static str, Vec<(String, f64)>)> {
    read(OVERHEAD, |fields| {
        let [method, _, delta_ns] = fields[..] else { return None };
        Some((method.into(), delta_ns.parse().ok()?))
    })
}

/// The rows of a file behind its source and its heading.
fn read<T>(
    (name, text): (&str, &'static str),
    row: impl Fn(&[&str]) -> Option<T>,
) -> Result<(&'static str, Vec<T>)> {
    let mut lines = text.lines();
    let bad = |why: String| Error::Table { path: format!("lab/published/{name}").into(), why };
    let source = lines.next().and_then(|line| line.strip_prefix("# "));
    let source = source.ok_or_else(|| bad("line 1: expected `# SOURCE`".into()))?;
    let rows = lines.zip(2..).skip(1).map(|(line, number)| {
        let fields: Vec<&str> = line.split(',').collect();
        row(&fields).ok_or_else(|| bad(format!("line {number}: invalid row `{line}`")))
    });
    Ok((source, rows.collect::<Result<_>>()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_files_are_as_expected() {
        let (source, operations) = operations().unwrap();
        assert!(source.starts_with("Cloudflare"), "{source}");
        let names: Vec<&str> = operations.iter().map(|of| of.name.as_str()).collect();
        assert_eq!(names, ["lookup", "update", "delete", "free"]);
        // A rate and a time that belong together; the article rounds.
        assert!(operations.iter().all(|of| (of.mops * of.ns / 1e3 - 1.0).abs() < 0.01), "{operations:?}");
        let (source, curve) = curve().unwrap();
        assert!(source.contains("bench02"), "{source}");
        assert_eq!((curve.len(), curve[0].entries, curve[30].entries), (31, 1, 1_000_000));
        let (source, overhead) = super::overhead().unwrap();
        assert!(source.starts_with("Tai, Nomura"), "{source}");
        assert_eq!((overhead.len(), &overhead[3]), (4, &("ebpf".to_owned(), 934.0)));
        assert!(curve.windows(2).all(|pair| pair[0].entries < pair[1].entries));
    }

    #[test]
    fn a_bad_row_is_named() {
        let error = read(("x.csv", "# here\nentries\nnonsense\n"), |_| None::<()>).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("nonsense"), "{error}");
    }
}
