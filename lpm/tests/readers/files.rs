//! The files of a shared image: who may have them, and what happens when they are not what they should be.

use crate::stress::Random;
use std::fs::{self, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use trieline_lpm::io::shared::{
    ProcessEpochs, Registration, SECTION, SLOTS, SharedError, SharedImage, SharedReader,
};
use trieline_lpm::{Error, Grace, HeapMemory, Image, NoReaders, Table};

const BYTES: usize = 1 << 17;

/// An image of one prefix, 10.0.0.0/8 with value 5, that is not open.
fn image(directory: &Path) -> PathBuf {
    let path = directory.join("image");
    let mut image = SharedImage::create(&path, BYTES, 1).unwrap();
    Table::<u32>::create(&mut image, 0, [("10.0.0.0/8".parse().unwrap(), 5)]).unwrap();
    path
}

fn readers(path: &Path) -> PathBuf {
    path.with_file_name("image.readers")
}

#[test]
fn one_writer_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let first = SharedImage::open(&path).unwrap();
    for error in [SharedImage::open(&path), SharedImage::create(&path, BYTES, 1)].map(Result::unwrap_err) {
        assert!(matches!(&error, SharedError::Busy { .. }));
        assert_eq!(error.to_string(), format!("{}: another writer has it", readers(&path).display()));
    }
    drop(first);
    assert_eq!(SharedImage::open(&path).unwrap().stats().generation, 3);
}

#[test]
fn a_new_image_takes_the_place_of_the_old() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let mut old = SharedReader::open(&path).unwrap();
    assert!(old.is_current().unwrap());
    let mut image = SharedImage::create(&path, 2 * BYTES, 1).unwrap();
    Table::<u32>::create(&mut image, 0, [("10.0.0.0/8".parse().unwrap(), 6)]).unwrap();
    assert!(!old.is_current().unwrap());
    let mut new = SharedReader::open(&path).unwrap();
    assert_eq!(old.pin().lookup4(0, 0x0a00_0001), Some(5), "its own image, for ever");
    assert_eq!(new.pin().lookup4(0, 0x0a00_0001), Some(6));
    // A failed creation leaves the present file.
    drop(image);
    for bytes in [0, 1000, 1 << 40] {
        let error = SharedImage::create(&path, bytes, 1).unwrap_err();
        assert!(matches!(error, SharedError::Image { source: Error::Size { .. }, .. }), "{error}");
    }
    assert!(SharedImage::create(&path, 1 << 16, 1 << 20).is_err());
    assert!(new.is_current().unwrap());
    assert_eq!(SharedReader::open(&path).unwrap().pin().lookup4(0, 0x0a00_0001), Some(6));
    let names: Vec<_> =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names.len(), 2, "{names:?}");
}

#[test]
fn every_slot_can_be_taken_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let mut all: Vec<_> = (0..SLOTS).map(|_| SharedReader::open(&path).unwrap()).collect();
    let error = SharedReader::open(&path).unwrap_err();
    assert!(matches!(error, SharedError::NoSlot { slots: SLOTS, .. }), "{error}");
    drop(all.swap_remove(17));
    let mut last = SharedReader::open(&path).unwrap();
    assert_eq!(last.pin().lookup4(0, 0x0a00_0001), Some(5));
    assert!(SharedReader::open(&path).is_err());
}

#[test]
fn a_reader_can_write_its_slots_only() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let _reader = SharedReader::open(&path).unwrap();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    // Address, permissions, offset, device, inode, path.
    let mut ours: Vec<_> = maps
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>())
        .filter(|fields| {
            fields.last().is_some_and(|path| path.starts_with(directory.path().to_str().unwrap()))
        })
        .map(|fields| (fields[1], fields[2], fields[5].ends_with(".readers")))
        .collect();
    let mut expected = [("r--s", "00000000", false), ("r--s", "00000000", true), ("rw-s", "00010000", true)];
    ours.sort_unstable();
    expected.sort_unstable();
    assert_eq!(ours, expected);
}

