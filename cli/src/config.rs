//! What `trielined` is told: flags, and the file /etc/trieline/trielined.toml.

mod filter;
mod function;

use anyhow::{Context, anyhow, bail};
use filter::Filter;
use function::Function;
use serde::Deserialize;
use std::path::Path;
use toml::Spanned;

/// The file, as written. Flags win over it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Names of the devices that packets are taken from and sent to.
    #[serde(default)]
    devices: Vec<Spanned<String>>,
    /// Attach in generic mode.
    #[serde(default)]
    pub generic: bool,
    /// Home of the image: "arena" or "array".
    pub home: Option<Home>,
    /// Limit of the image, such as "256M".
    image: Option<Spanned<Size>>,
    /// Limit of distinct next hops.
    next_hops: Option<Spanned<u32>>,
    /// Receive buffer for the kernel's changes, such as "32M".
    pub receive_buffer: Option<Size>,
    /// Packets may go past netfilter's rules.
    #[serde(default)]
    pub bypass_netfilter: bool,
    /// What packets are asked before they are routed, in order.
    #[serde(default)]
    filter: Vec<Spanned<Filter>>,
    /// What is done to packets to SIDs before their behaviour.
    #[serde(default)]
    function: Vec<Spanned<Function>>,
}

/// Longest name of a device: IFNAMSIZ without the final zero.
const NAME_MAX: usize = 15;
/// Largest image in an array: the kernel's limit of one map's memory.
const ARRAY_MAX: u64 = 512 << 20;
/// Possible limits of distinct next hops.
const NEXT_HOPS: std::ops::RangeInclusive<u32> = 16..=1 << 24;

/// Home of the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Home {
    /// BPF arena (Linux 6.9 or newer).
    Arena,
    /// Memory-mapped BPF array.
    Array,
}

/// A number of bytes, written with K, M or G.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Size(pub u64);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("{text:?} is no size; expected bytes, or a number with K, M or G, such as 256M");
        let text = text.trim();
        let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let shift = match text[digits.len()..].to_ascii_uppercase().as_str() {
            "" => 0,
            "K" | "KIB" => 10,
            "M" | "MIB" => 20,
            "G" | "GIB" => 30,
            _ => return Err(expected()),
        };
        let number: u64 = digits.parse().map_err(|_| expected())?;
        number.checked_mul(1 << shift).map(Self).ok_or_else(expected)
    }
}

impl std::fmt::Display for Size {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl TryFrom<toml::Value> for Size {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::String(text) => text.parse(),
            toml::Value::Integer(bytes) => {
                u64::try_from(bytes).map(Self).map_err(|_| format!("{bytes} is no size; it is negative"))
            }
            other => Err(format!("{other} is no size; expected one such as \"256M\"")),
        }
    }
}

/// The name of a device, as a flag.
pub fn parse_device(name: &str) -> Result<String, String> {
    check_device(name).map(|()| name.to_owned())
}

/// What the kernel would not take as a device's name.
fn check_device(name: &str) -> Result<(), String> {
    match name {
        "" => Err("empty device name; expected one such as eth0".into()),
        _ if name.len() > NAME_MAX => {
            Err(format!("device name {name:?} has {} characters; expected at most {NAME_MAX}", name.len()))
        }
        _ if name.contains(|c: char| c.is_whitespace() || c == '/') || [".", ".."].contains(&name) => {
            Err(format!("{name:?} is no device name; expected one such as eth0"))
        }
        _ => Ok(()),
    }
}

/// Device names, each once.
pub fn check_devices(names: &[String]) -> Result<(), String> {
    let twice = |(at, name): (usize, &String)| names[..at].contains(name).then(|| name.clone());
    match names.iter().enumerate().find_map(twice) {
        Some(name) => Err(format!("device {name:?} is named twice; expected each once")),
        None => Ok(()),
    }
}

/// What no image can be.
pub fn check_image(image: Size, home: Option<Home>) -> Result<(), String> {
    let Size(bytes) = image;
    if !bytes.is_power_of_two() || !(1 << 20..=1 << 32).contains(&bytes) {
        return Err(format!("image: {image} bytes; expected a power of two from 1M to 4G"));
    }
    if home == Some(Home::Array) && bytes > ARRAY_MAX {
        return Err(format!("image: {image} bytes with home \"array\"; expected at most 512M"));
    }
    Ok(())
}

/// The limit of next hops, as a flag.
pub fn parse_next_hops(text: &str) -> Result<u32, String> {
    let number = text.parse().map_err(|_| {
        format!(
            "{text:?} is no number of next hops; expected one from {} to {}",
            NEXT_HOPS.start(),
            NEXT_HOPS.end()
        )
    })?;
    check_next_hops(number).map(|()| number)
}

fn check_next_hops(number: u32) -> Result<(), String> {
    if NEXT_HOPS.contains(&number) {
        return Ok(());
    }
    Err(format!("next hops: {number}; expected {} to {}", NEXT_HOPS.start(), NEXT_HOPS.end()))
}

/// The line, from 1, of a place in a text.
fn line_of(text: &str, at: usize) -> usize {
    text.get(..at).unwrap_or_default().matches('\n').count() + 1
}

impl File {
    /// Names of the devices.
    pub fn devices(&self) -> Vec<String> {
        self.devices.iter().map(|name| name.get_ref().clone()).collect()
    }

