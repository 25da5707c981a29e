//! What servers write between and around their messages, and which message answers which.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use futures::future::{join_all, try_join_all};
use serde_json::{Value, json};
use traygate_gateway::capability::CapabilityType;
use traygate_tests::{
    App, AppEra,
    app::LegacyApp,
    json::{items, tree},
};

use crate::support::{Case, Server};

/// The text of an echo that has to go well.
async fn echoed(app: &App, upstream: &str, text: &str) -> Result<()> {
    let back = app.call_text(&format!("{upstream}__echo"), json!({"text": text})).await?;
    ensure!(back == text, "{upstream} echoed {} bytes of {}", back.len(), text.len());
    Ok(())
}

#[tokio::test]
async fn rw_01_noise_is_skipped_and_foreign_framing_is_named() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    case.add("noisy", "noisy-stdout").await?;
    case.add("pretty", "pretty-json").await?;
    case.add("lsp", "content-length").await?;
    let app = case.app(AppEra::Legacy).await?;
    for number in 0..20 {
        echoed(&app, "noisy", &number.to_string()).await?;
    }
    ensure!(case.count("noisy", "start", None)? == 1, "it was started once");
    let log = case.traygate.cli(&["logs", "noisy", "-n", "1000"]).await?.ok()?;
    ensure!(log.contains("pino style log") && log.contains("\"a string\""), "{log}");
    ensure!(log.matches("is skipped").count() == 1, "one warning: {log}");
    for (name, begins) in [("pretty", "{"), ("lsp", "Content-Length")] {
        // Eight seconds until the probe is given up, and as many for the handshake.
        let view = case.traygate.state(name, "unavailable").await?;
        let why = view.state.reason().unwrap_or_default();
        let shown = format!("begins with \"{begins}");
        ensure!(why.contains("one JSON message a line") && why.contains(&shown), "{name}: {why}");
    }
    let busy = case.busy(Duration::from_secs(2)).await?;
    ensure!(busy < 0.05, "{busy} of a processor while nobody asks");
    case.end(&["noisy"]).await
}

#[tokio::test]
async fn rw_02_unicode_separators_end_no_message() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    case.add("u", "ok").await?;
    case.add_http("h", "sse").await?;
    case.add_http("j", "ok").await?;
    let seps =
        "ls=\u{2028} ps=\u{2029} nel=\u{85} ff=\u{c} rtl=\u{202e} zwj=\u{200d} bom=\u{feff} end";
    for upstream in ["u", "h", "j"] {
        case.traygate.state(upstream, "ready").await?;
        for era in AppEra::ALL {
            let app = case.app(era).await?;
            for (kind, wanted) in [("unicode-seps", Some(seps)), ("astral", None)] {
                let begun = Instant::now();
                let tool = format!("{upstream}__payload");
                let text = app.call_text(&tool, json!({"kind": kind})).await?;
                ensure!(wanted.is_none_or(|wanted| text == wanted), "{upstream}: {text:?}");
                ensure!(text.chars().any(|c| c as u32 > 0x7f), "{upstream} {kind}: {text:?}");
                ensure!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
            }
        }
    }
    case.end(&["u", "h", "j"]).await
}

#[tokio::test]
async fn rw_04_line_ends_marks_and_cuts_are_normal_input() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    // That server mixes up the pieces of answers which it gives at once, so it gets them singly.
    let modes = [
        ("c", "crlf"),
        ("b", "bom"),
        ("s", "split-chunks+serial"),
        ("g", "coalesce"),
        ("n", "no-final-newline"),
    ];
    for (name, mode) in modes {
        case.add(name, mode).await?;
    }
    let app = case.app(AppEra::Legacy).await?;
    let text = "\u{4e16}".repeat(100_000 / 3);
    for (name, mode) in modes {
        case.traygate.state(name, "ready").await?;
        for _ in 0..10 {
            echoed(&app, name, &text).await.context(mode)?;
        }
        let log = case.traygate.cli(&["logs", name, "-n", "1000"]).await?.ok()?;
        ensure!(!log.contains("is skipped"), "{mode} is warned of: {log}");
    }
    case.end(&["c", "b", "s", "g", "n"]).await
}

