//! What a fake offers: the same at every start, as text, so that a test can ask for the very
//! bytes.

use serde_json::{Value, json, value::RawValue};

use super::options::Options;

/// The members of the `rich` tool's result: every kind of content, unknown fields, digits that no
/// float holds, and keys in an order that no sorting gives.
pub const RICH: &str = concat!(
    r#"{"content":[{"type":"text","text":"caf\u00e9 \/ é","annotations":{"audience":["user"],"priority":0.7,"x-unknown":1}},"#,
    r#"{"type":"image","data":"iVBORw0KGgo=","mimeType":"image/png"},"#,
    r#"{"type":"audio","data":"UklGRg==","mimeType":"audio/wav"},"#,
    r#"{"type":"resource_link","uri":"fake://elsewhere/linked","name":"linked","size":12,"icons":[{"src":"data:,x","sizes":["1x1"]}]},"#,
    r#"{"type":"resource","resource":{"uri":"fake://elsewhere/embedded","mimeType":"text/plain","text":"embedded","_meta":{"k":1}}}],"#,
    r#""structuredContent":{"zeta":18446744073709551616,"alpha":1e3,"one":1.0,"tiny":-0.0,"nested":{"b":null,"a":[]}},"#,
    r#""isError":false,"x-unknown":{"zeta":1,"alpha":2},"_meta":{"example.com/kept":{"zeta":1,"alpha":18446744073709551616}}}"#,
);

/// The `rich` tool as it is listed: unknown fields, icons, `_meta` and a schema full of keywords.
/// Its name stands apart, since that is what a gateway changes.
pub const RICH_TOOL: &str = concat!(
    r#""title":"Rich","description":"Fake text of the rich tool: canary-description-rich","inputSchema":{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","#,
    r##""properties":{"zeta":{"type":"string","pattern":"^z","x-keyword":1e3},"alpha":{"$ref":"#/$defs/a"}},"$defs":{"a":{"maximum":18446744073709551616}},"##,
    r#""description":"canary-schema-rich"},"outputSchema":{"type":"object","properties":{"zeta":{"type":"number"}}},"#,
    r#""annotations":{"title":"Rich one","readOnlyHint":true,"x-unknown":[1,2]},"execution":{"taskSupport":"forbidden"},"#,
    r#""icons":[{"src":"data:image/png;base64,iVBORw0KGgo=","mimeType":"image/png","sizes":["48x48"],"x-theme":"dark"}],"#,
    r#""x-unknown":{"zeta":1,"alpha":2},"_meta":{"example.com/kept":[1.0,18446744073709551616]}"#,
);

/// Words of descriptions and schemas that must be in no file of the gateway.
pub const CANARIES: [&str; 4] =
    ["canary-description", "canary-schema", "canary-prompt", "canary-resource"];

/// The `data` of the `rpc-error` tool's error, whose code is 4242.
pub const RPC_ERROR_DATA: &str = r#"{"zeta":18446744073709551616,"alpha":"kept"}"#;

/// The tools that every fake has, by their own names.
pub const TOOLS: [&str; 20] = [
    "echo",
    "add",
    "rich",
    "fail",
    "rpc-error",
    "progress",
    "log",
    "ask",
    "sample",
    "roots",
    "slow",
    "read-only",
    "idempotent",
    "counter",
    "env",
    "spawn",
    "end-session",
    "link",
    "large",
    "say",
];

fn raw(value: &Value) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("a JSON value is JSON")
}

fn raw_text(text: String) -> Box<RawValue> {
    RawValue::from_string(text).expect("written here as JSON")
}

