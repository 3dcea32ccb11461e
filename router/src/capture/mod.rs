//! Packets that the XDP program copies, by verdict: its half is `capture.bpf.h`, the ring and pcap-ng are here.

pub mod pcapng;
pub mod ring;
