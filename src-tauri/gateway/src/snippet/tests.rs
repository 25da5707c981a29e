//! What people paste, and what comes of it.

use super::*;
use crate::definition::HttpFlavour;

const PORT: u16 = 8717;

fn parsed(text: &str) -> Parsed {
    parse(text, None, PORT).unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn failure(text: &str) -> String {
    parse(text, None, PORT).expect_err(text).to_string()
}

fn name(text: &str) -> UpstreamName {
    UpstreamName::parse(text).expect("a valid name")
}

fn stdio(command: &str, args: &[&str], env: &[(&str, &str)]) -> Transport {
    Transport::Stdio {
        command: command.to_owned(),
        args: args.iter().map(|arg| (*arg).to_owned()).collect(),
        env: env.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        cwd: None,
    }
}

fn http(url: &str, headers: &[(&str, &str)], flavour: HttpFlavour) -> Transport {
    let headers = headers.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
    Transport::Http { url: url.to_owned(), headers: headers.collect(), flavour }
}

fn names(parsed: &Parsed) -> Vec<&str> {
    parsed.definitions.iter().map(|definition| definition.name.as_str()).collect()
}

/// The text holds just this one server, and there is nothing to say about it.
#[track_caller]
fn holds(text: &str, expected_name: &str, expected: Transport) {
    let parsed = parsed(text);
    assert_eq!(parsed.notes, [""; 0], "{text}");
    let expected = Definition {
        name: name(expected_name),
        transport: expected,
        enabled: true,
        settings: UpstreamSettings::default(),
    };
    assert_eq!(parsed.definitions, [expected], "{text}");
}

#[test]
fn servers_are_found_wherever_apps_keep_them() {
    let server = r#"{"time": {"command": "uvx", "args": ["mcp-server-time", "--tz=UTC"]}}"#;
    for text in [
        server.to_owned(),
        format!(r#"{{"mcpServers": {server}}}"#),
        format!(r#"{{"servers": {server}, "inputs": []}}"#),
        format!(r#"{{"theme": "dark", "mcp": {{"servers": {server}}}}}"#),
        format!(r#"{{"mcp": {server}}}"#),
        format!(r#"{{"context_servers": {server}}}"#),
        format!(r#"{{"projects": {{"/home/a": {{"mcpServers": {server}}}}}}}"#),
        format!("\u{feff}// settings\r\n{{\"mcpServers\": {server}, /* end */\r\n}}"),
        format!("```json\n{{\"mcpServers\": {server}}}\n```"),
        r#""time": {"command": "uvx", "args": ["mcp-server-time", "--tz=UTC"]},"#.to_owned(),
        r#"[{"name": "time", "cmd": "uvx", "args": ["mcp-server-time", "--tz=UTC"]}]"#.to_owned(),
    ] {
        holds(&text, "time", stdio("uvx", &["mcp-server-time", "--tz=UTC"], &[]));
    }
}

#[test]
fn a_server_may_be_written_in_many_ways() {
    for (server, expected) in [
        (
            r#"{"command": "n", "args": [1, true, "a b"], "env": {"A": 1, "B": null}, "cwd": null}"#,
            stdio("n", &["1", "true", "a b"], &[("A", "1")]),
        ),
        (
            r#"{"type": "local", "command": ["npx", "p"], "environment": {"K": "v"}, "enabled": true}"#,
            stdio("npx", &["p"], &[("K", "v")]),
        ),
        (
            r#"{"command": {"path": "npx", "args": ["p"], "env": {"K": "v"}}, "settings": {}}"#,
            stdio("npx", &["p"], &[("K", "v")]),
        ),
        (r#"{"url": "https://h.org/mcp/"}"#, http("https://h.org/mcp/", &[], HttpFlavour::Auto)),
        (r#"{"serverUrl": "https://h.org/x"}"#, http("https://h.org/x", &[], HttpFlavour::Auto)),
        (
            r#"{"httpUrl": "https://h.org/x", "headers": {"A": "b"}}"#,
            http("https://h.org/x", &[("A", "b")], HttpFlavour::StreamableHttp),
        ),
        (
            r#"{"type": "streamableHttp", "url": "https://h.org/x"}"#,
            http("https://h.org/x", &[], HttpFlavour::StreamableHttp),
        ),
        (
            r#"{"transport": "sse", "url": "https://h.org/x"}"#,
            http("https://h.org/x", &[], HttpFlavour::Sse),
        ),
    ] {
        holds(&format!(r#"{{"mcpServers": {{"a": {server}}}}}"#), "a", expected);
    }
}

#[test]
fn a_server_without_a_name_gets_the_given_one_or_one_of_its_own() {
    let text = r#"{"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]}"#;
    assert_eq!(names(&parsed(text)), ["everything"]);
    let named = parse(text, Some(&name("mine")), PORT).expect("one server");
    assert_eq!((names(&named), named.notes.len()), (vec!["mine"], 0));
    let two = r#"{"mcpServers": {"a": {"command": "x"}, "b": {"command": "y"}}}"#;
    let two = parse(two, Some(&name("mine")), PORT).expect("two servers");
    assert_eq!(names(&two), ["a", "b"]);
    assert!(two.notes[0].contains("mine"), "{:?}", two.notes);
}

#[test]
fn names_come_from_the_package_the_program_or_the_host() {
    for (line, expected) in [
        ("npx -y @modelcontextprotocol/server-everything stdio", "everything"),
        ("npx -y @modelcontextprotocol/server-filesystem@2026.1.1 /tmp", "filesystem"),
        ("uvx mcp-server-git --repository .", "git"),
        ("uvx --from git+https://example.org/o/r some-mcp", "some-mcp"),
        ("python3 -m mcp_server_time", "time"),
        ("node /opt/weather/build/index.js", "weather"),
        ("docker run -i --rm -e TOKEN ghcr.io/github/github-mcp-server:1.2", "github"),
        ("cmd /c npx -y @playwright/mcp@latest", "playwright"),
        ("uv --directory /srv/notes run server.py", "server"),
        ("/usr/local/bin/my_tool --serve", "my-tool"),
        (r"C:\Tools\weather.exe --x", "weather"),
        ("https://mcp.linear.app/sse", "linear"),
        ("https://api.githubcopilot.com/mcp/", "githubcopilot"),
        ("http://localhost:3000/mcp", "localhost-3000"),
        ("http://[::1]:3001/mcp", "1-3001"),
    ] {
        assert_eq!(names(&parsed(line)), [expected], "{line}");
    }
}

#[test]
fn a_command_line_is_split_as_a_shell_does() {
    holds(
        "$ API_KEY='a b' npx -y \\\n  some-mcp --root \"/tmp/x y\"",
        "some-mcp",
        stdio("npx", &["-y", "some-mcp", "--root", "/tmp/x y"], &[("API_KEY", "a b")]),
    );
    holds(
        r#"C:\Tools\weather.exe "C:\My Docs""#,
        "weather",
        stdio(r"C:\Tools\weather.exe", &[r"C:\My Docs"], &[]),
    );
    holds("https://h.org/sse", "h", http("https://h.org/sse", &[], HttpFlavour::Auto));
    assert!(failure("npx 'open").contains("quote"));
}

#[test]
fn add_commands_of_other_apps_are_understood() {
    holds(
        "claude mcp add air --env KEY=v OTHER=w -s user -- npx -y air-mcp --flag",
        "air",
        stdio("npx", &["-y", "air-mcp", "--flag"], &[("KEY", "v"), ("OTHER", "w")]),
    );
    holds("gemini mcp add g npx -y x", "g", stdio("npx", &["-y", "x"], &[]));
    holds(
        "claude mcp add --transport http n https://h.org/mcp --header 'Authorization: Bearer t'",
        "n",
        http("https://h.org/mcp", &[("Authorization", "Bearer t")], HttpFlavour::StreamableHttp),
    );
    holds(
        "codex mcp add c --url https://h.org/mcp",
        "c",
        http("https://h.org/mcp", &[], HttpFlavour::Auto),
    );
    holds(r#"claude mcp add-json j '{"type":"stdio","command":"x"}'"#, "j", stdio("x", &[], &[]));
    holds(r#"traygate add t --json '{"command":"x"}'"#, "t", stdio("x", &[], &[]));
    holds("traygate add t -- node -e '{}'", "t", stdio("node", &["-e", "{}"], &[]));
    holds(r#"code --add-mcp '{"name":"v","command":"x"}'"#, "v", stdio("x", &[], &[]));
    let two = parsed("# both\nclaude mcp add a -- x\nclaude mcp add b --frob 1 -- y");
    assert_eq!(names(&two), ["a"]);
    assert!(two.notes[0].contains("\"b\"") && two.notes[0].contains("--frob"), "{:?}", two.notes);
}

#[test]
fn names_are_made_valid_and_unique_and_every_change_is_told() {
    let text = r#"{"mcpServers": {
        "dup": {"command": "a"}, "dup": {"command": "b"}, "DUP": {"command": "c"}, "dup": {"command": "a"},
        "sla/sh": {"command": "x"}, "日本": {"command": "tool"}, "": {"command": "none"},
        "traygate": {"command": "other"}
    }}"#;
    let parsed = parsed(text);
    assert_eq!(names(&parsed), ["dup", "dup-2", "dup-3", "sla-sh", "tool", "none", "other"]);
    assert_eq!(
        parsed.notes,
        [
            "\"dup\" is called dup-2 here",
            "\"DUP\" is called dup-3 here",
            "dup is in there twice; it was taken once",
            "\"sla/sh\" is called sla-sh here",
            "\"日本\" is called tool here",
            "\"traygate\" is called other here",
        ]
    );
}

#[test]
fn one_bad_entry_costs_that_entry_and_is_named() {
    let text = r#"{"mcpServers": {
        "good": {"command": "npx", "args": ["x"]}, "number": {"command": 5}, "words": {"command": "npx", "args": "a b"},
        "nothing": {}, "null": null, "both": {"command": "npx", "url": "http://x"}, "ftp": {"url": "ftp://x"},
        "odd": {"type": "websocket", "url": "http://x"}, "list": {"command": "x", "env": ["A=secret"]}
    }}"#;
    let parsed = parsed(text);
    assert_eq!(names(&parsed), ["good"]);
    let notes = parsed.notes.join("\n");
    for bad in ["number", "words", "nothing", "null", "both", "ftp", "odd", "list"] {
        assert!(notes.contains(&format!("{bad:?} was left out")), "{bad}: {notes}");
    }
    assert!(!notes.contains("secret"), "{notes}");
}

#[test]
fn what_is_disabled_stays_so_and_what_is_not_known_is_told() {
    let text = r#"{"mcpServers": {
        "a": {"command": "x", "disabled": true}, "b": {"command": "x", "enabled": false},
        "c": {"command": "x", "timeout": 600, "autoApprove": ["y"], "alwaysAllow": [], "description": "d"}
    }}"#;
    let parsed = parsed(text);
    let enabled: Vec<_> = parsed.definitions.iter().map(|d| d.enabled).collect();
    assert_eq!(enabled, [false, false, true]);
    assert_eq!(parsed.notes, ["c: left out: timeout, autoApprove"]);
}

#[test]
fn what_has_to_be_filled_in_is_named_and_never_started_as_it_is() {
    for (server, place) in [
        (
            r#"{"command": "x", "env": {"K": "${input:api-key}"}}"#,
            "${input:api-key} in the variable K",
        ),
        (r#"{"command": "x", "env": {"K": "${KEY:-hush}"}}"#, "${KEY} in the variable K"),
        (r#"{"command": "x", "env": {"K": "$MY_KEY"}}"#, "$MY_KEY in the variable K"),
        (r#"{"command": "x", "args": ["${workspaceFolder}/a"]}"#, "in the arguments"),
        (r#"{"url": "https://h.org", "headers": {"A": "{env:T}"}}"#, "{env:T} in the header A"),
        (r#"{"url": "https://h.org", "headers": {"A": "Bearer <your token>"}}"#, "the header A"),
        (r#"{"url": "https://h.org", "headers": {"A": "YOUR_TOKEN"}}"#, "the header A"),
        (r#"{"url": "https://${host}/mcp"}"#, "${host} in the URL"),
    ] {
        let parsed = parsed(&format!(r#"{{"mcpServers": {{"a": {server}}}}}"#));
        assert!(!parsed.definitions[0].enabled, "{server}");
        assert!(parsed.notes[0].contains(place), "{server}: {:?}", parsed.notes);
        assert!(!parsed.notes[0].contains("hush"), "a default may be a secret");
    }
}

#[test]
fn traygates_own_entry_is_left_out() {
    let text = r#"{"mcpServers": {"gate": {"url": "http://127.0.0.1:8717/mcp"}, "other": {"command": "x"},
        "bridge": {"command": "/usr/bin/traygate", "args": ["stdio"]}, "near": {"url": "http://localhost:3000/mcp"},
        "through": {"command": "npx", "args": ["mcp-remote", "http://localhost:8717/mcp/files"]}}}"#;
    let parsed = parsed(text);
    assert_eq!(names(&parsed), ["other", "near"]);
    assert_eq!(parsed.notes.len(), 3, "{:?}", parsed.notes);
    let alone = failure("http://localhost:8717/mcp");
    assert!(alone.contains("Traygate itself"), "{alone}");
}

#[test]
fn a_command_in_one_text_is_split_only_if_it_surely_is_a_line() {
    let line = parsed(r#"{"a": {"command": "npx -y some-mcp"}}"#);
    assert_eq!(line.definitions[0].transport, stdio("npx", &["-y", "some-mcp"], &[]));
    assert!(line.notes[0].contains("split"), "{:?}", line.notes);
    holds(
        r#"{"a": {"command": "C:\\Program Files\\x.exe"}}"#,
        "a",
        stdio(r"C:\Program Files\x.exe", &[], &[]),
    );
}

#[test]
fn what_can_not_be_read_is_said_in_one_clear_sentence() {
    for (text, expected) in [
        ("", "nothing to add"),
        ("  \n ", "nothing to add"),
        ("{\"mcpServers\": {}}", "no MCP server was found"),
        ("{\"a\": 1}", "no MCP server was found"),
        ("{\"mcpServers\": {\"a\": {\"command\": \"x\"}}}\n{\"second\": 1}", "line 2, column 1"),
        ("{\"mcpServers\": {\"a\": ", "line 1"),
        ("[mcp_servers.docs]\ncommand = \"npx\"", "TOML"),
        ("extensions:\n  a:\n    cmd: uvx", "YAML"),
        ("GOOSE_MODEL: x\nextensions:\n  a:\n    cmd: uvx", "YAML"),
        ("model = \"x\"\n\n[mcp_servers.docs]\ncommand = \"npx\"", "TOML"),
        ("{\0\"\0", "UTF-16"),
        (
            r#"{"mcpServers": {"a": {"command": 5}}}"#,
            "\"a\" was left out: its command is not a text",
        ),
    ] {
        let error = failure(text);
        assert!(error.contains(expected) && !error.contains('\n'), "{text:?}: {error}");
    }
    assert!(failure(&"[".repeat(100_000)).contains("nesting"), "no stack overflow");
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in r#"([{}\[\]":,$\\ a-z\n<>=/.-]|command|url|mcpServers|npx|https://){0,60}|.{0,80}"#) {
        if let Ok(parsed) = parse(&text, None, PORT) {
            proptest::prop_assert!(!parsed.definitions.is_empty());
        }
    }
}
