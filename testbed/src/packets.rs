//! Packets sent from and caught in namespaces: a tap that sees what the kernel sees, counted UDP streams, raw IP.

use crate::namespace::Namespace;
use crate::patience;
use crate::socket::{RawSocket, every_frame};
use rustix::net::{AddressFamily, Protocol, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Every frame the kernel of a namespace handles, in and out, on all its devices.
///
/// In a sink this is what arrived. In a node it is what XDP *passed*. A packet socket never sees a frame that XDP
/// redirects, neither where it came in nor where it leaves.
pub struct Tap {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Vec<u8>>>,
}

impl Tap {
    /// Starts listening; frames that come after this call returns are caught.
    pub fn open(namespace: &Namespace) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = namespace.spawn({
            let stop = stop.clone();
            move || {
                let socket = every_frame(SocketFlags::NONBLOCK).expect("a packet socket");
                // A quiet second of a fast stream must fit.
                let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20);
                ready.send(()).expect("the opener waits");
                let mut frames = Vec::new();
                let mut frame = vec![0u8; 65536];
                loop {
                    // Read the flag first: what arrived before the stop is still taken.
                    let last = stop.load(Ordering::Acquire);
                    while let Ok((length, _)) = rustix::net::recv(&socket, &mut frame[..], RecvFlags::empty())
                    {
                        frames.push(frame[..length].to_vec());
                    }
                    if last {
                        return frames;
                    }
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        });
        is_ready.recv().expect("the tap opens");
        Self { stop, thread }
    }

    /// All frames until now.
    pub fn close(self) -> Vec<Vec<u8>> {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the tap ends")
    }

    /// The frames that contain `marker`, e.g. a payload.
    pub fn close_with(self, marker: &[u8]) -> Vec<Vec<u8>> {
        let mut frames = self.close();
        frames.retain(|frame| frame.windows(marker.len()).any(|window| window == marker));
        frames
    }
}

/// A UDP port of a namespace that counts what it receives of a [`UdpStream`].
pub struct UdpSink {
    stop: Arc<AtomicBool>,
    received: Arc<AtomicU64>,
    thread: JoinHandle<Received>,
}

/// The packets that a [`UdpSink`] received.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Received {
    /// Packets of the stream.
    pub packets: u64,
    /// Of them those that had come before.
    pub twice: u64,
    /// Packets with other contents.
    pub wrong: u64,
}

/// Packets that a stream sends at once at most.
const BURST: u64 = 64;

/// Bytes of a stream's packets.
const STREAM_BYTES: usize = 64;

/// The contents of a stream's packet. All have the same checksum: one in 65,535 looks unfinished, and is passed to the kernel.
fn contents(number: u64) -> [u8; STREAM_BYTES] {
    let mut bytes = [0; STREAM_BYTES];
    for (at, chunk) in bytes.chunks_exact_mut(16).enumerate() {
        let word = number ^ (0x9e37_79b9_7f4a_7c15u64.wrapping_mul(at as u64));
        chunk[..8].copy_from_slice(&word.to_be_bytes());
        chunk[8..].copy_from_slice(&(!word).to_be_bytes());
    }
    bytes
}

impl UdpSink {
    /// Listens on `address`.
    pub fn open(namespace: &Namespace, address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let received = Arc::new(AtomicU64::new(0));
        let (ready, is_ready) = std::sync::mpsc::channel();
        let thread = namespace.spawn({
            let (stop, received) = (stop.clone(), received.clone());
            move || {
                let socket = UdpSocket::bind(address).expect("the sink's port");
                let _ = rustix::net::sockopt::set_socket_recv_buffer_size_force(&socket, 64 << 20);
                socket.set_read_timeout(Some(Duration::from_millis(50))).expect("a timeout");
                ready.send(()).expect("the opener waits");
                let mut bytes = [0u8; 2048];
                let (mut result, mut seen) = (Received::default(), std::collections::HashSet::new());
                loop {
                    match socket.recv(&mut bytes) {
                        Ok(len) => {
                            let number = bytes.first_chunk().map_or(0, |chunk| u64::from_be_bytes(*chunk));
                            if bytes[..len] != contents(number) {
                                result.wrong += 1;
                                continue;
                            }
                            result.packets += 1;
                            result.twice += u64::from(!seen.insert(number));
                            received.fetch_add(1, Ordering::Relaxed);
                        }
                        Err(_) if stop.load(Ordering::Acquire) => return result,
                        Err(_) => {}
                    }
                }
            }
        });
        is_ready.recv().expect("the sink opens");
        Self { stop, received, thread }
    }

