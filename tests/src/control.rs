//! The control API as the tests use it.

use std::{collections::BTreeMap, time::Duration};

use anyhow::{Context as _, Result, ensure};
use reqwest::Method;
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use traygate_gateway::{
    api::{Capabilities, Change, NewApp, NewToken, Snapshot, Toggle, UpstreamView},
    capability::CapabilityType,
    definition::{Definition, HttpFlavour, Transport, UpstreamSettings},
    names::UpstreamName,
};

use crate::{
    DEADLINE, Traygate,
    fake::options::FakeTransport,
    fakes::{Fake, FakeOptions},
    process,
};

impl Traygate {
    /// One request to the control API, with its status and its text.
    pub async fn control_raw(
        &self,
        method: Method,
        route: &str,
        body: Option<String>,
    ) -> Result<(u16, String)> {
        let url = format!("{}/control/v1{route}", self.origin());
        let mut request = self.http.request(method, url).bearer_auth(self.run_file()?.token);
        if let Some(body) = body {
            request = request.header("content-type", "application/json").body(body);
        }
        let answer = request.send().await.context("the control API")?;
        Ok((answer.status().as_u16(), answer.text().await?))
    }

    /// One request that has to go well.
    pub async fn control<T: DeserializeOwned>(
        &self,
        method: Method,
        route: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        let body = body.map(serde_json::to_string).transpose()?;
        let (status, text) = self.control_raw(method, route, body).await?;
        ensure!(status < 300, "{route}: {status} {text}");
        let text = if text.is_empty() { "null" } else { &text };
        serde_json::from_str(text).with_context(|| format!("{route} answered {text}"))
    }

    pub async fn snapshot(&self) -> Result<Snapshot> {
        self.control(Method::GET, "/status", None::<&()>).await
    }

    pub async fn upstream(&self, name: &str) -> Result<UpstreamView> {
        self.control(Method::GET, &format!("/upstreams/{name}"), None::<&()>).await
    }

    pub async fn capabilities(&self, name: &str) -> Result<Capabilities> {
        self.control(Method::GET, &format!("/upstreams/{name}/capabilities"), None::<&()>).await
    }

    pub async fn change(&self, name: &str, change: &Change) -> Result<UpstreamView> {
        self.control(Method::PATCH, &format!("/upstreams/{name}"), Some(change)).await
    }

    pub async fn set(&self, name: &str, key: &str, value: &str) -> Result<()> {
        let settings = BTreeMap::from([(key.to_owned(), value.to_owned())]);
        self.change(name, &Change { settings, ..Change::default() }).await?;
        Ok(())
    }

    pub async fn toggle(
        &self,
        upstream: &str,
        kind: CapabilityType,
        key: &str,
        enabled: bool,
    ) -> Result<()> {
        let toggle = Toggle { kind, key: key.to_owned(), enabled: Some(enabled), pinned: None };
        let route = format!("/upstreams/{upstream}/capabilities");
        self.control::<Value>(Method::PATCH, &route, Some(&toggle)).await?;
        Ok(())
    }

    /// A new app's token.
    pub async fn token(&self, app: &str) -> Result<String> {
        let new = NewApp { name: app.to_owned() };
        Ok(self.control::<NewToken>(Method::POST, "/apps", Some(&new)).await?.token)
    }

    pub async fn add(&self, definition: &Definition) -> Result<()> {
        self.control::<Value>(Method::POST, "/upstreams", Some(definition)).await?;
        Ok(())
    }

    /// Starts a fake and adds it under this name.
    pub async fn add_fake(&self, name: &str, options: FakeOptions) -> Result<Fake> {
        let fake = Fake::start(name, options).await?;
        self.add(&self.definition(&fake)?).await?;
        Ok(fake)
    }

    pub fn definition(&self, fake: &Fake) -> Result<Definition> {
        let flavour = match fake.options.transport {
            FakeTransport::Sse => HttpFlavour::Sse,
            _ => HttpFlavour::Auto,
        };
        let transport = match fake.options.transport {
            FakeTransport::Stdio => Transport::Stdio {
                command: Fake::program().display().to_string(),
                args: fake.args(),
                env: BTreeMap::from([(process::MARK.to_owned(), self.mark.clone())]),
                cwd: None,
            },
            _ => Transport::Http { url: fake.url().to_owned(), headers: BTreeMap::new(), flavour },
        };
        let name = UpstreamName::parse(&fake.name)?;
        Ok(Definition { name, transport, enabled: true, settings: UpstreamSettings::default() })
    }

    /// Waits until an upstream is in this state: `ready`, `unavailable`, …
    pub async fn state(&self, upstream: &str, word: &str) -> Result<UpstreamView> {
        let deadline = tokio::time::Instant::now() + DEADLINE;
        loop {
            let view = self.upstream(upstream).await?;
            if view.state.word() == word {
                return Ok(view);
            }
            let late = tokio::time::Instant::now() > deadline;
            ensure!(!late, "{upstream} is {:?} and not {word}", view.state);
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}
