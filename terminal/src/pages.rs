//! Manual pages and shell completions, made from the one definition of a command line.

use anyhow::Context;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Parser};
use clap_complete::Shell;
use clap_mangen::Man;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;

/// The first argument by which packages ask a program for its pages; a folder follows.
const GENERATE: &str = "--generate";

/// Where each shell looks for completions below `share`, and what it calls the file of a program.
const SHELLS: [(Shell, &str, &str, &str); 3] = [
    (Shell::Bash, "bash-completion/completions", "", ""),
    (Shell::Fish, "fish/vendor_completions.d", "", ".fish"),
    (Shell::Zsh, "zsh/vendor-completions", "_", ""),
];

/// Parses the command line. For `PROGRAM --generate DIR` it writes manual pages and completions into DIR, laid out as `/usr/share`,
/// and ends the process. `programs` are subcommands that run another program, which has pages of its own.
pub fn parse<C: Parser>(programs: &[&str]) -> C {
    let mut words = std::env::args_os().skip(1);
    if words.next().is_some_and(|word| word == GENERATE) {
        let mut command = C::command();
        let (Some(folder), None) = (words.next(), words.next()) else {
            command.error(ErrorKind::WrongNumberOfValues, format!("{GENERATE}: expected one folder")).exit();
        };
        if let Err(error) = generate(command, programs, &folder) {
            eprintln!("{}: {}", C::command().get_name(), crate::error_text(&error));
            std::process::exit(1);
        }
        std::process::exit(0);
    }
    C::try_parse().unwrap_or_else(|error| {
        if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
            let mut command = C::command();
            let nested = nested(&command, word);
            if !nested.is_empty() {
                let text = format!("unrecognized subcommand '{word}'; did you mean {}?", nested.join(" or "));
                command.error(ErrorKind::InvalidSubcommand, text).exit();
            }
        }
        error.exit()
    })
}

/// The commands below a subcommand that have this name, as a user writes them.
fn nested(command: &Command, name: &str) -> Vec<String> {
    let of = |outer: &Command| {
        outer
            .find_subcommand(name)
            .map(|inner| format!("`{} {} {}`", command.get_name(), outer.get_name(), inner.get_name()))
    };
    command.get_subcommands().filter_map(of).collect()
}

/// Writes all pages and completions of one program.
fn generate(command: Command, programs: &[&str], folder: &OsStr) -> anyhow::Result<()> {
    let share = Path::new(folder);
    let name = command.get_name().to_owned();
    for (shell, place, before, after) in SHELLS {
        let mut text = Vec::new();
        clap_complete::generate(shell, &mut command.clone(), &name, &mut text);
        write(&share.join(place).join(format!("{before}{name}{after}")), &text)?;
    }
    let mut command = command.disable_help_subcommand(true);
    command.build();
    pages(&command, programs, &share.join("man/man8"))
}

/// A page for a command, and one for each of its subcommands.
fn pages(command: &Command, programs: &[&str], folder: &Path) -> anyhow::Result<()> {
    for subcommand in
        command.get_subcommands().filter(|sub| !sub.is_hide_set() && !programs.contains(&sub.get_name()))
    {
        pages(subcommand, &[], folder)?;
    }
    let version = env!("CARGO_PKG_VERSION");
    let page =
        Man::new(command.clone()).section("8").source(format!("trieline {version}")).manual("trieline");
    let mut text = Vec::new();
    page.render(&mut text)?;
    let name = command.get_display_name().unwrap_or(command.get_name());
    write(&folder.join(format!("{name}.8")), &text)
}

/// Writes a file and makes the folders above it.
fn write(path: &Path, text: &[u8]) -> anyhow::Result<()> {
    path.parent()
        .map_or(Ok(()), fs::create_dir_all)
        .and_then(|()| fs::write(path, text))
        .with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_is_found_below_its_object() {
        let of = |name: &'static str| Command::new(name);
        let node = of("node").subcommand(of("status")).subcommand(of("show"));
        let program = of("trieline").subcommand(node).subcommand(of("route").subcommand(of("show")));
        assert_eq!(nested(&program, "status"), ["`trieline node status`"]);
        assert_eq!(nested(&program, "show"), ["`trieline node show`", "`trieline route show`"]);
        assert!(nested(&program, "node").is_empty() && nested(&program, "stat").is_empty());
    }
}
