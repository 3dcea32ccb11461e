//! The configuration of `trielined`: flags, and the file /etc/trieline/trielined.toml.

mod filter;
mod sid_hook;

use anyhow::{Context, anyhow, bail};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use serde::Deserialize;
use std::path::Path;
use std::time::Duration;
use toml::Spanned;
use trieline_router::daemon::{AUDIT_RATE, AUDIT_RATE_MOST, Config};
use trieline_router::filter::rule::{self, FilterRule, Invalid};
use trieline_router::kernel::link::check_name;
use trieline_router::rib::tenant::{self, Tenants, Vlan, Vrf};
use trieline_router::sid_hook::rule::SidHookRule;
use trieline_router::{AttachMode, ImageMapType};

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
    /// Map type of the image: "arena" or "array".
    pub map_type: Option<ImageMapType>,
    /// Limit of the image, such as "256M".
    image: Option<Spanned<Size>>,
    /// Limit of distinct next hops.
    next_hops: Option<Spanned<u32>>,
    /// Receive buffer for the kernel's changes, such as "32M".
    pub receive_buffer: Option<Size>,
    /// Packets may go past netfilter's rules.
    #[serde(default)]
    pub bypass_netfilter: bool,
    /// How long XDP forwards without a daemon: seconds, such as "60s", or "none".
    pub max_stale: Option<MaxStale>,
    /// How SRv6 is done.
    #[serde(default)]
    pub srv6: Srv6,
    /// How the kernel's routes are compared with what packets meet.
    #[serde(default)]
    pub audit: Audit,
    /// Filters that packets meet before they are routed, in order.
    #[serde(default)]
    filter: Vec<FilterRule>,
    /// Hooks that packets to SIDs meet before their behaviour.
    #[serde(default)]
    sid_hook: Vec<SidHookRule>,
    /// Tenants, where the kernel has no VRF devices.
    #[serde(default)]
    vrf: Vec<Vrf>,
    /// VLANs, where the kernel has no VLAN devices.
    #[serde(default)]
    vlan: Vec<Vlan>,
}

/// `[srv6]`, as written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Srv6 {
    /// The RFCs are followed where Linux differs.
    #[serde(default)]
    pub rfc: bool,
}

/// `[audit]`, as written.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Audit {
    /// Addresses that are compared each second; 0: none.
    #[serde(default)]
    pub rate: Rate,
}

/// A number of addresses each second.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "i64")]
pub struct Rate(pub u32);

impl Default for Rate {
    fn default() -> Self {
        Self(AUDIT_RATE)
    }
}

impl TryFrom<i64> for Rate {
    type Error = String;

    fn try_from(rate: i64) -> Result<Self, String> {
        let wrong = || format!("invalid {rate} for rate: expected 0 to {AUDIT_RATE_MOST} addresses a second");
        u32::try_from(rate).ok().filter(|rate| *rate <= AUDIT_RATE_MOST).map(Self).ok_or_else(wrong)
    }
}

/// The receive buffer that the kernel can be asked for, bytes.
pub fn receive_buffer(size: Size) -> usize {
    size.0.min(1 << 30) as usize
}

/// Possible limits of distinct next hops.
const NEXT_HOPS: std::ops::RangeInclusive<u32> = 16..=1 << 24;

/// The map type of the image, as a flag.
pub fn map_types() -> impl TypedValueParser<Value = ImageMapType> {
    let help = |map_type| match map_type {
        ImageMapType::Arena => "BPF arena (Linux 6.9 or newer)",
        ImageMapType::Array => "Memory-mapped BPF array",
    };
    let values = ImageMapType::ALL.map(|map_type| PossibleValue::new(map_type.name()).help(help(map_type)));
    PossibleValuesParser::new(values).try_map(|name| name.parse::<ImageMapType>())
}

/// A number of bytes, written with K, M or G.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct Size(pub u64);

impl std::str::FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let expected =
            || format!("invalid size {text:?}: expected bytes, or a number with K, M or G, such as 256M");
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

/// How long XDP forwards when no daemon follows the kernel; `None`: without end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub struct MaxStale(pub Option<Duration>);

impl MaxStale {
    /// The shortest, s: the daemon's loop must come round in this time.
    const LEAST: u64 = 2;
    /// The longest, s: a day.
    const MOST: u64 = 86400;
}

