//! Many things that go wrong at once, or over and over: nothing runs twice, nobody else is touched.

use std::{
    collections::{BTreeMap, HashMap},
    time::Duration,
};

use anyhow::{Context as _, Result, ensure};
use futures::future::{join_all, try_join_all};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    time::Instant,
};
use traygate_gateway::{
    api::State,
    definition::{Definition, HttpFlavour, Transport, UpstreamSettings},
};
use traygate_tests::{
    AppEra, Fake, FakeOptions, Traygate,
    app::Answer,
    fake::{
        control_dir::{Arm, Failure},
        options::{FakeEra, FakeTransport},
    },
    process::{signal, until},
};

use crate::{
    app, code_of,
    healing::{Case, described},
};

/// How often each number was sent with a call.
fn sent(fake: &Fake) -> Result<HashMap<u64, usize>> {
    let mut sent = HashMap::new();
    for call in fake.messages("tools/call")? {
        let run = call.params()["arguments"]["run"].as_u64().context("its number")?;
        *sent.entry(run).or_default() += 1;
    }
    Ok(sent)
}

fn kill(fake: &Fake) -> Result<()> {
    fake.alive()?.into_iter().try_for_each(|pid| signal(pid, "KILL"))
}

/// The code of a fault, or `None` for a result.
fn code(answer: Answer) -> Option<String> {
    code_of(answer)["code"].as_str().map(ToOwned::to_owned)
}

/// Two hundred times a server takes a call and is gone before it answers, at a random moment, mostly
/// after it ran it, with up to four more calls under way.
#[tokio::test]
async fn a_call_that_a_server_ran_before_it_was_gone_is_never_sent_again() -> Result<()> {
    for options in FakeOptions::all() {
        let what = described(&options);
        let is_program = options.transport == FakeTransport::Stdio;
        let case = Case::new(options).await?;
        let mut unknown = 0;
        for run in 0..40_u64 {
            if is_program {
                // A program that dies so often would soon be left alone for a while.
                case.traygate.cli(&["restart", "fake"]).await?.ok()?;
            }
            let moment = uuid::Uuid::new_v4().as_u128() as u64;
            let how = if moment.is_multiple_of(3) { Failure::CutAtOnce } else { Failure::Cut };
            case.fake.arm_with(&Arm::new(how, "tools/call").ms((moment >> 8) % 12))?;
            let calls = (0..=run % 5)
                .map(|call| case.app.call("fake__counter", json!({"run": 10 * run + call})));
            for answer in join_all(calls).await {
                match code(answer?).as_deref() {
                    Some("OUTCOME_UNKNOWN") => unknown += 1,
                    // The latter was never sent: what it would have been sent on was gone too.
                    None | Some("UPSTREAM_UNAVAILABLE") => {}
                    Some(other) => anyhow::bail!("{what}: {other}"),
                }
            }
        }
        ensure!(unknown >= 40, "{what}: each drop was told, {unknown}");
        let sent = sent(&case.fake)?;
        ensure!(sent.values().all(|times| *times == 1), "{what}: {sent:?}");
        ensure!(case.fake.ran("counter")? <= sent.len(), "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn fifty_requests_that_see_one_link_die_cost_one_reconnect() -> Result<()> {
    for options in FakeOptions::all() {
        let what = described(&options);
        let mut case = Case::new(options).await?;
        let links = case.links()?;
        case.fake.arm_with(&Arm::new(Failure::Slow, "tools/call").ms(60_000).times(50))?;
        let asked = case.fake.count("tools/call")?;
        let calls = (0..50).map(|_| case.app.call("fake__read-only", json!({})));
        let (answers, died) = tokio::join!(join_all(calls), async {
            until(&format!("{what}: all are under way"), || {
                case.fake.count("tools/call").is_ok_and(|now| now == asked + 50)
            })
            .await?;
            kill(&case.fake)
        });
        died?;
        // Nobody starts a server behind a URL again: each is told, and none is left waiting.
        let is_program = case.fake.options.transport == FakeTransport::Stdio;
        let expected = (!is_program).then_some("UPSTREAM_UNAVAILABLE");
        for answer in answers {
            assert_eq!(code(answer?).as_deref(), expected, "{what}");
        }
        if !is_program {
            case.fake.disarm()?;
            case.fake.revive().await?;
            case.app.call_text("fake__read-only", json!({})).await?;
        }
        assert_eq!(case.links()?, links + 1, "{what}: one reconnect for all");
    }
    Ok(())
}

#[tokio::test]
async fn twenty_upstreams_that_die_together_come_back_and_cost_nobody_else_anything() -> Result<()>
{
    let traygate = Traygate::start().await?;
    let well = traygate.add_fake("well", FakeOptions::http(FakeEra::Modern)).await?;
    let mut twenty = Vec::new();
    for number in 0..20 {
        let era = if number % 2 == 0 { FakeEra::Legacy } else { FakeEra::Modern };
        let name = format!("u{number:02}");
        twenty.push(traygate.add_fake(&name, FakeOptions::stdio(era)).await?);
    }
    let token = traygate.token("app").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    let all = try_join_all(twenty.iter().map(|fake| {
        let tool = format!("{}__read-only", fake.name);
        let app = &app;
        async move { app.call_text(&tool, json!({})).await }
    }));
    all.await.context("all are up")?;
    for fake in &twenty {
        kill(fake)?;
    }
    let begun = Instant::now();
    app.call_text("well__echo", json!({})).await?;
    ensure!(begun.elapsed() < Duration::from_secs(1), "{:?}", begun.elapsed());
    let all = twenty.iter().map(|fake| {
        let tool = format!("{}__read-only", fake.name);
        let app = &app;
        async move { app.call_text(&tool, json!({})).await.context(tool) }
    });
    try_join_all(all).await.context("each answers again")?;
    for fake in &twenty {
        assert_eq!(fake.events("start")?, 2, "{} was started once more, and only once", fake.name);
    }
    well.assert_no_violations()
}

/// Answers each connection with these bytes and ends it.
async fn answering(bytes: &'static str) -> Result<Transport> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    let url = format!("http://{}/mcp", listener.local_addr()?);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(bytes.as_bytes()).await;
        }
    });
    Ok(Transport::Http { url, headers: BTreeMap::default(), flavour: HttpFlavour::default() })
}

