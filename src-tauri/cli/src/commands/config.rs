//! `traygate config`: Traygate's own settings.

use anyhow::Result;
use traygate_gateway::api::{SettingValue, SettingView};

use super::Context;
use crate::{
    arguments::Config,
    client::encoded,
    output::{Output, Table, Tone, cell},
};

pub async fn config(context: &Context, wanted: Config) -> Result<()> {
    let Some(key) = wanted.key else {
        let all: Vec<SettingView> = context.client.get("/settings").receive().await?;
        return context.output.tell(&all, || table(&all, context.output));
    };
    let path = format!("/settings/{}", encoded(&key));
    let changed = wanted.value.is_some() || wanted.reset;
    let request = match wanted.value {
        Some(value) => context.client.put(path).body(&SettingValue { value })?,
        None if wanted.reset => context.client.delete(path),
        None => context.client.get(path),
    };
    let setting: SettingView = request.receive().await?;
    context.output.tell(&setting, || {
        if changed {
            format!("{} is {} now\n", setting.key, setting.value)
        } else {
            // Alone, so that a script can use it.
            format!("{}\n", setting.value)
        }
    })
}

fn table(settings: &[SettingView], output: Output) -> String {
    let mut table = Table::new(&["SETTING", "VALUE", "DEFAULT", "WHAT IT IS"]);
    for setting in settings {
        let tone = if setting.value == setting.default { Tone::Plain } else { Tone::Strong };
        table.row(vec![
            cell(&*setting.key),
            (tone, setting.value.clone()),
            (Tone::Faint, setting.default.clone()),
            cell(&*setting.about),
        ]);
    }
    table.render(output)
}