pub fn tools(options: &Options) -> Vec<Box<RawValue>> {
    let mut tools: Vec<_> = TOOLS.iter().map(|name| tool(&options.prefix, name)).collect();
    if options.bad_tool {
        // In the middle, so that what follows it shows that it was skipped over.
        let bad = format!(r#"{{"name":"{}bad","title":7}}"#, options.prefix);
        tools.insert(2, raw_text(bad));
    }
    let numbered = (1..=options.tools).map(|number| format!("tool-{number:04}"));
    tools.extend(numbered.map(|name| tool(&options.prefix, &name)));
    tools.extend(options.tool_name.iter().map(|name| tool("", name)));
    tools
}

/// One tool as it is listed. A name that isn't one of the set's behaves as `echo`.
pub fn tool(prefix: &str, name: &str) -> Box<RawValue> {
    let full = format!("{prefix}{name}");
    if name == "rich" {
        return raw_text(format!(r#"{{"name":{},{RICH_TOOL}}}"#, json!(full)));
    }
    let mut tool = json!({
        "name": full,
        "description": format!("Fake text of {name}: canary-description-{name}"),
        "inputSchema": {"type": "object", "description": format!("canary-schema-{name}")},
    });
    match name {
        "read-only" => tool["annotations"] = json!({"readOnlyHint": true}),
        "idempotent" => tool["annotations"] = json!({"idempotentHint": true}),
        _ => {}
    }
    raw(&tool)
}

pub fn prompts(options: &Options) -> Vec<Box<RawValue>> {
    let prefix = &options.prefix;
    vec![
        raw(&json!({
            "name": format!("{prefix}greet"),
            "description": "Fake text of greet: canary-prompt-greet",
            "arguments": [
                {"name": "name", "description": "canary-prompt-name", "required": true},
                {"name": "style"},
            ],
            "x-unknown": {"kept": true},
        })),
        raw(&json!({"name": format!("{prefix}plain"), "title": "Plain"})),
    ]
}

pub fn text_uri(options: &Options) -> String {
    format!("fake://{}/text", options.authority)
}

pub fn resources(options: &Options) -> Vec<Box<RawValue>> {
    let authority = &options.authority;
    vec![
        raw(&json!({
            "uri": text_uri(options),
            "name": "text",
            "description": "Fake text: canary-resource-text",
            "mimeType": "text/plain",
            "x-unknown": 1,
        })),
        raw(&json!({
            "uri": format!("fake://{authority}/blob"),
            "name": "blob",
            "mimeType": "application/octet-stream",
        })),
    ]
}

pub fn templates(options: &Options) -> Vec<Box<RawValue>> {
    vec![raw(&json!({
        "uriTemplate": format!("fake://{}/item/{{id}}", options.authority),
        "name": "item",
        "description": "Fake text: canary-resource-item",
    }))]
}

/// The contents of one resource, if there is such a one.
pub fn contents(options: &Options, uri: &str) -> Option<Value> {
    let path = uri.strip_prefix("fake://")?.strip_prefix(options.authority.as_str())?;
    Some(match path {
        "/text" => json!([{
            "uri": uri, "mimeType": "text/plain", "x-unknown": {"zeta": 1},
            "text": format!("the text of {}", options.authority),
        }]),
        "/blob" => json!([{"uri": uri, "mimeType": "application/octet-stream", "blob": "AAEC"}]),
        "/linked" => json!([{"uri": uri, "text": "only linked, never listed"}]),
        item => {
            let id = item.strip_prefix("/item/").filter(|id| !id.is_empty())?;
            json!([{"uri": uri, "mimeType": "text/plain", "text": format!("item {id}")}])
        }
    })
}

/// The messages of one prompt, if there is such a one.
pub fn messages(options: &Options, name: &str, arguments: &Value) -> Option<Value> {
    let text = match name.strip_prefix(options.prefix.as_str())? {
        "greet" => format!(
            "Greet {} in a {} way",
            arguments["name"].as_str().unwrap_or("nobody"),
            arguments["style"].as_str().unwrap_or("plain"),
        ),
        "plain" => "Say something plain".to_owned(),
        _ => return None,
    };
    Some(json!([{"role": "user", "content": {"type": "text", "text": text}}]))
}

/// The values that complete an argument of a prompt or a template.
pub fn completions(options: &Options, reference: &Value, argument: &Value) -> Option<Value> {
    let of_greet = reference["name"].as_str() == Some(&format!("{}greet", options.prefix));
    let of_item =
        reference["uri"].as_str() == Some(&format!("fake://{}/item/{{id}}", options.authority));
    let all: &[&str] = match (reference["type"].as_str()?, argument["name"].as_str()?) {
        ("ref/prompt", "name") if of_greet => &["ada", "alan", "grace"],
        ("ref/prompt", "style") if of_greet => &["warm", "short"],
        ("ref/resource", "id") if of_item => &["1", "10", "2"],
        _ => return None,
    };
    let start = argument["value"].as_str().unwrap_or_default();
    let values: Vec<_> = all.iter().filter(|value| value.starts_with(start)).collect();
    Some(json!({"values": values, "total": values.len(), "hasMore": false}))
}