#[test]
fn each_slot_holds_the_grace_period() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("slots");
    let mut epochs = ProcessEpochs::create(&path).unwrap();
    let memory = Arc::new(HeapMemory::new(1 << 16));
    drop(Image::create(Arc::clone(&memory), NoReaders::default(), 1).unwrap());
    let mut registrations: Vec<_> = (0..SLOTS).map(|_| Registration::open(&path).unwrap()).collect();
    for registration in &mut registrations {
        let ticket = epochs.begin();
        assert_eq!(epochs.passed(), ticket, "no slot is pinned");
        let pinned = registration.pin(&memory).unwrap();
        assert_eq!(epochs.passed(), ticket);
        let next = epochs.begin();
        assert_eq!(epochs.passed(), ticket);
        drop(pinned);
        assert_eq!(epochs.passed(), next);
    }
}

#[test]
fn files_that_do_not_belong_together() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    assert!(matches!(SharedReader::open(directory.path().join("none")), Err(SharedError::Io { .. })));
    assert!(matches!(SharedImage::open(directory.path().join("none")), Err(SharedError::Io { .. })));
    assert!(!directory.path().join("none.readers").exists(), "opening makes nothing");
    // Somebody removed the readers' file while readers may run: no writer may go on with this image.
    fs::remove_file(readers(&path)).unwrap();
    drop(ProcessEpochs::create(readers(&path)).unwrap());
    let reader = SharedReader::open(&path).unwrap_err();
    let writer = SharedImage::open(&path).unwrap_err();
    for error in [reader, writer] {
        assert!(matches!(error, SharedError::Unpaired { .. }), "{error}");
    }
    // But it may be replaced.
    let _image = SharedImage::create(&path, BYTES, 1).unwrap();
    assert_eq!(SharedReader::open(&path).unwrap().pin().lookup4(0, 0x0a00_0001), None);
}

#[test]
fn links_are_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    let target = directory.path().join("target");
    for name in ["image.readers", "image.new"] {
        fs::write(&target, "precious").unwrap();
        std::os::unix::fs::symlink(&target, directory.path().join(name)).unwrap();
        let made = SharedImage::create(&path, BYTES, 1);
        // A link where only we put files is removed, not followed.
        assert!(made.is_err() || name == "image.new", "{name}");
        drop(made);
        assert_eq!(fs::read_to_string(&target).unwrap(), "precious");
        let _ = fs::remove_file(directory.path().join(name));
    }
}

#[test]
fn a_making_that_was_broken_off_is_begun_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    for len in [0, 5, 64, 4096, 2 * SECTION as u64] {
        let file = OpenOptions::new().write(true).create(true).truncate(true).open(readers(&path)).unwrap();
        file.set_len(len).unwrap();
        fs::write(directory.path().join("image.new"), "half").unwrap();
        assert!(matches!(SharedReader::open(&path), Err(SharedError::Readers { .. })));
        drop(SharedImage::create(&path, BYTES, 1).unwrap());
        SharedReader::open(&path).unwrap();
    }
}

#[test]
fn a_file_of_more_than_offsets_reach() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let file = OpenOptions::new().read(true).write(true).open(&path).unwrap();
    let mut id = [0; 8];
    file.read_exact_at(&mut id, BYTES as u64).unwrap();
    // Nearly all of it holes.
    for size in [1u64 << 33, (1 << 32) + (1 << 16)] {
        file.set_len(size + 4096).unwrap();
        file.write_all_at(&id, size).unwrap();
        file.write_all_at(&size.to_le_bytes(), 8).unwrap();
        let error = SharedImage::open(&path).unwrap_err();
        assert!(matches!(error, SharedError::Image { source: Error::Damaged { .. }, .. }), "{error}");
        assert!(SharedReader::open(&path).is_err());
    }
}

