//! The Internet's shape in numbers, taken from the bart test table (901,899 IPv4 and 160,147 IPv6 prefixes of a full table).

/// The shape of a generated table.
pub struct Shape {
    /// Prefix length and how many of it the measured table has.
    pub(super) histogram: &'static [(u16, u32)],
    /// From this length on, this share lies inside a shorter prefix.
    pub(super) nested: &'static [(u16, f64)],
    /// Weights of groups of 1, 2, 4, 8 … aligned neighbours.
    pub(super) groups: &'static [f64],
    /// How often a group goes to a prefix that already has one.
    pub(super) popular: f64,
    /// Space that is in use: address, length, weight.
    pub(super) regions: &'static [(u128, u16, f64)],
    /// Regions consist of blocks of this length …
    pub(super) block: u16,
    /// … and those of 2^`sub_bits` parts.
    pub(super) sub_bits: u16,
    /// Standard deviation of the logarithm of a block's weight.
    pub(super) block_spread: f64,
    /// Likewise of a part's.
    pub(super) spread: f64,
    /// Share of the space announced in large pieces: there prefixes up to a part's length go, elsewhere the longer ones.
    pub(super) whole: f64,
    /// Share of the other parts without any prefix.
    pub(super) empty: f64,
    /// A group outside any prefix shares so many bits with an earlier one, so often.
    pub(super) near: (u16, f64),
    /// Never announced: special-purpose space, and the documentation prefixes that the lab itself uses.
    pub(super) reserved: &'static [(u128, u16)],
}

impl Shape {
    pub(super) fn nested(&self, len: u16) -> f64 {
        self.nested.iter().rev().find(|(from, _)| len >= *from).map_or(0.0, |(_, share)| *share)
    }

    /// `count` split over the lengths as in the histogram (largest remainders), no length filling more than a quarter of its space.
    pub(super) fn counts(&self, count: usize) -> Vec<(u16, usize)> {
        let total: u64 = self.histogram.iter().map(|(_, n)| u64::from(*n)).sum();
        let exact = |n: u32| u128::from(n) * count as u128;
        let mut counts: Vec<(u16, usize)> =
            self.histogram.iter().map(|(len, n)| (*len, (exact(*n) / u128::from(total)) as usize)).collect();
        let mut by_remainder: Vec<usize> = (0..counts.len()).collect();
        by_remainder.sort_by_key(|&i| std::cmp::Reverse(exact(self.histogram[i].1) % u128::from(total)));
        let missing = count - counts.iter().map(|(_, n)| n).sum::<usize>();
        for &i in by_remainder.iter().take(missing) {
            counts[i].1 += 1;
        }
        let mut over = 0;
        for (len, number) in &mut counts {
            *number += over;
            let space: f64 =
                self.regions.iter().map(|(_, bits, _)| 2f64.powi(i32::from(*len) - i32::from(*bits))).sum();
            let room = (space / 4.0).min(1e12) as usize;
            over = number.saturating_sub(room);
            *number -= over;
        }
        if let Some((_, number)) = counts.last_mut() {
            *number += over;
        }
        counts
    }
}

const fn v4(a: u16, b: u16, c: u16) -> u128 {
    (a as u128) << 120 | (b as u128) << 112 | (c as u128) << 104
}

const fn v6(a: u16, b: u16) -> u128 {
    (a as u128) << 112 | (b as u128) << 96
}

