//! `traygate status`: everything at one glance.

use anyhow::Result;
use traygate_gateway::api::{AppView, Snapshot};

use super::{Context, pause, upstreams};
use crate::{
    output::{Output, Table, Tone, cell},
    words,
};

pub async fn status(context: &Context) -> Result<()> {
    let snapshot: Snapshot = context.client.get("/status").receive().await?;
    context.output.tell(&snapshot, || text(&snapshot, context.output))
}

fn text(snapshot: &Snapshot, output: Output) -> String {
    let mut table = Table::plain("  ");
    let mut row = |label: &str, tone, value: String| {
        table.row(vec![(Tone::Faint, label.into()), (tone, value)]);
    };
    row("endpoint", Tone::Strong, snapshot.endpoint.clone());
    row("data", Tone::Plain, snapshot.data_dir.clone());
    if let Some(pause) = &snapshot.pause {
        row("paused", Tone::Doubtful, pause::told(pause));
    }
    format!(
        "{} {}, running for {} with pid {}\n{}\n{}\n{}",
        output.paint(Tone::Strong, "Traygate"),
        snapshot.version,
        words::span(words::now() - snapshot.started_at),
        snapshot.pid,
        table.render(output),
        upstreams::table(&snapshot.upstreams, output),
        apps(&snapshot.apps, output)
    )
}

/// The apps that may connect, a line each.
pub fn apps(apps: &[AppView], output: Output) -> String {
    if apps.is_empty() {
        return "no apps yet; let one in: traygate token new claude\n".to_owned();
    }
    let now = words::now();
    let mut table =
        Table::new(&["APP", "LAST SEEN", "CLIENT", "PROTOCOL", "TOOLS", "LISTED", "CONNECTED"]);
    for app in apps {
        let dash = || "-".to_owned();
        let protocol =
            app.era.map(|era| upstreams::era(Some(era), app.protocol_version.as_deref()));
        let connected = if app.connections > 0 { (Tone::Good, "yes") } else { (Tone::Faint, "no") };
        table.row(vec![
            (Tone::Strong, words::one_line(&app.name)),
            cell(app.last_seen_at.map_or("never".to_owned(), |at| words::ago(at, now))),
            cell(app.client.as_deref().map_or_else(dash, words::one_line)),
            cell(protocol.unwrap_or_else(dash)),
            cell(app.listed_tools.map_or_else(dash, |tools| tools.to_string())),
            cell(app.listed_at.map_or_else(dash, |at| words::ago(at, now))),
            (connected.0, connected.1.to_owned()),
        ]);
    }
    table.render(output)
}