impl Default for MaxStale {
    fn default() -> Self {
        Self(Some(Duration::from_secs(60)))
    }
}

impl std::str::FromStr for MaxStale {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == "none" {
            return Ok(Self(None));
        }
        let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok());
        let seconds = seconds.filter(|seconds| (Self::LEAST..=Self::MOST).contains(seconds));
        let (least, most) = (Self::LEAST, Self::MOST);
        let wrong =
            || format!("invalid {text:?} for max_stale: expected \"{least}s\" to \"{most}s\", or \"none\"");
        seconds.map(|seconds| Self(Some(Duration::from_secs(seconds)))).ok_or_else(wrong)
    }
}

impl TryFrom<toml::Value> for MaxStale {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match value {
            toml::Value::String(text) => text.parse(),
            other => {
                Err(format!("invalid {other} for max_stale: expected a string, such as \"60s\" or \"none\""))
            }
        }
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
            toml::Value::Integer(bytes) => u64::try_from(bytes)
                .map(Self)
                .map_err(|_| format!("invalid size {bytes}: expected a number that is not negative")),
            other => Err(format!("invalid size {other}: expected one such as \"256M\"")),
        }
    }
}

/// The name of a device, as a flag.
pub fn parse_device(name: &str) -> Result<String, String> {
    check_name(name).map(|()| name.to_owned())
}

/// Device names, each once.
pub fn check_devices(names: &[String]) -> Result<(), String> {
    let twice = |(at, name): (usize, &String)| names[..at].contains(name).then(|| name.clone());
    match names.iter().enumerate().find_map(twice) {
        Some(name) => Err(format!("device {name:?} is named twice; expected each once")),
        None => Ok(()),
    }
}

/// Refuses sizes that an image cannot have.
pub fn check_image(image: Size, map_type: Option<ImageMapType>) -> Result<(), String> {
    let Size(bytes) = image;
    if !bytes.is_power_of_two() || !(1 << 20..=1 << 32).contains(&bytes) {
        return Err(format!("image: {image} bytes; expected a power of two from 1M to 4G"));
    }
    if map_type == Some(ImageMapType::Array) && bytes > ImageMapType::Array.max_bytes() {
        return Err(format!("image: {image} bytes with map_type \"array\"; expected at most 512M"));
    }
    Ok(())
}

