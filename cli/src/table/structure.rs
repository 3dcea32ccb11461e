//! A table put into a structure, and the structure laid open to be drawn: what each is called, consists of, and answers.

use anyhow::bail;
use clap::ValueEnum;
use trieline_lpm::classic::relaxed::Threshold;
use trieline_lpm::classic::{Binary, Fib, LcTrie, Patricia, Relaxed, Trie};
use trieline_lpm::graph::{Graph, PathStep};
use trieline_lpm::image::graph::TableGraph;
use trieline_lpm::io::snapshot::Snapshot;
use trieline_lpm::{Address, Error, HeapMemory, Image, Memory, NoReaders, Prefix, Table};

/// Prefixes of at most so many bits are taken for whole keys.
pub const SHORT: u16 = 8;
/// Slots of a trie that are looked at one by one to find those that lead somewhere.
const SLOTS_MAX: usize = 1 << 20;
/// Most bytes of an image.
const IMAGE_MAX: usize = 1 << 32;

/// A structure that keeps the prefixes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Structure {
    /// A node a bit
    Binary,
    /// Path-compressed: nodes that branch
    Patricia,
    /// Level-compressed: 2^n ways where all exist
    Perfect,
    /// 2^n ways with gaps, as many as the thresholds allow
    Relaxed,
    /// The kernel's `fib_trie`
    Fib,
    /// trieline's own
    Image,
}

/// A structure laid open.
#[derive(Debug)]
pub struct BuiltStructure<A: Address> {
    /// Its name.
    pub name: String,
    /// Its nodes and leaves.
    pub nodes: usize,
    /// Their bytes.
    pub bytes: u64,
    /// Its statistics, a line each.
    pub facts: Vec<String>,
    /// Its nodes.
    pub graph: Graph,
    /// The steps that the lookup visits.
    pub path: Vec<PathStep>,
    /// Its answer: a value, in most structures with its prefix.
    pub answer: Option<(Option<Prefix<A>>, u32)>,
}

/// Which structure, and how much of it is drawn.
#[derive(Debug)]
pub struct Choice<'a> {
    /// Which.
    pub structure: Structure,
    /// `relaxed`: of nodes and of the root, percent.
    pub thresholds: (Option<u32>, Option<u32>),
    /// Most nodes, leaves and ways.
    pub most: usize,
    /// The image to draw instead of making one.
    pub image: Option<&'a Snapshot>,
}

