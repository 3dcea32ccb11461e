//! Ids of messages from their bytes: up to eight are kept as they are, more are hashed.

/// Of each part of a message so many bytes are looked at, besides its length: what is sent is known only by its first bytes.
pub(crate) const LOOKED_AT: usize = 64;

/// FNV-1a (draft-eastlake-fnv), 64 bits: the same on every machine.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Hash(u64);

impl Default for Hash {
    fn default() -> Self {
        Hash(0xcbf2_9ce4_8422_2325)
    }
}

impl Hash {
    /// Adds a part of a message: its length, and its first bytes.
    pub(crate) fn part(self, length: u64, bytes: &[u8]) -> Hash {
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
        Hash(length.to_le_bytes().iter().chain(bytes.iter().take(LOOKED_AT)).fold(self.0, hash))
    }

    pub(crate) fn id(self) -> u64 {
        self.0
    }
}

/// An id that is written in the message: as a number with the first byte lowest, as ids at an offset are, where it fits.
pub(crate) fn written(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=8 => bytes.iter().rev().fold(0, |id, byte| id << 8 | u64::from(*byte)),
        length => Hash::default().part(length as u64, bytes).id(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_ids_are_their_bytes_and_long_ones_differ() {
        assert_eq!(written(&[1, 2]), 0x0201);
        assert_eq!(written(&77u64.to_le_bytes()), 77);
        assert_ne!(written(b"123456789"), written(b"123456780"));
        // The known value of FNV-1a for no bytes but the length's.
        let zeros = (0..8).fold(0xcbf2_9ce4_8422_2325u64, |hash, _| hash.wrapping_mul(0x100_0000_01b3));
        assert_eq!(Hash::default().part(0, b"").id(), zeros);
    }
}
