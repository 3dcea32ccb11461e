//! Rings as hooks leave them: overrun, and with records that were begun and not written.

use memmap2::{MmapMut, MmapRaw};

use super::*;

const SLOTS: u32 = 4;

impl Words {
    fn anonymous(words: usize) -> Words {
        Words(MmapRaw::from(MmapMut::map_anon(words * 8).unwrap()))
    }
}

fn ring() -> Ring {
    let rings = Words::anonymous(2 * (RING_WORDS + SLOTS as usize * RECORD_WORDS));
    Ring::over(Words::anonymous(2 * CPU_WORDS), rings, None, (2, 2), SLOTS)
}

/// The first step of a hook.
fn claim(ring: &Ring, cpu: usize) -> u64 {
    ring.ring(cpu)[0].fetch_add(1, Ordering::SeqCst)
}

/// And as it ends.
fn write(ring: &Ring, cpu: usize, claimed: u64, time_ns: u64) {
    let at = RING_WORDS + (claimed % u64::from(SLOTS)) as usize * RECORD_WORDS;
    let slot = &ring.ring(cpu)[at..at + RECORD_WORDS];
    slot[0].store(time_ns, Ordering::Relaxed);
    slot[RECORD_WORDS - 1].store(claimed + 1, Ordering::Release);
}

fn note(ring: &Ring, cpu: usize, time_ns: u64) {
    write(ring, cpu, claim(ring, cpu), time_ns);
}

/// The times of what is passed on; of gaps negative.
fn poll(ring: &mut Ring, all: bool) -> Vec<i64> {
    let mut times = Vec::new();
    ring.poll(all, |Noted { event, .. }| match event {
        Event::Record(record) => times.push(record.time_ns as i64),
        Event::Gap { time_ns } => times.push(-(time_ns as i64)),
        _ => panic!("{event:?}"),
    });
    times
}

#[test]
fn records_are_merged_by_time() {
    let mut ring = ring();
    [(0, 10), (1, 11), (1, 12), (0, 13)].into_iter().for_each(|(cpu, time)| note(&ring, cpu, time));
    assert_eq!(poll(&mut ring, false), [10, 11, 12, 13]);
    note(&ring, 0, 5);
    assert_eq!((poll(&mut ring, true), ring.late(), ring.lost()), (vec![5], 1, 0));
}

#[test]
fn nothing_is_passed_on_of_a_time_in_which_records_were_lost() {
    let mut ring = ring();
    // Of eight records of the first CPU the last four are left, so the records between 10 and 50 are unknown.
    [(0, 10), (1, 15)].into_iter().for_each(|(cpu, time)| note(&ring, cpu, time));
    assert_eq!(poll(&mut ring, false), [10, 15]);
    [20, 25, 30, 40, 50, 60, 70, 80].into_iter().for_each(|time| note(&ring, 0, time));
    [35, 65].into_iter().for_each(|time| note(&ring, 1, time));
    assert_eq!(poll(&mut ring, false), [-50, 50, 60, 65, 70, 80]);
    assert_eq!((ring.lost(), ring.discarded(), ring.late()), (4, 1, 0));
}

#[test]
fn a_record_that_is_never_written_is_lost_and_no_other() {
    let mut ring = ring();
    note(&ring, 0, 10);
    let open = claim(&ring, 0);
    [(0, 30), (1, 5), (1, 20), (1, 40)].into_iter().for_each(|(cpu, time)| note(&ring, cpu, time));
    assert_eq!(poll(&mut ring, false), [5]);
    // The hooks are off; what was between the last record before it and the next one is not known.
    assert_eq!(poll(&mut ring, true), [10, -30, 30, 40]);
    assert_eq!((ring.lost(), ring.discarded(), ring.late()), (1, 1, 0));
    write(&ring, 0, open, 25);
    note(&ring, 0, 50);
    assert_eq!(poll(&mut ring, true), [50]);
}

#[test]
fn hooks_that_end_late_are_waited_for() {
    let mut ring = ring();
    note(&ring, 0, 10);
    let open = claim(&ring, 1);
    assert_eq!(poll(&mut ring, false), []);
    write(&ring, 1, open, 20);
    assert_eq!(poll(&mut ring, true), [10, 20]);
    let now = monotonic_ns();
    ring.was_off(now);
    let found = poll(&mut ring, true);
    assert!(matches!(found[..], [gap] if gap < -(now as i64)), "{found:?}");
    assert_eq!(ring.lost(), 0);
}
