//! Functions bound to SIDs, from the configuration to the dataplane: filters on the packet inside, samples in files, programs.

mod sampler;

use sampler::Sampler;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use trieline_dataplane::{CAPTURE_ALL, Function, Functions as Bound};

/// A function as configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// Its name.
    pub name: String,
    /// The SID: an address that the kernel has a route with `encap seg6local` for.
    pub sid: Ipv6Addr,
    /// What is done.
    pub what: What,
}

/// What a function does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// Asks these filters, in order, for the packet inside.
    Filter(Vec<String>),
    /// Samples packets as they come in.
    Pcap(Sample),
    /// Gives them to the XDP program pinned there.
    Program(PathBuf),
}

/// What is sampled, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sample {
    /// A pcap-ng file; one that is there is renamed to `FILE.old`.
    pub file: PathBuf,
    /// Bytes of a frame that are kept.
    pub snap: u32,
    /// Most packets a second.
    pub rate: Option<u32>,
}

/// What is told of a function.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct FunctionStatus {
    /// Its name.
    pub name: String,
    /// The SID.
    pub sid: String,
    /// `filter`, `pcap` or `program`.
    pub kind: String,
    /// Of `filter`: the filters.
    pub filters: Vec<String>,
    /// Of `pcap` and `program`: the file.
    pub file: Option<PathBuf>,
    /// Of `pcap`: frames written, packets left out for the rate, and for want of room.
    pub frames: Option<u64>,
    /// See `frames`.
    pub limited: Option<u64>,
    /// See `frames`.
    pub lost: Option<u64>,
}

/// Why functions cannot be bound.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The dataplane or the kernel refuses.
    #[error("function {name}: {source}")]
    Dataplane {
        /// The function.
        name: String,
        /// What it says.
        source: trieline_dataplane::Error,
    },
    /// A sample's file.
    #[error("function {name}: {}: {source}", path.display())]
    File {
        /// The function.
        name: String,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: std::io::Error,
    },
    /// More than the dataplane has places for.
    #[error("function {name}: expected at most {max} of its kind")]
    TooMany {
        /// The function.
        name: String,
        /// Places there are.
        max: u32,
    },
}

/// A function in force.
#[derive(Debug)]
struct Held {
    config: Config,
    number: u32,
    sampler: Option<Sampler>,
}

/// Numbers of functions by name: that of its filters' list, its capture's slot, its program's place.
pub type Numbers = BTreeMap<String, u32>;

/// The functions of this node.
#[derive(Debug)]
pub struct Functions {
    held: Vec<Held>,
    pins: PathBuf,
}

impl Functions {
    /// None yet.
    pub fn new(pins: &Path) -> Self {
        Self { held: Vec::new(), pins: pins.into() }
    }

    /// Whether there are any.
    pub fn any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Numbers functions: those there are keep theirs, and none gets that of another.
    pub fn numbers(&self, configs: &[Config]) -> Result<Numbers, Error> {
        let before: Numbers = self.held.iter().map(|held| (held.config.name.clone(), held.number)).collect();
        let used: BTreeSet<u32> = before.values().copied().collect();
        let mut free = (CAPTURE_ALL + 1..Bound::MAX).filter(|number| !used.contains(number));
        let mut numbers = Numbers::new();
        for Config { name, .. } in configs {
            let number = before.get(name).copied().or_else(|| free.next());
            let number = number.ok_or_else(|| Error::TooMany { name: name.clone(), max: Bound::MAX - 1 })?;
            numbers.insert(name.clone(), number);
        }
        Ok(numbers)
    }

    /// Makes these the functions. Samples whose settings are the same go on; programs are taken from their pins anew.
    pub fn apply(&mut self, configs: Vec<Config>, numbers: &Numbers, bound: &mut Bound) -> Result<(), Error> {
        let mut before = std::mem::take(&mut self.held);
        let gone: Vec<u32> = before.iter().map(|held| held.number).collect();
        let mut wanted = BTreeMap::new();
        for config in configs {
            let (name, number) = (config.name.clone(), numbers.get(&config.name).copied().unwrap_or(0));
            let fail = |source| Error::Dataplane { name: name.clone(), source };
            let at = before.iter().position(|held| held.config.name == name);
            let earlier = at.map(|at| before.swap_remove(at));
            let mut sampler = None;
            let function = match &config.what {
                What::Filter(_) => Function::Filter(number),
                What::Program(path) => {
                    bound.set_program(number, path).map_err(fail)?;
                    Function::Program(number)
                }
                What::Pcap(sample) => {
                    sampler = match earlier {
                        Some(Held { config: same, sampler: Some(sampler), .. }) if same == config => {
                            Some(sampler)
                        }
                        // One slot has one reader.
                        earlier => {
                            drop(earlier);
                            Some(Sampler::start(&name, &self.pins, number, sample)?)
                        }
                    };
                    Function::Pcap(number)
                }
            };
            wanted.insert(config.sid, function);
            self.held.push(Held { config, number, sampler });
        }
        let of_all = |source| Error::Dataplane { name: "all".into(), source };
        bound.set(&wanted).map_err(of_all)?;
        let programs: BTreeSet<u32> = wanted.values().filter_map(place).collect();
        for number in gone.into_iter().filter(|number| !programs.contains(number)) {
            bound.clear_program(number).map_err(of_all)?;
        }
        Ok(())
    }

    /// Names and SIDs.
    pub fn sids(&self) -> impl Iterator<Item = (&str, Ipv6Addr)> {
        self.held.iter().map(|held| (held.config.name.as_str(), held.config.sid))
    }

    /// What is told of each.
    pub fn status(&self) -> Vec<FunctionStatus> {
        let status = |held: &Held| {
            let counts = held.sampler.as_ref().map(Sampler::counts);
            let (kind, filters, file) = match &held.config.what {
                What::Filter(filters) => ("filter", filters.clone(), None),
                What::Pcap(sample) => ("pcap", Vec::new(), Some(sample.file.clone())),
                What::Program(path) => ("program", Vec::new(), Some(path.clone())),
            };
            FunctionStatus {
                name: held.config.name.clone(),
                sid: held.config.sid.to_string(),
                kind: kind.into(),
                filters,
                file,
                frames: counts.map(|(frames, _)| frames),
                limited: counts.map(|(_, counts)| counts.limited),
                lost: counts.map(|(_, counts)| counts.lost),
            }
        };
        self.held.iter().map(status).collect()
    }
}

fn place(function: &Function) -> Option<u32> {
    match function {
        Function::Program(place) => Some(*place),
        Function::Filter(_) | Function::Pcap(_) => None,
    }
}

/// The lists of filters that functions ask, by their number.
pub fn lists(configs: &[Config], numbers: &Numbers) -> BTreeMap<u32, Vec<String>> {
    let list = |config: &Config| match &config.what {
        What::Filter(filters) => Some((*numbers.get(&config.name)?, filters.clone())),
        What::Pcap(_) | What::Program(_) => None,
    };
    configs.iter().filter_map(list).collect()
}
