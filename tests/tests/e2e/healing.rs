//! What a failure means (design section 5.1), over every transport on which it can happen.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use traygate_gateway::capability::CapabilityType;
use traygate_tests::{
    App, AppEra, Fake, FakeOptions, Traygate,
    app::Answer,
    fake::{
        control_dir::{Arm, Failure},
        options::{FakeEra, FakeTransport},
    },
    process::until,
};

use crate::{app, code_of, host_with};

/// One upstream of some kind behind a host, with an app.
pub struct Case {
    pub traygate: Traygate,
    pub fake: Fake,
    pub app: App,
}

impl Case {
    /// Everything has been read once, so that what follows is the first thing on a quiet link.
    pub async fn new(options: FakeOptions) -> Result<Self> {
        let (traygate, fake, token) = host_with("fake", options).await?;
        let app = app(&traygate, AppEra::Legacy, &token).await?;
        for kind in CapabilityType::ALL {
            app.keys(kind).await?;
        }
        Ok(Self { traygate, fake, app })
    }

    /// How many links were made: one handshake each.
    pub fn links(&self) -> Result<usize> {
        self.fake.count(match self.fake.options.era {
            FakeEra::Modern => "server/discover",
            _ => "initialize",
        })
    }

    pub async fn read(&self) -> Result<Answer> {
        self.app.request("resources/read", json!({"uri": "fake://fake/text"})).await
    }

    /// One request of each sort that is no call.
    pub async fn harmless(&self, method: &str) -> Result<Answer> {
        let params = match method {
            "resources/read" => json!({"uri": "fake://fake/text"}),
            "prompts/get" => json!({"name": "fake__greet", "arguments": {"name": "ada"}}),
            _ => json!({
                "ref": {"type": "ref/prompt", "name": "fake__greet"},
                "argument": {"name": "name", "value": "a"},
            }),
        };
        self.app.request(method, params).await
    }

    pub async fn state(&self) -> Result<String> {
        Ok(self.traygate.upstream("fake").await?.state.word().to_owned())
    }
}

const HARMLESS: [&str; 3] = ["resources/read", "prompts/get", "completion/complete"];

fn over_http() -> Vec<FakeOptions> {
    let mut all = FakeOptions::all();
    all.retain(|options| options.transport != FakeTransport::Stdio);
    all
}

pub fn described(options: &FakeOptions) -> String {
    format!("{:?} {:?}", options.transport, options.era)
}

pub fn unavailable(answer: Answer) -> Result<()> {
    let told = code_of(answer);
    ensure!(told["code"] == "UPSTREAM_UNAVAILABLE", "{told}");
    ensure!(told["retryable"] == true, "{told}");
    ensure!(told["upstream"] == "fake", "{told}");
    Ok(())
}

