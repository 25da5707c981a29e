//! Commands about an upstream as a whole, and the words for its state.

use anyhow::Result;
use serde_json::json;
use traygate_gateway::{
    api::{CatalogueView, Change, State, TestReport, UpstreamView},
    capability::CapabilityType,
    definition::Era,
    names::UpstreamName,
};

use super::Context;
use crate::{
    client::{self, START},
    failure::usage,
    output::{Output, Table, Tone, cell},
    words,
};

pub async fn list(context: &Context) -> Result<()> {
    let upstreams: Vec<UpstreamView> = context.client.get("/upstreams").receive().await?;
    context.output.tell(&upstreams, || table(&upstreams, context.output))
}

pub async fn refresh(context: &Context, name: &str) -> Result<()> {
    let path = format!("{}/refresh", client::upstream(name));
    let doing = format!("reading the catalogues of {name}");
    let view: UpstreamView = context.client.post(path).patience(START, doing).receive().await?;
    told(context, &view)
}

pub async fn restart(context: &Context, name: &str) -> Result<()> {
    let path = format!("{}/restart", client::upstream(name));
    let doing = format!("connecting to {name}");
    let view: UpstreamView = context.client.post(path).patience(START, doing).receive().await?;
    told(context, &view)
}

pub async fn test(context: &Context, name: &str) -> Result<()> {
    let report = tested(context, name).await?;
    context.output.tell(&report, || format!("{name} works: {}\n", report_words(&report)))
}

/// A fresh transient connection.
async fn tested(context: &Context, name: &str) -> Result<TestReport> {
    report(context, name, "test").await
}

/// The upstream's own connection, which it makes as soon as it was added.
pub async fn first_contact(context: &Context, name: &str) -> Result<TestReport> {
    report(context, name, "first-contact").await
}

async fn report(context: &Context, name: &str, how: &str) -> Result<TestReport> {
    let path = format!("{}/{how}", client::upstream(name));
    let doing = format!("connecting to {name}");
    context.client.post(path).patience(START, doing).receive().await
}

pub async fn rename(context: &Context, name: &str, new: &str) -> Result<()> {
    let rename = UpstreamName::parse(new).map_err(|error| usage(error.to_string()))?;
    let view = change(context, name, &Change { rename: Some(rename), ..Change::default() }).await?;
    context.done(&view, &format!("{name} is now called {}", view.name))
}

pub async fn move_to(context: &Context, name: &str, position: usize) -> Result<()> {
    let wanted = Change { position: Some(position), ..Change::default() };
    let view = change(context, name, &wanted).await?;
    context.done(&view, &format!("{name} is at place {position} now"))
}

pub async fn remove(context: &Context, name: &str) -> Result<()> {
    context.client.delete(client::upstream(name)).done().await?;
    context.done(&json!({"removed": name}), &format!("removed {name}"))
}

pub async fn change(context: &Context, name: &str, change: &Change) -> Result<UpstreamView> {
    context.client.patch(client::upstream(name)).body(change)?.receive().await
}

fn told(context: &Context, view: &UpstreamView) -> Result<()> {
    let (_, words) = state(view);
    let counts = counts(view);
    context.done(view, &format!("{} is {words}{}", view.name, prefixed(": ", &counts)))
}

fn prefixed(prefix: &str, text: &str) -> String {
    if text.is_empty() { String::new() } else { format!("{prefix}{text}") }
}

/// `12 tools, 3 prompts`.
fn counts(view: &UpstreamView) -> String {
    let kinds = view.catalogues.iter().filter(|catalogue| catalogue.total > 0);
    kinds.map(|it| words::count(it.total, it.kind.word())).collect::<Vec<_>>().join(", ")
}

