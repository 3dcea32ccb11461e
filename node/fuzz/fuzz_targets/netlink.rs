//! Bytes as a message of the kernel's, given to one of the decoders, which the first byte names: decoded or refused, and twice the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use trieline_node::kernel::every;

fuzz_target!(|data: &[u8]| {
    let Some((which, bytes)) = data.split_first() else { return };
    let said = every::decode(*which, bytes);
    assert_eq!(said, every::decode(*which, bytes));
    // A decoder keeps no more than a small multiple of what it was given.
    assert!(said.len() <= 4096 + 64 * data.len(), "{} bytes said of {}", said.len(), data.len());
    let ends: usize = every::datagram(bytes).iter().map(|(_, len)| len).sum();
    assert!(ends <= bytes.len());
});
