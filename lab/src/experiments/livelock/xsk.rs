//! An AF_XDP socket that only receives, in copy mode: its memory, its rings, and the frames in them.
//!
//! A small reader of its own, since no kept crate builds here: `xsk-rs` needs libxdp's sources and m4, and libbpf 1.0 dropped its
//! `xsk.h`. The layout is that of the kernel's Documentation/networking/af_xdp.rst.

#![warn(clippy::arithmetic_side_effects, reason = "sizes and offsets decide what is read and written")]

use std::{
    ffi::c_void,
    io,
    os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd},
    ptr::{self, NonNull},
    slice,
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use crate::error::{During, Result};

/// Frames of the memory, and entries of each ring; a power of two.
pub const FRAMES: u32 = 4096;
/// Bytes of a frame's room.
const ROOM: u32 = 2048;

/// How long a queue may be in use by a socket that was closed.
const PATIENCE: Duration = Duration::from_secs(2);

/// A mapping that goes with its value.
struct Mapped {
    start: NonNull<c_void>,
    bytes: usize,
}

impl Mapped {
    /// Anonymous memory, or the file's at `offset`.
    fn new(bytes: usize, file: Option<(RawFd, i64)>) -> io::Result<Mapped> {
        let (flags, fd, offset) = match file {
            Some((fd, offset)) => (libc::MAP_SHARED | libc::MAP_POPULATE, fd, offset),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        };
        // SAFETY: the kernel chooses the place, so no memory of ours is replaced; the result is looked at before use.
        let start = unsafe {
            libc::mmap(ptr::null_mut(), bytes, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start).ok_or(io::ErrorKind::AddrNotAvailable)?;
        Ok(Mapped { start, bytes })
    }

    /// The address of a `T` at an offset; an error where it does not lie inside, or is not aligned.
    fn at<T>(&self, offset: u64, count: u32) -> io::Result<NonNull<T>> {
        let offset = usize::try_from(offset).map_err(|_| io::ErrorKind::InvalidData)?;
        let bytes = (count as usize).checked_mul(size_of::<T>());
        let end = bytes.and_then(|bytes| offset.checked_add(bytes));
        let is_inside = end.is_some_and(|end| end <= self.bytes) && offset.is_multiple_of(align_of::<T>());
        if !is_inside {
            return Err(io::ErrorKind::InvalidData.into());
        }
        // SAFETY: the mapping has `bytes` bytes, and `offset` is at most as large.
        Ok(unsafe { self.start.byte_add(offset) }.cast())
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this size, and nothing that borrows from it outlives this value.
        unsafe { libc::munmap(self.start.as_ptr(), self.bytes) };
    }
}

/// A ring that the kernel and this thread share: one writes the producer's index, the other the consumer's.
struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    entries: NonNull<T>,
    _mapped: Mapped,
}

impl<T: Copy> Ring<T> {
    fn map(socket: &OwnedFd, offsets: libc::xdp_ring_offset, page: libc::off_t) -> io::Result<Ring<T>> {
        let entries = (FRAMES as usize).checked_mul(size_of::<T>());
        let bytes = usize::try_from(offsets.desc).ok().and_then(|start| start.checked_add(entries?));
        let bytes = bytes.ok_or(io::ErrorKind::InvalidData)?;
        let mapped = Mapped::new(bytes, Some((socket.as_raw_fd(), page)))?;
        Ok(Ring {
            producer: mapped.at(offsets.producer, 1)?,
            consumer: mapped.at(offsets.consumer, 1)?,
            entries: mapped.at(offsets.desc, FRAMES)?,
            _mapped: mapped,
        })
    }

    fn producer(&self) -> &AtomicU32 {
        // SAFETY: inside the mapping, aligned (`Mapped::at`), and mapped as long as this value lives. The kernel changes it too,
        // atomically.
        unsafe { self.producer.as_ref() }
    }

    fn consumer(&self) -> &AtomicU32 {
        // SAFETY: as for the producer.
        unsafe { self.consumer.as_ref() }
    }

    /// The place of the entry with a running number.
    fn entry(&self, number: u32) -> *mut T {
        let place = number & FRAMES.wrapping_sub(1);
        // SAFETY: the mapping holds FRAMES entries (`Mapped::at`), and `place` is below that.
        unsafe { self.entries.as_ptr().add(place as usize) }
    }
}

/// The socket, bound to queue 0 of a device.
pub struct Socket {
    fd: OwnedFd,
    received: Ring<libc::xdp_desc>,
    free: Ring<u64>,
    memory: Mapped,
    /// The kernel wants this ring too, even of a socket that never sends.
    _sent: Ring<u64>,
}

impl Socket {
    /// Makes and binds one in the namespace of the calling thread. All frames of its memory are the kernel's to fill.
    pub fn bind(device: u32) -> Result<Socket> {
        let began = Instant::now();
        loop {
            match Self::bind_here(device) {
                // The kernel frees the queue of a closed socket some time after the close.
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy && began.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                done => return done.during(|| "cannot open an AF_XDP socket".into()),
            }
        }
    }

