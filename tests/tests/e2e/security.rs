//! Who may knock, and what a wrong knock gets.

use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use traygate_tests::{
    App, AppEra, FakeOptions, Traygate,
    app::{LegacyApp, ModernApp},
    fake::options::FakeEra,
};

use crate::{app, host_with};

/// Every kind of route.
const ROUTES: [(&str, &str); 7] = [
    ("POST", "/mcp"),
    ("GET", "/mcp"),
    ("DELETE", "/mcp"),
    ("POST", "/mcp/fake"),
    ("GET", "/control/v1/status"),
    ("POST", "/control/v1/shutdown"),
    ("GET", "/no-such-route"),
];

/// One request written by hand, with its status.
async fn knock(traygate: &Traygate, method: &str, path: &str, headers: &str) -> Result<u16> {
    let exchange = async {
        let mut stream = TcpStream::connect(("127.0.0.1", traygate.port)).await?;
        let request = format!(
            "{method} {path} HTTP/1.1\r\n{headers}Connection: close\r\nContent-Length: 2\r\n\
             Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\r\n{{}}"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer).await?;
        let line = String::from_utf8_lossy(&answer).into_owned();
        line.split(' ').nth(1).and_then(|status| status.parse().ok()).context(line.clone())
    };
    tokio::time::timeout(Duration::from_secs(10), exchange).await.context("no answer")?
}

#[tokio::test]
async fn a_foreign_host_or_origin_is_refused_on_every_route() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let control = traygate.run_file()?.token;
    let here = format!("127.0.0.1:{}", traygate.port);
    for (method, path) in ROUTES {
        let right = if path.starts_with("/control") { &control } else { &token };
        for (host, origin) in [
            ("evil.example", None),
            ("127.0.0.1.evil.example", None),
            ("evil.example:8717", None),
            (here.as_str(), Some("http://evil.example")),
            (here.as_str(), Some("null")),
            (here.as_str(), Some("https://127.0.0.1.evil.example")),
        ] {
            let origin = origin.map(|origin| format!("Origin: {origin}\r\n")).unwrap_or_default();
            let headers = format!("Host: {host}\r\n{origin}Authorization: Bearer {right}\r\n");
            let status = knock(&traygate, method, path, &headers).await?;
            assert_eq!(status, 403, "{method} {path} with {headers}");
        }
    }
    traygate.snapshot().await.context("nobody has shut it down")?;
    Ok(())
}

#[tokio::test]
async fn a_missing_or_wrong_token_is_refused_and_the_two_kinds_are_not_interchangeable()
-> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let control = traygate.run_file()?.token;
    let here = format!("Host: 127.0.0.1:{}\r\n", traygate.port);
    for (method, path) in ROUTES.into_iter().filter(|(_, path)| *path != "/no-such-route") {
        let other = if path.starts_with("/control") { &token } else { &control };
        let wrong = [
            String::new(),
            "Authorization: Bearer \r\n".to_owned(),
            "Authorization: Bearer wrong\r\n".to_owned(),
            format!("Authorization: Bearer {other}x\r\n"),
            format!("Authorization: Basic {other}\r\n"),
        ];
        for header in wrong {
            let status = knock(&traygate, method, path, &format!("{here}{header}")).await?;
            assert_eq!(status, 401, "{method} {path} with {header}");
        }
    }
    let with_app = format!("{here}Authorization: Bearer {token}\r\n");
    assert_eq!(knock(&traygate, "GET", "/control/v1/status", &with_app).await?, 401);
    Ok(())
}

#[tokio::test]
async fn a_revoked_token_is_refused_from_then_on() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let other = traygate.token("other").await?;
    let app_now = app(&traygate, AppEra::Modern, &token).await?;
    app_now.tools().await?;
    traygate.control::<Value>(reqwest::Method::DELETE, "/apps/app", None::<&()>).await?;
    assert!(app_now.tools().await.is_err(), "its token is worth nothing");
    app(&traygate, AppEra::Modern, &other).await?.tools().await?;
    Ok(())
}