#[tokio::test]
async fn rw_06_twenty_megabytes_pass_and_delay_nobody() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    case.add("u", "big-result:20M").await?;
    case.add_http("h", "big-result:20M").await?;
    case.add_http("e", "sse+big-result:20M").await?;
    for name in ["u", "h", "e", "ok0"] {
        case.traygate.state(name, "ready").await?;
    }
    let app = case.app(AppEra::Modern).await?;
    let beside = case.app(AppEra::Legacy).await?;
    app.tools().await?;
    let before = case.memory()?;
    let mut worst = Duration::ZERO;
    let mut big = Vec::new();
    for upstream in ["u", "h", "e"] {
        let begun = Instant::now();
        let tool = format!("{upstream}__big");
        let call = app.call(&tool, json!({}));
        tokio::pin!(call);
        let answer = loop {
            tokio::select! {
                answer = &mut call => break answer?.result()?,
                () = tokio::time::sleep(Duration::from_millis(50)) => {
                    let asked = Instant::now();
                    echoed(&beside, "ok0", "x").await?;
                    worst = worst.max(asked.elapsed());
                }
            }
        };
        println!("{upstream}: {} bytes in {:?}", answer.get().len(), begun.elapsed());
        ensure!(answer.get().len() >= 20_000_000, "{upstream} gave {} bytes", answer.get().len());
        ensure!(begun.elapsed() < Duration::from_secs(20), "{upstream} took {:?}", begun.elapsed());
        let data = tree(&answer)["content"][0].clone();
        big.push(data["data"].as_str().or(data["text"].as_str()).context("base64")?.to_owned());
    }
    ensure!(big[0] == big[1] && big[1] == big[2], "the three got the same from equal servers");
    println!("another call waited at most {worst:?}; {} MiB before", before >> 20);
    let peak = case.peak_memory()?;
    ensure!(peak - before < 200 << 20, "at the peak {} MiB more", (peak - before) >> 20);

    for upstream in ["u", "h", "e"] {
        let long = "\u{e9}".repeat(5 << 20);
        echoed(&app, upstream, &long).await?;
        let one = case.app_of(AppEra::Legacy, upstream).await?;
        let listed = one.keys(CapabilityType::Resource).await?;
        let uri = listed.iter().find(|uri| uri.ends_with("/logo")).context("a logo")?;
        let logo = tree(&one.request("resources/read", json!({"uri": uri})).await?.result()?);
        let blob = logo["contents"][0]["blob"].as_str().context("a blob")?;
        let all: Vec<u8> = (0..=255).collect();
        ensure!(BASE64_STANDARD.decode(blob)? == all, "the blob of {uri} is {blob}");
    }
    case.end(&["u", "h", "e"]).await
}

#[tokio::test]
async fn rw_08_ids_come_back_as_they_were_and_reach_nobody_else() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    case.add("s", "id-echo-string").await?;
    case.add("b", "batch-response").await?;
    case.add("u", "ok").await?;
    for name in ["s", "b", "u"] {
        case.traygate.state(name, "ready").await?;
    }
    let url = case.traygate.endpoint();
    let one = LegacyApp::connect(&url, &case.token).await?;
    let two = LegacyApp::connect(&url, &case.token).await?;
    one.request("tools/list", json!({})).await?.result()?;
    let calls = [("one", &one), ("two", &two)].into_iter().flat_map(|(who, app)| {
        (1..=100).map(move |id| async move {
            let text = format!("{who} {id}");
            let answer = posted(
                app,
                &id.to_string(),
                "tools/call",
                &json!({"name": "u__echo", "arguments": {"text": text}}),
            )
            .await?;
            ensure!(
                answer["id"] == id && answer["result"]["content"][0]["text"] == text,
                "{answer}"
            );
            Ok(())
        })
    });
    try_join_all(calls).await?;
    for id in [
        r#""a""#,
        r#""1""#,
        r#""""#,
        "0",
        "-5",
        "9007199254740991",
        "9223372036854775808",
        "18446744073709551616",
        "-9223372036854775809",
        r#""\u0061\ud83d\ude00""#,
    ] {
        let params = json!({"name": "u__echo", "arguments": {"text": "odd"}});
        let text = posted_text(&one, id, "tools/call", &params).await?;
        ensure!(text.contains(&format!("\"id\":{id},")), "{id} became {text}");
        ensure!(text.contains("odd") && text.contains("result"), "{text}");
    }
    for refused in ["null", "1.5", "true", "[1]", "{}"] {
        let text = posted_text(&one, refused, "tools/list", &json!({})).await?;
        ensure!(text.contains("-32600"), "{refused}: {text}");
    }
    let batch = one.post(r#"[{"jsonrpc":"2.0","id":"x","method":"ping"}]"#).await?;
    ensure!(batch.status() == 400, "{}", batch.status());
    let batch: Value = serde_json::from_str(&batch.text().await?)?;
    ensure!(batch["error"]["code"] == -32600, "{batch}");
    for name in ["s", "b"] {
        let begun = Instant::now();
        one.request(
            "tools/call",
            json!({"name": format!("{name}__echo"), "arguments": {"text": "x"}}),
        )
        .await?
        .result()?;
        ensure!(begun.elapsed() < Duration::from_secs(2), "{name} took {:?}", begun.elapsed());
    }
    case.end(&["u", "s", "b"]).await
}

