//! The receivers of `livelock`, and where the kernel's part of each runs.

use serde::{Deserialize, Serialize};

/// A receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Receiver {
    /// Blocking UDP reader; NAPI as it is.
    Udp,
    /// Blocking UDP reader; threaded NAPI on its CPU.
    UdpThreaded,
    /// Blocking UDP reader; RPS to its CPU: an interrupt of the other CPU, then softirq.
    UdpRps,
    /// UDP reader with SO_BUSY_POLL: it polls the device itself; NAPI as it is.
    UdpBusyPoll,
    /// AF_XDP reader that polls until the ring is empty, then sleeps in poll(); threaded NAPI on its CPU.
    XskAdaptive,
    /// AF_XDP reader that never sleeps; threaded NAPI on its CPU.
    XskPolling,
    /// As `xsk-adaptive`; NAPI as it is.
    XskAdaptiveSoftirq,
}

/// Where the kernel polls the receiving device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Napi {
    /// In softirq of the CPU that sent the frames, as a veth does by itself.
    Softirq,
    /// In a thread on the reader's CPU.
    Threaded,
    /// In softirq of the sender's CPU as far as RPS, and from there on in softirq of the reader's.
    Rps,
}

impl Receiver {
    /// All of them.
    pub const ALL: [Receiver; 7] = [
        Receiver::Udp,
        Receiver::UdpThreaded,
        Receiver::UdpRps,
        Receiver::UdpBusyPoll,
        Receiver::XskAdaptive,
        Receiver::XskPolling,
        Receiver::XskAdaptiveSoftirq,
    ];

    /// Its name in results.
    pub fn name(self) -> &'static str {
        match self {
            Receiver::Udp => "udp",
            Receiver::UdpThreaded => "udp-threaded",
            Receiver::UdpRps => "udp-rps",
            Receiver::UdpBusyPoll => "udp-busy-poll",
            Receiver::XskAdaptive => "xsk-adaptive",
            Receiver::XskPolling => "xsk-polling",
            Receiver::XskAdaptiveSoftirq => "xsk-adaptive-softirq",
        }
    }

    /// Where the kernel's part runs.
    pub fn napi(self) -> Napi {
        match self {
            Receiver::Udp | Receiver::UdpBusyPoll | Receiver::XskAdaptiveSoftirq => Napi::Softirq,
            Receiver::UdpThreaded | Receiver::XskAdaptive | Receiver::XskPolling => Napi::Threaded,
            Receiver::UdpRps => Napi::Rps,
        }
    }

    /// Whether it reads by AF_XDP.
    pub fn is_xsk(self) -> bool {
        matches!(self, Receiver::XskAdaptive | Receiver::XskPolling | Receiver::XskAdaptiveSoftirq)
    }
}
