//! The daemon as a program of its own. Packages have one program, which is the daemon where it is called `trielined`.

mod config;
mod daemon;
mod log;

fn main() -> std::process::ExitCode {
    daemon::main()
}
