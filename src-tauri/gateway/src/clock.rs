//! The clock that freshness is judged on: monotonic, and counting the time that the machine slept
//! (design section 4.1). A catalogue that was fresh for a minute isn't, after a night.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

/// A point on the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment(Duration);

impl Moment {
    /// Later by `duration`. What would overflow is cut, to a time that nobody lives to see.
    #[must_use]
    pub fn after(self, duration: Duration) -> Self {
        Self(self.0.saturating_add(duration))
    }

    /// How long from `self` to `later`; zero if that has passed.
    pub fn until(self, later: Self) -> Duration {
        later.0.saturating_sub(self.0)
    }
}

/// The system's clock, or one that a test drives.
#[derive(Clone, Debug, Default)]
pub enum Clock {
    #[default]
    System,
    /// Milliseconds.
    Driven(Arc<AtomicU64>),
}

impl Clock {
    pub fn now(&self) -> Moment {
        match self {
            Self::System => Moment(boot_time()),
            Self::Driven(now) => Moment(Duration::from_millis(now.load(Ordering::SeqCst))),
        }
    }
}

/// Milliseconds of Unix time, for people and for the database.
pub fn wall() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

#[cfg(target_os = "linux")]
fn boot_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// On the other systems the standard library's clock, which there may stop while the machine
/// sleeps: a catalogue may then look fresh for as long as it was asleep.
#[cfg(not(target_os = "linux"))]
fn boot_time() -> Duration {
    use std::{sync::OnceLock, time::Instant};
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
