//! Whether the mirrored state is the kernel's: what trielined has to dump again, and when.
//!
//! ```text
//!         lose          begin             end, whole
//!   Live ──────► Lost ────────► Dumping ────────────► Live, or Lost if changes were lost meanwhile
//!                                │   ▲
//!               end, interrupted │   │ begin
//!                                ▼   │
//!                             Interrupted
//! ```
//!
//! Each family's routes are in one of these states. The timer is one for both: a *round* dumps every family that needs it.

use std::time::{Duration, Instant};

/// A dump that changes interrupt is repeated at most this often at once.
pub const ATTEMPTS: u32 = 4;
/// Changes often come in groups: a link goes down, then its addresses. One round follows them all.
pub const DELAY: Duration = Duration::from_millis(10);
/// While changes go on and interrupt every round, each waits one dump longer than the last, and at most this long.
pub const DELAY_MAX: Duration = Duration::from_secs(60);

/// The state of a family's routes.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub enum SyncState {
    /// Every change was followed.
    #[default]
    Live,
    /// Changes were lost: the kernel sent none for them, one that does not fit, or more than the socket's buffer holds.
    Lost,
    /// A dump is being read, and changes are followed between its parts.
    Dumping {
        /// Changes were lost since it began.
        lost: bool,
    },
    /// Changes came during the last dump, which may be wrong about other routes, too.
    Interrupted {
        /// Changes were lost since it began.
        lost: bool,
    },
}

impl SyncState {
    /// Changes were lost.
    pub fn lose(&mut self) {
        *self = match self {
            Self::Live | Self::Lost => Self::Lost,
            Self::Dumping { .. } => Self::Dumping { lost: true },
            Self::Interrupted { .. } => Self::Interrupted { lost: true },
        };
    }

    /// A dump begins, which knows all that was lost before.
    pub fn begin(&mut self) {
        *self = Self::Dumping { lost: false };
    }

    /// The dump becomes the state. `interrupted`: routes changed meanwhile.
    pub fn end(&mut self, interrupted: bool) {
        *self = match (interrupted, self.is_lost()) {
            (true, lost) => Self::Interrupted { lost },
            (false, true) => Self::Lost,
            (false, false) => Self::Live,
        };
    }

    /// Whether the next round has to dump the routes.
    pub fn needs_dump(self) -> bool {
        self.is_lost() || self.is_interrupted()
    }

    /// Whether a dump is being read.
    pub fn is_dumping(self) -> bool {
        matches!(self, Self::Dumping { .. })
    }

    /// Whether changes interrupted the last dump.
    pub fn is_interrupted(self) -> bool {
        matches!(self, Self::Interrupted { .. })
    }

    fn is_lost(self) -> bool {
        matches!(self, Self::Lost | Self::Dumping { lost: true } | Self::Interrupted { lost: true })
    }
}

/// The only owner of what has to be dumped again.
#[derive(Debug, Default)]
pub struct Resync {
    /// IPv4 routes.
    pub v4: SyncState,
    /// IPv6 routes.
    pub v6: SyncState,
    /// Next hop objects may have gone without a message: they are dumped before the routes.
    objects: bool,
    /// Policy rules may not be the kernel's.
    rules: bool,
    /// Changes interrupted each dump of links, settings and rules: they are dumped once more.
    kernel_state: bool,
    /// The time of the next round.
    at: Option<Instant>,
    /// That time takes into account that changes were lost.
    scheduled: bool,
    /// The end of the last round, and the time that its dumps took.
    last: Option<(Instant, Duration)>,
    /// Rounds in a row that changes interrupted.
    interrupted: u32,
    /// The time of the last change.
    changed: Option<Instant>,
}

impl Resync {
    /// Changes of routes were lost.
    pub fn lose_routes(&mut self) {
        self.v4.lose();
        self.v6.lose();
    }

    /// A link went or changed its state: the kernel removes routes and next hop objects without a message.
    pub fn lose_link(&mut self) {
        self.lose_routes();
        self.objects = true;
    }

    /// Changes of links, settings or neighbours were lost: all of the kernel's state but routes is dumped again.
    pub fn lose_kernel_state(&mut self) {
        self.kernel_state = true;
    }

    /// Changes of policy rules were lost.
    pub fn lose_rules(&mut self) {
        self.rules = true;
    }

    /// Whether the policy rules have to be dumped; that dump begins.
    pub fn begin_rules(&mut self) -> bool {
        std::mem::take(&mut self.rules)
    }

