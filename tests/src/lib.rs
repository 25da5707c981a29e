//! What an app or a person sees, through real processes, sockets and pipes: the fake upstream and
//! the harness that the tests share.

pub mod app;
mod control;
pub mod fake;
pub mod fakes;
pub mod json;
pub mod process;
pub mod proxy;
pub mod sdk;
pub mod traygate;

pub use app::{App, AppEra};
pub use fakes::{Fake, FakeOptions};
pub use traygate::Traygate;

use std::time::Duration;

/// How long anything may take that has no shorter promise of its own. Far above what it needs:
/// it bounds a failure, and is never waited out by a success.
pub const DEADLINE: Duration = Duration::from_secs(20);
