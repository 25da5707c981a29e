//! Through what the user acts: a program of ours says so in a header.

use std::convert::Infallible;

use axum::extract::FromRequestParts;
use http::request::Parts;

use crate::events::By;

/// `cli`, `window` or `tray`. Whoever says nothing is a program of the user's own.
pub const CALLER_HEADER: &str = "traygate-caller";

impl<S: Send + Sync> FromRequestParts<S> for By {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        let named = parts.headers.get(CALLER_HEADER).and_then(|name| name.to_str().ok());
        Ok(match named {
            Some("cli") => Self::Cli,
            Some("window") => Self::Window,
            Some("tray") => Self::Tray,
            _ => Self::Api,
        })
    }
}