    /// The dump of policy rules ends. If it was interrupted, the next round repeats it.
    pub fn end_rules(&mut self, interrupted: bool) {
        self.rules |= interrupted;
    }

    /// Whether the next hop objects have to be dumped; that dump begins.
    pub fn begin_objects(&mut self) -> bool {
        std::mem::take(&mut self.objects)
    }

    /// The dump of next hop objects ends. If it was interrupted, the next round repeats it.
    pub fn end_objects(&mut self, interrupted: bool) {
        self.objects = interrupted;
    }

    /// The dump of links, settings, rules and next hop objects becomes the state. If it was interrupted, it has to be repeated.
    pub fn end_kernel_state(&mut self, interrupted: bool) {
        (self.kernel_state, self.objects, self.rules) = (interrupted, false, false);
    }

    /// Whether links, settings and rules have to be dumped once more.
    pub fn needs_kernel_state(&self) -> bool {
        self.kernel_state
    }

    /// Whether a dump of routes is being read: nexthop groups may be used that no table has yet.
    pub fn is_dumping(&self) -> bool {
        self.v4.is_dumping() || self.v6.is_dumping()
    }

    /// Whether anything has to be dumped.
    pub fn needs_round(&self) -> bool {
        self.v4.needs_dump() || self.v6.needs_dump() || self.is_interrupted()
    }

    /// Whether changes interrupted the last dump of routes, rules or next hop objects, so that another round is needed.
    pub fn is_interrupted(&self) -> bool {
        self.v4.is_interrupted() || self.v6.is_interrupted() || self.objects || self.rules
    }

    /// Sets the time of the next round if changes were lost; whether it did. While changes are lost again and again, half of the time at
    /// most goes into dumps.
    pub fn schedule(&mut self, now: Instant) -> bool {
        if self.scheduled || !(self.v4.is_lost() || self.v6.is_lost() || self.rules) {
            return false;
        }
        let calm = self.last.map_or(now, |(ended, took)| ended + took);
        let at = (now + DELAY).max(calm);
        self.at = Some(self.at.map_or(at, |known| known.min(at)));
        self.scheduled = true;
        true
    }

    /// The kernel has reported changes.
    pub fn note_changes(&mut self, now: Instant) {
        self.changed = Some(now);
    }

    /// A round, whose dumps took so long, has ended. If changes interrupted it, the next one follows. While changes go on, the pause
    /// before it grows.
    pub fn end_round(&mut self, took: Duration, now: Instant) {
        self.last = Some((now, took));
        self.interrupted = if self.is_interrupted() { self.interrupted.saturating_add(1) } else { 0 };
        let pause = took.saturating_mul(self.interrupted).clamp(DELAY, DELAY_MAX);
        self.at = (self.interrupted > 0).then(|| now + pause);
        self.scheduled = false;
    }

    /// The time of the next round; `None`: the state is the kernel's. Without further changes the pause after an interrupted round is as
    /// long as its dumps took: the next dump will be whole.
    pub fn at(&self) -> Option<Instant> {
        let at = self.at?;
        let Some((ended, took)) = self.last.filter(|_| self.interrupted > 0) else { return Some(at) };
        let calm = self.changed.map_or(ended, |changed| changed.max(ended));
        Some(at.min(calm + took.max(DELAY)))
    }

