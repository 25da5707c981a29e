//! `traygate export` and `traygate import`.

use std::path::Path;

use anyhow::{Context as _, Result};
use traygate_gateway::api::{Export, Imported};

use super::{Context, text_or_stdin};
use crate::words;

pub async fn export(context: &Context, file: Option<&Path>) -> Result<()> {
    let export: Export = context.client.get("/export").receive().await?;
    let Some(file) = file.filter(|file| *file != Path::new("-")) else {
        return context.output.value(&export);
    };
    let text = serde_json::to_string_pretty(&export)? + "\n";
    std::fs::write(file, text).with_context(|| format!("cannot write {}", file.display()))?;
    let upstreams = words::count(export.upstreams.len(), "upstream");
    let told = serde_json::json!({"file": file, "upstreams": export.upstreams.len()});
    context.done(&told, &format!("wrote {upstreams} to {}, without secrets", file.display()))
}

pub async fn import(context: &Context, file: &str) -> Result<()> {
    let text = match file {
        "-" => text_or_stdin(file).await?,
        file => std::fs::read_to_string(file).with_context(|| format!("cannot read {file}"))?,
    };
    let export: Export = serde_json::from_str(&text)
        .with_context(|| format!("{file} isn't what `traygate export` writes"))?;
    let imported: Imported = context.client.post("/import").body(&export)?.receive().await?;
    context.output.tell(&imported, || {
        let Imported { added, merged, notes } = &imported;
        let added = added.iter().map(|name| format!("added {name}\n"));
        let merged = merged.iter().map(|name| format!("merged the choices about {name}\n"));
        let notes = notes.iter().map(|note| format!("note: {}\n", words::one_line(note)));
        let text: String = added.chain(merged).chain(notes).collect();
        if text.is_empty() { "nothing to import\n".to_owned() } else { text }
    })
}
