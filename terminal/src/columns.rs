//! Tables as text.

use std::fmt::Write as _;

/// Columns as wide as their widest cell: the first `left` flush left but numbers, the others flush right.
pub fn aligned(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |c: usize| {
        rows.iter().filter_map(|row| row.get(c)).map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let mut line = String::new();
        for (c, cell) in row.iter().enumerate() {
            let pad = widths[c];
            let number = cell.bytes().next().is_some_and(|b| b.is_ascii_digit())
                && cell.bytes().all(|b| b.is_ascii_digit());
            let _ = if c < left && !number {
                write!(line, "{cell:<pad$}  ")
            } else {
                write!(line, "{cell:>pad$}  ")
            };
        }
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}