#[tokio::test]
async fn json_of_the_wrong_shape_gets_an_error_and_never_a_hang() -> Result<()> {
    let traygate = Traygate::start().await?;
    let token = traygate.token("app").await?;
    let legacy = LegacyApp::connect(&traygate.endpoint(), &token).await?;
    let modern = ModernApp::new(&traygate.endpoint(), &token)?;
    let headers = ModernApp::headers("tools/list", &json!({}));
    let deep = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
    for (text, codes) in [
        ("{", &[-32700][..]),
        ("", &[-32700, -32600]),
        ("nonsense", &[-32700]),
        (deep.as_str(), &[-32700, -32600]),
        ("null", &[-32600, -32700]),
        ("7", &[-32600, -32700]),
        ("[]", &[-32600]),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1}"#, &[-32600]),
        (r#"{"jsonrpc":"1.0","id":1,"method":"tools/list"}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":null,"method":"tools/list"}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":{},"method":"tools/list"}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, &[-32600]),
        (r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":[]}"#, &[-32600, -32602]),
        (
            r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":7}}"#,
            &[-32602, -32020],
        ),
    ] {
        for (era, response) in
            [("legacy", legacy.post(text).await?), ("modern", modern.post(text, &headers).await?)]
        {
            let status = response.status().as_u16();
            assert!(status == 200 || (400..500).contains(&status), "{era} {text:.60}: {status}");
            let mut body = traygate_tests::app::body(response).await?;
            let answer =
                body.soon().await?.with_context(|| format!("{era} {text:.60}: no body"))?;
            let answer: Value = serde_json::from_str(&answer)
                .with_context(|| format!("{era} {text:.60}: {status} {answer}"))?;
            let code = answer["error"]["code"].as_i64().unwrap_or_default();
            // A modern request without its `_meta` and headers is refused for that as well.
            let also = era == "modern" && [-32602, -32020].contains(&code);
            assert!(codes.contains(&code) || also, "{era} {text:.60}: {answer}");
        }
    }
    assert!(App::Legacy(legacy).tools().await?.is_empty(), "it lives on");
    Ok(())
}

#[tokio::test]
async fn a_body_over_the_limit_is_refused_and_one_below_it_passes() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = LegacyApp::connect(&traygate.endpoint(), &token).await?;
    let call = |bytes: usize| {
        let params = json!({"name": "fake__echo", "arguments": {"text": "x".repeat(bytes)}});
        json!({"jsonrpc": "2.0", "id": 99, "method": "tools/call", "params": params}).to_string()
    };
    // Well above ten megabytes by itself, and a setting.
    assert_eq!(app.post(&call(12 << 20)).await?.status(), 200);
    traygate.cli(&["config", "request_limit", "4MiB"]).await?.ok()?;
    let response = app.post(&call(4 * 1024 * 1024)).await;
    // It may be refused before all of it was sent; then the rest of the sending fails.
    if let Ok(response) = response {
        assert_eq!(response.status(), 413);
    }
    assert_eq!(app.post(&call(1024 * 1024)).await?.status(), 200);
    let body = format!("{{\"snippet\":\"{}\"}}", "x".repeat(5 * 1024 * 1024));
    if let Ok((status, _)) =
        traygate.control_raw(reqwest::Method::POST, "/upstreams", Some(body)).await
    {
        assert_eq!(status, 413);
    }
    Ok(())
}

#[tokio::test]
async fn a_session_of_an_earlier_host_is_answered_with_404() -> Result<()> {
    let (mut traygate, _fake, token) =
        host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = LegacyApp::connect(&traygate.endpoint(), &token).await?;
    traygate.restart().await?;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    assert_eq!(app.post(ping).await?.status(), 404, "so that it initializes anew");
    assert!(app.listen().await.is_err_and(|error| error.to_string().contains("404")));
    let initialize = r#"{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"a","version":"1"}}}"#;
    let anew = app.post(initialize).await?;
    assert_eq!(anew.status(), 200, "a handshake that still names the old session");
    let session = anew.headers().get("mcp-session-id").and_then(|id| id.to_str().ok());
    assert_ne!(session, app.session.as_deref(), "a new one");
    LegacyApp::connect(&traygate.endpoint(), &token).await?;
    Ok(())
}

#[tokio::test]
async fn one_app_can_not_use_the_session_of_another() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let other = traygate.token("other").await?;
    let mut app = LegacyApp::connect(&traygate.endpoint(), &token).await?;
    app.token = other;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let status = app.post(ping).await?.status();
    assert!(status == 404 || status == 403, "{status}");
    Ok(())
}

#[tokio::test]
async fn nothing_is_offered_to_other_origins() -> Result<()> {
    let traygate = Traygate::start().await?;
    let token = traygate.token("app").await?;
    let app = ModernApp::new(&traygate.endpoint(), &token)?;
    let headers = ModernApp::headers("server/discover", &json!({}));
    let response = app.post(&app.message("server/discover", json!({})).1, &headers).await?;
    assert!(response.headers().get("access-control-allow-origin").is_none());
    Ok(())
}