    /// Packets received so far.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Takes what is still under way and returns how many packets came in all.
    pub fn close(self) -> u64 {
        self.close_checked().packets
    }

    /// Likewise, with what was wrong.
    pub fn close_checked(self) -> Received {
        std::thread::sleep(Duration::from_millis(200));
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the sink ends")
    }
}

/// A stream of UDP packets at a steady pace until stopped.
pub struct UdpStream {
    stop: Arc<AtomicBool>,
    sent: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl UdpStream {
    /// Starts sending `per_second` packets a second to `to`. If this machine is slower ([`patience`]), it sends as many times fewer, since
    /// queues overflow where the sender alone gets the processor.
    pub fn start(namespace: &Namespace, to: SocketAddr, per_second: u32) -> Self {
        let per_second = f64::from(per_second) / patience();
        let stop = Arc::new(AtomicBool::new(false));
        let sent = Arc::new(AtomicU64::new(0));
        let thread = namespace.spawn({
            let (stop, sent) = (stop.clone(), sent.clone());
            move || {
                let socket = udp_socket(to);
                let start = Instant::now();
                let mut number = 0u64;
                while !stop.load(Ordering::Acquire) {
                    let due = (start.elapsed().as_secs_f64() * per_second) as u64;
                    // A processor that was held up for seconds sends its late packets in portions that a device's queue holds.
                    let due = due.min(number + BURST);
                    while number < due {
                        socket.send_to(&contents(number), to).expect("the stream sends");
                        number += 1;
                        sent.store(number, Ordering::Relaxed);
                    }
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        });
        Self { stop, sent, thread }
    }

    /// Packets sent so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    /// Ends the stream and returns how many packets were sent in all.
    pub fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Release);
        self.thread.join().expect("the stream ends");
        self.sent.load(Ordering::Relaxed)
    }
}

fn udp_socket(to: SocketAddr) -> UdpSocket {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    UdpSocket::bind(any).expect("a socket")
}

/// Sends `count` UDP packets with this payload. Errors of the sender's own routing are an answer too: returned as text.
pub fn send_udp(from: &Namespace, to: SocketAddr, payload: &[u8], count: usize) -> Result<(), String> {
    from.enter(|| {
        let socket = udp_socket(to);
        for _ in 0..count {
            socket.send_to(payload, to).map_err(|error| error.to_string())?;
        }
        Ok(())
    })
}

/// Sends one whole IPv4 or IPv6 packet (from its IP header on) as it is. The kernel adds the frame's header only; for IPv4 it
/// also fills in checksum and length.
pub fn send_ip(from: &Namespace, packet: &[u8]) {
    from.enter(|| {
        const IPPROTO_RAW: u32 = 255;
        let protocol = NonZeroU32::new(IPPROTO_RAW).map(Protocol::from_raw);
        let (family, to) = if packet[0] >> 4 == 4 {
            let address: [u8; 4] = packet[16..20].try_into().expect("four bytes");
            (AddressFamily::INET, IpAddr::from(address))
        } else {
            let address: [u8; 16] = packet[24..40].try_into().expect("sixteen bytes");
            (AddressFamily::INET6, IpAddr::from(address))
        };
        let socket = rustix::net::socket(family, SocketType::RAW, protocol).expect("a raw socket");
        let to = SocketAddr::new(to, 0);
        rustix::net::sendto(&socket, packet, SendFlags::empty(), &to).expect("the packet is sent");
    });
}

/// Sends whole frames by a device of a namespace, with a pause after each fifty.
pub fn send_frames(from: &Namespace, device: &str, frames: &[Vec<u8>]) {
    let socket = RawSocket::sender(from, device);
    for (number, frame) in frames.iter().enumerate() {
        socket.send(frame);
        if number % 50 == 49 {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}
