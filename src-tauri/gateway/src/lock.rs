//! Short state behind a mutex.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A lock for short state, never held across an await. Nothing under these locks is left half done
/// by a panic, so a poisoned one is as good as any.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
