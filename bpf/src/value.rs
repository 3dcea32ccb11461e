//! Values of other people's maps in words: numbers, enum names and struct members where the map has BTF, bytes where not.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::AsRawFd;

use libbpf_rs::btf::types::{Array, Composite, Enum, Int, IntEncoding, MemberAttr, Struct};
use libbpf_rs::btf::{Btf, BtfType, HasSize, TypeId};

use crate::sys;

/// The type of a map's values.
pub struct ValueType(Option<(Btf<'static>, TypeId)>);

impl ValueType {
    /// The type `value` in BTF `btf`, both as the kernel numbers them; bytes when there is none or it cannot be read.
    pub(crate) fn of(btf: u32, value: u32) -> Self {
        Self((btf != 0 && value != 0).then(|| load(btf)).flatten().map(|btf| (btf, value.into())))
    }

    /// A value as a number, where it is one: an integer or an enum by its BTF, or four bytes without BTF.
    pub fn number(&self, value: &[u8]) -> Option<u64> {
        if value.len() > 8 {
            return None;
        }
        let kind = self.0.as_ref().map(|(btf, id)| btf.type_by_id::<BtfType<'_>>(*id));
        let is_number = match kind {
            None => value.len() == 4,
            Some(Some(kind)) => {
                let kind = kind.skip_mods_and_typedefs();
                Int::try_from(kind).is_ok_and(|int| !matches!(int.encoding, IntEncoding::Signed))
                    || Int::try_from(kind).is_ok_and(|int| unsigned(value) >> (int.bits - 1) == 0)
                    || Enum::try_from(kind).is_ok()
            }
            Some(None) => false,
        };
        is_number.then(|| unsigned(value))
    }

    /// A value as one word without blanks.
    pub fn word(&self, value: &[u8]) -> String {
        let mut word = String::new();
        let kind = self.0.as_ref().and_then(|(btf, id)| Some((btf, btf.type_by_id::<BtfType<'_>>(*id)?)));
        match kind {
            Some((btf, kind)) => show(btf, kind, value, &mut word),
            None if value.len() == 4 => word = unsigned(value).to_string(),
            None => bytes(value, &mut word),
        }
        // A word that begins with a digit would be read as a number.
        if word.starts_with(|first: char| first.is_ascii_digit() || first == '-') {
            format!("={word}")
        } else {
            word
        }
    }
}

/// A BTF that the kernel has; `None` if it cannot be read.
pub(crate) fn load(id: u32) -> Option<Btf<'static>> {
    let bytes = sys::btf_bytes(id).ok()?;
    // libbpf-rs reads BTF from files.
    let memory = rustix::fs::memfd_create("btf", rustix::fs::MemfdFlags::CLOEXEC).ok()?;
    let mut file = std::fs::File::from(memory);
    file.write_all(&bytes).ok()?;
    Btf::from_path(format!("/proc/self/fd/{}", file.as_raw_fd())).ok()
}

/// Little- or big-endian, as this machine's programs stored it.
fn unsigned(value: &[u8]) -> u64 {
    let mut word = [0; 8];
    let count = value.len().min(8);
    if cfg!(target_endian = "little") {
        word[..count].copy_from_slice(&value[..count]);
    } else {
        word[8 - count..].copy_from_slice(&value[..count]);
    }
    u64::from_ne_bytes(word)
}

fn bytes(value: &[u8], to: &mut String) {
    *to += "bytes:";
    value.iter().for_each(|byte| {
        let _ = write!(to, "{byte:02x}");
    });
}

/// The part of `value` that begins at `at` and has `len` bytes.
fn part(value: &[u8], at: usize, len: usize) -> &[u8] {
    at.checked_add(len).and_then(|end| value.get(at..end)).unwrap_or_default()
}

/// Bytes of a type; `None` for those that no map's keys or values have.
pub(crate) fn size(kind: BtfType<'_>) -> Option<usize> {
    let kind = kind.skip_mods_and_typedefs();
    let of_array = |array: Array<'_>| Some(array.capacity() * size(array.contained_type())?);
    let sized = |kind| -> Option<usize> {
        Int::try_from(kind)
            .map(|int| int.size())
            .or_else(|kind| Enum::try_from(kind).map(|kind| kind.size()))
            .ok()
    };
    Array::try_from(kind)
        .ok()
        .and_then(of_array)
        .or_else(|| Composite::try_from(kind).ok().map(|kind| kind.size()))
        .or_else(|| sized(kind))
}

fn show(btf: &Btf<'_>, kind: BtfType<'_>, value: &[u8], to: &mut String) {
    let kind = kind.skip_mods_and_typedefs();
    if let Ok(int) = Int::try_from(kind) {
        if value.len() > 8 {
            return bytes(value, to);
        }
        let number = unsigned(value);
        let _ = match int.encoding {
            IntEncoding::Signed => {
                let unused = 64 - 8 * value.len().max(1) as u32;
                write!(to, "{}", ((number << unused) as i64) >> unused)
            }
            _ => write!(to, "{number}"),
        };
    } else if let Ok(named) = Enum::try_from(kind) {
        let number = unsigned(value);
        let member = named.iter().find(|member| member.value as u32 == number as u32);
        match member.and_then(|member| member.name).and_then(|name| name.to_str()) {
            Some(name) => *to += name,
            None => {
                let _ = write!(to, "{number}");
            }
        }
    } else if let Ok(composite) = Struct::try_from(kind) {
        *to += "{";
        for (at, member) in composite.iter().enumerate() {
            let name = member.name.map(|name| name.to_string_lossy()).unwrap_or_default();
            let _ = write!(to, "{}{name}=", if at > 0 { "," } else { "" });
            match (member.attr, btf.type_by_id::<BtfType<'_>>(member.ty)) {
                (MemberAttr::Normal { offset }, Some(kind)) => {
                    let at = offset as usize / 8;
                    let len = size(kind).unwrap_or_else(|| value.len().saturating_sub(at));
                    show(btf, kind, part(value, at, len), to);
                }
                (MemberAttr::BitField { size, offset }, _) => {
                    // Bit fields of at most 56 bits; the bytes around it make one word.
                    let around = part(
                        value,
                        offset as usize / 8,
                        (offset as usize % 8 + usize::from(size)).div_ceil(8),
                    );
                    let bits =
                        unsigned(around) >> (offset % 8) & (u64::MAX >> (64 - u32::from(size.clamp(1, 64))));
                    let _ = write!(to, "{bits}");
                }
                _ => *to += "?",
            }
        }
        *to += "}";
    } else if let Ok(array) = Array::try_from(kind) {
        let element = array.contained_type();
        match size(element) {
            Some(len) if len > 1 => {
                *to += "[";
                for at in 0..array.capacity() {
                    *to += if at > 0 { "," } else { "" };
                    show(btf, element, part(value, at * len, len), to);
                }
                *to += "]";
            }
            _ => bytes(value, to),
        }
    } else {
        bytes(value, to);
    }
}
