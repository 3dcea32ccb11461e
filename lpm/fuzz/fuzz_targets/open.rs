//! Bytes as damage done to an image that a new writer then opens. It is refused, or the writer's own table is right and all others
//! stay as they were.
#![no_main]

#[path = "../../tests/common/hostile.rs"]
mod hostile;
mod shared;

use libfuzzer_sys::fuzz_target;
use shared::{Input, sample};

thread_local! {
    static SOUND: Vec<u32> = hostile::sound();
}

fn run(mut input: Input<'_>) -> Option<()> {
    let seed = u64::from(input.short()?);
    let mut words = SOUND.with(Clone::clone);
    let used: Vec<usize> = (0..words.len()).filter(|at| words[*at] != 0).collect();
    while let (Some(how), Some(at), Some(low), Some(high)) =
        (input.byte(), input.short(), input.short(), input.short())
    {
        let at = match how & 0x80 {
            0 => used[usize::from(at) * used.len() >> 16],
            _ => usize::from(at) % 64, // header and directory
        };
        words[at] = match how % 4 {
            0 => words[at] ^ 1 << (low % 32),
            1 => words[used[usize::from(low) * used.len() >> 16]],
            2 => words[at] & 0xe000_0000 | u32::from(high) << 13 | u32::from(low),
            _ => u32::from(high) << 16 | u32::from(low),
        };
    }
    hostile::write_any(&words, seed);
    Some(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(Input(data));
});
