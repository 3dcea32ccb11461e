//! Keys of other people's LPM tries by their BTF: what they are made of, and whether they look like addresses.

use std::fmt;

use libbpf_rs::btf::types::{Array, Composite, Int, MemberAttr};
use libbpf_rs::btf::{Btf, BtfType, HasSize, TypeId};

use crate::value::{load, size};

/// Bytes of the prefix length, which every key begins with.
const LENGTH: usize = 4;

/// The parts of a key: the members of its struct and their bytes. Displayed as `prefixlen, saddr[4], dport[2]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyType {
    members: Vec<(String, usize)>,
    is_address: bool,
}

impl KeyType {
    /// The type `key` in BTF `btf`, both by the kernel's numbers, of keys of `bytes` bytes. `None` if it cannot be read, or does not
    /// describe the bytes behind the prefix length.
    pub(crate) fn of(btf: u32, key: u32, bytes: usize) -> Option<Self> {
        if btf == 0 || key == 0 {
            return None;
        }
        let btf = load(btf)?;
        let whole = btf.type_by_id::<BtfType<'_>>(TypeId::from(key))?.skip_mods_and_typedefs();
        let whole = Composite::try_from(whole).ok()?;
        let mut members = Vec::new();
        let mut behind = Vec::new();
        for member in whole.iter() {
            // Parts of bytes, or what has no size: several parts, whatever they are.
            let MemberAttr::Normal { offset } = member.attr else { return Some(Self::parts(&whole)) };
            let kind = btf.type_by_id::<BtfType<'_>>(member.ty)?;
            let Some(len) = size(kind) else { return Some(Self::parts(&whole)) };
            let name = member.name.map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let at = offset as usize / 8;
            if at >= LENGTH && len > 0 {
                behind.push((at, len, kind));
            }
            members.push((name, len));
        }
        // Nothing lies there by its name, or only a part.
        behind.first().filter(|first| first.0 == LENGTH)?;
        let is_address = match &behind[..] {
            [(_, len, kind)] => LENGTH + len == bytes && is_address(&btf, *kind),
            _ => false,
        };
        Some(Self { members, is_address })
    }

    /// A key with known names of its members, but unknown sizes; 0 bytes each.
    fn parts(whole: &Composite<'_>) -> Self {
        let name = |name: Option<&std::ffi::OsStr>| name.unwrap_or_default().to_string_lossy().into_owned();
        Self { members: whole.iter().map(|member| (name(member.name), 0)).collect(), is_address: false }
    }

    /// Whether what lies behind the prefix length is one number or one array such as addresses are kept in.
    pub fn is_address(&self) -> bool {
        self.is_address
    }
}

impl fmt::Display for KeyType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (name, bytes)) in self.members.iter().enumerate() {
            match at {
                0 if *bytes == LENGTH || *bytes == 0 => write!(f, "{name}")?,
                0 => write!(f, "{name}[{bytes}]")?,
                _ if *bytes == 0 => write!(f, ", {name}")?,
                _ => write!(f, ", {name}[{bytes}]")?,
            }
        }
        Ok(())
    }
}

/// Whether a type is one that addresses are kept in. That is a number (`__u32`, `__be32`), or an array of bytes or of parts of an IPv6
/// address (`__u32[4]`). Or it is a struct or union of nothing else (`struct in_addr`, `struct in6_addr`).
fn is_address(btf: &Btf<'_>, kind: BtfType<'_>) -> bool {
    let kind = kind.skip_mods_and_typedefs();
    if Int::try_from(kind).is_ok() {
        return true;
    }
    if let Ok(array) = Array::try_from(kind) {
        // Two numbers of two bytes are no IPv4 address.
        let element = array.contained_type().skip_mods_and_typedefs();
        let is_pair = |int: Int<'_>| int.size() == 2 && array.capacity() == 2;
        return Int::try_from(element).is_ok_and(|int| !is_pair(int));
    }
    let Ok(composite) = Composite::try_from(kind) else { return false };
    let is_alone = !composite.is_struct || composite.len() == 1;
    let mut members = composite.iter().filter_map(|member| btf.type_by_id::<BtfType<'_>>(member.ty));
    is_alone && members.any(|member| size(member) == Some(composite.size()) && is_address(btf, member))
}
