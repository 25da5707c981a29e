//! How much upstreams of the legacy era log: as much as the most curious session asked for.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

use super::Gateway;
use crate::{definition::LogLevel, lock::lock};

/// What each session asked for.
#[derive(Default)]
pub struct LogLevels(Mutex<HashMap<u64, LogLevel>>);

impl LogLevels {
    fn set(&self, session: u64, level: Option<LogLevel>) -> Option<LogLevel> {
        let mut levels = self.levels();
        match level {
            Some(level) => levels.insert(session, level),
            None => levels.remove(&session),
        };
        levels.values().min().copied()
    }

    /// Whether a session wants a message of this level. One that never said takes what comes.
    pub fn wants(&self, session: u64, level: LogLevel) -> bool {
        self.levels().get(&session).is_none_or(|least| level >= *least)
    }

    fn levels(&self) -> MutexGuard<'_, HashMap<u64, LogLevel>> {
        lock(&self.0)
    }
}

impl Gateway {
    /// A session asks for this level, or has ended.
    pub fn set_log_level(&self, session: u64, level: Option<LogLevel>) {
        if let Some(least) = self.log_levels.set(session, level) {
            for upstream in self.upstreams() {
                upstream.set_log_level(least);
            }
        }
    }

    pub fn log_levels(&self) -> &LogLevels {
        &self.log_levels
    }
}
