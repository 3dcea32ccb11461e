//! Bytes as a message of the kernel's, given to one of the decoders, which the first byte names: decoded or refused, and twice the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trieline_router::decoders;

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    let reported = decoders::decode(*which, bytes);
    assert_eq!(reported, decoders::decode(*which, bytes));
    // A decoder keeps no more than a small multiple of what it was given.
    assert!(reported.len() <= 4096 + 64 * data.len(), "{} bytes said of {}", reported.len(), data.len());
    let ends: usize = decoders::datagram(bytes).iter().map(|(_, len)| len).sum();
    assert!(ends <= bytes.len());
});