    fn bind_here(device: u32) -> io::Result<Socket> {
        // SAFETY: a call without pointers.
        let fd = unsafe { libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just opened, and owned by nothing else.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let bytes = (FRAMES as usize).saturating_mul(ROOM as usize);
        let memory = Mapped::new(bytes, None)?;
        let register = libc::xdp_umem_reg {
            addr: memory.start.as_ptr() as u64,
            len: bytes as u64,
            chunk_size: ROOM,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set(&fd, libc::XDP_UMEM_REG, &register)?;
        for ring in [libc::XDP_UMEM_FILL_RING, libc::XDP_UMEM_COMPLETION_RING, libc::XDP_RX_RING] {
            set(&fd, ring, &FRAMES)?;
        }
        let offsets = offsets(&fd)?;
        let received = Ring::map(&fd, offsets.rx, libc::XDP_PGOFF_RX_RING)?;
        let free = Ring::map(&fd, offsets.fr, libc::XDP_UMEM_PGOFF_FILL_RING as libc::off_t)?;
        let sent = Ring::map(&fd, offsets.cr, libc::XDP_UMEM_PGOFF_COMPLETION_RING as libc::off_t)?;
        let socket = Socket { fd, received, free, memory, _sent: sent };
        for number in 0..FRAMES {
            socket.give_back(number, u64::from(number).saturating_mul(u64::from(ROOM)));
        }
        socket.free.producer().store(FRAMES, Ordering::Release);
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY,
            sxdp_ifindex: device,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        // SAFETY: the address is of the size that is said, and lives through the call.
        let done = unsafe {
            libc::bind(
                socket.fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_xdp>() as libc::socklen_t,
            )
        };
        if done == 0 { Ok(socket) } else { Err(io::Error::last_os_error()) }
    }

    /// The number by which a map names it.
    pub fn number(&self) -> u32 {
        self.fd.as_raw_fd() as u32
    }

    /// Gives up to `most` frames to `look`, in their order, and returns how many there were. Their memory is the kernel's
    /// again afterwards.
    pub fn receive(&mut self, most: u32, mut look: impl FnMut(&[u8])) -> u32 {
        let next = self.received.consumer().load(Ordering::Relaxed);
        let ready = self.received.producer().load(Ordering::Acquire).wrapping_sub(next);
        let count = ready.min(most);
        let back = self.free.producer().load(Ordering::Relaxed);
        for number in 0..count {
            // SAFETY: the kernel wrote this entry before it moved the producer's index, and does not write it again before the
            // consumer's has passed it.
            let frame = unsafe { self.received.entry(next.wrapping_add(number)).read() };
            if let Ok(start) = self.memory.at::<u8>(frame.addr, frame.len) {
                // SAFETY: inside the memory (`Mapped::at`), and the kernel does not write a frame that it handed out until
                // it comes back by the fill ring.
                look(unsafe { slice::from_raw_parts(start.as_ptr(), frame.len as usize) });
            }
            // The kernel rounds what comes back down to the frame's start.
            self.give_back(back.wrapping_add(number), frame.addr);
        }
        // As many frames are under way at most as the fill ring has room for.
        self.free.producer().store(back.wrapping_add(count), Ordering::Release);
        self.received.consumer().store(next.wrapping_add(count), Ordering::Release);
        count
    }

    /// Writes a frame's address into the fill ring, not yet seen by the kernel.
    fn give_back(&self, number: u32, address: u64) {
        // SAFETY: the kernel reads this entry only when the producer's index has passed it, and all FRAMES addresses have room.
        unsafe { self.free.entry(number).write(address) };
    }
}

impl std::os::fd::AsFd for Socket {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Sets an option of an AF_XDP socket.
fn set<T: Copy>(socket: &OwnedFd, option: i32, value: &T) -> io::Result<()> {
    // SAFETY: `value` is of the size that is said, and lives through the call.
    let done = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            option,
            ptr::from_ref(value).cast(),
            size_of::<T>() as libc::socklen_t,
        )
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where the parts of each ring lie in its mapping.
fn offsets(socket: &OwnedFd) -> io::Result<libc::xdp_mmap_offsets> {
    // SAFETY: numbers alone, for which zero is a value.
    let mut offsets: libc::xdp_mmap_offsets = unsafe { std::mem::zeroed() };
    let mut size = size_of::<libc::xdp_mmap_offsets>() as libc::socklen_t;
    // SAFETY: the kernel writes at most `size` bytes, which `offsets` has.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_XDP,
            libc::XDP_MMAP_OFFSETS,
            (&raw mut offsets).cast(),
            &raw mut size,
        )
    };
    match done {
        // Kernels before 5.4 answer with less.
        0 if size as usize == size_of::<libc::xdp_mmap_offsets>() => Ok(offsets),
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