/// IPv4. /25 and longer (75 in the measured table, 886 hosts) keep their place.
pub static INTERNET4: Shape = Shape {
    histogram: &[
        (8, 16),
        (9, 13),
        (10, 38),
        (11, 103),
        (12, 299),
        (13, 581),
        (14, 1203),
        (15, 2100),
        (16, 13490),
        (17, 8235),
        (18, 13798),
        (19, 24870),
        (20, 42611),
        (21, 50750),
        (22, 108_623),
        (23, 96510),
        (24, 537_698),
        (25, 20),
        (26, 3),
        (27, 11),
        (28, 18),
        (29, 17),
        (30, 3),
        (31, 3),
        (32, 886),
    ],
    nested: &[
        (8, 0.0),
        (11, 0.04),
        (12, 0.10),
        (13, 0.16),
        (15, 0.22),
        (16, 0.24),
        (17, 0.46),
        (18, 0.50),
        (19, 0.39),
        (20, 0.54),
        (22, 0.45),
        (23, 0.57),
        (24, 0.51),
        (25, 0.90),
        (32, 0.99),
    ],
    groups: &[0.27, 0.115, 0.05, 0.016, 0.0044, 0.0014, 0.0005, 0.000_12, 0.000_04],
    popular: 0.5,
    regions: &[(v4(0, 0, 0), 1, 1.0), (v4(128, 0, 0), 2, 1.0), (v4(192, 0, 0), 3, 1.3)],
    block: 8,
    sub_bits: 8,
    block_spread: 1.0,
    spread: 1.0,
    whole: 0.62,
    empty: 0.1,
    near: (16, 0.2),
    reserved: &[
        (v4(0, 0, 0), 8),
        (v4(10, 0, 0), 8),
        (v4(100, 64, 0), 10),
        (v4(127, 0, 0), 8),
        (v4(169, 254, 0), 16),
        (v4(172, 16, 0), 12),
        (v4(192, 0, 0), 24),
        (v4(192, 0, 2), 24),
        (v4(192, 168, 0), 16),
        (v4(198, 18, 0), 15),
        (v4(198, 51, 100), 24),
        (v4(203, 0, 113), 24),
    ],
};

/// IPv6. The table's 83 prefixes longer than /64 are one /112, one /122 and so on; they are kept in proportion.
pub static INTERNET6: Shape = Shape {
    histogram: &[
        (16, 1),
        (19, 1),
        (20, 16),
        (21, 3),
        (22, 7),
        (23, 8),
        (24, 30),
        (25, 8),
        (26, 15),
        (27, 20),
        (28, 193),
        (29, 4371),
        (30, 650),
        (31, 284),
        (32, 22548),
        (33, 2926),
        (34, 2603),
        (35, 1043),
        (36, 5996),
        (37, 880),
        (38, 1617),
        (39, 1377),
        (40, 13418),
        (41, 903),
        (42, 2301),
        (43, 1001),
        (44, 14365),
        (45, 1553),
        (46, 3039),
        (47, 3153),
        (48, 75488),
        (49, 11),
        (50, 3),
        (52, 1),
        (55, 1),
        (56, 24),
        (58, 20),
        (60, 2),
        (64, 184),
        (112, 2),
        (122, 1),
        (124, 4),
        (125, 9),
        (126, 19),
        (127, 42),
        (128, 6),
    ],
    nested: &[
        (16, 0.0),
        (28, 0.4),
        (29, 0.01),
        (30, 0.45),
        (32, 0.25),
        (33, 0.80),
        (34, 0.72),
        (35, 0.62),
        (36, 0.57),
        (37, 0.75),
        (38, 0.52),
        (39, 0.80),
        (40, 0.76),
        (41, 0.53),
        (42, 0.80),
        (43, 0.43),
        (44, 0.72),
        (45, 0.82),
        (46, 0.53),
        (47, 0.79),
        (48, 0.59),
        (49, 0.97),
    ],
    groups: &[0.39, 0.10, 0.032, 0.012, 0.0047, 0.0016, 0.0005, 0.000_15, 0.000_05],
    popular: 0.85,
    // 2001::/16, 2003::/19 and the registries' /12 blocks.
    regions: &[
        (v6(0x2001, 0), 16, 12.0),
        (v6(0x2003, 0), 16, 0.2),
        (v6(0x2400, 0), 12, 1.6),
        (v6(0x2600, 0), 12, 1.3),
        (v6(0x2800, 0), 12, 0.8),
        (v6(0x2a00, 0), 12, 1.7),
        (v6(0x2c00, 0), 12, 0.2),
    ],
    block: 16,
    sub_bits: 4,
    block_spread: 1.0,
    spread: 1.0,
    whole: 0.0,
    empty: 0.5,
    near: (32, 0.8),
    reserved: &[(v6(0x2001, 0), 23), (v6(0x2001, 0xdb8), 32), (v6(0x2002, 0), 16)],
};
