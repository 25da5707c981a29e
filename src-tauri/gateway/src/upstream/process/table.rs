//! The system's table of processes, as far as it takes to tell one process from another: a number
//! alone does not, since it is given to somebody else when its owner is gone.

/// One process at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    pub pid: u32,
    pub group: u32,
    pub session: u32,
    /// When it was started, in a unit of the system's; only ever compared.
    pub started: u64,
    /// Not one that has exited and waits to be reaped.
    pub lives: bool,
}

pub use system::{all, boot, look, now};

#[cfg(target_os = "linux")]
mod system {
    use std::fs;

    use super::Seen;
    use crate::upstream::process::os;

    /// This process, if it is there.
    pub fn look(pid: u32) -> Option<Seen> {
        parse(&fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
    }

    /// Everybody. Reads a file per process of the whole system.
    pub fn all() -> Vec<Seen> {
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let pids = processes.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        pids.filter_map(look).collect()
    }

    /// Which run of the system this is: start times of another one mean nothing.
    pub fn boot() -> String {
        let id = fs::read_to_string("/proc/sys/kernel/random/boot_id");
        id.map(|id| id.trim().to_owned()).unwrap_or_default()
    }

    /// This moment, in the unit of [`Seen::started`].
    pub fn now() -> u64 {
        let since_boot = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let ticks = os::ticks_a_second();
        let whole = since_boot.tv_sec.unsigned_abs() * ticks;
        whole + since_boot.tv_nsec.unsigned_abs() * ticks / 1_000_000_000
    }

    /// Reads `pid (name) state ppid pgrp session …`; the name may hold anything, even parentheses.
    fn parse(stat: &str) -> Option<Seen> {
        let (before, fields) = stat.rsplit_once(')')?;
        let pid = before.split_once(' ')?.0.parse().ok()?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        Some(Seen {
            pid,
            lives: !matches!(*fields.first()?, "Z" | "X"),
            group: fields.get(2)?.parse().ok()?,
            session: fields.get(3)?.parse().ok()?,
            started: fields.get(19)?.parse().ok()?,
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn a_name_with_parentheses_confuses_nothing() {
            let stat = "12 (a) Z 1 9) S 1 77 78 0 -1 4194560 1 0 0 0 1 1 0 0 20 0 1 0 4711 99";
            let expected = Seen { pid: 12, group: 77, session: 78, started: 4711, lives: true };
            assert_eq!(parse(stat), Some(expected));
            let gone = stat.replace(") S ", ") Z ");
            assert_eq!(parse(&gone).map(|seen| seen.lives), Some(false), "it only waits");
        }

        #[test]
        fn this_very_process_is_found_and_was_not_started_in_the_future() {
            let me = look(std::process::id()).expect("this process");
            assert!(me.lives && me.started > 0 && me.started <= now(), "{me:?}");
            assert!(all().contains(&me));
            assert!(!boot().is_empty());
        }
    }
}

#[cfg(target_os = "macos")]
mod system {
    use std::time::{SystemTime, UNIX_EPOCH};

    use super::Seen;
    use crate::upstream::process::os;

    /// This process, if it is there.
    pub fn look(pid: u32) -> Option<Seen> {
        os::look(pid)
    }

    /// Everybody.
    pub fn all() -> Vec<Seen> {
        os::pids().into_iter().filter_map(look).collect()
    }

    /// Start times are times of day here, and mean the same after a restart of the system.
    pub fn boot() -> String {
        String::new()
    }

    /// This moment, in the unit of [`Seen::started`].
    pub fn now() -> u64 {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        since.as_micros() as u64
    }
}

/// Other systems tell no start times here, so nobody is ever taken for one of ours.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
mod system {
    use super::Seen;

    pub fn look(_pid: u32) -> Option<Seen> {
        None
    }

    pub fn all() -> Vec<Seen> {
        Vec::new()
    }

    pub fn boot() -> String {
        String::new()
    }

    pub fn now() -> u64 {
        0
    }
}
