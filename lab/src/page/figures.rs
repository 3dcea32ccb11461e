//! The published figures F1 to F9: the experiment that measures each again, its pictures, and the published numbers beside ours.

use serde_json::Value;

use crate::{
    Result, published,
    report::{Column, Table, mebibytes, table},
};

/// A published figure.
pub struct Figure {
    /// `F1` to `F9`.
    pub number: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Its content, and the publisher.
    pub shows: &'static str,
    /// The experiment that measures it again.
    pub experiment: &'static str,
    /// How the names of its pictures begin.
    pub pictures: &'static [&'static str],
    /// The published numbers beside those of a document.
    compared: fn(&Value) -> Result<Vec<Compared>>,
}

/// All figures.
pub const FIGURES: [Figure; 9] = [
    Figure {
        number: "F1",
        title: "Operations on a trie of 10,000 entries",
        shows: "Lookup, update, delete and free of BPF_MAP_TYPE_LPM_TRIE. Published by Cloudflare, 2025.",
        experiment: "map-ops",
        pictures: &["map-ops"],
        compared: operations,
    },
    Figure {
        number: "F2",
        title: "Time of a lookup by the number of entries",
        shows: "Lookups in BPF_MAP_TYPE_LPM_TRIE slow down as entries are added. Published in bench02 of the xdp-project, 2025.",
        experiment: "map-curve",
        pictures: &["map-curve-loop", "map-curve-packet"],
        compared: lookups,
    },
    Figure {
        number: "F3",
        title: "Cache and TLB lines of a lookup",
        shows: "Each step of LPM_TRIE is a cache miss, and in large tries a TLB miss. Published are percentages of misses (bench02 of the \
                xdp-project); the lab counts the distinct lines and pages that a lookup touches.",
        experiment: "map-curve",
        pictures: &["map-curve-touched", "map-curve-misses"],
        compared: lines,
    },
    Figure {
        number: "F4",
        title: "Lookups by the threshold at which nodes double",
        shows: "The relaxed LPC-trie of the kernel with thresholds from 0 to 120 percent. Shown by Asama, Internet Week 2014; of its rates \
                only that of a default route is known as a number.",
        experiment: "tries",
        pictures: &["tries-rate"],
        compared: rates,
    },
    Figure {
        number: "F5",
        title: "Nodes by the threshold at which they double",
        shows: "A low threshold makes few nodes, a high one makes many. Shown by Asama, Internet Week 2014, as a picture without numbers.",
        experiment: "tries",
        pictures: &["tries-nodes"],
        compared: nodes,
    },
    Figure {
        number: "F6",
        title: "Memory by the threshold at which nodes double",
        shows: "A low threshold makes wide nodes with many empty slots. Shown by Asama, Internet Week 2014, as a picture without numbers.",
        experiment: "tries",
        pictures: &["tries-memory"],
        compared: memory,
    },
    Figure {
        number: "F7",
        title: "Receive livelock",
        shows: "If a reader blocks, its rate rises with the offered load, peaks and falls. Drawn as Mogul and Ramakrishnan did \
                (USENIX 1996), who published a picture without numbers.",
        experiment: "livelock",
        pictures: &["livelock"],
        compared: livelock,
    },
    Figure {
        number: "F8",
        title: "Cost of a tracer inside a broker",
        shows: "The time that each way of taking times adds to a message's way. Published by Tai and Nomura, 2022.",
        experiment: "trace-overhead",
        pictures: &["trace-overhead"],
        compared: tracing,
    },
    Figure {
        number: "F9",
        title: "Throughput by frame size",
        shows: "Forwarding by XDP against the kernel, for each frame size. Published by Saito, LINE Verda, 2019, and one core by Asama, 2014.",
        experiment: "throughput",
        pictures: &["throughput"],
        compared: throughput,
    },
];

/// A published number, and ours of the same.
pub(super) struct Compared {
    what: String,
    published: String,
    rival: String,
    ours: String,
}

/// An empty cell.
const NONE: &str = "–";

impl Figure {
    /// The published numbers beside those of a document, as a table.
    ///
    /// # Errors
    /// A file of published numbers is invalid.
    pub(super) fn compared(&self, document: &Value) -> Result<Table> {
        const COLUMNS: [Column<Compared>; 4] = [
            ("figure", |row| row.what.clone()),
            ("published", |row| row.published.clone()),
            ("here, the rival", |row| row.rival.clone()),
            ("here, trieline", |row| row.ours.clone()),
        ];
        Ok(table(&(self.compared)(document)?, 1, &COLUMNS).titled("Published beside ours"))
    }
}

