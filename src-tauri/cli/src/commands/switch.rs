//! Commands about single capabilities: enable, disable, pin, unpin, forget.

use anyhow::Result;
use serde_json::json;
use traygate_gateway::{
    api::{CapabilityView, Change, Toggle},
    capability::CapabilityType,
};

use super::{Context, upstreams};
use crate::{
    client::{self, encoded},
    failure::usage,
};

/// What a person points at.
#[derive(Debug, PartialEq, Eq)]
enum Target {
    Upstream(String),
    Capability { upstream: String, kind: CapabilityType, key: String },
}

impl Target {
    /// `<upstream>` or `<upstream>/<type>/<key>`; a key may itself hold slashes, as URIs do.
    fn parse(text: &str) -> Result<Self> {
        let shape = || {
            usage(format!(
                "{text:?} names no capability; write it as <upstream>/<type>/<key>, like files/tool/read_file"
            ))
        };
        let mut parts = text.splitn(3, '/');
        match (parts.next(), parts.next(), parts.next()) {
            (Some("") | None, ..) | (Some(_), Some(_), None | Some("")) => Err(shape()),
            (Some(upstream), None, _) => Ok(Self::Upstream(upstream.to_owned())),
            (Some(upstream), Some(kind), Some(key)) => Ok(Self::Capability {
                upstream: upstream.to_owned(),
                kind: kind.parse().map_err(
                    |error: traygate_gateway::capability::UnknownType| usage(error.to_string()),
                )?,
                key: key.to_owned(),
            }),
        }
    }
}

fn parsed(targets: &[String]) -> Result<Vec<Target>> {
    // All are looked at before the first is changed.
    targets.iter().map(|target| Target::parse(target)).collect()
}

fn capabilities(targets: &[String]) -> Result<Vec<(String, CapabilityType, String)>> {
    let capability = |target| match target {
        Target::Capability { upstream, kind, key } => Ok((upstream, kind, key)),
        Target::Upstream(name) => {
            Err(usage(format!("{name:?} names no capability; write it as <upstream>/<type>/<key>")))
        }
    };
    parsed(targets)?.into_iter().map(capability).collect()
}

pub async fn enable(context: &Context, targets: &[String], enabled: bool) -> Result<()> {
    let word = if enabled { "enabled" } else { "disabled" };
    let mut changed = Vec::new();
    for target in parsed(targets)? {
        let (value, name) = match target {
            Target::Upstream(name) => {
                let change = Change { enabled: Some(enabled), ..Change::default() };
                (json!(upstreams::change(context, &name, &change).await?), name)
            }
            Target::Capability { upstream, kind, key } => {
                let toggle = Toggle { kind, key, enabled: Some(enabled), pinned: None };
                (
                    toggled(context, &upstream, &toggle).await?,
                    format!("{upstream}/{kind}/{}", toggle.key),
                )
            }
        };
        said(context, word, &name)?;
        changed.push(value);
    }
    finish(context, &changed)
}

pub async fn pin(context: &Context, targets: &[String], pinned: bool) -> Result<()> {
    let word = if pinned { "pinned" } else { "unpinned" };
    let mut changed = Vec::new();
    for (upstream, kind, key) in capabilities(targets)? {
        let toggle = Toggle { kind, key, enabled: None, pinned: Some(pinned) };
        changed.push(toggled(context, &upstream, &toggle).await?);
        said(context, word, &format!("{upstream}/{kind}/{}", toggle.key))?;
    }
    finish(context, &changed)
}

pub async fn forget(context: &Context, targets: &[String]) -> Result<()> {
    let mut forgotten = Vec::new();
    for (upstream, kind, key) in capabilities(targets)? {
        let query = format!("type={kind}&key={}", encoded(&key));
        let path = format!("{}/capabilities?{query}", client::upstream(&upstream));
        context.client.delete(path).done().await?;
        let name = format!("{upstream}/{kind}/{key}");
        said(context, "forgot", &name)?;
        forgotten.push(json!({"forgot": name}));
    }
    finish(context, &forgotten)
}

async fn toggled(context: &Context, upstream: &str, toggle: &Toggle) -> Result<serde_json::Value> {
    let path = format!("{}/capabilities", client::upstream(upstream));
    let view: CapabilityView = context.client.patch(path).body(toggle)?.receive().await?;
    Ok(json!(view))
}

/// Each one is said when it is done: a later one may fail.
fn said(context: &Context, word: &str, name: &str) -> Result<()> {
    if !context.output.json {
        context.output.line(&format!("{word} {name}"))?;
    }
    Ok(())
}

fn finish(context: &Context, changed: &[serde_json::Value]) -> Result<()> {
    if context.output.json { context.output.value(&changed) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_may_hold_slashes() {
        let target = Target::parse("docs/resources/file:///a/b").expect("a capability");
        let expected = Target::Capability {
            upstream: "docs".into(),
            kind: CapabilityType::Resource,
            key: "file:///a/b".into(),
        };
        assert_eq!(target, expected);
        assert_eq!(Target::parse("docs").expect("an upstream"), Target::Upstream("docs".into()));
    }

    #[test]
    fn half_a_capability_is_refused() {
        for text in ["", "/", "docs/", "docs/tool", "docs/tool/", "docs/gadget/x"] {
            assert!(Target::parse(text).is_err(), "{text}");
        }
    }
}