fn program(command: &str, args: Vec<String>) -> Transport {
    let command = command.to_owned();
    Transport::Stdio { command, args, env: BTreeMap::default(), cwd: None }
}

#[tokio::test]
async fn whoever_never_works_has_a_state_a_reason_and_a_next_try() -> Result<()> {
    let traygate = Traygate::start().await?;
    let well = traygate.add_fake("well", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let flapping = Fake::start("flaps", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let mut a_second = vec!["--foreground".to_owned(), "1".to_owned()];
    a_second.push(Fake::program().display().to_string());
    a_second.extend(flapping.args());
    let zero = program("sh", vec!["-c".to_owned(), "exit 0".to_owned()]);
    let cut = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 99\r\n\r\n{";
    let not_found = "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    let broken = [
        ("zero", zero, "exited with code 0"),
        ("flaps", program("timeout", a_second), "exited with code 124"),
        ("garbles", answering("+OK ready\r\n").await?, "broke off before it answered"),
        ("cuts", answering(cut).await?, "broke off"),
        ("not-there", answering(not_found).await?, "404 Not Found"),
    ];
    for (name, transport, _) in &broken {
        let (name, transport) = (name.to_string().try_into()?, transport.clone());
        let settings = UpstreamSettings::default();
        traygate.add(&Definition { name, transport, enabled: true, settings }).await?;
    }
    let token = traygate.token("app").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    for (name, _, reason) in &broken {
        let deadline = Instant::now() + Duration::from_mins(1);
        loop {
            let begun = Instant::now();
            app.call_text("well__echo", json!({})).await?;
            ensure!(begun.elapsed() < Duration::from_secs(1), "{name} delays the others");
            let state = traygate.upstream(name).await?.state;
            if let State::Unavailable { reason: said, next_try: Some(_) } = &state
                && said.contains(reason)
            {
                break;
            }
            ensure!(Instant::now() < deadline, "{name}: {state:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
    let starts = flapping.events("start")?;
    ensure!(starts <= 10, "it is started less and less often: {starts}");
    assert_eq!(well.events("start")?, 1);
    Ok(())
}

#[tokio::test]
async fn a_program_that_is_replaced_while_it_runs_is_the_new_one_after_its_next_start() -> Result<()>
{
    let traygate = Traygate::start().await?;
    let files = tempfile::tempdir()?;
    let program = files.path().join("server");
    std::fs::copy(Fake::program(), &program)?;
    let fake = Fake::start("fake", FakeOptions::stdio(FakeEra::Legacy)).await?;
    let mut definition = traygate.definition(&fake)?;
    if let Transport::Stdio { command, .. } = &mut definition.transport {
        *command = program.display().to_string();
    }
    traygate.add(&definition).await?;
    let token = traygate.token("app").await?;
    let app = app(&traygate, AppEra::Legacy, &token).await?;
    app.call_text("fake__echo", json!({})).await?;
    // As package managers do it: another file under the same name.
    let newer = files.path().join("newer");
    std::fs::copy(Fake::program(), &newer)?;
    std::fs::rename(&newer, &program)?;
    app.call_text("fake__echo", json!({})).await.context("the old one runs on")?;
    kill(&fake)?;
    app.call_text("fake__read-only", json!({})).await.context("the new one is started")?;
    // Meanwhile there is none at all.
    std::fs::remove_file(&program)?;
    kill(&fake)?;
    let told: Value = code_of(app.call("fake__read-only", json!({})).await?);
    assert_eq!(told["code"], "UPSTREAM_UNAVAILABLE", "{told}");
    until("it says what is missing", || {
        traygate.host_log().is_ok_and(|log| log.contains("there is no program at"))
    })
    .await?;
    std::fs::copy(Fake::program(), &program)?;
    app.call_text("fake__read-only", json!({})).await.context("the next request finds it again")?;
    Ok(())
}
