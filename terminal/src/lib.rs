//! How the commands `trieline`, `trieline-trace` and `trieline-lab` print: text or JSON, progress, errors, columns; their manual
//! pages; and how `trieline` runs the other two.

mod columns;
mod error_report;
mod output;
mod pages;
mod program;
mod progress;

pub use columns::aligned;
pub use error_report::{error_text, exit_code, usage};
pub use output::{List, Output, is_closed_pipe};
pub use pages::parse;
pub use program::run_program;
pub use progress::{Bars, Pieces, Progress, Quiet, interrupt_flag, rough};

/// Moves the cursor home and clears the screen.
pub const CLEAR: &str = "\x1b[H\x1b[J";

/// Heading of the options that every command of a program has.
pub const GLOBAL_OPTIONS: &str = "Global options";
