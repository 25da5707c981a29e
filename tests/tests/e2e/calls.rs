//! What happens during a call: progress, log messages, questions and cancellation, each in one era.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use traygate_tests::{
    AppEra, FakeOptions, Traygate,
    app::{LegacyApp, LegacyOptions, ModernApp},
    fake::options::{FakeEra, FakeTransport},
    json::tree,
    process,
};

use crate::{app, host_with};

fn legacy_upstreams() -> [FakeOptions; 4] {
    [
        FakeOptions::stdio(FakeEra::Legacy),
        FakeOptions::http(FakeEra::Legacy),
        FakeOptions::http(FakeEra::Legacy).with("--answers sse"),
        FakeOptions::new(FakeTransport::Sse, FakeEra::Legacy),
    ]
}

fn modern_upstreams() -> [FakeOptions; 2] {
    [FakeOptions::stdio(FakeEra::Modern), FakeOptions::http(FakeEra::Modern)]
}

async fn able_app(traygate: &Traygate, token: &str) -> Result<LegacyApp> {
    let options = LegacyOptions {
        capabilities: json!({"elicitation": {}, "sampling": {}, "roots": {}}),
        answer: Arc::new(|method, params| match method {
            "elicitation/create"
                if params["requestedSchema"]["properties"]["name"]["pattern"] == "^[a-z]+$" =>
            {
                Ok(json!({"action": "accept", "content": {"name": "ada"}, "x-unknown": 1}))
            }
            "sampling/createMessage" if params["temperature"] == 0.7 => {
                let content = json!({"type": "text", "text": "hello"});
                Ok(json!({"role": "assistant", "content": content, "model": "m"}))
            }
            "roots/list" => Ok(json!({"roots": [{"uri": "file:///somewhere", "name": "x"}]})),
            _ => Err(-32603),
        }),
        ..LegacyOptions::default()
    };
    LegacyApp::connect_with(&traygate.endpoint(), token, options).await
}