/// The first row that has these values.
fn find<'d>(document: &'d Value, wanted: &[(&str, &str)]) -> Option<&'d Value> {
    let is = |row: &&Value| wanted.iter().all(|(key, value)| row[*key].as_str() == Some(value));
    document["rows"].as_array()?.iter().find(is)
}

fn number(row: Option<&Value>, key: &str, show: impl Fn(f64) -> String) -> String {
    row.and_then(|row| row[key].as_f64()).map_or_else(|| NONE.into(), show)
}

/// A time in the unit in which it is read with ease.
fn nanoseconds(ns: f64) -> String {
    if ns < 1e5 { format!("{ns:.1} ns") } else { format!("{:.2} ms", ns / 1e6) }
}

fn operations(document: &Value) -> Result<Vec<Compared>> {
    let (_, operations) = published::operations()?;
    let entries = document["parameters"]["entries"].as_u64().unwrap_or(10_000);
    let compared = operations.into_iter().map(|of| {
        // The first row: a change of LPM_TRIE is by a BPF program, one of trieline by its writer in user space.
        let row = |structure| {
            let row = find(document, &[("structure", structure), ("op", of.name.as_str())]);
            let place = row.and_then(|row| row["where"].as_str()).unwrap_or_default();
            number(row, "ns", |ns| format!("{}, {place}", nanoseconds(ns)))
        };
        Compared {
            what: format!("{} ({entries} entries here)", of.name),
            published: nanoseconds(of.ns),
            rival: row("lpm_trie"),
            ours: row("trieline"),
        }
    });
    Ok(compared.collect())
}

/// The row of `map-curve` with so many entries.
fn entries<'d>(document: &'d Value, count: u32, wanted: &[(&str, &str)]) -> Option<&'d Value> {
    let is = |row: &&Value| {
        row["entries"].as_u64() == Some(count.into())
            && wanted.iter().all(|(key, value)| row[*key].as_str() == Some(value))
    };
    document["rows"].as_array()?.iter().find(is)
}

fn lookups(document: &Value) -> Result<Vec<Compared>> {
    let (_, curve) = published::curve()?;
    let compared = curve.into_iter().filter(|of| is_decade(of.entries)).map(|of| {
        let row = |structure| {
            let wanted = [("structure", structure), ("mode", "loop"), ("order", "sequence")];
            number(entries(document, of.entries, &wanted), "ns", nanoseconds)
        };
        Compared {
            what: format!("entries: {}, in sequence, in a loop", of.entries),
            published: nanoseconds(of.ns),
            rival: row("lpm_trie"),
            ours: row("trieline"),
        }
    });
    Ok(compared.collect())
}

fn is_decade(entries: u32) -> bool {
    10u32.pow(entries.ilog10()) == entries
}

fn lines(document: &Value) -> Result<Vec<Compared>> {
    let (_, misses) = published::misses()?;
    let compared = misses.into_iter().filter(|of| is_decade(of.entries)).map(|of| {
        let row = |structure| {
            let wanted = [("structure", structure), ("mode", "loop"), ("order", "random")];
            let row = entries(document, of.entries, &wanted);
            let pages = number(row, "pages", |pages| format!("{pages:.1} pages"));
            number(row, "lines", |lines| format!("{lines:.1} lines, {pages}"))
        };
        Compared {
            what: format!("entries: {}", of.entries),
            published: format!("{:.1} % level 2, {:.1} % dTLB", of.l2, of.dtlb),
            rival: row("lpm_trie"),
            ours: row("trieline"),
        }
    });
    Ok(compared.collect())
}

/// A row for each threshold and the default of the largest table, by a key of the rows.
fn thresholds(document: &Value, key: &str, show: fn(f64) -> String) -> Vec<Compared> {
    let rows = || document["rows"].as_array().into_iter().flatten();
    let Some(largest) = rows().max_by_key(|row| row["prefixes"].as_u64()) else { return Vec::new() };
    let ours =
        rows().find(|row| row["table"] == largest["table"] && row["structure"].as_str() == Some("trieline"));
    let ours = number(ours, key, show);
    let of = |row: &Value| {
        let name =
            match (row["structure"].as_str()?, row["threshold"].as_u64(), row["root_threshold"].as_u64()) {
                ("relaxed", Some(inner), Some(root)) if inner == root => format!("{inner} %"),
                ("relaxed", Some(inner), Some(root)) => format!("{inner} %, root {root} %"),
                ("fib", Some(inner), Some(root)) => format!("the kernel's rule ({inner} %, root {root} %)"),
                _ => return None,
            };
        let what = format!("{name}, {}", row["table"].as_str()?);
        let (published, rival) = (NONE.into(), number(Some(row), key, show));
        Some(Compared { what, published, rival, ours: ours.clone() })
    };
    rows().filter(|row| row["table"] == largest["table"]).filter_map(of).collect()
}

