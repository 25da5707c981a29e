#![allow(clippy::unwrap_used)]

use std::{collections::BTreeMap, time::Instant};

use super::*;

/// The budget for what happens at once; generous, as the machine may be busy.
const SOON: Duration = Duration::from_secs(10);

async fn started(script: &str) -> (Arc<dyn Wire>, Events, Arc<UpstreamLog>) {
    let program = Program {
        command: "sh".to_owned(),
        args: vec!["-c".to_owned(), script.to_owned()],
        env: BTreeMap::new(),
        cwd: None,
    };
    let log = Arc::new(UpstreamLog::new());
    let (wire, events) = spawn(&program, &log, Bounds::default()).await.unwrap();
    (wire, events, log)
}

async fn next(events: &mut Events) -> Event {
    timeout(SOON, events.recv()).await.unwrap().unwrap()
}

async fn closed(events: &mut Events) -> Failure {
    loop {
        if let Event::Closed(failure) = next(events).await {
            return failure;
        }
    }
}

fn message(text: &str) -> Outgoing {
    Outgoing { bytes: Bytes::copy_from_slice(text.as_bytes()), kind: Kind::Response }
}

fn alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// The next message's text.
async fn text(events: &mut Events) -> String {
    loop {
        if let Event::Message { bytes, .. } = next(events).await {
            return String::from_utf8(bytes.to_vec()).unwrap();
        }
    }
}

#[tokio::test]
async fn a_message_goes_in_and_comes_back_byte_for_byte() {
    let (wire, mut events, _) = started("cat").await;
    let sent = r#"{"z":1e3,"a":"é\u2028"}"#;
    wire.send(message(sent)).await.unwrap();
    assert_eq!(text(&mut events).await, sent);
    wire.close().await;
    assert_eq!(closed(&mut events).await.reason, "the connection was closed");
}

#[tokio::test]
async fn what_is_no_message_is_noise_and_a_batch_is_taken_apart() {
    let (_wire, mut events, _) = started(r#"echo 'a banner'; echo '[{"id":1},{"id":2}]'; sleep 60"#).await;
    assert!(matches!(next(&mut events).await, Event::Noise(noise) if noise == "a banner"));
    assert_eq!(text(&mut events).await, r#"{"id":1}"#);
    assert_eq!(text(&mut events).await, r#"{"id":2}"#);
}

#[tokio::test]
async fn an_exit_is_noticed_at_once_with_its_code_and_last_words() {
    let (_wire, mut events, _) = started("echo 'no API key' >&2; exit 3").await;
    let failure = closed(&mut events).await;
    assert_eq!(failure.reason, "it exited with code 3; its last words: no API key");
    assert_eq!((failure.kind, failure.ran), (FailureKind::Gone, Ran::Perhaps));
}

#[tokio::test]
async fn an_exit_is_noticed_though_a_grandchild_holds_the_output_and_goes_with_it() {
    let (_wire, mut events, _) = started(r#"sleep 300 & echo "{\"pid\":$!}"; exit 0"#).await;
    let pid = text(&mut events).await.replace(|c: char| !c.is_ascii_digit(), "");
    let begun = Instant::now();
    assert_eq!(closed(&mut events).await.reason, "it exited with code 0 without a word on stderr");
    assert!(begun.elapsed() < SOON);
    assert!(!alive(&pid), "what it started is gone");
}

#[tokio::test]
async fn closing_ends_a_program_that_ignores_everything_with_all_it_started() {
    let script = r#"trap '' TERM HUP; (trap '' TERM HUP; sleep 300) & echo "{\"pid\":$!}"; while true; do sleep 1; done"#;
    let (wire, mut events, _) = started(script).await;
    let pid = text(&mut events).await.replace(|c: char| !c.is_ascii_digit(), "");
    wire.close().await;
    closed(&mut events).await;
    assert!(!alive(&pid), "what it started is gone");
}

#[tokio::test]
async fn a_dropped_wire_leaves_nobody() {
    let (wire, mut events, _) = started(r#"echo "{\"pid\":$$}"; cat"#).await;
    let pid = text(&mut events).await.replace(|c: char| !c.is_ascii_digit(), "");
    drop(wire);
    closed(&mut events).await;
    assert!(!alive(&pid));
}

#[tokio::test]
async fn a_flood_on_stderr_never_blocks_the_program() {
    let script = r#"i=0; while [ $i -lt 3000 ]; do echo "line $i ........................................................" >&2; i=$((i+1)); done; echo '{"done":true}'; cat"#;
    let (_wire, mut events, log) = started(script).await;
    assert_eq!(text(&mut events).await, r#"{"done":true}"#);
    assert!(log.last(5000).len() <= 1000, "the log is bounded");
}

#[tokio::test]
async fn what_was_never_written_certainly_did_not_run() {
    let (wire, mut events, _) = started("exec <&-; sleep 0.2; exit 0").await;
    closed(&mut events).await;
    let failure = wire.send(message("{}")).await.unwrap_err();
    assert_eq!(failure.ran, Ran::CertainlyNot, "{failure}");
}
