//! What one upstream and its wire said, newest last.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

/// How many lines are kept.
const LINES: usize = 1_000;

/// Shared by an upstream's wires, which write, and by whoever shows it.
#[derive(Debug, Default)]
pub struct UpstreamLog(Mutex<VecDeque<(&'static str, String)>>);

impl UpstreamLog {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn push(&self, from: &'static str, text: &str) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() == LINES {
            lines.pop_front();
        }
        lines.push_back((from, text.to_owned()));
    }
}
