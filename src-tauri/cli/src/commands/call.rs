//! `traygate call`: a tool's result, readable.

use anyhow::Result;
use serde::Deserialize;
use serde_json::value::RawValue;
use traygate_gateway::api;

use super::{Context, text_or_stdin};
use crate::{
    arguments::Call,
    client::CALL,
    failure::{Failure, usage},
    output::remark,
    words,
};

/// What of a tool's result is looked at. The rest is only shown with `--json`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult {
    #[serde(default)]
    content: Vec<Content>,
    structured_content: Option<Box<RawValue>>,
    #[serde(default)]
    is_error: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Content {
    r#type: Option<String>,
    text: Option<String>,
    data: Option<String>,
    mime_type: Option<String>,
    uri: Option<String>,
    name: Option<String>,
    resource: Option<Box<Content>>,
    blob: Option<String>,
}

pub async fn call(context: &Context, wanted: Call) -> Result<()> {
    let Call { tool, arguments } = wanted;
    let arguments = text_or_stdin(&arguments).await?;
    let arguments: Box<RawValue> = serde_json::from_str(arguments.trim())
        .map_err(|error| usage(format!("the arguments are no JSON: {error}")))?;
    if !arguments.get().starts_with('{') {
        return Err(usage("the arguments must be a JSON object, like '{\"path\": \"/tmp\"}'"));
    }
    let doing = format!("waiting for {tool}");
    let body = api::Call { tool, arguments };
    let answer =
        context.client.post("/call").body(&body)?.patience(CALL, doing).receive_bytes().await?;
    let text = std::str::from_utf8(&answer)?;
    let result: Option<ToolResult> = serde_json::from_str(text).ok();
    match &result {
        Some(result) if !context.output.json => {
            let readable = readable(result).unwrap_or_else(|| text.to_owned());
            // A program that reads on gets the text to the letter.
            let shown = if context.output.terminal { words::harmless(&readable) } else { readable };
            context.output.line(shown.trim_end_matches('\n'))?;
        }
        _ => context.output.line(text.trim_end())?,
    }
    if result.is_some_and(|result| result.is_error) {
        if !context.output.json {
            remark("error: the tool reported the failure above");
        }
        return Err(Failure::Told.into());
    }
    Ok(())
}

/// `None` if there is nothing that a person could read.
fn readable(result: &ToolResult) -> Option<String> {
    let parts: Vec<String> = result.content.iter().map(part).collect();
    if !parts.is_empty() {
        return Some(parts.join("\n"));
    }
    result.structured_content.as_ref().map(|value| value.get().to_owned())
}

fn part(content: &Content) -> String {
    if let Some(resource) = &content.resource {
        return part(resource);
    }
    if let Some(text) = &content.text {
        return text.clone();
    }
    let kind = content.r#type.as_deref().unwrap_or("content");
    let mime = content.mime_type.as_deref().unwrap_or("of an unknown type");
    match (content.data.as_ref().or(content.blob.as_ref()), &content.uri) {
        (Some(data), _) => format!("[{kind} {mime}, {}]", size(decoded_length(data))),
        (None, Some(uri)) => format!("[{} {uri}]", content.name.as_deref().unwrap_or(kind)),
        (None, None) => format!("[{kind}]"),
    }
}

fn size(bytes: usize) -> String {
    match bytes {
        0..1_000 => format!("{bytes} bytes"),
        1_000..1_000_000 => format!("{} kB", bytes / 1_000),
        _ => format!("{:.1} MB", bytes as f64 / 1e6),
    }
}

/// How many bytes base64 text stands for.
fn decoded_length(text: &str) -> usize {
    text.trim_end_matches('=').len() * 3 / 4
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(result: &str) -> Option<String> {
        readable(&serde_json::from_str(result).expect("a result"))
    }

    #[test]
    fn text_is_printed_and_the_rest_is_named() {
        let result = r#"{"content": [
            {"type": "text", "text": "one"},
            {"type": "image", "data": "AAAA", "mimeType": "image/png"},
            {"type": "resource_link", "uri": "file:///a", "name": "a"},
            {"type": "resource", "resource": {"uri": "x:y", "text": "two"}}
        ]}"#;
        let expected = "one\n[image image/png, 3 bytes]\n[a file:///a]\ntwo";
        assert_eq!(shown(result).as_deref(), Some(expected));
    }

    #[test]
    fn structured_content_keeps_its_digits() {
        let result = r#"{"structuredContent": {"n": 18446744073709551616}}"#;
        assert_eq!(shown(result).as_deref(), Some(r#"{"n": 18446744073709551616}"#));
    }
}