    /// Limit of the image.
    pub fn image(&self) -> Option<Size> {
        self.image.as_ref().map(|size| *size.get_ref())
    }

    /// Limit of distinct next hops.
    pub fn next_hops(&self) -> Option<u32> {
        self.next_hops.as_ref().map(|number| *number.get_ref())
    }

    /// Values that have the right type and cannot be right; with where they stand.
    fn check(&self) -> Result<(), (usize, String)> {
        let mut names = Vec::new();
        for name in &self.devices {
            let told = |error| (name.span().start, format!("devices: {error}"));
            check_device(name.get_ref()).map_err(told)?;
            names.push(name.get_ref().clone());
            check_devices(&names).map_err(told)?;
        }
        if let Some(image) = &self.image {
            check_image(*image.get_ref(), self.home).map_err(|error| (image.span().start, error))?;
        }
        if let Some(number) = &self.next_hops {
            check_next_hops(*number.get_ref()).map_err(|error| (number.span().start, error))?;
        }
        for (at, filter) in self.filter.iter().enumerate() {
            let earlier = self.filter[..at].iter().map(Spanned::get_ref);
            filter
                .get_ref()
                .check(earlier)
                .map_err(|(at, error)| (at.unwrap_or(filter.span().start), format!("filter: {error}")))?;
        }
        let filters = self.filter.iter().map(|filter| filter.get_ref().name());
        let filters: Vec<&str> = filters.collect();
        for (at, function) in self.function.iter().enumerate() {
            let earlier = self.function[..at].iter().map(Spanned::get_ref);
            function
                .get_ref()
                .check(earlier, &filters)
                .map_err(|(at, error)| (at.unwrap_or(function.span().start), format!("function: {error}")))?;
        }
        Ok(())
    }

    /// Functions, likewise.
    pub fn functions(&self, folder: &Path) -> Vec<trieline_node::function::Config> {
        self.function.iter().map(|function| function.get_ref().config(folder)).collect()
    }

    /// Filters, with files that are not absolute taken from `folder` on.
    pub fn filters(&self, folder: &Path) -> Vec<trieline_node::filter::Config> {
        self.filter.iter().map(|filter| filter.get_ref().config(folder)).collect()
    }

    /// Reads a file; errors name file, line and, for a misspelt key, the likely one.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let error = match toml::from_str::<Self>(text) {
            Ok(file) => {
                return match file.check() {
                    Ok(()) => Ok(file),
                    Err((at, error)) => Err(anyhow!("line {}: {error}", line_of(text, at))),
                };
            }
            Err(error) => error,
        };
        let at = error.span().map_or(0, |span| span.start);
        let line = line_of(text, at);
        let message = error.message();
        let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
        let Some((key, _)) = unknown else { bail!("line {line}: {message}") };
        // What serde expected stands between backticks behind the unknown key.
        let keys: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        let near = keys.iter().map(|known| (strsim::damerau_levenshtein(key, known), known)).min();
        match near {
            Some((distance, known)) if distance <= 3 => {
                bail!("line {line}: unknown key `{key}`; did you mean `{known}`?")
            }
            _ => bail!("line {line}: unknown key `{key}`; known are {}", keys.join(", ")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file() {
        let file =
            File::parse("devices = [\"eth0\", \"eth1\"]\nhome = \"array\"\nimage = \"64M\"\n").unwrap();
        assert_eq!(file.devices(), ["eth0", "eth1"]);
        assert_eq!((file.home, file.image()), (Some(Home::Array), Some(Size(64 << 20))));
        assert_eq!(File::parse("").unwrap(), File::default());
    }

    #[test]
    fn errors_name_the_line_and_the_likely_key() {
        let said = |text: &str| File::parse(text).unwrap_err().to_string();
        assert_eq!(
            said("# interfaces\ndevises = []\n"),
            "line 2: unknown key `devises`; did you mean `devices`?"
        );
        assert!(said("colour = 1").contains("known are devices, generic"));
        assert!(said("generic = true\nimage = \"64X\"\n").starts_with("line 2: \"64X\" is no size"));
        assert!(said("home = \"heap\"").contains("line 1"));
        assert!(said("devices = [\n").contains("line"));
    }

    #[test]
    fn values_that_cannot_be_are_named_with_their_line() {
        let said = |text: &str| File::parse(text).unwrap_err().to_string();
        for (text, start, has) in [
            ("devices = [\n  \"eth0\",\n  \"\",\n]", "line 3: devices:", "empty device name"),
            ("devices = [\"eth0\", \"eth1\",\n \"eth0\"]", "line 2: devices:", "\"eth0\" is named twice"),
            (
                "devices = [\"a234567890123456\"]",
                "line 1: devices:",
                "has 16 characters; expected at most 15",
            ),
            ("home = \"array\"\nimage = \"1G\"", "line 2: image:", "expected at most 512M"),
            ("\nimage = \"100M\"", "line 2: image:", "a power of two"),
            ("next_hops = 3", "line 1: next hops: 3", "expected 16 to"),
        ] {
            let said = said(text);
            assert!(said.starts_with(start) && said.contains(has), "{said}");
        }
        assert!(File::parse("home = \"array\"\nimage = \"512M\"").is_ok());
        assert!(parse_next_hops("x").unwrap_err().contains("from 16 to"));
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("64k", 65536), ("4MiB", 4 << 20), ("2G", 2 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for bad in ["", "M", "4T", "-1", "1.5M", "99999999999G"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
