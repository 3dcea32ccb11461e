//! The Toeplitz hash of NICs, with the keys that drivers and administrators set.
//!
//! Source: Microsoft, "RSS Hashing Functions" and "Verifying the RSS Hash Calculation" (Windows driver documentation, NDIS). The manuals of
//! NICs (Intel 82599, X710) print the same key and the same examples.

use std::fmt;

/// Bytes of a key: enough for two IPv6 addresses and two ports.
pub const KEY_BYTES: usize = 40;
/// Most bytes that are hashed here: two IPv6 addresses and a flow label.
pub const INPUT_BYTES: usize = 36;

/// A key of the hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// Its name in rows.
    pub name: &'static str,
    /// Its bytes.
    pub bytes: [u8; KEY_BYTES],
}

impl Key {
    /// The key of Microsoft's verification suite.
    pub const MICROSOFT: Key = Key {
        name: "microsoft",
        bytes: [
            0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0,
            0xd0, 0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c,
            0x6a, 0x42, 0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
        ],
    };
    /// 0x6d5a over and over: source and destination may change places (S. Woo and K. Park, "Scalable TCP Session Monitoring with
    /// Symmetric Receive-side Scaling", KAIST, 2012).
    pub const SYMMETRIC: Key = Key { name: "symmetric", bytes: symmetric() };

    /// The 32 bits of the key from a bit on.
    fn window(&self, bit: usize) -> u32 {
        let byte = |at: usize| u64::from(self.bytes[at % KEY_BYTES]);
        let five = (0..5).fold(0, |word, i| word << 8 | byte(bit / 8 + i));
        (five >> (8 - bit % 8)) as u32
    }

    /// The hash of some bytes, at most 36, bit by bit as the source describes it.
    pub fn hash(&self, input: &[u8]) -> u32 {
        let bits = (0..input.len() * 8).filter(|bit| input[bit / 8] >> (7 - bit % 8) & 1 == 1);
        bits.fold(0, |sum, bit| sum ^ self.window(bit))
    }

    /// The same by a word for each value of each byte, as programs hash.
    pub fn words(&self) -> Words {
        let word = |at: usize| {
            let mut input = [0; INPUT_BYTES];
            input[at / 256] = (at % 256) as u8;
            self.hash(&input)
        };
        Words((0..INPUT_BYTES * 256).map(word).collect())
    }
}

impl fmt::Display for Key {
    /// As `ethtool -X DEV hkey` takes it.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let bytes: Vec<String> = self.bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        f.write_str(&bytes.join(":"))
    }
}

const fn symmetric() -> [u8; KEY_BYTES] {
    let mut bytes = [0x6d; KEY_BYTES];
    let mut at = 1;
    while at < KEY_BYTES {
        bytes[at] = 0x5a;
        at += 2;
    }
    bytes
}

/// A key, prepared: the word that each value of each byte of the input adds to the hash.
pub struct Words(Vec<u32>);

impl Words {
    /// The hash of some bytes, at most 36.
    pub fn hash(&self, input: &[u8]) -> u32 {
        input.iter().enumerate().fold(0, |sum, (at, value)| sum ^ self.0[at * 256 + usize::from(*value)])
    }

    /// As the steering program reads them.
    pub fn bytes(&self) -> Vec<u8> {
        self.0.iter().flat_map(|word| word.to_ne_bytes()).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};

    use super::*;

    /// "Verifying the RSS Hash Calculation": destination, source, hash of the addresses, hash of addresses and ports.
    const VECTORS: [(&str, &str, u32, u32); 8] = [
        ("161.142.100.80:1766", "66.9.149.187:2794", 0x323e_8fc2, 0x51cc_c178),
        ("65.69.140.83:4739", "199.92.111.2:14230", 0xd718_262a, 0xc626_b0ea),
        ("12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0_a5de, 0x5c2b_394a),
        ("209.142.163.6:2217", "38.27.205.30:48228", 0x8298_9176, 0xafc7_327f),
        ("202.188.127.2:1303", "153.39.163.191:44251", 0x5d18_09c5, 0x10e8_28a2),
        ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc1_8cd5, 0x4020_7d3d),
        ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0f0c_461c, 0xdde5_1bbf),
        (
            "[fe80::200:f8ff:fe21:67cf]:38024",
            "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
            0x4b61_e985,
            0x02d1_feef,
        ),
    ];

    fn octets(address: IpAddr) -> Vec<u8> {
        match address {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        }
    }

    fn input(source: SocketAddr, destination: SocketAddr) -> Vec<u8> {
        let ports = [source.port().to_be_bytes(), destination.port().to_be_bytes()].concat();
        [octets(source.ip()), octets(destination.ip()), ports].concat()
    }

    #[test]
    fn the_published_examples_have_their_hashes() {
        for (destination, source, addresses, with_ports) in VECTORS {
            let all = input(source.parse().unwrap(), destination.parse().unwrap());
            let (address, key) = (&all[..all.len() - 4], Key::MICROSOFT);
            assert_eq!(
                (key.hash(address), key.hash(&all)),
                (addresses, with_ports),
                "{source} {destination}"
            );
            assert_eq!(key.words().hash(address), addresses);
        }
    }

    #[test]
    fn a_symmetric_key_gives_both_directions_one_hash() {
        for (destination, source, ..) in VECTORS {
            let (source, destination) = (source.parse().unwrap(), destination.parse().unwrap());
            let (there, back) = (input(source, destination), input(destination, source));
            assert_eq!(Key::SYMMETRIC.hash(&there), Key::SYMMETRIC.hash(&back));
            assert_ne!(Key::MICROSOFT.hash(&there), Key::MICROSOFT.hash(&back));
        }
        assert!(
            Key::SYMMETRIC.to_string().starts_with("6d:5a:6d:5a:") && Key::SYMMETRIC.to_string().len() == 119
        );
    }

    #[test]
    fn words_give_the_hash_of_every_length() {
        let input: Vec<u8> = (0..INPUT_BYTES as u8).map(|i| i.wrapping_mul(37) ^ 0x5c).collect();
        for key in [Key::MICROSOFT, Key::SYMMETRIC] {
            let words = key.words();
            assert!((0..=INPUT_BYTES).all(|bytes| words.hash(&input[..bytes]) == key.hash(&input[..bytes])));
        }
    }
}