#[tokio::test]
async fn progress_comes_before_the_answer_in_order_under_the_apps_own_token() -> Result<()> {
    for options in legacy_upstreams().into_iter().chain(modern_upstreams()) {
        let about = format!("{options:?}");
        let (traygate, fake, token) = host_with("fake", options).await?;
        let era = if fake.options.era == FakeEra::Legacy { AppEra::Legacy } else { AppEra::Modern };
        let app = app(&traygate, era, &token).await?;
        for progress_token in [json!("mine-1"), json!(7)] {
            let params = json!({
                "name": "fake__progress", "arguments": {"n": 20},
                "_meta": {"progressToken": progress_token},
            });
            let answer = app.request("tools/call", params).await?;
            let steps: Vec<_> = answer
                .before
                .iter()
                .filter(|message| message["method"] == "notifications/progress")
                .map(|message| {
                    let params = &message["params"];
                    assert_eq!(params["progressToken"], progress_token, "{about}");
                    params["progress"].as_f64().unwrap_or_default() as i64
                })
                .collect();
            assert_eq!(steps, (1..=20).collect::<Vec<_>>(), "{about}");
            answer.result()?;
        }
        let quiet = app.call("fake__progress", json!({"n": 3})).await?;
        assert!(quiet.before.is_empty(), "who gave no token hears nothing: {:?}", quiet.before);
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_legacy_upstream_asks_the_legacy_app_whose_call_it_is() -> Result<()> {
    for options in legacy_upstreams() {
        let about = format!("{options:?}");
        let (traygate, fake, token) = host_with("fake", options).await?;
        let app = able_app(&traygate, &token).await?;
        for (tool, path, wanted) in [
            ("fake__ask", "/content/name", "ada"),
            ("fake__sample", "/content/text", "hello"),
            ("fake__roots", "/roots/0/uri", "file:///somewhere"),
        ] {
            let params = json!({"name": tool, "arguments": {}});
            let result = tree(&app.request("tools/call", params).await?.result()?);
            let answer = &result["structuredContent"]["answer"];
            assert_eq!(answer.pointer(path), Some(&json!(wanted)), "{tool}: {result} {about}");
        }
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn an_upstream_is_told_when_the_app_can_not_be_asked() -> Result<()> {
    let (traygate, _fake, token) = host_with("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    let result = tree(&app.call("fake__ask", json!({})).await?.result()?);
    assert_eq!(result["isError"], true, "it neither hangs nor makes something up: {result}");
    Ok(())
}

#[tokio::test]
async fn a_modern_upstreams_question_passes_through_to_a_modern_app() -> Result<()> {
    for options in modern_upstreams() {
        let (traygate, fake, token) = host_with("fake", options).await?;
        let app = ModernApp::new(&traygate.endpoint(), &token)?.able(json!({"elicitation": {}}));
        let call = json!({"name": "fake__ask", "arguments": {}});
        let asked = tree(&app.request("tools/call", call.clone()).await?.result()?);
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        let request = &asked["inputRequests"]["answer"];
        assert_eq!(request["method"], "elicitation/create");
        let schema = &request["params"]["requestedSchema"];
        assert_eq!(schema["properties"]["name"]["pattern"], "^[a-z]+$", "no keyword is lost");
        let mut retry = call;
        retry["requestState"] = asked["requestState"].clone();
        retry["inputResponses"] =
            json!({"answer": {"action": "accept", "content": {"name": "ada"}}});
        let result = tree(&app.request("tools/call", retry).await?.result()?);
        assert_eq!(result["structuredContent"]["answer"]["content"]["name"], "ada", "{result}");
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_cancelled_call_is_cancelled_at_its_upstream_and_no_other_is() -> Result<()> {
    for options in legacy_upstreams().into_iter().chain(modern_upstreams()) {
        let about = format!("{options:?}");
        let (traygate, fake, token) = host_with("fake", options).await?;
        let slow = |ms: u64| json!({"name": "fake__slow", "arguments": {"ms": ms}});
        let legacy = LegacyApp::connect(&traygate.endpoint(), &token).await?;
        let modern = ModernApp::new(&traygate.endpoint(), &token)?;
        let is_era = fake.options.era == FakeEra::Legacy;
        let (id, cancelled) = legacy.begin("tools/call", &slow(60_000));
        let kept = modern.begin("tools/call", slow(3000));
        process::until("two calls", || fake.count("tools/call").is_ok_and(|n| n == 2)).await?;
        legacy.cancel(id).await?;
        process::until("a cancellation", || fake.cancelled().is_ok_and(|n| n == 1))
            .await
            .with_context(|| format!("{about}, {is_era}"))?;
        cancelled.abort();
        kept.await??.result().context("the other call goes on")?;
        let dropped = modern.begin("tools/call", slow(60_000));
        process::until("a third call", || fake.count("tools/call").is_ok_and(|n| n == 3)).await?;
        dropped.abort();
        process::until("a closed stream cancels", || fake.cancelled().is_ok_and(|n| n == 2))
            .await
            .context(about)?;
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn log_messages_reach_the_app_whose_call_it_is() -> Result<()> {
    let (traygate, fake, token) = host_with("fake", FakeOptions::http(FakeEra::Modern)).await?;
    let app = app(&traygate, AppEra::Modern, &token).await?;
    let params = json!({
        "name": "fake__log", "arguments": {"data": {"zeta": 1}},
        "_meta": {"io.modelcontextprotocol/logLevel": "info"},
    });
    let answer = app.request("tools/call", params).await?;
    let logged: Vec<&Value> = answer
        .before
        .iter()
        .filter(|message| message["method"] == "notifications/message")
        .collect();
    assert_eq!(logged.len(), 1, "{:?}", answer.before);
    assert_eq!(logged[0]["params"]["data"], json!({"zeta": 1}));
    let quiet = app.call("fake__log", json!({"data": 1})).await?;
    assert!(quiet.before.is_empty(), "who asked for no log gets none");
    fake.assert_no_violations()
}

#[tokio::test]
async fn fifty_calls_at_once_each_get_their_own_answer() -> Result<()> {
    for options in FakeOptions::all() {
        let (traygate, fake, token) = host_with("fake", options).await?;
        let app = Arc::new(app(&traygate, AppEra::Legacy, &token).await?);
        let calls = (0..50).map(|n| {
            let app = Arc::clone(&app);
            async move { (n, app.call_text("fake__add", json!({"a": n, "b": 1000})).await) }
        });
        for (n, sum) in futures::future::join_all(calls).await {
            assert_eq!(sum?, (n + 1000).to_string());
        }
        fake.assert_no_violations()?;
    }
    Ok(())
}

#[tokio::test]
async fn a_large_result_arrives_whole() -> Result<()> {
    for options in FakeOptions::all() {
        let about = format!("{options:?}");
        let (traygate, _fake, token) = host_with("fake", options).await?;
        let app = app(&traygate, AppEra::Modern, &token).await?;
        let text =
            app.call_text("fake__large", json!({"bytes": 20_000_000})).await.context(about)?;
        assert_eq!(text.len(), 20_000_000);
    }
    Ok(())
}
