//! The error of a call from C: a negative errno, and a sentence in the caller's memory.

use std::any::Any;
use std::ffi::{c_char, c_int};
use std::panic::{AssertUnwindSafe, catch_unwind};

use trieline_lpm::io::ImportError;

/// Result inside this library.
pub type Result<T> = std::result::Result<T, Error>;

/// The error of a failed call.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An error of the tables, their map or their pin.
    #[error(transparent)]
    Tables(#[from] trieline_bpf::Error),
    /// A file of prefixes.
    #[error(transparent)]
    File(#[from] ImportError),
    /// Of two tables that were to be replaced, the second could not be.
    #[error("table {ipv4} has the new IPv4 list, table {ipv6} keeps its old IPv6 list: {error}")]
    Half {
        /// The table that is new.
        ipv4: u32,
        /// The one that is not.
        ipv6: u32,
        /// The IPv6 table's error.
        error: Box<Error>,
    },
    /// Something else than what the header asks for.
    #[error("{0}")]
    Argument(String),
    /// The table does not exist.
    #[error("{0}")]
    NoTable(String),
    /// There is one already.
    #[error("{0}")]
    Exists(String),
    /// A mistake of this library.
    #[error("a mistake inside libtrieline: {0}")]
    Bug(String),
}

impl From<trieline_lpm::Error> for Error {
    fn from(error: trieline_lpm::Error) -> Self {
        Error::Tables(error.into())
    }
}

impl Error {
    /// An argument that is a null pointer.
    pub fn null(what: &str) -> Self {
        Error::Argument(format!("`{what}` is NULL; expected a pointer"))
    }

    fn code(&self) -> c_int {
        use trieline_bpf::Error as Bpf;
        use trieline_lpm::Error as Image;
        match self {
            Error::Tables(error) => match error {
                Bpf::Permission { .. } => libc::EPERM,
                Bpf::Kernel { source, .. } => source.raw_os_error().unwrap_or(libc::EIO),
                Bpf::InUse { .. } => libc::EBUSY,
                Bpf::NotPinned { .. } => libc::ENOENT,
                Bpf::PinExists { .. } => libc::EEXIST,
                Bpf::Pinned { .. } => libc::EBADMSG,
                Bpf::NoMapType { .. } => libc::EOPNOTSUPP,
                Bpf::Full { .. } | Bpf::Image(Image::Full { .. }) => libc::ENOSPC,
                Bpf::Image(Image::NoSuchTable { .. }) => libc::ENOENT,
                Bpf::Image(Image::NotAnImage { .. } | Image::Version { .. } | Image::Damaged { .. }) => {
                    libc::EBADMSG
                }
                _ => libc::EINVAL,
            },
            Error::File(ImportError::Io { source, .. }) => source.raw_os_error().unwrap_or(libc::EIO),
            Error::File(_) => libc::EBADMSG,
            Error::Half { error, .. } => error.code(),
            Error::Argument(_) => libc::EINVAL,
            Error::NoTable(_) => libc::ENOENT,
            Error::Exists(_) => libc::EEXIST,
            Error::Bug(_) => libc::ENOTRECOVERABLE,
        }
    }
}

/// Bytes of a text with the zero at its end.
const TEXT: usize = 1020;

/// `struct trieline_error`.
#[repr(C)]
pub struct CError {
    code: c_int,
    text: [c_char; TEXT],
}

impl CError {
    fn tell(&mut self, code: c_int, text: &str) {
        self.code = code;
        // A zero would end the text early; half a character at the end would be no text.
        let mut end = text.find('\0').unwrap_or(text.len()).min(TEXT - 1);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        self.text.iter_mut().zip(text.as_bytes()[..end].iter()).for_each(|(to, from)| *to = *from as c_char);
        self.text[end] = 0;
    }
}

/// Does `work`; a failure, also a panic, becomes a text in `to` and a negative errno.
///
/// # Safety
///
/// `to` is null or a `struct trieline_error` that no other thread uses meanwhile.
pub unsafe fn answer<T>(to: *mut CError, work: impl FnOnce() -> Result<T>) -> std::result::Result<T, c_int> {
    // State that a panic left half done is behind the handle's lock, which is poisoned then.
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(Error::Bug(said(&*panic))));
    // SAFETY: the caller promises it.
    let to = unsafe { to.as_mut() };
    match result {
        Ok(value) => {
            if let Some(to) = to {
                to.tell(0, "");
            }
            Ok(value)
        }
        Err(error) => {
            let code = -error.code();
            if let Some(to) = to {
                to.tell(code, &error.to_string());
            }
            Err(code)
        }
    }
}

/// [`answer`] for calls that return a number.
///
/// # Safety
///
/// As for [`answer`].
pub unsafe fn number(to: *mut CError, work: impl FnOnce() -> Result<c_int>) -> c_int {
    // SAFETY: the caller promises it.
    unsafe { answer(to, work) }.unwrap_or_else(|code| code)
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::CStr;

    fn text(error: &CError) -> &str {
        // SAFETY: `tell` ends every text.
        unsafe { CStr::from_ptr(error.text.as_ptr()) }.to_str().unwrap()
    }

    #[test]
    fn failures_and_panics_become_texts() {
        let mut error = CError { code: 7, text: [1; TEXT] };
        // SAFETY: our own struct.
        let code = unsafe { number(&mut error, || Err(Error::null("key"))) };
        assert_eq!((code, error.code), (-libc::EINVAL, -libc::EINVAL));
        assert_eq!(text(&error), "`key` is NULL; expected a pointer");
        // SAFETY: as above.
        let code = unsafe { number(&mut error, || panic!("on purpose")) };
        assert_eq!(
            (code, text(&error)),
            (-libc::ENOTRECOVERABLE, "a mistake inside libtrieline: on purpose")
        );
        // SAFETY: as above; null is allowed.
        assert_eq!(unsafe { number(std::ptr::null_mut(), || panic!("on purpose")) }, -libc::ENOTRECOVERABLE);
        // SAFETY: as above.
        assert_eq!(unsafe { number(&mut error, || Ok(3)) }, 3);
        assert_eq!((error.code, text(&error)), (0, ""));
        error.tell(-1, &"ö".repeat(TEXT));
        assert_eq!(text(&error).len(), TEXT - 2);
    }
}
