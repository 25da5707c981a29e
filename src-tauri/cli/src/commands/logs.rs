//! `traygate logs`: what an upstream said on the side.

use std::time::Duration;

use anyhow::{Context as _, Result};
use tokio::time::timeout;
use traygate_gateway::api::LogLine;

use super::Context;
use crate::{
    arguments::Logs,
    client::{self, Lines},
    output::{Output, Tone},
    words,
};

pub async fn logs(context: &Context, wanted: &Logs) -> Result<()> {
    let path = format!("{}/log?lines={}", client::upstream(&wanted.upstream), wanted.lines);
    if wanted.follow {
        return follow(context, path).await;
    }
    let lines: Vec<LogLine> = context.client.get(path).receive().await?;
    context.output.tell(&lines, || lines.iter().map(|line| text(line, context.output)).collect())
}

/// Until Ctrl-C, or until the host ends. With `--json`, one line of JSON for each line.
async fn follow(context: &Context, path: String) -> Result<()> {
    let request = context.client.get(format!("{path}&follow=true"));
    let body = timeout(Duration::from_secs(30), request.open())
        .await
        .context("Traygate gave no answer within 30 s")??;
    let mut lines = Lines::new(body);
    while let Some(line) = lines.next().await? {
        // An empty line only says that the stream lives.
        if line.is_empty() {
            continue;
        }
        if context.output.json {
            context.output.line(&String::from_utf8_lossy(&line))?;
        } else if let Ok(line) = serde_json::from_slice::<LogLine>(&line) {
            context.output.text(&text(&line, context.output))?;
        }
    }
    Ok(())
}

fn text(line: &LogLine, output: Output) -> String {
    let head = format!("{} {:<8}", words::second(line.at), words::one_line(&line.from));
    format!("{} {}\n", output.paint(Tone::Faint, &head), words::harmless(&line.text).trim_end())
}
