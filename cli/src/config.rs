//! What `trielined` is told: flags, and the file /etc/trieline/trielined.toml.

use anyhow::{Context, anyhow, bail};
use serde::Deserialize;
use std::path::Path;

/// The file, as written. Flags win over it.
#[derive(Debug, Clone, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Names of the devices that packets are taken from and sent to.
    #[serde(default)]
    pub devices: Vec<String>,
    /// Attach in generic mode.
    #[serde(default)]
    pub generic: bool,
    /// Home of the image: "arena" or "array".
    pub home: Option<Home>,
    /// Limit of the image, such as "256M".
    pub image: Option<Size>,
    /// Limit of distinct next hops.
    pub next_hops: Option<u32>,
    /// Receive buffer for the kernel's changes, such as "32M".
    pub receive_buffer: Option<Size>,
}

/// Keys of the file, for suggestions.
const KEYS: [&str; 6] = ["devices", "generic", "home", "image", "next_hops", "receive_buffer"];

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

impl File {
    /// Reads a file; errors name file, line and, for a misspelt key, the likely one.
    pub fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path).with_context(|| path.display().to_string())?;
        Self::parse(&text).map_err(|error| anyhow!("{}: {error}", path.display()))
    }

    fn parse(text: &str) -> anyhow::Result<Self> {
        let error = match toml::from_str::<Self>(text) {
            Ok(file) => return Ok(file),
            Err(error) => error,
        };
        let at = error.span().map_or(0, |span| span.start);
        let line = text.get(..at).unwrap_or_default().matches('\n').count() + 1;
        let message = error.message();
        let unknown = message.strip_prefix("unknown field `").and_then(|rest| rest.split_once('`'));
        let Some((key, _)) = unknown else { bail!("line {line}: {message}") };
        let near = KEYS.iter().map(|known| (strsim::damerau_levenshtein(key, known), known)).min();
        match near {
            Some((distance, known)) if distance <= 3 => {
                bail!("line {line}: unknown key `{key}`; did you mean `{known}`?")
            }
            _ => bail!("line {line}: unknown key `{key}`; known are {}", KEYS.join(", ")),
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
        assert_eq!(file.devices, ["eth0", "eth1"]);
        assert_eq!((file.home, file.image), (Some(Home::Array), Some(Size(64 << 20))));
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
    fn sizes() {
        for (text, bytes) in [("0", 0), ("4096", 4096), ("64k", 65536), ("4MiB", 4 << 20), ("2G", 2 << 30)] {
            assert_eq!(text.parse(), Ok(Size(bytes)));
        }
        for bad in ["", "M", "4T", "-1", "1.5M", "99999999999G"] {
            assert!(bad.parse::<Size>().is_err(), "{bad}");
        }
    }
}
