//! How the programs say what went wrong: each reason once, and that root is needed where that is it.

use std::{error::Error, io, process::ExitCode};

use crate::is_closed_pipe;

/// An error with its causes, in one line. A cause that the text has already is left out.
pub fn error_text(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let cause = cause.to_string();
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    let is_root = rustix::process::geteuid().is_root();
    if !is_root && error.chain().any(is_denied) && !text.contains("root") {
        text += "; it needs root: run as root";
    }
    text
}

/// A mistake of the command line that is found after parsing it.
pub fn usage(message: String) -> clap::Error {
    clap::Error::raw(clap::error::ErrorKind::ValueValidation, message + "\n")
}

/// The exit code of a command that ended so. Prints its error, if any, on stderr under the name of the `program`.
pub fn exit_code(program: &str, result: anyhow::Result<ExitCode>) -> ExitCode {
    match result {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) if error.is::<clap::Error>() => {
            eprint!("{error}");
            ExitCode::from(2)
        }
        Err(error) => {
            eprintln!("{program}: {}", error_text(&error));
            ExitCode::FAILURE
        }
    }
}

/// Whether the system has refused permission.
fn is_denied(cause: &(dyn Error + 'static)) -> bool {
    cause.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};

    #[test]
    fn a_reason_is_printed_once() {
        let missing = || anyhow!(io::Error::from_raw_os_error(2));
        let reported = missing().context("a: No such file or directory (os error 2) (looked for /a)");
        assert_eq!(error_text(&reported), "a: No such file or directory (os error 2) (looked for /a)");
        let untold = missing().context("cannot read a");
        assert_eq!(error_text(&untold), "cannot read a: No such file or directory (os error 2)");
        let both: anyhow::Result<()> = Err(missing()).context("inner").context("outer");
        assert_eq!(error_text(&both.unwrap_err()), "outer: inner: No such file or directory (os error 2)");
    }

    #[test]
    fn permission_is_recognised() {
        assert!(is_denied(&io::Error::from_raw_os_error(1)) && is_denied(&io::Error::from_raw_os_error(13)));
        assert!(!is_denied(&io::Error::from_raw_os_error(2)));
    }
}
