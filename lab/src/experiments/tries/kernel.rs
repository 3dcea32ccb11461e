//! The kernel's own routes as a rival. The same prefixes are in a namespace of their own, looked up by a BPF program, counted by the
//! kernel.

use std::fs;

use libbpf_rs::{MapCore, MapFlags, Object, ProgramInput};
use trieline_testbed::namespace::Namespace;

use crate::{
    Context, Error, Result,
    error::During,
    generator::ADDRESSES,
    measure::{Span, monotonic_ns},
    netns,
    object::{self, Compiled, compiled, get, types},
    rivals::Figures,
    tables::kinds::Entry,
};

/// The device that routes lead to and that lookups are thought to come in by; its peer is there as a veth has one.
const DEVICE: &str = "v0";
const STATISTICS: &str = "/proc/thread-self/net/fib_triestat";
const XDP_DROP: u32 = 1;

/// Routes in the kernel, and the program that looks them up.
pub struct Kernel {
    object: Object,
    index: u32,
    namespace: Namespace,
}

impl Kernel {
    /// Puts the routes in, in this order, each with its value as metric. Nothing else is in the namespace's trie: the devices
    /// have no address, and the loopback device is down.
    pub fn load(entries: &[Entry<u32>], context: &Context) -> Result<Kernel> {
        let namespace = netns::create("fib")?;
        namespace.ip_words(&["link", "add", DEVICE, "type", "veth", "peer", "name", "v1"])?;
        for device in [DEVICE, "v1"] {
            namespace.ip_words(&["link", "set", device, "up"])?;
        }
        namespace.write_sysctl("net/ipv4/ip_forward", "1")?;
        let index = namespace.ifindex(DEVICE)?;
        let lines = entries.iter().map(|(prefix, value)| {
            format!("route add {prefix} dev {DEVICE} scope link proto static metric {value}")
        });
        netns::ip_batch(&["-n", namespace.name()], lines, context)?;
        let compiled = Self::compiled();
        let object = compiled.load(compiled.open()?)?;
        Ok(Kernel { object, index, namespace })
    }

    fn compiled() -> Compiled {
        compiled!("fib")
    }

    /// Looks all addresses up, as many at a time as the program holds. Returns the seconds by the program's own clock, and the sum of the
    /// values found.
    pub fn turn(&self, addresses: &[u32]) -> Result<(f64, u64)> {
        let inside = self.namespace.enter_here()?;
        let (mut seconds, mut sum) = (0.0, 0u64);
        for part in addresses.chunks(ADDRESSES) {
            let (span, found) = self.run(part)?;
            seconds += span.inside.as_secs_f64();
            sum = sum.wrapping_add(found);
        }
        drop(inside);
        Ok((seconds, sum))
    }

    fn run(&self, addresses: &[u32]) -> Result<(Span, u64)> {
        let compiled = Self::compiled();
        let bytes: Vec<u8> = addresses.iter().flat_map(|address| address.to_be_bytes()).collect();
        object::write(&compiled.map(&self.object, ".bss.addresses")?, &bytes)?;
        let section = compiled.map(&self.object, ".bss.lookups")?;
        let mut bytes = vec![0; size_of::<types::lab_lookups>()];
        let limit = addresses.len() as u64;
        for (at, word) in [
            (std::mem::offset_of!(types::lab_lookups, limit), limit),
            (std::mem::offset_of!(types::lab_lookups, value), u64::from(self.index)),
        ] {
            bytes[at..at + 8].copy_from_slice(&word.to_ne_bytes());
        }
        object::write(&section, &bytes)?;
        let program = compiled.program_mut(&self.object, "kernel4")?;
        let input = ProgramInput { data_in: Some(&[0; 64]), repeat: 1, ..Default::default() };
        let called = monotonic_ns();
        let output = program.test_run(input).during(|| "cannot look up in the kernel's routes".into())?;
        let returned = monotonic_ns();
        let bytes = section
            .lookup(&0u32.to_ne_bytes(), MapFlags::ANY)
            .during(|| "cannot read the lookups' counts".into())?
            .unwrap_or_default();
        let done = get!(bytes, lab_lookups.done);
        if output.return_value != XDP_DROP || done != limit {
            let part = format!("working kernel4: {done} of {limit} lookups, verdict {}", output.return_value);
            return Err(Error::Object { object: compiled.name, part });
        }
        let readings =
            [called, get!(bytes, lab_lookups.first_ns), get!(bytes, lab_lookups.last_ns), returned];
        let span = Span::new(readings, || "kernel4 of fib".into())?;
        Ok((span, get!(bytes, lab_lookups.sum)))
    }

    /// The kernel's own statistics of its trie.
    pub fn statistics(&self) -> Result<Statistics> {
        let inside = self.namespace.enter_here()?;
        let text = fs::read_to_string(STATISTICS).during(|| format!("cannot read {STATISTICS}"))?;
        drop(inside);
        Statistics::parse(&text)
            .ok_or_else(|| Error::Unread { path: STATISTICS.into(), expected: "what table main is made of" })
    }
}

