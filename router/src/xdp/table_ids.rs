//! The image of the node, and the numbers of its tables.

use crate::xdp::layout::tl_limits;
use trieline_bpf::{ImageMemory, ReaderGrace};
use trieline_lpm::Image;

/// Table of local and main together, IPv4.
pub const TABLE4: u32 = tl_limits::TL_MAIN4.0;
/// Table of local and main together, IPv6.
pub const TABLE6: u32 = tl_limits::TL_MAIN6.0;
/// Tables of filters' sets: of each filter one a family, and as many again while they are replaced.
pub const FILTER_TABLES: std::ops::Range<u32> = 2..2 + 4 * tl_limits::TL_FILTERS.0;
/// Table that keeps room for another where the image is full.
pub const RESERVE_TABLE: u32 = FILTER_TABLES.end;
/// Tables of routes other than local and main.
pub const OTHER_TABLES: std::ops::RangeFrom<u32> = RESERVE_TABLE + 1..;

/// The dataplane's image.
pub type NodeImage = Image<ImageMemory, ReaderGrace>;
