//! `traygate journal`: what happened, as a story.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::timeout;
use traygate_gateway::{
    api::UpstreamView,
    events::{Entry, Fact, Outcome, Record},
};

use super::{Context, pause};
use crate::{
    arguments::Journal,
    client::{self, Lines, encoded},
    failure::usage,
    output::{Output, Tone},
    words,
};

/// As many as one answer holds.
const ALL: usize = 10_000;
const NEWEST: usize = 100;

pub async fn journal(context: &Context, wanted: &Journal) -> Result<()> {
    let path = path(wanted)?;
    if wanted.follow {
        return follow(context, path).await;
    }
    let entries: Vec<Entry> = context.client.get(path).receive().await?;
    if entries.is_empty() && !context.output.json {
        return nothing(context, wanted).await;
    }
    for entry in &entries {
        tell(context.output, entry)?;
    }
    Ok(())
}

fn path(wanted: &Journal) -> Result<String> {
    let newest = if wanted.since.is_some() { ALL } else { NEWEST };
    let limit = wanted.lines.unwrap_or(newest);
    let calls = if wanted.calls { "all" } else { "touched" };
    let mut path = format!("/journal?calls={calls}&limit={limit}");
    if let Some(upstream) = &wanted.upstream {
        path.push_str(&format!("&upstream={}", encoded(upstream)));
    }
    if let Some(since) = &wanted.since {
        let seconds = pause::seconds(since)
            .ok_or_else(|| usage(format!("{since:?} is no time; use 15m, 1h, 1h30m or 2d")))?;
        path.push_str(&format!("&since={}", words::now() - seconds as i64 * 1_000));
    }
    Ok(path)
}

/// Until Ctrl-C, or until the host ends.
async fn follow(context: &Context, path: String) -> Result<()> {
    let request = context.client.get(format!("{path}&follow=true"));
    let body = timeout(Duration::from_secs(30), request.open())
        .await
        .context("Traygate gave no answer within 30 s")??;
    let mut lines = Lines::new(body);
    while let Some(line) = lines.next().await? {
        if context.output.json {
            context.output.line(&String::from_utf8_lossy(&line))?;
        } else if let Ok(entry) = serde_json::from_slice(&line) {
            tell(context.output, &entry)?;
        }
    }
    Ok(())
}

/// For programs one object a line, for people one sentence.
fn tell(output: Output, entry: &Entry) -> Result<()> {
    if output.json {
        return Ok(output.line(&serde_json::to_string(entry)?)?);
    }
    let time = output.paint(Tone::Faint, &words::moment(entry.record.told_at(), words::now()));
    let sentence = output.paint(tone(&entry.record), &words::one_line(&entry.sentence()));
    Ok(output.line(&format!("{time}  {sentence}"))?)
}

fn tone(record: &Record) -> Tone {
    match record {
        Record::Event(event) => match event.fact {
            Fact::Unavailable { .. }
            | Fact::NeedsSignIn { .. }
            | Fact::Misconfigured { .. }
            | Fact::OutcomeUnknown { .. }
            | Fact::Dropped { .. } => Tone::Bad,
            Fact::Lost { .. } | Fact::Degraded { .. } => Tone::Doubtful,
            Fact::Healed { .. } | Fact::Recovered { .. } => Tone::Good,
            _ => Tone::Plain,
        },
        Record::Invocation(call) if matches!(call.outcome, Outcome::Fault(_)) => Tone::Bad,
        Record::Invocation(_) => Tone::Plain,
    }
}

/// Says why nothing is shown: a name that nobody has, or a quiet time.
async fn nothing(context: &Context, wanted: &Journal) -> Result<()> {
    let about = match &wanted.upstream {
        Some(name) => {
            let view: UpstreamView = context.client.get(client::upstream(name)).receive().await?;
            format!(" to {}", view.name)
        }
        None => String::new(),
    };
    Ok(context.output.line(&format!("nothing has happened{about} in that time"))?)
}
