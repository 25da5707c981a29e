//! Real-world cases that lie beside the repository, against the real product: `make cases`.
//!
//! Without them (`TRAYGATE_CASES` names their directory) each test says so and ends: a fresh clone
//! has none. What the product promises is tested by its own fakes as well.

mod catalogues;
mod framing;
mod freshness;
mod healing;
mod http;
mod lifecycle;
mod lists;
mod people;
mod programs;
mod support;
mod sweep;
