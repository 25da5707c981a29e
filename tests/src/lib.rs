//! What an app or a person sees, through real processes, sockets and pipes: the fake upstream and
//! the harness that the tests share.

pub mod fake;
