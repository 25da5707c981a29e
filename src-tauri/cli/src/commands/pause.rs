//! `traygate pause` and `traygate resume`.

use anyhow::Result;
use clap::{Args, ValueEnum};
use jiff::{Span, SpanRelativeTo, Unit, ZonedDateTime};
use traygate_gateway::{
    api::{Pause, PauseRequest, Paused, Snapshot},
    clock::rest_of_today,
};

use super::Context;
use crate::{failure::usage, words};

#[derive(Args)]
pub struct PauseArguments {
    /// What to refuse: all use, or tools that aren't marked read-only
    #[arg(value_enum, default_value_t = What::All)]
    pub what: What,
    /// For how long: 15m, 1h, 1h30m, 2d, until-tomorrow; without it, until `traygate resume`
    #[arg(long = "for", value_name = "TIME")]
    pub time: Option<String>,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum What {
    All,
    Writes,
}

pub async fn pause(context: &Context, wanted: PauseArguments) -> Result<()> {
    let seconds = wanted.time.map(|time| parse(&time, &ZonedDateTime::now())).transpose()?;
    let what = match wanted.what {
        What::All => Paused::All,
        What::Writes => Paused::Writes,
    };
    let body = PauseRequest { what, seconds };
    let snapshot: Snapshot = context.client.post("/pause").body(&body)?.receive().await?;
    let words = snapshot.pause.map_or("nothing is paused".to_owned(), |pause| told(&pause));
    context.done(&snapshot.pause, &words)
}

pub async fn resume(context: &Context) -> Result<()> {
    let snapshot: Snapshot = context.client.delete("/pause").receive().await?;
    context.done(&snapshot.pause, "nothing is paused")
}

/// `all use is paused until 14:30`.
pub fn told(pause: &Pause) -> String {
    let what = match pause.what {
        Paused::All => "all use is paused",
        Paused::Writes => "tools that aren't read-only are paused",
    };
    match pause.until {
        Some(until) => format!("{what} until {}", words::clock(until, words::now())),
        None => format!("{what} until `traygate resume`"),
    }
}

/// How many seconds from `now`.
fn parse(time: &str, now: &ZonedDateTime) -> Result<u64> {
    let wrong = || usage(format!("{time:?} is no time; use 15m, 1h, 1h30m, 2d or until-tomorrow"));
    let seconds = match time {
        "until-tomorrow" | "tomorrow" => Some(rest_of_today(now).as_secs().max(1)),
        time => seconds(time),
    };
    seconds.ok_or_else(wrong)
}

/// How many seconds `1h30m` or `2d` are; a day has 24 hours.
pub fn seconds(time: &str) -> Option<u64> {
    let span: Span = time.parse().ok()?;
    let seconds = span.total((Unit::Second, SpanRelativeTo::days_are_24_hours())).ok()? as i64;
    u64::try_from(seconds).ok().filter(|seconds| *seconds > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        let now: ZonedDateTime =
            "2026-03-01T22:30:00+01:00[Europe/Berlin]".parse().expect("a time");
        let told = ["90s", "15m", "1h", "1h30m", "2d", "until-tomorrow"];
        let seconds = told.map(|time| parse(time, &now).expect("a duration"));
        assert_eq!(seconds, [90, 900, 3_600, 5_400, 172_800, 5_400]);
        for wrong in ["", "soon", "-5m", "0s", "15"] {
            assert!(parse(wrong, &now).is_err(), "{wrong}");
        }
    }
}
