//! The commands against a small real control API: what each asks, what it prints, how it exits.

mod support;

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::{Body, Bytes},
    extract::{Request, State},
    http::{Method, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use serde_json::{Value, json};
use support::{Home, TOKEN};
use tokio::net::TcpListener;

type Asked = Arc<Mutex<Vec<(String, Value)>>>;

/// A host that only plays its control API, and a home whose run file points at it.
struct Control {
    asked: Asked,
    home: Home,
}

impl Control {
    async fn start() -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
        let port = listener.local_addr().expect("bound").port();
        let asked = Asked::default();
        let router = Router::new().fallback(answer).with_state(asked.clone());
        // Ends with the test's runtime.
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { asked, home: Home::of_host(port) }
    }

    /// Runs a command that must do well, and gives its output and what the host was asked.
    async fn ok(&self, arguments: &[&str]) -> (String, Vec<(String, Value)>) {
        let ended = self.home.run(arguments).await;
        assert_eq!(ended.code, 0, "{arguments:?}: {ended:?}");
        (ended.out, self.taken())
    }

    fn taken(&self) -> Vec<(String, Value)> {
        std::mem::take(&mut *self.asked.lock().expect("no panic"))
    }
}

async fn answer(State(asked): State<Asked>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, 1 << 20).await.expect("a body");
    let problem = |status: StatusCode, message: &str| {
        (status, json!({"message": message}).to_string()).into_response()
    };
    if parts.headers.get(header::AUTHORIZATION).is_none_or(|it| it != &format!("Bearer {TOKEN}")) {
        return problem(StatusCode::UNAUTHORIZED, "the token is missing or wrong");
    }
    let target = parts.uri.to_string();
    let target = target.strip_prefix("/control/v1").expect("the control API's prefix");
    let json = serde_json::from_slice(&body).unwrap_or(Value::Null);
    asked.lock().expect("no panic").push((format!("{} {target}", parts.method), json.clone()));
    if target == "/upstreams/slow/test" {
        tokio::time::sleep(std::time::Duration::from_millis(1_300)).await;
    }
    reply(&parts.method, target, &json)
}