#[tokio::test]
async fn a_list_that_a_fresh_link_refuses_too_is_alone_unavailable_and_replaces_no_link_again()
-> Result<()> {
    for options in FakeOptions::all() {
        let what = described(&options);
        let mut case = Case::new(options).await?;
        let before = case.links()?;
        case.fake.arm_with(&Arm::new(Failure::Error, "prompts/list").for_ever())?;
        let shown = case.traygate.cli(&["refresh", "fake"]).await?;
        ensure!(shown.code != Some(0), "{what}: a refresh that failed says so");
        ensure!(shown.stderr.contains("an armed error"), "{what}: {}", shown.stderr);
        assert_eq!(case.links()?, before + 1, "{what}: one replacement");
        for _ in 0..3 {
            case.traygate.cli(&["refresh", "fake"]).await?;
        }
        assert_eq!(case.links()?, before + 1, "{what}: the same error replaces no other");
        assert_eq!(case.state().await?, "degraded", "{what}");
        case.app.call_text("fake__echo", json!({})).await.context("the rest works")?;
        let kept = case.app.keys(CapabilityType::Prompt).await?;
        assert!(!kept.is_empty(), "{what}: the last good list is served");
        let _ears = case.app.listen().await?;
        case.fake.announce_to_listeners("prompts").await?;
        until(&format!("{what}: what it says of its list makes it worth another try"), || {
            case.links().is_ok_and(|links| links == before + 2)
        })
        .await?;
        case.fake.disarm()?;
        case.traygate.cli(&["refresh", "fake"]).await?.ok()?;
        assert_eq!(case.state().await?, "ready", "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn a_link_that_is_replaced_for_a_list_lets_its_calls_end_first() -> Result<()> {
    for options in FakeOptions::all() {
        let what = described(&options);
        let case = Case::new(options).await?;
        let slow = case.app.call("fake__slow", json!({"ms": 2500}));
        let refused = async {
            case.fake.asked("tools/call").await?;
            case.fake.arm(Failure::Error, "prompts/list")?;
            case.traygate.cli(&["refresh", "fake"]).await?.ok()
        };
        let (slow, refreshed) = tokio::join!(slow, refused);
        refreshed.with_context(|| format!("{what}: the fresh link lists it"))?;
        slow?.result().with_context(|| format!("{what}: the call ended on the old link"))?;
        assert_eq!(case.fake.ran("slow")?, 1, "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn a_list_method_that_is_not_found_is_an_empty_list() -> Result<()> {
    for options in FakeOptions::all() {
        let what = described(&options);
        let case = Case::new(options).await?;
        let before = case.links()?;
        case.fake.arm_with(&Arm::new(Failure::Error, "prompts/list").code(-32601).for_ever())?;
        case.traygate.cli(&["refresh", "fake"]).await?.ok()?;
        assert_eq!(case.app.keys(CapabilityType::Prompt).await?, [""; 0], "{what}");
        assert_eq!((case.links()?, case.state().await?.as_str()), (before, "ready"), "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn an_error_in_answer_to_anything_else_is_passed_on_and_costs_nothing() -> Result<()> {
    for options in FakeOptions::all() {
        let what = described(&options);
        let case = Case::new(options).await?;
        let before = case.links()?;
        for (method, code) in HARMLESS.into_iter().zip([-32601, -32602, -32603]) {
            case.fake.arm_with(&Arm::new(Failure::Error, method).code(code))?;
            assert_eq!(case.harmless(method).await?.error()?.code, code, "{what}: {method}");
        }
        assert_eq!(case.app.call("fake__rpc-error", json!({})).await?.error()?.code, 4242);
        let failed = case.app.call("fake__fail", json!({})).await?.result()?;
        assert!(failed.get().contains("\"isError\":true"), "{what}");
        let words = case.app.call_text("fake__echo", json!({"t": "Session not found"})).await?;
        assert!(words.contains("Session not found"), "{what}: words never count");
        assert_eq!((case.links()?, case.state().await?.as_str()), (before, "ready"), "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn three_time_outs_in_a_row_replace_the_link_and_fewer_never_do() -> Result<()> {
    for options in FakeOptions::all() {
        let what = described(&options);
        let case = Case::new(options).await?;
        case.traygate.set("fake", "request_timeout", "1").await?;
        let before = case.links()?;
        for round in 0..2 {
            case.fake.arm_with(&Arm::new(Failure::Hang, "resources/read").times(2))?;
            for _ in 0..2 {
                assert_eq!(code_of(case.read().await?)["code"], "UPSTREAM_TIMEOUT", "{what}");
            }
            case.app.call_text("fake__echo", json!({})).await.context("it answers others")?;
            assert_eq!(case.links()?, before, "{what}: something was heard between, round {round}");
        }
        let given_up = |entry: &&traygate_tests::fake::control_dir::LogEntry| {
            entry.event == "cancelled" && entry.method.as_deref() == Some("resources/read")
        };
        if case.fake.options.transport == FakeTransport::Stdio {
            let told = case.fake.log()?.iter().filter(given_up).count();
            assert_eq!(told, 4, "{what}: it is told that nobody waits");
        }
        case.fake.arm_with(&Arm::new(Failure::Hang, "resources/read").times(3))?;
        for _ in 0..2 {
            assert_eq!(code_of(case.read().await?)["code"], "UPSTREAM_TIMEOUT", "{what}");
        }
        case.read().await?.result().with_context(|| format!("{what}: on a fresh link"))?;
        assert_eq!(case.links()?, before + 1, "{what}");
    }
    Ok(())
}

#[tokio::test]
async fn a_busy_server_is_waited_for_once_and_only_a_little() -> Result<()> {
    for options in over_http() {
        let what = described(&options);
        let case = Case::new(options).await?;
        let before = case.links()?;
        for status in [429, 503] {
            for method in ["resources/read", "tools/call"] {
                let busy = |seconds| Arm::status(status, method).retry_after(seconds);
                let ask = || async {
                    match method {
                        "tools/call" => case.app.call("fake__counter", json!({})).await,
                        _ => case.read().await,
                    }
                };
                case.fake.arm_with(&busy(1))?;
                ask().await?.result().with_context(|| format!("{what}: {status} once"))?;
                case.fake.arm_with(&busy(1).times(2))?;
                unavailable(ask().await?).with_context(|| format!("{what}: {status} twice"))?;
                case.fake.arm_with(&busy(60))?;
                unavailable(ask().await?).with_context(|| format!("{what}: {status} for long"))?;
            }
        }
        assert_eq!((case.links()?, case.state().await?.as_str()), (before, "ready"), "{what}");
        assert_eq!(case.fake.ran("counter")?, 2, "{what}: a refused call never ran");
    }
    Ok(())
}

#[tokio::test]
async fn a_link_that_dies_under_a_harmless_request_is_replaced_and_a_second_death_is_told()
-> Result<()> {
    for options in FakeOptions::all() {
        let what = described(&options);
        let case = Case::new(options).await?;
        let before = case.links()?;
        for method in HARMLESS {
            case.fake.arm(Failure::Cut, method)?;
            let answer = case.harmless(method).await?;
            answer.result().with_context(|| format!("{what}: {method}"))?;
        }
        case.fake.arm(Failure::Cut, "prompts/list")?;
        case.traygate.cli(&["refresh", "fake"]).await?.ok()?;
        assert_eq!(case.links()?, before + 4, "{what}: one link each");
        case.fake.arm_with(&Arm::new(Failure::Cut, "resources/read").times(2))?;
        unavailable(case.read().await?).with_context(|| what.clone())?;
        assert_eq!(case.fake.count("resources/read")?, 4, "{what}: asked twice, not more");
    }
    Ok(())
}

#[tokio::test]
async fn both_tries_of_a_request_share_one_time_out() -> Result<()> {
    let case = Case::new(FakeOptions::http(FakeEra::Modern)).await?;
    case.traygate.cli(&["set", "fake", "request_timeout=4"]).await?.ok()?;
    case.fake.arm_with(&Arm::new(Failure::Cut, "resources/read").ms(3_000))?;
    case.fake.arm(Failure::Hang, "resources/read")?;
    let begun = Instant::now();
    let told = code_of(case.read().await?);
    assert_eq!(told["code"], "UPSTREAM_TIMEOUT", "{told}");
    assert_eq!(case.fake.count("resources/read")?, 2, "it was asked once more");
    ensure!(begun.elapsed() < Duration::from_secs(6), "{:?}", begun.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_call_that_may_have_run_is_repeated_only_where_its_tool_says_that_it_may_be() -> Result<()>
{
    for options in FakeOptions::all() {
        let what = described(&options);
        let case = Case::new(options).await?;
        case.fake.arm(Failure::Cut, "tools/call")?;
        let told: Value = code_of(case.app.call("fake__counter", json!({})).await?);
        assert_eq!(told["code"], "OUTCOME_UNKNOWN", "{what}: {told}");
        assert_eq!(case.fake.ran("counter")?, 1, "{what}: and is not run again");
        for tool in ["read-only", "idempotent"] {
            case.fake.arm(Failure::Cut, "tools/call")?;
            case.app.call_text(&format!("fake__{tool}"), json!({})).await.context(tool)?;
            assert_eq!(case.fake.ran(tool)?, 2, "{what}: {tool}");
        }
        case.fake.arm_with(&Arm::new(Failure::Cut, "tools/call").times(2))?;
        unavailable(case.app.call("fake__read-only", json!({})).await?)?;
    }
    Ok(())
}
