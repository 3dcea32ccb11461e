//! The command line.

use std::collections::BTreeSet;
use std::path::PathBuf;

pub(crate) const USAGE: &str = "\
usage: trieline-walk run --seed N --seconds S [OPTION]...
       trieline-walk replay REPORT      the commands and frames of a report, once more
       trieline-walk verbs

  --seed N           the walk's seed: equal seeds give equal walks
  --seconds S        end after so long
  --steps N          end after N steps
  --episode N        steps until both nodes are made again (60)
  --frames N         frames after each step (40)
  --many N           routes beside those of the walk (0)
  --generic          attach XDP in generic mode
  --vrf              with VRF, VLAN, bond and dummy devices: this kernel must have them
  --audit N          ask `trieline node audit` after every Nth step (5); 0: never
  --without A,B      leave verbs or attributes out; `trieline-walk verbs` lists them
  --only A,B         no other verbs than these
  --differences N    end after N differences (1)
  --shrink S         seconds to shorten the script of a difference (240)
  --out DIR          a file for each difference (target/walk)";

/// The limits and the subjects of a walk.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seed: u64,
    pub(crate) seconds: f64,
    pub(crate) steps: u64,
    pub(crate) episode: usize,
    pub(crate) frames: usize,
    pub(crate) many: usize,
    pub(crate) generic: bool,
    pub(crate) vrf: bool,
    pub(crate) audit: usize,
    pub(crate) without: BTreeSet<String>,
    pub(crate) only: BTreeSet<String>,
    pub(crate) differences: u64,
    pub(crate) shrink: f64,
    pub(crate) out: PathBuf,
}

/// Reads the words behind `run`.
pub(crate) fn read(words: &[String], known: &[&str]) -> Result<Options, String> {
    let mut options = Options {
        seed: 1,
        seconds: 60.0,
        steps: u64::MAX,
        episode: 60,
        frames: 40,
        many: 0,
        generic: false,
        vrf: false,
        audit: 5,
        without: BTreeSet::new(),
        only: BTreeSet::new(),
        differences: 1,
        shrink: 240.0,
        out: "target/walk".into(),
    };
    let mut words = words.iter();
    while let Some(option) = words.next() {
        match option.as_str() {
            "--generic" => options.generic = true,
            "--vrf" => options.vrf = true,
            _ => {
                let value = words.next().ok_or(format!("{option} has no value"))?;
                let number = || {
                    value
                        .parse::<u64>()
                        .map_err(|_| format!("invalid {value} for {option}: expected a number"))
                };
                match option.as_str() {
                    "--seed" => options.seed = number()?,
                    "--seconds" => options.seconds = number()? as f64,
                    "--steps" => options.steps = number()?,
                    "--episode" => options.episode = number()?.max(1) as usize,
                    "--frames" => options.frames = number()? as usize,
                    "--audit" => options.audit = number()? as usize,
                    "--many" => options.many = number()? as usize,
                    "--differences" => options.differences = number()?.max(1),
                    "--shrink" => options.shrink = number()? as f64,
                    "--out" => options.out = value.into(),
                    "--without" | "--only" => {
                        let names: BTreeSet<String> =
                            value.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect();
                        if let Some(wrong) = names.iter().find(|name| !known.contains(&name.as_str())) {
                            return Err(format!(
                                "invalid {wrong} for {option}: expected a name of `trieline-walk verbs`"
                            ));
                        }
                        if option == "--only" { options.only = names } else { options.without = names }
                    }
                    _ => return Err(format!("unknown option {option}")),
                }
            }
        }
    }
    Ok(options)
}
