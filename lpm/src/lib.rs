//! Longest-prefix-match tables (first signatures follow).