/// `fib_triestat` of table main.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Statistics {
    /// Counted as [`Figures`] are; the depths are not said one by one.
    pub figures: Figures,
    /// `Aver depth`, cut after two decimals.
    pub depth_mean: f64,
    /// `Max depth`.
    pub depth_max: usize,
}

impl Statistics {
    fn parse(text: &str) -> Option<Statistics> {
        let main = text.split_once("Main:\n")?.1;
        let main = main.split_once("Local:").map_or(main, |(main, _)| main);
        let number = |name: &str| {
            let line = main.lines().find_map(|line| line.trim().strip_prefix(name))?;
            Some(line.trim_start_matches(':').trim().trim_end_matches("kB").trim().to_owned())
        };
        let whole = |name: &str| number(name)?.parse::<usize>().ok();
        let mut sizes = Vec::new();
        // The line behind the number of internal nodes: `bits: nodes`, two spaces before each.
        let after = main.split_once("Internal nodes:")?.1.lines().nth(1)?;
        for size in after.split("  ").filter(|size| !size.trim().is_empty()) {
            let (bits, count) = size.split_once(':')?;
            let bits: usize = bits.trim().parse().ok()?;
            sizes.resize(sizes.len().max(bits + 1), 0);
            sizes[bits] = count.trim().parse().ok()?;
        }
        let figures = Figures {
            prefixes: whole("Prefixes")?,
            internal: whole("Internal nodes")?,
            leaves: whole("Leaves")?,
            slots: whole("Pointers")?,
            empty: whole("Null ptrs")?,
            bytes: whole("Total size")? << 10,
            depths: Vec::new(),
            sizes,
        };
        Some(Statistics {
            figures,
            depth_mean: number("Aver depth")?.parse().ok()?,
            depth_max: whole("Max depth")?,
        })
    }

    /// The differences from a trie's own figures, as far as the kernel reports them.
    pub fn differences(&self, of: &Figures) -> Vec<String> {
        let kernel = &self.figures;
        let pairs = [
            ("prefixes", kernel.prefixes, of.prefixes),
            ("leaves", kernel.leaves, of.leaves),
            ("internal nodes", kernel.internal, of.internal),
            ("pointers", kernel.slots, of.slots),
            ("null pointers", kernel.empty, of.empty),
            // The kernel rounds up to KiB, and cuts the mean.
            ("KiB", kernel.bytes >> 10, of.bytes.div_ceil(1 << 10)),
            ("depth at the most", self.depth_max, of.depth_max()),
            ("hundredths of the mean depth", hundredths(self.depth_mean), cut(of)),
        ];
        let mut found: Vec<String> = pairs
            .iter()
            .filter(|(_, kernel, own)| kernel != own)
            .map(|(what, kernel, own)| format!("{what}: kernel {kernel}, fib {own}"))
            .collect();
        if kernel.sizes != of.sizes {
            found.push(format!("nodes by bits: kernel {:?}, fib {:?}", kernel.sizes, of.sizes));
        }
        found
    }
}

/// The mean depth as the kernel works it out.
fn cut(of: &Figures) -> usize {
    let total: usize = of.depths.iter().enumerate().map(|(depth, leaves)| depth * leaves).sum();
    (100 * total).checked_div(of.leaves).unwrap_or(0)
}

fn hundredths(value: f64) -> usize {
    (value * 100.0).round() as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "Basic info: size of leaf: 48 bytes, size of tnode: 40 bytes.\nMain:\n\tAver depth:     2.42\n\
        \tMax depth:      3\n\tLeaves:         7\n\tPrefixes:       8\n\tInternal nodes: 5\n\t  1: 1  2: 3  3: 1\n\
        \tPointers: 22\nNull ptrs: 11\nTotal size: 2  kB\nLocal:\n\tAver depth:     9.99\n";

    #[test]
    fn the_kernels_words() {
        let parsed = Statistics::parse(TEXT).unwrap();
        assert_eq!((parsed.depth_mean, parsed.depth_max), (2.42, 3));
        let figures = &parsed.figures;
        assert_eq!((figures.leaves, figures.prefixes, figures.internal), (7, 8, 5));
        assert_eq!((figures.slots, figures.empty, figures.bytes), (22, 11, 2048));
        assert_eq!(figures.sizes, [0, 1, 3, 1]);
        assert!(Statistics::parse("").is_none());
        let empty = TEXT.replace("  1: 1  2: 3  3: 1", "");
        assert!(Statistics::parse(&empty).unwrap().figures.sizes.is_empty());
    }

    #[test]
    fn differences_are_named() {
        let parsed = Statistics::parse(TEXT).unwrap();
        let mut own = Figures { depths: vec![0, 0, 4, 3], bytes: 1500, ..parsed.figures.clone() };
        assert!(parsed.differences(&own).is_empty());
        own.empty = 10;
        assert_eq!(parsed.differences(&own), ["null pointers: kernel 11, fib 10"]);
    }
}
