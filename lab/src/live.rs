//! `BPF_PROG_TEST_RUN` with live frames: the program's `XDP_TX` sends out of a device.

use std::os::fd::{AsFd, AsRawFd};

use libbpf_rs::libbpf_sys::{bpf_prog_test_run_opts, bpf_test_run_opts};

/// How many frames the kernel sends at once if the caller does not say so.
pub(crate) const BATCH: u32 = 64;
const LIVE_FRAMES: u32 = 1 << 1; // BPF_F_TEST_XDP_LIVE_FRAMES

/// Calls the program `repeat` times, each on a frame that began as `frame`, in the calling thread's network namespace. Frames that it sends leave
/// by the device with index `out`, `batch` at once. A signal ends it with `Interrupted`.
pub(crate) fn run(
    program: impl AsFd,
    out: u32,
    frame: &[u8],
    repeat: u32,
    batch: u32,
) -> std::io::Result<()> {
    // `struct xdp_md`: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex.
    let context: [u32; 6] = [0, frame.len() as u32, 0, out, 0, 0];
    let mut options = bpf_test_run_opts {
        sz: size_of::<bpf_test_run_opts>() as u64,
        ctx_in: context.as_ptr().cast(),
        ctx_size_in: size_of_val(&context) as u32,
        data_in: frame.as_ptr().cast(),
        data_size_in: frame.len() as u32,
        repeat: repeat as i32,
        flags: LIVE_FRAMES,
        batch_size: batch,
        ..Default::default()
    };
    // SAFETY: the frame and the context live until the call returns, and the kernel reads no more than the given sizes.
    let code = unsafe { bpf_prog_test_run_opts(program.as_fd().as_raw_fd(), &raw mut options) };
    if code < 0 { Err(std::io::Error::from_raw_os_error(-code)) } else { Ok(()) }
}