async fn posted_text(app: &LegacyApp, id: &str, method: &str, params: &Value) -> Result<String> {
    let text = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#);
    let mut body = traygate_tests::app::body(app.post(&text).await?).await?;
    body.soon().await?.context("no answer")
}

async fn posted(app: &LegacyApp, id: &str, method: &str, params: &Value) -> Result<Value> {
    Ok(serde_json::from_str(&posted_text(app, id, method, params).await?)?)
}

#[tokio::test]
async fn rw_09_stray_answers_are_harmless() -> Result<()> {
    let Some(mut case) = Case::start().await? else { return Ok(()) };
    for (name, mode) in
        [("w", "id-wrong"), ("d", "dup-response"), ("late", "late-answer"), ("n", "id-null-error")]
    {
        case.add_server(Server::Stdio, name, mode).await?;
        case.traygate.state(name, "ready").await?;
    }
    let app = LegacyApp::connect(&case.traygate.endpoint(), &case.token).await?;
    for name in ["w", "d", "late", "n"] {
        let calls = (0..50).map(|number| {
            let params = json!({"name": format!("{name}__echo"), "arguments": {"text": format!("{name} {number}")}});
            let app = &app;
            async move { app.request("tools/call", params).await }
        });
        for (number, answer) in join_all(calls).await.into_iter().enumerate() {
            let text = tree(&answer?.result()?)["content"][0]["text"].clone();
            ensure!(text == format!("{name} {number}"), "{text}");
        }
    }
    let (id, hung) = app.begin("tools/call", &json!({"name": "late__hang", "arguments": {}}));
    let begun = Instant::now();
    while case.count("late", "recv", Some("tools/call"))? < 51 {
        ensure!(begun.elapsed() < Duration::from_secs(10), "the call arrives");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    app.cancel(id).await?;
    for number in 0..3 {
        let params =
            json!({"name": "late__echo", "arguments": {"text": format!("after {number}")}});
        let text =
            tree(&app.request("tools/call", params).await?.result()?)["content"][0]["text"].clone();
        ensure!(text == format!("after {number}"), "{text}");
    }
    hung.abort();
    // Alone it can only be that error's request; with another beside it, it ends by its time.
    let error = app.request("tools/call", json!({"name": "n__rpc-error", "arguments": {}})).await?;
    ensure!(error.outcome.is_err(), "{error:?}");
    case.traygate.set("n", "call_idle_timeout", "2").await?;
    let (_, beside) =
        app.begin("tools/call", &json!({"name": "n__sleep", "arguments": {"seconds": 1.5}}));
    let error = app.request("tools/call", json!({"name": "n__rpc-error", "arguments": {}})).await?;
    let text = format!("{error:?}");
    ensure!(text.contains("without saying to which request") || error.outcome.is_err(), "{text}");
    beside.await??.result()?;
    case.end(&["d"]).await
}

#[tokio::test]
async fn rw_10_digits_and_order_survive() -> Result<()> {
    let Some(case) = Case::start().await? else { return Ok(()) };
    case.add("u", "schema-order").await?;
    case.traygate.state("u", "ready").await?;
    for era in AppEra::ALL {
        let app = case.app(era).await?;
        let mut lists = Vec::new();
        for _ in 0..3 {
            let page = app.request("tools/list", json!({})).await?.result()?;
            lists.push(items(&page, "tools").iter().map(ToString::to_string).collect::<Vec<_>>());
        }
        ensure!(lists[0] == lists[1] && lists[1] == lists[2], "three lists in a row are equal");
        let tool = lists[0].iter().find(|tool| tool.contains("u__ordered")).context("ordered")?;
        let at = |word: &str| tool.find(word).context(tool.clone());
        ensure!(at("\"zeta\"")? < at("\"alpha\"")? && at("\"alpha\"")? < at("\"mid\"")?, "{tool}");
        let ints = app.call("u__payload", json!({"kind": "big-ints"})).await?.result()?;
        for digits in ["18446744073709551616", "9007199254740993"] {
            ensure!(ints.get().contains(digits), "{digits} is missing in {ints}");
        }
        app.call("u__payload", json!({"kind": "key-order"})).await?.result()?;
    }
    case.end(&["u"]).await
}
