//! `traygate show`: what one upstream offers, what of it is on, and how fresh that is known.

use anyhow::Result;
use serde::Deserialize;
use traygate_gateway::{
    api::{Capabilities, CapabilityView, Freshness, UpstreamView},
    capability::CapabilityType,
};

use super::{Context, settings, upstreams};
use crate::{
    client::{self, START},
    output::{Output, Table, Tone, cell},
    words,
};

pub async fn show(context: &Context, name: &str, live: bool) -> Result<()> {
    let query = if live { "?live=true" } else { "" };
    let path = format!("{}/capabilities{query}", client::upstream(name));
    let doing = format!("reading the catalogues of {name}");
    let shown: Capabilities = context.client.get(path).patience(START, doing).receive().await?;
    context.output.tell(&shown, || {
        let mut text = heading(&shown.upstream, context.output);
        for kind in CapabilityType::ALL {
            text.push_str(&group(&shown, kind, context.output));
        }
        text
    })
}

fn heading(view: &UpstreamView, output: Output) -> String {
    let (tone, state) = upstreams::state(view);
    let mut text = format!(
        "{}  {}, since {}\n",
        output.paint(Tone::Strong, view.name.as_str()),
        output.paint(tone, &state),
        words::span(words::now() - view.since)
    );
    let mut table = Table::plain("  ");
    let mut row =
        |label: &str, value: String| table.row(vec![(Tone::Faint, label.into()), cell(value)]);
    row("reached by", words::one_line(&view.reached_by));
    let era = upstreams::era(view.era, view.protocol_version.as_deref());
    row("protocol", format!("{}, {era}", words::one_line(&view.transport_kind)));
    if let Some(server) = &view.server {
        row("server", words::one_line(server));
    }
    let changed = settings::changed(&view.settings);
    if !changed.is_empty() {
        row("settings", changed.join(" "));
    }
    text.push_str(&table.render(output));
    text
}

fn group(shown: &Capabilities, kind: CapabilityType, output: Output) -> String {
    let Some(catalogue) = shown.upstream.catalogues.iter().find(|it| it.kind == kind) else {
        return String::new();
    };
    let items: Vec<_> = shown.items.iter().filter(|item| item.kind == kind).collect();
    if items.is_empty() && catalogue.freshness == Freshness::Empty {
        return String::new();
    }
    let mut text = format!(
        "\n{}  {} of {} on, {}\n",
        output.paint(Tone::Strong, title(kind)),
        catalogue.on,
        catalogue.total,
        freshness(&catalogue.freshness)
    );
    for warning in &catalogue.warnings {
        let warning = format!("warning: {}", words::one_line(warning));
        text.push_str(&format!("  {}\n", output.paint(Tone::Doubtful, &warning)));
    }
    text.push_str(&lines(shown.upstream.name.as_str(), &items, output));
    text
}

fn lines(upstream: &str, items: &[&CapabilityView], output: Output) -> String {
    let mut table = Table::plain("  ");
    for item in items {
        let (tone, mark) = if item.enabled { (Tone::Good, "on") } else { (Tone::Faint, "off") };
        table.row(vec![
            (tone, mark.into()),
            cell(words::one_line(&item.key)),
            (Tone::Faint, remarks(upstream, item).join(", ")),
        ]);
    }
    let table = table.render(output);
    // Each line of the table, and under it what the upstream says about the item.
    let said = items.iter().map(|item| description(item).unwrap_or_default());
    table.lines().zip(said).map(|(line, said)| format!("{line}\n{said}")).collect()
}

fn remarks(upstream: &str, item: &CapabilityView) -> Vec<String> {
    let mut remarks = Vec::new();
    let usual = match item.kind {
        CapabilityType::Tool | CapabilityType::Prompt => format!("{upstream}__{}", item.key),
        CapabilityType::Resource | CapabilityType::Template => item.key.clone(),
    };
    if item.exposed != usual && !item.exposed.is_empty() {
        remarks.push(format!("apps see {}", words::one_line(&item.exposed)));
    }
    if item.read_only {
        remarks.push("read-only".to_owned());
    }
    if item.pinned {
        remarks.push("pinned".to_owned());
    }
    if !item.live {
        let seen =
            item.last_seen_at.map(|at| format!(", last seen {}", words::ago(at, words::now())));
        remarks.push(format!("not live{}", seen.unwrap_or_default()));
    }
    remarks
}

/// What the upstream says about an item, as it says it now.
fn description(item: &CapabilityView) -> Option<String> {
    #[derive(Deserialize)]
    struct Said {
        description: Option<String>,
        title: Option<String>,
    }
    let said: Said = serde_json::from_str(item.item.as_deref()?.get()).ok()?;
    let text = said.description.or(said.title)?;
    Some(words::wrap(&text, 90, "         "))
}

const fn title(kind: CapabilityType) -> &'static str {
    match kind {
        CapabilityType::Tool => "Tools",
        CapabilityType::Resource => "Resources",
        CapabilityType::Template => "Resource templates",
        CapabilityType::Prompt => "Prompts",
    }
}

fn freshness(freshness: &Freshness) -> String {
    let now = words::now();
    match freshness {
        Freshness::Fresh { until: Some(until) } if *until > now => {
            format!("fresh for {}", words::span(until - now))
        }
        Freshness::Fresh { until: Some(_) } => "read anew at the next need".to_owned(),
        Freshness::Fresh { until: None } => {
            "fresh until the upstream says that it changed".to_owned()
        }
        Freshness::Stale { since, because } => {
            format!("stale since {}: {}", words::span(now - since), words::one_line(because))
        }
        Freshness::Unavailable { because } => format!("unavailable: {}", words::one_line(because)),
        Freshness::Empty => "the upstream has none".to_owned(),
        Freshness::Off => "the upstream is disabled".to_owned(),
        Freshness::Unread => "not read yet".to_owned(),
    }
}
