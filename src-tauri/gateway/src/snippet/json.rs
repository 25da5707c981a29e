//! Where in a JSON document the servers are.

use jsonc_parser::{
    CollectOptions, ParseOptions,
    ast::{Object, Value},
    parse_to_ast,
};

use super::{Found, SnippetError, entry};

/// Members that hold servers by name, as the configuration files of AI apps have them.
const HOLDERS: [&str; 4] = ["mcpServers", "servers", "context_servers", "mcp_servers"];
/// How deep such a member is looked for.
const DEPTH: usize = 6;

/// JSON with comments and trailing commas. Read as a tree in the document's own order, in which a
/// name that comes twice is still seen twice.
pub fn read(text: &str) -> Result<Vec<Found>, SnippetError> {
    let document = parse_to_ast(text, &CollectOptions::default(), &ParseOptions::default())
        .map_err(|error| SnippetError::Json {
            line: error.line_display(),
            column: error.column_display(),
            why: error.kind().to_string().to_lowercase(),
        })?;
    let found = document.value.as_ref().map(find).unwrap_or_default();
    if found.is_empty() { Err(SnippetError::NoServer) } else { Ok(found) }
}

fn find(document: &Value) -> Vec<Found> {
    let mut found = Vec::new();
    search(document, DEPTH, &mut found);
    if !found.is_empty() {
        return found;
    }
    match document {
        Value::Object(object) if entry::is_server(object) => vec![entry::bare(object)],
        Value::Object(object) => by_name_if_any(object),
        Value::Array(list) => list.elements.iter().filter_map(bare_server).collect(),
        _ => found,
    }
}

/// Gathers what every holder holds.
fn search(value: &Value, depth: usize, found: &mut Vec<Found>) {
    let Value::Object(object) = value else { return };
    if depth == 0 || entry::is_server(object) {
        return;
    }
    for member in &object.properties {
        match (member.name.as_str(), &member.value) {
            (name, Value::Object(servers)) if HOLDERS.contains(&name) => {
                found.extend(by_name(servers));
            }
            (name, Value::Array(list)) if HOLDERS.contains(&name) => {
                found.extend(list.elements.iter().filter_map(bare_server));
            }
            ("mcp", Value::Object(servers)) if servers.properties.iter().any(is_named_server) => {
                found.extend(by_name(servers));
            }
            (_, value) => search(value, depth - 1, found),
        }
    }
}

/// Every member is meant to be a server.
fn by_name(servers: &Object) -> Vec<Found> {
    let entries = servers.properties.iter();
    entries
        .map(|member| Found {
            label: Some(member.name.as_str().to_owned()),
            outcome: entry::read(&member.value),
        })
        .collect()
}

/// `{"name": {"command": …}}` without a holder: what else may be there is no server.
fn by_name_if_any(object: &Object) -> Vec<Found> {
    if object.properties.iter().any(is_named_server) { by_name(object) } else { Vec::new() }
}

fn is_named_server(member: &jsonc_parser::ast::ObjectProp) -> bool {
    member.value.as_object().is_some_and(entry::is_server)
}

fn bare_server(value: &Value) -> Option<Found> {
    value.as_object().filter(|object| entry::is_server(object)).map(entry::bare)
}
