//! Freshness: what is kept, for how long, for whom, and what apps are told of it. Each test counts the
//! upstream's requests on the wire.

mod freshness;
mod invalidation;
mod notices;
mod reads;
mod snapshot;
mod told;

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use traygate_gateway::{
    api::{CatalogueView, Freshness},
    capability::CapabilityType,
};
use traygate_tests::{
    App, Fake, FakeOptions, Traygate,
    fake::options::{FakeEra, FakeTransport},
    json::tree,
};

/// An hour, and for everybody.
const LONG: &str = r#""ttlMs":3600000,"cacheScope":"public""#;
/// Long enough to be told from 0, short enough to be waited for.
const SHORT: &str = r#""ttlMs":1000,"cacheScope":"public""#;
/// Beyond `SHORT`'s end.
const PAST_SHORT: Duration = Duration::from_millis(1050);
/// Within this apps hear of a change (requirement C1).
const SOON: Duration = Duration::from_secs(2);

const METHODS: [&str; 4] =
    ["tools/list", "resources/list", "resources/templates/list", "prompts/list"];

/// A modern and a legacy upstream, over stdio and over HTTP.
fn over_stdio_and_http(era: FakeEra) -> [FakeOptions; 2] {
    [FakeTransport::Stdio, FakeTransport::Http].map(|transport| FakeOptions::new(transport, era))
}

fn set_all(fake: &Fake, hints: &str) -> Result<()> {
    METHODS.iter().try_for_each(|method| fake.set_hints(method, &[hints]))
}

/// One list, with its hints.
async fn listed(app: &App, method: &str) -> Result<Value> {
    Ok(tree(&app.request(method, json!({})).await?.result()?))
}

/// How often the upstream was asked while this was done.
async fn asked<T>(
    fake: &Fake,
    method: &str,
    deed: impl Future<Output = Result<T>>,
) -> Result<(usize, T)> {
    let before = fake.count(method)?;
    let done = deed.await?;
    Ok((fake.count(method)? - before, done))
}

/// One of an upstream's catalogues as people see it. Reads nothing.
async fn catalogue(
    traygate: &Traygate,
    upstream: &str,
    kind: CapabilityType,
) -> Result<CatalogueView> {
    let view = traygate.upstream(upstream).await?;
    view.catalogues.into_iter().find(|view| view.kind == kind).context("a catalogue")
}

/// Waits until people see it so.
async fn until_seen(
    traygate: &Traygate,
    upstream: &str,
    kind: CapabilityType,
    holds: impl Fn(&Freshness) -> bool,
) -> Result<Freshness> {
    let deadline = tokio::time::Instant::now() + traygate_tests::DEADLINE;
    loop {
        let seen = catalogue(traygate, upstream, kind).await?.freshness;
        if holds(&seen) {
            return Ok(seen);
        }
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "{upstream} {kind}: {seen:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

fn is_stale(freshness: &Freshness) -> bool {
    matches!(freshness, Freshness::Stale { .. })
}

fn tool(name: &str, description: &str) -> Value {
    json!({"name": name, "description": description, "inputSchema": {"type": "object"}})
}
