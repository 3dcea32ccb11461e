//! Published figures about LPM_TRIE and about tracing, carried beside the source: each file begins with a line that names its origin.

use crate::{Error, Result};

const OPERATIONS: (&str, &str) = ("lpm_trie_ops_10k.csv", include_str!("../published/lpm_trie_ops_10k.csv"));
const CURVE: (&str, &str) =
    ("lpm_trie_lookup_curve.csv", include_str!("../published/lpm_trie_lookup_curve.csv"));
const OVERHEAD: (&str, &str) = ("trace_overhead.csv", include_str!("../published/trace_overhead.csv"));

const MISSES: (&str, &str) = ("lpm_trie_misses.csv", include_str!("../published/lpm_trie_misses.csv"));
const FIB_TRIE: (&str, &str) = ("fib_trie.csv", include_str!("../published/fib_trie.csv"));
const FORWARDING: (&str, &str) = ("forwarding.csv", include_str!("../published/forwarding.csv"));
const REDIRECT: (&str, &str) = ("xdp_redirect.csv", include_str!("../published/xdp_redirect.csv"));
const ROUTES: (&str, &str) = ("xdp_routes.csv", include_str!("../published/xdp_routes.csv"));

/// The bare redirect of a driver on one core.
#[derive(Clone, Debug, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Redirect {
    /// Name of the driver.
    pub driver: String,
    /// Million packets a second.
    pub mpps: f64,
    /// CPU, kernel and settings.
    pub conditions: String,
    /// Where it was published.
    pub source: String,
}

/// The forwarding of the XDP paper's router on one core.
#[derive(Clone, Debug, PartialEq)]
pub struct Routed {
    /// The path of experiment `forward` that does the same.
    pub path: String,
    /// The table.
    pub what: String,
    /// Million packets a second.
    pub mpps: f64,
    /// Those of the bare redirect with the same settings.
    pub redirect_mpps: f64,
}

/// Misses of lookups in a trie of so many entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Misses {
    /// Entries.
    pub entries: u32,
    /// Percent of the accesses to the cache of level 2.
    pub l2: f64,
    /// Percent of the dTLB's loads.
    pub dtlb: f64,
}

/// A figure of forwarding.
#[derive(Clone, Debug, PartialEq)]
pub struct Forwarded {
    /// The publisher.
    pub source: String,
    /// Its meaning.
    pub what: String,
    /// The figure.
    pub value: f64,
    /// Its unit.
    pub unit: String,
}

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

/// The misses by entries, ascending, and where they are from.
pub fn misses() -> Result<(&'static str, Vec<Misses>)> {
    read(MISSES, |fields| {
        let [entries, l2, dtlb] = fields[..] else { return None };
        Some(Misses { entries: entries.parse().ok()?, l2: l2.parse().ok()?, dtlb: dtlb.parse().ok()? })
    })
}

/// Lookups a second in the kernel's `fib_trie`, by table, and where they are from.
pub fn fib_trie() -> Result<(&'static str, Vec<(String, f64)>)> {
    read(FIB_TRIE, |fields| {
        let [table, rate] = fields[..] else { return None };
        Some((table.into(), rate.parse().ok()?))
    })
}

/// The figures of forwarding, and where they are from.
pub fn forwarding() -> Result<(&'static str, Vec<Forwarded>)> {
    read(FORWARDING, |fields| {
        let [source, what, value, unit] = fields[..] else { return None };
        Some(Forwarded {
            source: source.into(),
            what: what.into(),
            value: value.parse().ok()?,
            unit: unit.into(),
        })
    })
}

/// Nanoseconds that each way to take times in a broker adds to a message's way, and where they are from.
pub fn overhead() -> Result<(&'static str, Vec<(String, f64)>)> {
    read(OVERHEAD, |fields| {
        let [method, _, delta_ns] = fields[..] else { return None };
        Some((method.into(), delta_ns.parse().ok()?))
    })
}

/// The rates of drivers for the bare redirect.
pub fn redirects() -> Result<Vec<Redirect>> {
    let (_, rows) = read(REDIRECT, |fields| {
        let [driver, mpps, conditions, source] = fields[..] else { return None };
        let (driver, conditions, source) = (driver.into(), conditions.into(), source.into());
        Some(Redirect { driver, mpps: mpps.parse().ok()?, conditions, source })
    })?;
    Ok(rows)
}

/// The rates of the XDP paper's router by the kernel's routes, and where they are from.
pub fn routed() -> Result<(&'static str, Vec<Routed>)> {
    read(ROUTES, |fields| {
        let [path, what, mpps, redirect] = fields[..] else { return None };
        let (mpps, redirect_mpps) = (mpps.parse().ok()?, redirect.parse().ok()?);
        Some(Routed { path: path.into(), what: what.into(), mpps, redirect_mpps })
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
        let (source, misses) = misses().unwrap();
        assert!(
            source.contains("bench02") && misses.windows(2).all(|pair| pair[0].entries < pair[1].entries)
        );
        assert!(misses.iter().all(|of| (0.0..50.0).contains(&of.l2) && (0.0..50.0).contains(&of.dtlb)));
        let (source, rates) = fib_trie().unwrap();
        assert!(source.contains("2014"), "{source}");
        assert_eq!(rates, [("default-route".to_owned(), 27_174_000.0)]);
        let (_, forwarded) = forwarding().unwrap();
        assert_eq!((forwarded.len(), forwarded[0].value, forwarded[1].unit.as_str()), (3, 2.5, "Gbit/s"));
        let redirects = redirects().unwrap();
        assert!(redirects.iter().all(|of| (1.0..20.0).contains(&of.mpps) && !of.source.is_empty()));
        let (source, routed) = routed().unwrap();
        assert!(source.starts_with("XDP paper"), "{source}");
        assert!(routed.iter().all(|of| of.mpps < of.redirect_mpps) && routed.len() == 2);
        assert!(curve.windows(2).all(|pair| pair[0].entries < pair[1].entries));
    }

    #[test]
    fn a_bad_row_is_named() {
        let error = read(("x.csv", "# here\nentries\nnonsense\n"), |_| None::<()>).unwrap_err().to_string();
        assert!(error.contains("line 3") && error.contains("nonsense"), "{error}");
    }
}
