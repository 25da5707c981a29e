//! The clock that freshness is judged on: monotonic, and counting the time that the machine slept
//! (design section 4.1). A catalogue that was fresh for a minute isn't, after a night.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use jiff::ZonedDateTime;

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
            Self::System => Moment(continuous_time()),
            Self::Driven(now) => Moment(Duration::from_millis(now.load(Ordering::SeqCst))),
        }
    }
}

/// Milliseconds of Unix time, for people and for the database.
pub fn wall() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

/// How long it is still today here: tomorrow begins at midnight.
pub fn rest_of_today(now: &ZonedDateTime) -> Duration {
    let midnight = now.tomorrow().and_then(|tomorrow| tomorrow.start_of_day());
    // At the end of all time there is no tomorrow.
    midnight.map_or(Duration::ZERO, |midnight| now.duration_until(&midnight).unsigned_abs())
}

/// Linux: the time since the machine was booted, sleep included.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn continuous_time() -> Duration {
    of_the_system(rustix::time::ClockId::Boottime)
}

/// macOS: its `CLOCK_MONOTONIC` is the continuous time, which goes on through sleep. (The standard
/// library's `Instant` is the other one there, `CLOCK_UPTIME_RAW`, which stops.)
#[cfg(target_vendor = "apple")]
fn continuous_time() -> Duration {
    of_the_system(rustix::time::ClockId::Monotonic)
}

#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn of_the_system(clock: rustix::time::ClockId) -> Duration {
    let time = rustix::time::clock_gettime(clock);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

/// Windows: the interrupt time, in units of 100 ns. The "unbiased" one beside it leaves sleep out.
#[cfg(windows)]
#[allow(unsafe_code)]
fn continuous_time() -> Duration {
    // SAFETY: the call takes nothing, and the binding gives it a place of its own to write to.
    let ticks = unsafe { windows::Win32::System::WindowsProgramming::QueryInterruptTime() };
    Duration::from_nanos(ticks.saturating_mul(100))
}

/// On the systems that are left the standard library's clock, which there may stop while the machine
/// sleeps: a catalogue may then look fresh for as long as it was asleep.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows)))]
fn continuous_time() -> Duration {
    use std::{sync::OnceLock, time::Instant};
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_systems_clock_goes_forward_at_the_pace_of_time() {
        let (clock, began) = (Clock::default(), std::time::Instant::now());
        let first = clock.now();
        std::thread::sleep(Duration::from_millis(20));
        let (went, passed) = (first.until(clock.now()), began.elapsed());
        assert!(went >= Duration::from_millis(20), "{went:?}");
        assert!(went <= passed + Duration::from_millis(1), "{went:?} of {passed:?}");
    }

    #[test]
    fn today_ends_at_midnight_also_when_the_clocks_are_changed() {
        let rest = |now: &str| rest_of_today(&now.parse().expect("a time"));
        assert_eq!(rest("2026-03-01T22:30:00+01:00[Europe/Berlin]"), Duration::from_mins(90));
        let night = "2026-10-25T00:00:00+02:00[Europe/Berlin]";
        assert_eq!(rest(night), Duration::from_hours(25), "an hour comes twice");
    }

    #[test]
    fn a_driven_clock_stands_still_until_it_is_driven() {
        let now = Arc::new(AtomicU64::new(0));
        let clock = Clock::Driven(Arc::clone(&now));
        let deadline = clock.now().after(Duration::from_hours(8));
        now.fetch_add(8 * 60 * 60 * 1000, Ordering::SeqCst);
        assert_eq!(clock.now(), deadline, "a night's sleep counts");
        assert_eq!(deadline.after(Duration::MAX).until(deadline), Duration::ZERO, "no overflow");
    }
}