fn reply(method: &Method, target: &str, body: &Value) -> Response {
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parts: Vec<&str> = path.split('/').skip(1).collect();
    if parts.get(1) == Some(&"nope") {
        let message = r#"{"message":"there is no upstream \"nope\"; did you mean files?"}"#;
        return (StatusCode::NOT_FOUND, message).into_response();
    }
    let text = match (method.as_str(), &parts[..]) {
        ("GET" | "POST" | "DELETE", ["status" | "pause"]) => {
            let pause =
                (method == Method::POST).then(|| json!({"what": body["what"], "until": null}));
            json!({"revision": 1, "version": "0.1.0", "pid": 7, "endpoint": "http://127.0.0.1:1/mcp",
                "data_dir": "/d", "started_at": 0, "pause": pause, "upstreams": [files(), broken()], "apps": [app()]})
        }
        ("GET", ["upstreams"]) => json!([files(), broken()]),
        ("POST", ["upstreams"]) => {
            let name = body["name"].as_str().unwrap_or("from-snippet");
            return (
                StatusCode::CREATED,
                json!({"upstreams": [name], "notes": ["a note"]}).to_string(),
            )
                .into_response();
        }
        ("GET", ["upstreams", _, "capabilities"]) => capabilities(query.contains("live")),
        ("PATCH", ["upstreams", _, "capabilities"]) => capabilities(false)["items"][0].clone(),
        ("POST", ["upstreams", "broken", "first-contact"]) => {
            let problem = json!({"message": "broken exited at once", "code": "UPSTREAM_UNAVAILABLE", "upstream": "broken"});
            return (StatusCode::SERVICE_UNAVAILABLE, problem.to_string()).into_response();
        }
        ("POST", ["upstreams", _, "test" | "first-contact"]) => {
            json!({"era": "modern", "protocol_version": "2026-07-28",
            "server": "files 1.0", "found": {"tool": 2}, "connected_ms": 5, "total_ms": 1200, "warnings": []})
        }
        ("GET", ["upstreams", _, "log"]) if query.contains("follow") => {
            let lines = [log_line("one"), json!(null), log_line("two")]
                .map(|it| if it.is_null() { "\n".into() } else { format!("{it}\n") });
            let stream =
                futures::stream::iter(lines.map(|line| Ok::<_, std::io::Error>(Bytes::from(line))));
            return Body::from_stream(stream).into_response();
        }
        ("GET", ["upstreams", _, "log"]) => json!([log_line("one\u{1b}[31m")]),
        ("DELETE", ["upstreams" | "apps", ..]) => return StatusCode::NO_CONTENT.into_response(),
        (_, ["upstreams", ..]) => files(),
        ("POST", ["call"]) => {
            let failed = body["tool"] == "files__fail";
            let text = format!(
                r#"{{"content":[{{"type":"text","text":"hello"}}],"n":18446744073709551616,"isError":{failed}}}"#
            );
            return text.into_response();
        }
        ("GET", ["apps"]) => json!([app()]),
        ("POST", ["apps"]) => {
            json!({"name": body["name"], "token": "tg-secret", "endpoint": "http://127.0.0.1:1/mcp"})
        }
        ("GET", ["settings"]) => json!([setting("8717")]),
        ("PUT", ["settings", _]) => setting(body["value"].as_str().expect("a value")),
        (_, ["settings", _]) => setting("8717"),
        ("GET", ["export"]) => json!({"traygate_export": 1, "upstreams": [], "settings": {}}),
        ("POST", ["import"]) => json!({"added": ["a"], "merged": ["b"], "notes": ["c"]}),
        ("POST", ["shutdown"]) => return StatusCode::ACCEPTED.into_response(),
        _ => return (StatusCode::NOT_FOUND, r#"{"message":"no such route"}"#).into_response(),
    };
    text.to_string().into_response()
}

fn settings() -> Value {
    json!({"auto_enable_new_capabilities": true, "legacy_ttl": 120, "isolation": "shared", "request_timeout": 30,
        "call_idle_timeout": 300, "call_total_timeout": 3600, "notifications": true, "idle_stop": 0})
}

/// Milliseconds of Unix time, so long before now.
fn ago(milliseconds: i64) -> i64 {
    jiff::Timestamp::now().as_millisecond() - milliseconds
}

fn files() -> Value {
    json!({"name": "files", "enabled": true, "reached_by": "npx -y files", "transport_kind": "stdio", "era": "modern",
        "protocol_version": "2026-07-28", "server": "files 1.0", "state": {"state": "ready"}, "since": ago(150_000),
        "heals": 2, "last_error": {"at": ago(150_000), "reason": "it exited\u{1b}[2J with code 1"},
        "catalogues": [{"type": "tool", "freshness": {"is": "fresh", "until": null}, "total": 2, "on": 1, "warnings": ["one is bad"]}],
        "settings": settings()})
}

fn broken() -> Value {
    let mut view = files();
    view["name"] = "broken".into();
    view["catalogues"] = json!([]);
    view["heals"] = json!(0);
    view["state"] =
        json!({"state": "unavailable", "reason": "it exited at once", "next_try": null});
    view
}

fn capabilities(live: bool) -> Value {
    let item = |key: &str, exposed: &str, enabled: bool| {
        let mut item = json!({"type": "tool", "key": key, "enabled": enabled, "live": true, "exposed": exposed, "read_only": enabled,
            "pinned": false, "first_seen_at": null, "last_seen_at": null});
        if live {
            item["item"] = json!({"name": key, "description": "Reads a file."});
        }
        item
    };
    json!({"upstream": files(), "items": [item("read", "files__read", true), item("a.b", "files__a_b_x", false)]})
}

fn app() -> Value {
    json!({"name": "claude", "created_at": 0, "last_seen_at": null, "client": "claude-code 2", "era": "legacy",
        "protocol_version": "2025-11-25", "listed_tools": 12, "connections": 1})
}

fn setting(value: &str) -> Value {
    json!({"key": "port", "value": value, "default": "8717", "about": "the endpoint's port"})
}

fn log_line(text: &str) -> Value {
    json!({"at": 0, "from": "stderr", "text": text})
}

#[tokio::test]
async fn each_command_asks_for_what_it_says() {
    let control = Control::start().await;
    for (arguments, expected) in [
        (&["status"][..], &[("GET /status", json!(null))][..]),
        (&["list"], &[("GET /upstreams", json!(null))]),
        (&["show", "files"], &[("GET /upstreams/files/capabilities", json!(null))]),
        (
            &["show", "files", "--live"],
            &[("GET /upstreams/files/capabilities?live=true", json!(null))],
        ),
        (&["enable", "files"], &[("PATCH /upstreams/files", json!({"enabled": true}))]),
        (
            &["disable", "files/tool/read", "files/resource/file:///a"],
            &[
                (
                    "PATCH /upstreams/files/capabilities",
                    json!({"type": "tool", "key": "read", "enabled": false}),
                ),
                (
                    "PATCH /upstreams/files/capabilities",
                    json!({"type": "resource", "key": "file:///a", "enabled": false}),
                ),
            ],
        ),
        (
            &["pin", "files/tool/read"],
            &[(
                "PATCH /upstreams/files/capabilities",
                json!({"type": "tool", "key": "read", "pinned": true}),
            )],
        ),
        (
            &["unpin", "files/tool/read"],
            &[(
                "PATCH /upstreams/files/capabilities",
                json!({"type": "tool", "key": "read", "pinned": false}),
            )],
        ),
        (
            &["forget", "files/template/f:///{x}"],
            &[(
                "DELETE /upstreams/files/capabilities?type=template&key=f%3A%2F%2F%2F%7Bx%7D",
                json!(null),
            )],
        ),
        (&["refresh", "files"], &[("POST /upstreams/files/refresh", json!(null))]),
        (&["restart", "files"], &[("POST /upstreams/files/restart", json!(null))]),
        (&["test", "files"], &[("POST /upstreams/files/test", json!(null))]),
        (&["remove", "files"], &[("DELETE /upstreams/files", json!(null))]),
        (&["rename", "files", "docs"], &[("PATCH /upstreams/files", json!({"rename": "docs"}))]),
        (&["move", "files", "2"], &[("PATCH /upstreams/files", json!({"position": 2}))]),
        (
            &["set", "files", "legacy_ttl=120", "isolation=isolated"],
            &[(
                "PATCH /upstreams/files",
                json!({"settings": {"legacy_ttl": "120", "isolation": "isolated"}}),
            )],
        ),
        (&["set", "files"], &[("GET /upstreams/files", json!(null))]),
        (&["logs", "files", "-n", "5"], &[("GET /upstreams/files/log?lines=5", json!(null))]),
        (
            &["logs", "files", "--follow"],
            &[("GET /upstreams/files/log?lines=100&follow=true", json!(null))],
        ),
        (
            &["call", "files__read", r#"{"a":1}"#],
            &[("POST /call", json!({"tool": "files__read", "arguments": {"a": 1}}))],
        ),
        (&["token", "new", "claude"], &[("POST /apps", json!({"name": "claude"}))]),
        (&["token", "list"], &[("GET /apps", json!(null))]),
        (&["token", "revoke", "my app"], &[("DELETE /apps/my%20app", json!(null))]),
        (&["pause"], &[("POST /pause", json!({"what": "all", "seconds": null}))]),
        (
            &["pause", "writes", "--for", "15m"],
            &[("POST /pause", json!({"what": "writes", "seconds": 900}))],
        ),
        (&["resume"], &[("DELETE /pause", json!(null))]),
        (&["config"], &[("GET /settings", json!(null))]),
        (&["config", "port"], &[("GET /settings/port", json!(null))]),
        (&["config", "port", "8800"], &[("PUT /settings/port", json!({"value": "8800"}))]),
        (&["config", "port", "--reset"], &[("DELETE /settings/port", json!(null))]),
        (&["export", "out.json"], &[("GET /export", json!(null))]),
        (
            &["import", "out.json"],
            &[("POST /import", json!({"traygate_export": 1, "upstreams": [], "settings": {}}))],
        ),
        (&["shutdown"], &[("POST /shutdown", json!(null))]),
    ] {
        let (text, asked) = control.ok(arguments).await;
        let expected: Vec<_> =
            expected.iter().map(|(what, body)| ((*what).to_owned(), body.clone())).collect();
        assert_eq!(asked, expected, "{arguments:?}");
        assert!(!text.is_empty() && !text.contains('\u{1b}'), "words without colours: {text}");

        // `logs --follow` prints a line of JSON for each line, every other command one value.
        let mut with_json = arguments.to_vec();
        with_json.push("--json");
        let (text, _) = control.ok(&with_json).await;
        let values = serde_json::Deserializer::from_str(&text).into_iter::<Value>();
        let values: Vec<_> = values.collect::<Result<_, _>>().expect("only JSON");
        assert_eq!(values.len(), if arguments.contains(&"--follow") { 2 } else { 1 }, "{text}");
    }
}

#[tokio::test]
async fn lists_are_aligned_and_say_states_in_words() {
    let control = Control::start().await;
    let (text, _) = control.ok(&["list"]).await;
    assert_eq!(
        text,
        "NAME    STATE        SINCE      TOOLS  RESOURCES  TEMPLATES  PROMPTS  REACHED BY\n\
         files   ready        2 min ago  1/2    -          -          -        npx -y files\n\
         broken  unavailable  2 min ago  -      -          -          -        npx -y files\n\
         files: healed twice in the last 24 h; last error 2 min ago: it exited with code 1\n\
         broken: unavailable (it exited at once)\n"
    );
    let (text, _) = control.ok(&["show", "files", "--live"]).await;
    for line in [
        "  protocol    stdio, modern 2026-07-28\n",
        "  settings    legacy_ttl=120\n",
        "Tools  1 of 2 on, fresh until the upstream says that it changed\n",
        "  warning: one is bad\n",
        "  on   read  read-only\n         Reads a file.\n",
        "  off  a.b   apps see files__a_b_x\n",
    ] {
        assert!(text.contains(line), "{line:?} is in\n{text}");
    }
    let (text, _) = control.ok(&["status"]).await;
    assert!(text.contains("endpoint  http://127.0.0.1:1/mcp\n"), "{text}");
    assert!(
        text.contains("claude  never      claude-code 2  legacy 2025-11-25  12     -       yes\n"),
        "{text}"
    );
    let (text, _) = control.ok(&["logs", "files"]).await;
    assert_eq!(text, "00:00:00 stderr   one\n", "an upstream can't colour the terminal");
    let (text, _) = control.ok(&["config", "port"]).await;
    assert_eq!(text, "8717\n", "a script can use it");
}

#[tokio::test]
async fn an_upstream_is_added_from_a_command_a_url_or_a_snippet() {
    let control = Control::start().await;
    let add = async |arguments: &[&str]| {
        let (text, asked) = control.ok(arguments).await;
        (text, asked.into_iter().map(|(_, body)| body).next().expect("a request"))
    };
    let settings = json!({"auto_enable_new_capabilities": true, "legacy_ttl": 60, "isolation": "shared", "request_timeout": 30,
        "call_idle_timeout": 300, "call_total_timeout": 3600, "notifications": true, "idle_stop": 0});
    let defined = |name: &str, transport: Value| json!({"name": name, "transport": transport, "enabled": true, "settings": settings});

    let (text, body) = add(&[
        "add",
        "files",
        "--env",
        "TOKEN=x=y",
        "--cwd",
        "/tmp",
        "--",
        "npx",
        "-y",
        "--json",
        "s",
    ])
    .await;
    let command = json!({"kind": "stdio", "command": "npx", "args": ["-y", "--json", "s"], "env": {"TOKEN": "x=y"}, "cwd": "/tmp"});
    assert_eq!(body, defined("files", command));
    for part in [
        "added files",
        "0600",
        "files works: modern 2026-07-28",
        "2 tools",
        "next: traygate show files",
    ] {
        assert!(text.contains(part), "{part:?} is in\n{text}");
    }
    assert!(!text.contains("x=y"), "no value is repeated");

    for address in [&["http://h/mcp"][..], &["--url", "http://h/mcp"]] {
        let (before, after) = (["add", "docs"], ["--header", "X-Key: a:b", "--transport", "sse"]);
        let (_, body) = add(&[&before, address, &after, &["--no-test"]].concat()).await;
        let transport = json!({"kind": "http", "url": "http://h/mcp", "headers": {"X-Key": "a:b"}, "flavour": "sse"});
        assert_eq!(body, defined("docs", transport));
    }

    let snippet = r#"{"mcpServers": {}}"#;
    for arguments in
        [&["add", "--json", snippet][..], &["add", "--from-json", snippet], &["add", snippet]]
    {
        let (_, body) = add(arguments).await;
        assert_eq!(body, json!({"snippet": snippet, "name": null}), "{arguments:?}");
    }
    std::fs::write(control.home.path().join("s.json"), snippet).expect("a file");
    let (text, body) = add(&["--json", "add", "mine", "--json", "s.json", "--no-test"]).await;
    assert_eq!(body, json!({"snippet": snippet, "name": "mine"}));
    assert!(text.starts_with('{'), "--json before it asks for JSON output: {text}");
    let piped = control.home.run_with(&["add", "--json", "-"], snippet).await;
    assert_eq!(piped.code, 0, "{piped:?}");
}

#[tokio::test]
async fn a_first_connection_that_fails_is_a_warning_since_the_upstream_is_kept() {
    let control = Control::start().await;
    let ended = control.home.run(&["add", "broken", "--", "false"]).await;
    assert_eq!(ended.code, 0);
    assert!(
        ended.err.contains("warning: the first connection to broken failed: broken exited at once"),
        "{ended:?}"
    );
    let ended = control.home.run(&["add", "broken", "--json", "--", "false"]).await;
    assert_eq!(ended.json()["tests"][0]["problem"]["code"], "UPSTREAM_UNAVAILABLE");
}

#[tokio::test]
async fn a_call_prints_text_and_a_failed_one_exits_with_1() {
    let control = Control::start().await;
    let (text, _) = control.ok(&["call", "files__read"]).await;
    assert_eq!(text, "hello\n");
    let (text, _) = control.ok(&["call", "files__read", "--json"]).await;
    assert!(text.contains("18446744073709551616"), "digits are kept: {text}");
    let piped = control.home.run_with(&["call", "files__fail", "-"], "{\"b\": 1}").await;
    assert_eq!((piped.code, piped.out.as_str()), (1, "hello\n"));
    assert!(piped.err.starts_with("error: "), "{piped:?}");
}

#[tokio::test]
async fn what_takes_longer_than_a_second_says_so_on_standard_error() {
    let control = Control::start().await;
    let ended = control.home.run(&["test", "slow"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, "still connecting to slow… 1 s\n"));
    let ended = control.home.run(&["test", "files"]).await;
    assert_eq!((ended.code, ended.err.as_str()), (0, ""));
}

#[tokio::test]
async fn refusals_are_one_sentence_and_exit_with_1() {
    let control = Control::start().await;
    let ended = control.home.run(&["show", "nope"]).await;
    assert_eq!((ended.code, ended.out.as_str()), (1, ""));
    assert_eq!(ended.err, "error: there is no upstream \"nope\"; did you mean files?\n");
    let ended = control.home.run(&["show", "nope", "--json"]).await;
    let problem: Value = serde_json::from_str(&ended.err).expect("a problem");
    assert_eq!(problem["message"], "there is no upstream \"nope\"; did you mean files?");
    let ended = control.home.run(&["import", "missing.json"]).await;
    assert_eq!(ended.code, 1);
    assert!(ended.err.starts_with("error: cannot read missing.json: "), "{ended:?}");
}

#[tokio::test]
async fn wrong_usage_exits_with_2_before_anything_is_asked() {
    let control = Control::start().await;
    for arguments in [
        &["frobnicate"][..],
        &["enable"],
        &["enable", "files", "files/tool"],
        &["enable", "files/gadget/x"],
        &["pin", "files"],
        &["move", "files", "0"],
        &["rename", "files", "Not A Name"],
        &["add"],
        &["add", "files"],
        &["add", "Files", "--", "x"],
        &["add", "files", "npx"],
        &["add", "files", "--url", "http://h", "--", "x"],
        &["add", "files", "--url", "http://h", "--header", "nothing"],
        &["add", "files", "--env", "SURELY_NOT_SET_ANYWHERE", "--", "x"],
        &["set", "files", "legacy_ttl"],
        &["pause", "--for", "soon"],
        &["call", "files__read", "[1]"],
        &["call", "files__read", "{"],
        &["config", "--reset"],
    ] {
        let ended = control.home.run(arguments).await;
        assert_eq!(ended.code, 2, "{arguments:?}: {ended:?}");
        assert!(ended.err.starts_with("error: "), "{arguments:?}: {}", ended.err);
        assert!(control.taken().is_empty(), "{arguments:?}");
    }
}

#[tokio::test]
async fn without_a_host_commands_say_how_to_start_one_and_exit_with_3() {
    let nobody = Home::new();
    let ended = nobody.run(&["list"]).await;
    let data = nobody.path().join("data");
    assert_eq!(ended.code, 3);
    assert_eq!(
        ended.err,
        format!(
            "error: no Traygate is running for {}; start it with `traygate serve`\n",
            data.display()
        )
    );

    let free = TcpListener::bind(("127.0.0.1", 0)).await.expect("a port");
    let port = free.local_addr().expect("bound").port();
    drop(free);
    assert_eq!(Home::of_host(port).run(&["status", "--json"]).await.code, 3, "a stale run file");

    // Somebody else has the port by now and doesn't know the token.
    let control = Control::start().await;
    let run = control.home.path().join("run/host.json");
    let text = std::fs::read_to_string(&run).expect("the run file").replace(TOKEN, "old");
    std::fs::write(&run, text).expect("the run file");
    assert_eq!(control.home.run(&["status"]).await.code, 3);
}

#[tokio::test]
async fn completions_are_printed_for_each_shell_without_a_host() {
    let home = Home::new();
    for (shell, sign) in
        [("bash", "complete -F"), ("zsh", "#compdef traygate"), ("fish", "complete -c traygate")]
    {
        let ended = home.run(&["completions", shell]).await;
        assert_eq!(ended.code, 0);
        assert!(ended.out.contains(sign), "{shell}");
        assert!(ended.out.contains("refresh"), "{shell} completes commands");
    }
}