/// A writer killed at any of its writes to a new readers' file leaves nothing that locks the next one out.
#[test]
fn a_writer_that_was_killed_while_it_made_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let whole = fs::read(readers(&path)).unwrap();
    fs::remove_file(&path).unwrap();
    // Bytes of the header that had reached the file, in any order but for the magic, which is the last.
    for written in 0..1u32 << 6 {
        let mut bytes = vec![0; 2 * SECTION];
        for (part, at) in [4..8, 8..12, 12..16, 16..24, 64..72, 24..64].into_iter().enumerate() {
            if written >> part & 1 == 1 {
                bytes[at.clone()].copy_from_slice(&whole[at]);
            }
        }
        for len in [8, 100, 4096, 2 * SECTION] {
            fs::write(readers(&path), &bytes[..len]).unwrap();
            assert!(matches!(SharedReader::open(&path), Err(SharedError::Readers { .. })));
            let made = SharedImage::create(&path, BYTES, 1);
            made.unwrap_or_else(|error| panic!("parts {written:#b} of {len} bytes: {error}"));
            SharedReader::open(&path).unwrap();
        }
    }
}

/// Opens both sides and looks things up; what it gives does not matter, that it ends does.
fn use_all(path: &Path) -> (bool, bool) {
    let reader = SharedReader::open(path);
    let could_read = reader.is_ok();
    if let Ok(mut reader) = reader {
        let pinned = reader.pin();
        for addr in (0..=u32::MAX).step_by(1 << 22) {
            let _ = pinned.lookup4(0, addr);
            let _ = pinned.lookup6(0, u128::from(addr) << 96);
        }
    }
    let writer = SharedImage::open(path);
    let could_write = writer.is_ok();
    if let Ok(mut image) = writer {
        image.set_patience(core::time::Duration::ZERO);
        let table = Table::<u32>::create(&mut image, 0, [("10.0.0.0/8".parse().unwrap(), 5)]);
        if let Ok(mut table) = table {
            let _ = table.insert(&mut image, "10.1.0.0/16".parse().unwrap(), 6);
        }
        image.synchronize();
    }
    (could_read, could_write)
}

#[test]
fn damaged_files_are_errors() {
    let directory = tempfile::tempdir().unwrap();
    let path = image(directory.path());
    let (bytes, slots) = (fs::read(&path).unwrap(), fs::read(readers(&path)).unwrap());
    let restore = || {
        fs::write(&path, &bytes).unwrap();
        fs::write(readers(&path), &slots).unwrap();
    };
    assert_eq!(use_all(&path), (true, true));
    // Cut short, each at many lengths.
    for part in 0..32 {
        for (file, whole) in [(&path, &bytes), (&readers(&path), &slots)] {
            restore();
            let cut = OpenOptions::new().write(true).open(file).unwrap();
            cut.set_len((whole.len() * part / 32) as u64).unwrap();
            assert_eq!(use_all(&path), (false, false), "{} of {part}/32", file.display());
        }
    }
    // Every bit of the readers' header that says something.
    for byte in (0..12).chain(16..24) {
        for bit in 0..8 {
            restore();
            let file = OpenOptions::new().write(true).open(readers(&path)).unwrap();
            file.write_all_at(&[slots[byte] ^ 1 << bit], byte as u64).unwrap();
            let (read, write) = use_all(&path);
            // Fewer or more slots than there were, within the section, are believed.
            assert!((!read && !write) || (8..12).contains(&byte), "bit {bit} of byte {byte}");
        }
    }
    // Anything anywhere, several at once.
    let mut random = Random(1);
    for _ in 0..2000 {
        restore();
        for (file, whole) in [(&path, &bytes), (&readers(&path), &slots)] {
            let file = OpenOptions::new().write(true).open(file).unwrap();
            for _ in 0..random.below(4) {
                let near = [whole.len(), 256, 4096][random.below(3)];
                let word = [0, u64::MAX, random.next(), 1 << random.below(64)][random.below(4)];
                file.write_all_at(&word.to_le_bytes(), random.below(near.min(whole.len()) - 8) as u64)
                    .unwrap();
            }
        }
        use_all(&path);
    }
}