/// All upstreams, a line each.
pub fn table(upstreams: &[UpstreamView], output: Output) -> String {
    if upstreams.is_empty() {
        return "no upstreams yet; add one: traygate add files -- npx -y \
                @modelcontextprotocol/server-filesystem ~/notes\n"
            .to_owned();
    }
    let now = words::now();
    let mut table = Table::new(&[
        "NAME",
        "STATE",
        "SINCE",
        "TOOLS",
        "RESOURCES",
        "TEMPLATES",
        "PROMPTS",
        "REACHED BY",
    ]);
    for view in upstreams {
        let (tone, _) = state(view);
        let mut row = vec![(Tone::Strong, view.name.to_string()), (tone, view.state.word().into())];
        row.push(cell(words::ago(view.since, now)));
        row.extend(CapabilityType::ALL.map(|kind| cell(share(catalogue(view, kind)))));
        // Only a table on a screen must fit.
        let width = if output.terminal { 60 } else { usize::MAX };
        row.push((Tone::Faint, words::cut(&words::one_line(&view.reached_by), width)));
        table.row(row);
    }
    let mut text = table.render(output);
    for view in upstreams {
        if view.state.reason().is_some() || view.progress.is_some() {
            let (tone, words) = state(view);
            text.push_str(&format!("{}: {}\n", view.name, output.paint(tone, &words)));
        }
        if let Some(past) = past(view, now) {
            text.push_str(&format!("{}: {}\n", view.name, output.paint(Tone::Faint, &past)));
        }
    }
    text
}

/// What was wrong with it and is over: `healed twice …; last error 5 min ago: …`.
fn past(view: &UpstreamView, now: i64) -> Option<String> {
    let heals = match view.heals {
        0 => None,
        1 => Some("healed once in the last 24 h".to_owned()),
        2 => Some("healed twice in the last 24 h".to_owned()),
        heals => Some(format!("healed {heals} times in the last 24 h")),
    };
    // While it is wrong, the state says it.
    let error = view.last_error.as_ref().filter(|_| view.state.reason().is_none()).map(|error| {
        format!("last error {}: {}", words::ago(error.at, now), words::one_line(&error.reason))
    });
    let parts: Vec<_> = heals.into_iter().chain(error).collect();
    (!parts.is_empty()).then(|| parts.join("; "))
}

fn catalogue(view: &UpstreamView, kind: CapabilityType) -> Option<&CatalogueView> {
    view.catalogues.iter().find(|catalogue| catalogue.kind == kind)
}

/// How many are on, of how many: `11/12`, or only `12` if all are.
fn share(catalogue: Option<&CatalogueView>) -> String {
    match catalogue {
        None | Some(CatalogueView { total: 0, .. }) => "-".to_owned(),
        Some(CatalogueView { total, on, .. }) if on == total => total.to_string(),
        Some(CatalogueView { total, on, .. }) => format!("{on}/{total}"),
    }
}

/// The state with its reason, or how far it is, in words.
pub fn state(view: &UpstreamView) -> (Tone, String) {
    let state = &view.state;
    let tone = match state {
        State::Ready => Tone::Good,
        State::Disabled | State::Idle => Tone::Faint,
        State::Connecting | State::Degraded { .. } => Tone::Doubtful,
        State::Unavailable { .. } | State::NeedsSignIn { .. } | State::Misconfigured { .. } => {
            Tone::Bad
        }
    };
    let mut text = state.word().to_owned();
    if let Some(reason) = state.reason().or(view.progress.as_deref()) {
        text.push_str(&format!(" ({})", words::one_line(reason)));
    }
    if let State::Unavailable { next_try: Some(at), .. } = state {
        let wait = at - words::now();
        text.push_str(&match wait {
            1_000.. => format!("; next try in {}", words::span(wait)),
            _ => "; trying again now".to_owned(),
        });
    }
    (tone, text)
}

/// `modern 2026-07-28`.
pub fn era(era: Option<Era>, version: Option<&str>) -> String {
    let word = match era {
        Some(Era::Modern) => "modern",
        Some(Era::Legacy) => "legacy",
        None => return "not known yet".to_owned(),
    };
    version.map_or(word.to_owned(), |version| format!("{word} {}", words::one_line(version)))
}

/// What a test found.
pub fn report_words(report: &TestReport) -> String {
    let found: Vec<_> =
        report.found.iter().map(|(kind, number)| words::count(*number, kind.word())).collect();
    let mut parts = vec![era(Some(report.era), Some(&report.protocol_version))];
    parts.extend(report.server.as_deref().map(words::one_line));
    let found = if found.is_empty() { "nothing to offer".to_owned() } else { found.join(", ") };
    let mut text = format!(
        "{}; {found}; connected in {}, all read in {}",
        parts.join(", "),
        words::span(report.connected_ms as i64),
        words::span(report.total_ms as i64)
    );
    for warning in &report.warnings {
        text.push_str(&format!("\nwarning: {}", words::one_line(warning)));
    }
    text
}