fn millions(rate: f64) -> String {
    format!("{:.2} M/s", rate / 1e6)
}

fn rates(document: &Value) -> Result<Vec<Compared>> {
    let (_, published) = published::fib_trie()?;
    let of = |(name, rate): (String, f64)| {
        let row = |structure| {
            let row = find(document, &[("structure", structure), ("table", name.as_str())]);
            number(row, "lookups_per_s", millions)
        };
        Compared {
            what: format!("{name} only; the rival is fib in user space"),
            published: millions(rate),
            rival: row("fib"),
            ours: row("trieline"),
        }
    };
    let published = published.into_iter().map(of);
    Ok(published.chain(thresholds(document, "lookups_per_s", millions)).collect())
}

fn nodes(document: &Value) -> Result<Vec<Compared>> {
    Ok(thresholds(document, "nodes", |count| format!("{count:.0}")))
}

fn memory(document: &Value) -> Result<Vec<Compared>> {
    Ok(thresholds(document, "bytes", |bytes| format!("{:.2} MiB", mebibytes(bytes as u64))))
}

/// A receiver's peak, and its rate at the highest load.
fn livelock(document: &Value) -> Result<Vec<Compared>> {
    let rows = || document["rows"].as_array().into_iter().flatten();
    let mut names: Vec<&str> = rows().filter_map(|row| row["receiver"].as_str()).collect();
    names.dedup();
    let compared = |name: &str| {
        let point = |row: &Value| Some((row["offered_kpps"].as_f64()?, row["delivered_kpps"].as_f64()?));
        let points = rows().filter(|row| row["receiver"].as_str() == Some(name)).filter_map(point);
        let points: Vec<(f64, f64)> = points.collect();
        let peak = points.iter().copied().max_by(|one, two| one.1.total_cmp(&two.1))?;
        let last = points.iter().copied().max_by(|one, two| one.0.total_cmp(&two.0))?;
        let rival =
            format!("peak {:.0} kpps at {:.0}; {:.0} at {:.0} offered", peak.1, peak.0, last.1, last.0);
        let (published, ours) = (NONE.into(), NONE.into());
        Some(Compared { what: name.into(), published, rival, ours })
    };
    Ok(names.into_iter().filter_map(compared).collect())
}

fn tracing(document: &Value) -> Result<Vec<Compared>> {
    let (_, published) = published::overhead()?;
    let here = |method: &str| {
        let row = find(document, &[("method", method), ("transport", "udp"), ("broker", "busy")]);
        number(row, "delta_ns", nanoseconds)
    };
    let compared = published.into_iter().filter(|(name, _)| name != "none").map(|(name, ns)| {
        // The paper's tracer is the lab's `syscall-hash`; the product's stands beside it.
        let (method, ours) = match name.as_str() {
            "ebpf" => ("syscall-hash", here("hooks")),
            method => (method, NONE.into()),
        };
        Compared { published: nanoseconds(ns), rival: here(method), ours, what: name }
    });
    Ok(compared.collect())
}

/// The published ratio beside the least and the greatest of plane `xdp`; the other numbers are of other machines and links.
fn throughput(document: &Value) -> Result<Vec<Compared>> {
    let (_, published) = published::forwarding()?;
    let rows = document["rows"].as_array().into_iter().flatten();
    let ratios: Vec<f64> = rows
        .filter(|row| row["plane"].as_str() == Some("xdp"))
        .filter_map(|row| row["ratio"].as_f64())
        .collect();
    let least = ratios.iter().copied().reduce(f64::min);
    let most = ratios.iter().copied().reduce(f64::max);
    let ours = least.zip(most).map(|(least, most)| format!("{least:.2} to {most:.2}"));
    let compared = published.into_iter().map(|of| {
        let ours = ours.clone().filter(|_| of.unit == "ratio").unwrap_or_else(|| NONE.into());
        let what = format!("{} ({})", of.what, of.source);
        Compared { what, published: format!("{} {}", of.value, of.unit), rival: NONE.into(), ours }
    });
    Ok(compared.collect())
}