impl Choice<'_> {
    /// Puts the prefixes into the structure, in their order, and looks `addr` up.
    pub fn open<A: Address>(
        &self,
        rows: &[(Prefix<A>, u32)],
        addr: Option<A>,
    ) -> anyhow::Result<BuiltStructure<A>> {
        match self.structure {
            Structure::Binary => self.trie("binary trie".into(), Binary::default(), rows, addr),
            Structure::Patricia => self.trie("Patricia trie".into(), Patricia::default(), rows, addr),
            Structure::Perfect => self.trie("perfect LPC-trie".into(), LcTrie::default(), rows, addr),
            Structure::Relaxed => {
                let threshold = self.threshold(rows);
                let Threshold { inner, root, .. } = threshold;
                let name = format!("relaxed LPC-trie, threshold {inner} %, root {root} %");
                self.trie(name, Relaxed::new(threshold), rows, addr)
            }
            Structure::Fib => self.trie("Linux's fib_trie".into(), Fib::default(), rows, addr),
            Structure::Image => match self.image {
                Some(image) => {
                    let id =
                        image.directory().find(|root| root.family == A::FAMILY).map_or(0, |root| root.id);
                    self.table(TableGraph::new(image.words(), id)?, addr, |addr| {
                        image.reader().lookup(id, addr)
                    })
                }
                None => {
                    let image = build(rows)?;
                    self.table(TableGraph::new(image.memory().words(), 0)?, addr, |addr| {
                        image.reader().lookup(0, addr)
                    })
                }
            },
        }
    }

    /// The default is Linux's. No node looks past the end of short keys, nor at 0 % past the longest prefix.
    fn threshold<A: Address>(&self, rows: &[(Prefix<A>, u32)]) -> Threshold {
        let default = Threshold::default();
        let inner = self.thresholds.0.unwrap_or(default.inner);
        let root = self.thresholds.1.or(self.thresholds.0).unwrap_or(default.root);
        let longest = rows.iter().map(|(prefix, _)| prefix.len()).max().unwrap_or(1);
        let is_bound = longest <= SHORT || inner == 0 || root == 0;
        let within = if is_bound { longest.clamp(1, 24) } else { default.within };
        Threshold { inner, root, within }
    }

    fn trie<A: Address>(
        &self,
        name: String,
        mut trie: impl Trie<A>,
        rows: &[(Prefix<A>, u32)],
        addr: Option<A>,
    ) -> anyhow::Result<BuiltStructure<A>> {
        for (prefix, value) in rows {
            trie.insert(*prefix, *value);
        }
        let figures = trie.figures();
        let nodes = figures.internal + figures.leaves;
        self.check(&name, nodes, "nodes and leaves")?;
        if figures.slots > SLOTS_MAX {
            bail!(
                "{name}: {} slots; a picture takes at most {SLOTS_MAX}: expected a higher threshold",
                figures.slots
            );
        }
        let facts = vec![
            format!(
                "{}; {}, {}; {} slots, {} of them empty; {} bytes",
                many(figures.prefixes, "prefix", "prefixes"),
                many(figures.internal, "node", "nodes"),
                many(figures.leaves, "leaf", "leaves"),
                figures.slots,
                figures.empty,
                figures.bytes
            ),
            format!(
                "depth of what holds prefixes: {:.2} in the mean, {} at most",
                figures.depth_mean(),
                figures.depth_max()
            ),
        ];
        let path = addr.map(|addr| trie.path(addr)).unwrap_or_default();
        let answer = addr.and_then(|addr| trie.lookup(addr)).map(|(prefix, value)| (Some(prefix), value));
        Ok(BuiltStructure {
            name,
            nodes,
            bytes: figures.bytes as u64,
            facts,
            graph: trie.graph(),
            path,
            answer,
        })
    }

    fn table<A: Address>(
        &self,
        table: TableGraph,
        addr: Option<A>,
        lookup: impl Fn(A) -> Option<u32>,
    ) -> anyhow::Result<BuiltStructure<A>> {
        let name = "trieline's image".to_owned();
        self.check(&name, table.ways(), "runs of slots")?;
        let report = table.report();
        let nodes = report.nodes.iter().map(|(_, count)| *count as usize).sum::<usize>();
        let kinds: Vec<String> = report.nodes.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
        let facts = vec![
            format!(
                "{}; root of {} slots, {} bytes; {}{}, {} bytes",
                many(report.prefixes as usize, "prefix", "prefixes"),
                1u64 << report.root_bits,
                report.root_bytes,
                many(nodes, "node", "nodes"),
                if kinds.is_empty() { String::new() } else { format!(" ({})", kinds.join(", ")) },
                report.node_bytes
            ),
            match report.steps {
                0 => "a lookup reads the root alone".to_owned(),
                steps => {
                    format!("a lookup reads the root and at most {}", many(steps as usize, "node", "nodes"))
                }
            },
        ];
        let path = addr.map(|addr| table.path(addr)).unwrap_or_default();
        let graph = table.graph();
        // The root knows the prefix of length 0, which answers where nothing is found.
        let found = path.last().and_then(|step| graph.nodes[step.node].children[step.edge?].value);
        let default = Prefix::truncated(A::ZERO, 0);
        let answer = addr.and_then(lookup).map(|value| (found.is_none().then_some(default), value));
        let bytes = report.root_bytes + report.node_bytes;
        Ok(BuiltStructure { name, nodes: nodes + 1, bytes, facts, graph, path, answer })
    }

    fn check(&self, name: &str, count: usize, what: &str) -> anyhow::Result<()> {
        if count > self.most {
            bail!(
                "{name}: {count} {what}; a picture takes at most {} (--most {count} draws them)",
                self.most
            );
        }
        Ok(())
    }
}

/// An image of one table.
fn build<A: Address>(rows: &[(Prefix<A>, u32)]) -> Result<Image<HeapMemory, NoReaders>, Error> {
    let mut bytes = 1 << 20;
    loop {
        let mut image = Image::create(HeapMemory::new(bytes), NoReaders::default(), 1)?;
        match Table::create(&mut image, 0, rows.iter().copied()) {
            Err(Error::Full { .. }) if bytes < IMAGE_MAX => bytes *= 2,
            made => return made.map(|_| image),
        }
    }
}

fn many(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}