    /// Whether it is time for the next round.
    pub fn is_due(&self, now: Instant) -> bool {
        self.at().is_some_and(|at| at <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn lost_changes_need_a_dump_until_it_ends() {
        let mut state = SyncState::default();
        assert!(!state.needs_dump());
        state.lose();
        assert_eq!((state, state.needs_dump()), (SyncState::Lost, true));
        state.begin();
        assert!(state.is_dumping() && !state.needs_dump());
        state.end(false);
        assert_eq!((state, state.needs_dump()), (SyncState::Live, false));
    }

    #[test]
    fn changes_lost_during_a_dump_need_another() {
        for (interrupted, after) in [(false, SyncState::Lost), (true, SyncState::Interrupted { lost: true })]
        {
            let mut state = SyncState::Lost;
            state.begin();
            state.lose();
            state.end(interrupted);
            assert_eq!((state, state.needs_dump()), (after, true));
        }
    }

    #[test]
    fn an_interrupted_dump_is_repeated_until_one_is_whole() {
        let mut state = SyncState::default();
        for _ in 0..2 {
            state.begin();
            state.end(true);
            assert_eq!((state, state.needs_dump()), (SyncState::Interrupted { lost: false }, true));
        }
        state.lose();
        assert_eq!(state, SyncState::Interrupted { lost: true });
        state.begin();
        state.end(false);
        assert_eq!(state, SyncState::Live);
    }

    /// A round of IPv4 that changes interrupt, or not.
    fn round(resync: &mut Resync, interrupted: bool, took: Duration, now: Instant) {
        resync.v4.begin();
        resync.v4.end(interrupted);
        resync.end_round(took, now);
    }

    #[test]
    fn lost_changes_are_scheduled_once_a_round() {
        let (mut resync, now) = (Resync::default(), Instant::now());
        assert!(!resync.schedule(now) && resync.at().is_none());
        resync.lose_routes();
        assert!(resync.schedule(now));
        resync.lose_routes();
        assert!(!resync.schedule(now + SECOND), "one round follows them all");
        assert_eq!(resync.at(), Some(now + DELAY));
        assert!(!resync.is_due(now) && resync.is_due(now + DELAY));
        // IPv6 was lost while IPv4 was dumped, and is not dumped yet.
        round(&mut resync, false, SECOND, now);
        assert_eq!(resync.at(), None);
        assert!(resync.schedule(now));
        assert_eq!(resync.at(), Some(now + SECOND), "as long as the last dump took");
    }

    #[test]
    fn pauses_between_interrupted_rounds_grow() {
        let (mut resync, now) = (Resync::default(), Instant::now());
        resync.note_changes(now + DELAY_MAX);
        let mut pause = |interrupted, took| {
            round(&mut resync, interrupted, took, now);
            resync.at().map(|at| at - now)
        };
        assert_eq!([1, 2, 3].map(|_| pause(true, SECOND)), [1, 2, 3].map(|n| Some(n * SECOND)));
        assert_eq!(pause(true, 30 * SECOND), Some(DELAY_MAX));
        assert_eq!(pause(false, SECOND), None);
        assert_eq!(pause(true, Duration::ZERO), Some(DELAY), "from the start again");
    }

    #[test]
    fn calm_brings_an_interrupted_round_forward() {
        let (mut resync, now) = (Resync::default(), Instant::now());
        for _ in 0..9 {
            round(&mut resync, true, SECOND, now);
        }
        assert_eq!(resync.at(), Some(now + SECOND), "no change since");
        for (changed, next) in [(5, 6), (7, 8), (8, 9), (20, 9)] {
            resync.note_changes(now + changed * SECOND);
            assert_eq!(resync.at(), Some(now + next * SECOND));
            assert!(!resync.is_due(now + (next - 1) * SECOND) && resync.is_due(now + next * SECOND));
        }
        round(&mut resync, false, SECOND, now);
        assert_eq!(resync.at(), None);
    }

    #[test]
    fn lost_changes_bring_an_interrupted_round_forward() {
        let (mut resync, now) = (Resync::default(), Instant::now());
        resync.note_changes(now + DELAY_MAX);
        for _ in 0..3 {
            round(&mut resync, true, SECOND, now);
        }
        assert_eq!(resync.at(), Some(now + 3 * SECOND));
        resync.v4.lose();
        assert!(resync.schedule(now));
        assert_eq!(resync.at(), Some(now + SECOND));
    }

    #[test]
    fn next_hop_objects_are_dumped_until_a_dump_is_whole() {
        let (mut resync, now) = (Resync::default(), Instant::now());
        assert!(!resync.begin_objects());
        resync.lose_link();
        assert!(resync.begin_objects() && !resync.is_interrupted());
        resync.end_objects(true);
        for family in [&mut resync.v4, &mut resync.v6] {
            family.begin();
            family.end(false);
        }
        assert!(resync.is_interrupted());
        resync.end_round(SECOND, now);
        assert_eq!(resync.at(), Some(now + SECOND));
        assert!(resync.begin_objects());
        resync.end_objects(false);
        assert!(!resync.is_interrupted());
    }

    #[test]
    fn an_interrupted_dump_of_the_kernels_state_is_repeated() {
        let mut resync = Resync::default();
        resync.lose_link();
        resync.end_kernel_state(true);
        assert!(resync.needs_kernel_state() && !resync.begin_objects(), "it has the next hop objects, too");
        resync.end_kernel_state(false);
        assert!(!resync.needs_kernel_state());
    }
}
