//! DIR-24-8 (Gupta, Lin and McKeown, INFOCOM 1998): one array by the first 24 bits, one more of 256 where longer prefixes lie. The limit of
//! one load a lookup, whatever the memory.

use trieline_lpm::Prefix;

/// An entry: a value, or, with the top bit set, the number of a second array.
pub trait Entry: Copy + Default + Send {
    /// The largest value or number of an array.
    const MAX: u32;
    /// Value.
    fn value(value: u32) -> Self;
    /// Number of an array.
    fn group(group: u32) -> Self;
    /// The number, if it is one.
    fn as_group(self) -> Option<u32>;
    /// The value.
    fn as_value(self) -> u32;
}

macro_rules! entry {
    ($int:ty) => {
        impl Entry for $int {
            const MAX: u32 = (<$int>::MAX >> 1) as u32;
            #[inline(always)]
            fn value(value: u32) -> Self {
                value as $int
            }
            fn group(group: u32) -> Self {
                group as $int | !(<$int>::MAX >> 1)
            }
            #[inline(always)]
            fn as_group(self) -> Option<u32> {
                (self > <$int>::MAX >> 1).then_some((self & <$int>::MAX >> 1) as u32)
            }
            #[inline(always)]
            fn as_value(self) -> u32 {
                self as u32
            }
        }
    };
}
entry!(u16);
entry!(u32);

/// The two arrays. It keeps no routes, so it is built once.
pub struct Dir24<E> {
    first: Vec<E>,
    second: Vec<E>,
}

impl<E: Entry> Dir24<E> {
    /// Of the n-th prefix (in order) with the n-th value; an error with the reason when the entries are too small for them.
    pub fn build(prefixes: &[Prefix<u32>], values: &[u32]) -> Result<Self, String> {
        let largest = values.iter().copied().max().unwrap_or(0);
        if largest > E::MAX {
            return Err(format!("entries of {} bytes hold values up to {}", size_of::<E>(), E::MAX));
        }
        let mut table = Dir24 { first: vec![E::default(); 1 << 24], second: Vec::new() };
        // A prefix comes after those that cover it, so each overwrites what it is more specific than.
        for (prefix, value) in prefixes.iter().zip(values) {
            table.paint(prefix, E::value(*value))?;
        }
        table.second.shrink_to_fit();
        Ok(table)
    }

    fn paint(&mut self, prefix: &Prefix<u32>, entry: E) -> Result<(), String> {
        let (addr, len) = (prefix.addr(), u32::from(prefix.len()));
        let slot = (addr >> 8) as usize;
        if len <= 24 {
            self.first[slot..slot + (1 << (24 - len))].fill(entry);
            return Ok(());
        }
        let group = match self.first[slot].as_group() {
            Some(group) => group,
            None => {
                let group = (self.second.len() / 256) as u32;
                if group > E::MAX {
                    return Err(format!(
                        "entries of {} bytes name {} arrays of 256",
                        size_of::<E>(),
                        E::MAX + 1
                    ));
                }
                self.second.resize(self.second.len() + 256, self.first[slot]);
                self.first[slot] = E::group(group);
                group
            }
        };
        let at = 256 * group as usize + (addr & 255) as usize;
        self.second[at..at + (1 << (32 - len))].fill(entry);
        Ok(())
    }

    /// The value of the longest prefix that contains `addr`; 0 = none. One load, or two where a longer prefix lies.
    #[inline(always)]
    pub fn lookup(&self, addr: u32) -> u32 {
        // SAFETY: 24 bits index 2^24 entries; a group's number was given when its 256 entries were added.
        unsafe {
            let entry = *self.first.get_unchecked((addr >> 8) as usize);
            match entry.as_group() {
                None => entry.as_value(),
                Some(group) => {
                    let at = 256 * group as usize + (addr & 255) as usize;
                    self.second.get_unchecked(at).as_value()
                }
            }
        }
    }

    /// Bytes of both arrays.
    pub fn bytes(&self) -> u64 {
        (size_of::<E>() * (self.first.len() + self.second.len())) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_prefixes_inside_short_ones_and_values_that_do_not_fit() {
        let prefixes =
            ["10.0.0.0/8", "10.1.1.0/24", "10.1.1.128/25", "10.1.1.200/32"].map(|text| text.parse().unwrap());
        let table = Dir24::<u16>::build(&prefixes, &[1, 2, 3, 4]).unwrap();
        let answers = [0x0a00_0001, 0x0a01_0101, 0x0a01_0181, 0x0a01_01c8, 0x0b00_0000];
        assert_eq!(answers.map(|addr| table.lookup(addr)), [1, 2, 3, 4, 0]);
        assert_eq!(table.bytes(), 2 * ((1 << 24) + 256));
        assert!(Dir24::<u16>::build(&prefixes[..1], &[32_768]).is_err_and(|why| why.contains("32767")));
        assert_eq!(Dir24::<u32>::build(&prefixes[..1], &[32_768]).unwrap().lookup(0x0aff_ffff), 32_768);
    }
}
