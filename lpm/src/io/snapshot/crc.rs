//! CRC-32C (Castagnoli; RFC 3720, appendix B.4), eight bytes a step by tables.

/// The polynomial 0x1EDC6F41, bits reversed.
const POLYNOMIAL: u32 = 0x82f6_3b78;

/// `TABLES[n][b]`: what byte `b` contributes when `n` more bytes follow it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = crc >> 1 ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut byte = 0;
        while byte < 256 {
            let before = tables[table - 1][byte];
            tables[table][byte] = before >> 8 ^ tables[0][(before & 0xff) as usize];
            byte += 1;
        }
        table += 1;
    }
    tables
}

/// A checksum of what was fed so far.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crc(u32);

impl Crc {
    pub fn new() -> Self {
        Self(!0)
    }

    /// Feeds eight bytes, as two little-endian words.
    #[inline]
    pub fn words(&mut self, low: u32, high: u32) {
        let low = low ^ self.0;
        let of = |table: usize, word: u32, shift: u32| TABLES[table][(word >> shift & 0xff) as usize];
        self.0 = of(7, low, 0)
            ^ of(6, low, 8)
            ^ of(5, low, 16)
            ^ of(4, low, 24)
            ^ of(3, high, 0)
            ^ of(2, high, 8)
            ^ of(1, high, 16)
            ^ of(0, high, 24);
    }

    /// Feeds a byte.
    pub fn byte(&mut self, byte: u8) {
        self.0 = self.0 >> 8 ^ TABLES[0][((self.0 ^ u32::from(byte)) & 0xff) as usize];
    }

    /// Feeds bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        let (eights, rest) = bytes.as_chunks::<8>();
        for [a, b, c, d, e, f, g, h] in eights {
            self.words(u32::from_le_bytes([*a, *b, *c, *d]), u32::from_le_bytes([*e, *f, *g, *h]));
        }
        for byte in rest {
            self.byte(*byte);
        }
    }

    /// The checksum.
    pub fn value(self) -> u32 {
        !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn crc(bytes: &[u8]) -> u32 {
        let mut crc = Crc::new();
        crc.bytes(bytes);
        crc.value()
    }

    /// The examples of RFC 3720, appendix B.4, and the check value that catalogues give.
    #[test]
    fn known_values() {
        assert_eq!(crc(b"123456789"), 0xe306_9283);
        assert_eq!(crc(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc(&[0xff; 32]), 0x62a8_ab43);
        assert_eq!(crc(&core::array::from_fn::<u8, 32, _>(|at| at as u8)), 0x46dd_794e);
        assert_eq!(crc(&core::array::from_fn::<u8, 32, _>(|at| 31 - at as u8)), 0x113f_db5c);
        assert_eq!(crc(b""), 0);
    }
}
