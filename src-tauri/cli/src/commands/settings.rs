//! `traygate set`: how one upstream is treated.

use std::collections::BTreeMap;

use anyhow::Result;
use serde_json::Value;
use traygate_gateway::{
    api::{Change, UpstreamView},
    definition::UpstreamSettings,
};

use super::{Context, upstreams};
use crate::{
    client,
    failure::usage,
    output::{Table, cell},
};

pub async fn set(context: &Context, name: &str, pairs: &[String]) -> Result<()> {
    if pairs.is_empty() {
        let view: UpstreamView = context.client.get(client::upstream(name)).receive().await?;
        return context.output.tell(&view.settings, || {
            let mut table = Table::default();
            for (key, value) in members(&view.settings) {
                table.row(vec![cell(key), cell(value)]);
            }
            table.render(context.output)
        });
    }
    let settings = pairs.iter().map(|pair| parse(pair)).collect::<Result<BTreeMap<_, _>>>()?;
    let change = Change { settings: settings.clone(), ..Change::default() };
    let view = upstreams::change(context, name, &change).await?;
    context.output.tell(&view.settings, || {
        let now = members(&view.settings);
        let lines = now.iter().filter(|(key, _)| settings.contains_key(*key));
        lines.map(|(key, value)| format!("{name}: {key} is {value} now\n")).collect()
    })
}

fn parse(pair: &str) -> Result<(String, String)> {
    match pair.split_once('=') {
        Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
        _ => Err(usage(format!("{pair:?} sets nothing; write key=value, like legacy_ttl=120"))),
    }
}

/// The settings by name, as one would type them.
fn members(settings: &UpstreamSettings) -> BTreeMap<String, String> {
    let Ok(Value::Object(members)) = serde_json::to_value(settings) else {
        return BTreeMap::new();
    };
    let typed = |value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    members.into_iter().map(|(key, value)| (key, typed(value))).collect()
}

/// `legacy_ttl=120`, for each that isn't the default.
pub fn changed(settings: &UpstreamSettings) -> Vec<String> {
    let usual = members(&UpstreamSettings::default());
    let all = members(settings).into_iter();
    all.filter(|(key, value)| usual.get(key) != Some(value))
        .map(|(key, value)| format!("{key}={value}"))
        .collect()
}

#[cfg(test)]
mod tests {
    use traygate_gateway::definition::{LegacyTtl, UntilTold};

    use super::*;

    #[test]
    fn only_what_differs_is_told_and_as_one_types_it() {
        let settings = UpstreamSettings {
            legacy_ttl: LegacyTtl::UntilTold(UntilTold::UntilTold),
            request_timeout: 5,
            ..UpstreamSettings::default()
        };
        assert_eq!(changed(&settings), ["legacy_ttl=until_told", "request_timeout=5"]);
    }
}
