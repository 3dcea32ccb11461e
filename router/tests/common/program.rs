//! XDP programs of two instructions, in place of a user's own.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::path::Path;

use libbpf_rs::libbpf_sys as sys;

/// A program that returns `value`; `frags`: it takes frames of several buffers.
pub fn returning(value: i32, frags: bool) -> OwnedFd {
    let instruction = |code: u8, imm: i32| {
        let mut bytes = [0u8; 8];
        bytes[0] = code;
        bytes[4..].copy_from_slice(&imm.to_ne_bytes());
        u64::from_ne_bytes(bytes)
    };
    // r0 = value; exit
    let code = [instruction(0xb7, value), instruction(0x95, 0)];
    let options = sys::bpf_prog_load_opts {
        sz: size_of::<sys::bpf_prog_load_opts>() as sys::size_t,
        prog_flags: if frags { sys::BPF_F_XDP_HAS_FRAGS } else { 0 },
        expected_attach_type: sys::BPF_XDP,
        ..Default::default()
    };
    // SAFETY: code, strings and options live through the call, which returns a new descriptor.
    unsafe {
        let fd = sys::bpf_prog_load(
            sys::BPF_PROG_TYPE_XDP,
            c"returns".as_ptr(),
            c"GPL".as_ptr(),
            code.as_ptr().cast(),
            code.len() as sys::size_t,
            (&raw const options).cast_mut(),
        );
        assert!(fd >= 0, "loading a program of two instructions");
        OwnedFd::from_raw_fd(fd)
    }
}

/// Pins a program.
pub fn pin(program: &impl AsFd, path: &Path) {
    let path = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
    // SAFETY: the path is a C string.
    assert_eq!(unsafe { sys::bpf_obj_pin(program.as_fd().as_raw_fd(), path.as_ptr()) }, 0);
}