/// The limit of next hops, as a flag.
pub fn parse_next_hops(text: &str) -> Result<u32, String> {
    let number = text.parse().map_err(|_| {
        format!(
            "invalid number of next hops {text:?}: expected one from {} to {}",
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

/// The place of a key in an entry of an array of tables; of the entry, if it does not have the key.
fn place(text: &str, table: &str, entry: usize, key: Option<&str>) -> usize {
    let found = || {
        let file = toml::de::DeTable::parse(text).ok()?;
        let entry = file.get_ref().get(table)?.get_ref().get(entry)?;
        let value = key.and_then(|key| entry.get_ref().get(key)).unwrap_or(entry);
        Some(value.span().start)
    };
    found().unwrap_or(0)
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

    /// The configuration of a daemon. Names of files count from this folder on.
    pub fn config(&self, folder: &Path) -> Config {
        let size = |size: Option<Size>, default| size.unwrap_or(Size(default)).0;
        Config {
            devices: self.devices(),
            mode: if self.generic { AttachMode::Generic } else { AttachMode::Native },
            map_type: self.map_type,
            image_bytes: size(self.image(), 256 << 20),
            actions: self.next_hops.as_ref().map_or(65536, |number| *number.get_ref()),
            receive_buffer: receive_buffer(Size(size(self.receive_buffer, 32 << 20))),
            filters: self.filter.iter().map(|filter| filter.in_folder(folder)).collect(),
            bypass_netfilter: self.bypass_netfilter,
            rfc: self.srv6.rfc,
            max_stale: self.max_stale.unwrap_or_default().0,
            sid_hooks: self.sid_hook.iter().map(|sid_hook| sid_hook.in_folder(folder)).collect(),
            tenants: Tenants::new(self.vrf.clone(), self.vlan.clone()),
            audit_rate: self.audit.rate.0,
        }
    }

    /// Values that have the right type and cannot be right; with where they stand.
    fn check(&self, text: &str) -> Result<(), (usize, String)> {
        let mut names = Vec::new();
        for name in &self.devices {
            let reported = |error| (name.span().start, format!("devices: {error}"));
            check_name(name.get_ref()).map_err(reported)?;
            names.push(name.get_ref().clone());
            check_devices(&names).map_err(reported)?;
        }
        if let Some(image) = &self.image {
            check_image(*image.get_ref(), self.map_type).map_err(|error| (image.span().start, error))?;
        }
        if let Some(number) = &self.next_hops {
            check_next_hops(*number.get_ref()).map_err(|error| (number.span().start, error))?;
        }
        let at = |table: &'static str| {
            move |Invalid { entry, key, what }: Invalid| {
                (place(text, table, entry, key), format!("{table}: {what}"))
            }
        };
        rule::check(&self.filter).map_err(at("filter"))?;
        trieline_router::sid_hook::rule::check(&self.sid_hook, &self.filter).map_err(at("sid_hook"))?;
        tenant::check(&self.vrf, &self.vlan).map_err(|(table, invalid)| at(table)(invalid))
    }

    /// Reads a file as [`File::read`] does, and looks at all that it names: files of filters, pinned programs, folders of samples.
    pub fn check_files(path: &Path) -> anyhow::Result<()> {
        let file = Self::read(path)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        let filters = file.filter.iter().map(|filter| filter::check_files(filter, folder));
        let sid_hooks = file.sid_hook.iter().map(|sid_hook| sid_hook::check_files(sid_hook, folder));
        let filters = filters.enumerate().map(|checked| ("filter", checked));
        let sid_hooks = sid_hooks.enumerate().map(|checked| ("sid_hook", checked));
        for (table, (entry, checked)) in filters.chain(sid_hooks) {
            checked.map_err(|(key, error)| {
                let text = std::fs::read_to_string(path).unwrap_or_default();
                let line = line_of(&text, place(&text, table, entry, Some(key)));
                anyhow!("{}: line {line}: {error}", path.display())
            })?;
        }
        Ok(())
    }

    /// Reads a file; errors name file, line and, for a misspelt key, the likely one.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text =
            std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
        Self::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let error = match toml::from_str::<Self>(text) {
            Ok(file) => {
                return match file.check(text) {
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
        // The expected keys of serde's message stand between backticks behind the unknown key.
        let keys: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        let near = keys.iter().map(|known| (strsim::damerau_levenshtein(key, known), known)).min();
        match near {
            // Of a short key, few letters may differ: nearly all short words are as near.
            Some((distance, known)) if distance <= (1 + key.len() / 4).min(3) => {
                bail!("line {line}: unknown key `{key}`; did you mean `{known}`?")
            }
            _ => bail!(
                "line {line}: unknown key `{key}`: trieline {} does not have it, a newer version may; known are {}",
                env!("CARGO_PKG_VERSION"),
                keys.join(", ")
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_file() {
        let file =
            File::parse("devices = [\"eth0\", \"eth1\"]\nmap_type = \"array\"\nimage = \"64M\"\n").unwrap();
        assert_eq!(file.devices(), ["eth0", "eth1"]);
        assert_eq!((file.map_type, file.image()), (Some(ImageMapType::Array), Some(Size(64 << 20))));
        assert_eq!(File::parse("").unwrap(), File::default());
        assert!(File::parse("[srv6]\nrfc = true\n").unwrap().srv6.rfc);
    }

    #[test]
    fn errors_name_the_line_and_the_likely_key() {
        let error_text = |text: &str| File::parse(text).unwrap_err().to_string();
        assert_eq!(
            error_text("# interfaces\ndevises = []\n"),
            "line 2: unknown key `devises`; did you mean `devices`?"
        );
        assert!(error_text("colour = 1").contains("known are devices, generic"));
        assert!(error_text("generic = true\nimage = \"64X\"\n").starts_with("line 2: invalid size \"64X\""));
        assert!(error_text("map_type = \"heap\"").contains("line 1"));
        assert_eq!(error_text("[srv6]\nrcf = true"), "line 2: unknown key `rcf`; did you mean `rfc`?");
        for key in ["mtu", "foo", "max"] {
            let text = error_text(&format!("{key} = 1"));
            assert!(text.contains("a newer version may"), "a short word is near to any: {text}");
        }
        assert!(error_text("[srv6]\nrfc = 1").starts_with("line 2: invalid type"));
        assert!(error_text("devices = [\n").contains("line"));
    }

    #[test]
    fn values_that_cannot_be_are_named_with_their_line() {
        let error_text = |text: &str| File::parse(text).unwrap_err().to_string();
        for (text, start, has) in [
            (
                "devices = [\n  \"eth0\",\n  \"\",\n]",
                "line 3: devices: invalid \"\" for a device name",
                "such as eth0",
            ),
            ("devices = [\"eth0\", \"eth1\",\n \"eth0\"]", "line 2: devices:", "\"eth0\" is named twice"),
            (
                &format!("devices = [\"{}\"]", "a".repeat(128)),
                "line 1: devices:",
                "aaa\" for a device name: expected 1 to 127 characters",
            ),
            ("map_type = \"array\"\nimage = \"1G\"", "line 2: image:", "expected at most 512M"),
            ("\nimage = \"100M\"", "line 2: image:", "a power of two"),
            ("next_hops = 3", "line 1: next hops: 3", "expected 16 to"),
        ] {
            let error_text = error_text(text);
            assert!(error_text.starts_with(start) && error_text.contains(has), "{error_text}");
        }
        assert!(File::parse("map_type = \"array\"\nimage = \"512M\"").is_ok());
        let vrf = "[[vrf]]\nname = \"red\"\ntable = 100\ndevices = [\"n0\"]\n";
        let vlan = "[[vlan]]\nname = \"n1.7\"\ndevice = \"n1\"\nid = 7\n";
        for (text, start, has) in [
            (vrf.replace("100", "254"), "line 3: invalid 254 for table: expected a number", "254 (main)"),
            (vrf.replace("100", "-1"), "line 3: invalid -1 for table: expected a number from 1 to", ""),
            (vrf.replace("100", "\"red\""), "line 3: invalid type: string \"red\", expected a number", ""),
            (vrf.replace("red", ""), "line 2: invalid \"\" for a device name: expected 1 to 127", ""),
            (vrf.replace("[\"n0\"]", "[\n\"n0\",\n\"n/\"]"), "line 6: invalid \"n/\" for a device name", ""),
            (vrf.repeat(2), "line 6: vrf: red: the name is given twice", ""),
            (
                format!("{vrf}{}", vrf.replace("red", "blue")),
                "line 8: vrf: blue: n0 is given twice; expected each once",
                "",
            ),
            (
                "[audit]\nrate = 10001\n".into(),
                "line 2: invalid 10001 for rate: expected 0 to 10000",
                "a second",
            ),
            (vrf.replace("table", "tabel"), "line 3: unknown key `tabel`; did you mean `table`?", ""),
            (vlan.replace("id = 7", "id = 4095"), "line 4: invalid 4095 for id: expected", "1 to 4094"),
            (format!("{vlan}table = 255"), "line 5: invalid 255 for table", "255 (local)"),
            (format!("{vlan}mac = \"02:00\""), "line 5: invalid \"02:00\" for mac: expected six", "such as"),
            (format!("{vlan}mac = \"03:00:00:00:00:01\""), "line 5:", "a group's"),
            (
                format!("{vlan}{}", vlan.replace("n1.7", "x")),
                "line 8: vlan: x: id 7 of n1 is given twice; expected each once",
                "",
            ),
            (format!("{vlan}{vlan}"), "line 6: vlan: n1.7: the name is given twice", ""),
            (
                vlan.replace("\"n1\"", "\"n1.7\""),
                "line 3: vlan: n1.7: invalid \"n1.7\" for device: expected another device",
                "",
            ),
            (
                format!("{}{vlan}table = 9", vrf.replace("n0", "n1.7")),
                "line 9: vlan: n1.7: a [[vrf]] has it among its devices; expected one table for it",
                "",
            ),
            (vrf.replace("table = 100\n", ""), "line 1: missing field `table`", ""),
        ] {
            let error_text = error_text(&text);
            assert!(error_text.starts_with(start) && error_text.contains(has), "{error_text}");
        }
        let tenants = File::parse(&format!("{vrf}{vlan}table = 9\n")).unwrap().config(Path::new("")).tenants;
        assert_eq!(
            (tenants.table_of("n0"), tenants.table_of("n1.7")),
            (Some(("red", 100)), Some(("n1.7", 9)))
        );
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
