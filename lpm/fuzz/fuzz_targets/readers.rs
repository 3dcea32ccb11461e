//! Bytes as a file of readers' slots beside a sound image. A reader or writer that opens it gets an error or answers, and a file without
//! the magic is made again.
#![no_main]

mod shared;

use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;
use trieline_lpm::Table;
use trieline_lpm::io::shared::{SECTION, SharedImage, SharedReader};

const BYTES: usize = 1 << 17;

/// The image's path, and the two files as a writer left them.
fn files() -> &'static (PathBuf, Vec<u8>, Vec<u8>) {
    static FILES: OnceLock<(PathBuf, Vec<u8>, Vec<u8>)> = OnceLock::new();
    FILES.get_or_init(|| {
        let path = shared::file(b"").with_extension("image");
        let mut image = SharedImage::create(&path, BYTES, 1).expect("an image can be made");
        let prefix = "10.0.0.0/8".parse().expect("a prefix");
        Table::<u32>::create(&mut image, 0, [(prefix, 5)]).expect("it fits");
        drop(image);
        let read = |path: &PathBuf| std::fs::read(path).expect("a file of ours");
        (path.clone(), read(&path), read(&path.with_extension("image.readers")))
    })
}

fn run(data: &[u8]) -> Option<()> {
    let (path, image, slots) = files();
    let readers = path.with_extension("image.readers");
    let (mode, data) = data.split_first()?;
    let mut bytes = if mode & 1 == 0 { slots.clone() } else { vec![0; 2 * SECTION] };
    for part in data.chunks(4) {
        // Where in the header, or in the slots, and what.
        let [at, section, low, high] = [0, 1, 2, 3].map(|at| part.get(at).copied().unwrap_or(0));
        let at = usize::from(at) + if section & 1 == 0 { 0 } else { SECTION };
        bytes[at] = low ^ bytes[at] & high;
    }
    if mode & 2 != 0 {
        bytes.truncate(data.len() * 64);
    }
    std::fs::write(path, image).expect("a file of ours");
    std::fs::write(&readers, &bytes).expect("a file of ours");
    if let Ok(mut reader) = SharedReader::open(path) {
        assert_eq!(reader.pin().lookup4(0, 0x0a00_0001), Some(5));
    }
    if let Ok(mut image) = SharedImage::open(path) {
        image.set_patience(Duration::ZERO);
        if let Ok(mut table) = Table::<u32>::create(&mut image, 0, []) {
            let prefix = "10.1.0.0/16".parse().expect("a prefix");
            let _ = table.insert(&mut image, prefix, 6);
        }
        image.synchronize();
    }
    std::fs::write(&readers, &bytes).expect("a file of ours");
    let made = SharedImage::create(path, BYTES, 1);
    let has_magic = bytes.iter().take(4).any(|byte| *byte != 0);
    assert!(has_magic || made.is_ok(), "{made:?}");
    drop(made);
    Some(())
}

fuzz_target!(|data: &[u8]| {
    let _ = run(data);
});
