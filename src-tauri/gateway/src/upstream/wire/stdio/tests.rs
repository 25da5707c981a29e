use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use bytes::Bytes;

use super::{super::Kind, *};

/// More than any of these tests takes, so that a failure doesn't hang.
const PATIENCE: Duration = Duration::from_secs(20);

struct Started {
    wire: Arc<dyn Wire>,
    events: Events,
    log: Arc<UpstreamLog>,
}

impl Started {
    async fn bounded(command: &str, args: &[&str], bounds: Bounds) -> Self {
        let program = Program {
            command: command.to_owned(),
            args: args.iter().map(|arg| (*arg).to_owned()).collect(),
            env: BTreeMap::new(),
            cwd: None,
        };
        let log = Arc::new(UpstreamLog::new());
        let (wire, events) =
            spawn(&program, &Children::new(), &log, bounds).await.expect("it starts");
        Self { wire, events, log }
    }

    async fn sh(script: &str) -> Self {
        Self::bounded("sh", &["-c", script], Bounds::default()).await
    }

    async fn python(script: &str) -> Self {
        Self::bounded("python3", &["-c", script], Bounds::default()).await
    }

    async fn next(&mut self) -> Event {
        let event = time::timeout(PATIENCE, self.events.recv()).await.expect("an event in time");
        event.expect("the channel is open")
    }

    async fn message(&mut self) -> Bytes {
        match self.next().await {
            Event::Message { bytes, origin: None } => bytes,
            other => panic!("no message: {other:?}"),
        }
    }

    /// The reason of `Closed`, which is the last event of all.
    async fn closed(&mut self) -> String {
        let Event::Closed(failure) = self.next().await else { panic!("not closed") };
        assert_eq!((failure.kind, failure.ran), (FailureKind::Gone, Ran::Perhaps));
        let after = time::timeout(PATIENCE, self.events.recv()).await.expect("the end in time");
        assert!(after.is_none(), "nothing comes after the end: {after:?}");
        failure.reason
    }

    async fn send(&self, text: &str) -> Result<(), Failure> {
        self.wire.send(request(text.as_bytes().to_vec())).await
    }
}

fn request(bytes: impl Into<Bytes>) -> Outgoing {
    let kind = Kind::Request {
        tag: 1,
        method: "ping".to_owned(),
        name: None,
        headers: Vec::new(),
        version: None,
    };
    Outgoing { bytes: bytes.into(), kind }
}

fn is_alive(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    !stat.is_empty() && !stat.contains(") Z ")
}

/// Writes the id of a process that only SIGKILL ends, and of its launcher, then stays.
const TREE: &str = r#"
trap '' TERM
sh -c 'trap "" TERM; echo "{\"jsonrpc\":\"2.0\",\"method\":\"$PPID $$\"}"; while :; do sleep 1; done' < /dev/null
true"#;

async fn tree(started: &mut Started) -> Vec<String> {
    let line = String::from_utf8(started.message().await.to_vec()).expect("text");
    let pids: Vec<String> =
        line.split('"').nth(7).expect("the ids").split(' ').map(str::to_owned).collect();
    for pid in &pids {
        assert!(is_alive(pid), "{pid} runs");
    }
    pids
}

async fn until(what: impl Fn() -> bool) {
    let wait = async {
        while !what() {
            time::sleep(Duration::from_millis(10)).await;
        }
    };
    time::timeout(PATIENCE, wait).await.expect("it happens in time");
}

#[tokio::test]
async fn messages_go_both_ways_to_the_byte() {
    let mut cat = Started::sh("exec cat").await;
    for text in [
        r#"{"jsonrpc":"2.0","id":1,"result":{"n":18446744073709551616}}"#,
        "{\"jsonrpc\":\"2.0\",\"id\":2,\"result\":\"\u{2028}\u{85}\\u00e9\"}",
    ] {
        cat.send(text).await.expect("written");
        assert_eq!(cat.message().await, text);
    }
    cat.wire.close().await;
    assert_eq!(cat.closed().await, "was stopped and exited with code 0");
    let failure = cat.send("{}").await.expect_err("it is over");
    assert_eq!((failure.kind, failure.ran), (FailureKind::Gone, Ran::CertainlyNot));
}

#[tokio::test]
async fn a_line_end_inside_a_message_never_makes_two_of_it() {
    let mut cat = Started::sh("exec cat").await;
    cat.send("{\"jsonrpc\":\"2.0\",\n\"id\":1,\"method\":\"x\"}").await.expect("written");
    assert_eq!(cat.message().await, r#"{"jsonrpc":"2.0", "id":1,"method":"x"}"#);
}

#[tokio::test]
async fn odd_framing_is_understood_and_noise_is_passed_by() {
    let mut server = Started::python(
        r#"
import sys, time
def say(data):
    sys.stdout.buffer.write(data); sys.stdout.buffer.flush(); time.sleep(0.02)
say(b'\xef\xbb\xbf{"jsonrpc":"2.0","id":1,"result":1}\r\n')
say(b'Content-Length: 5\r\n\r\n')
say(b'{"jsonrpc":"2.0","id":2,"res')
say(b'ult":"\xc3')
say(b'\xa4"}\n{"jsonrpc":"2.0","id":3,"result":3}\n[{"jsonrpc":"2.0","id":4,"result":4}]\n')
say(b'{"jsonrpc":"2.0","id":5,"result":5}')
"#,
    )
    .await;
    assert_eq!(server.message().await, r#"{"jsonrpc":"2.0","id":1,"result":1}"#);
    assert!(matches!(server.next().await, Event::Noise(text) if text == "Content-Length: 5"));
    for (id, result) in [("2", "\"ä\""), ("3", "3"), ("4", "4"), ("5", "5")] {
        let expected = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        assert_eq!(server.message().await, expected);
    }
    assert_eq!(server.closed().await, "the server exited with code 0");
}

#[tokio::test]
async fn a_message_of_twenty_megabytes_passes_both_ways() {
    let mut cat = Started::sh("exec cat").await;
    let text = "x".repeat(20 * 1024 * 1024);
    let message = format!(r#"{{"jsonrpc":"2.0","id":1,"result":"{text}"}}"#);
    let (sent, received) = tokio::join!(cat.wire.send(request(message.clone())), async {
        time::timeout(PATIENCE, cat.events.recv()).await.expect("in time")
    });
    sent.expect("written");
    let Some(Event::Message { bytes, .. }) = received else { panic!("no message") };
    assert!(bytes == message, "the same bytes");
}

#[tokio::test]
async fn an_answer_over_the_bound_fails_its_request_and_nothing_else() {
    let script = r#"
import json
for id in (7, 8):
    print(json.dumps({"jsonrpc": "2.0", "id": id, "result": "x" * (300000 if id == 7 else 1)}), flush=True)
"#;
    let bounds = Bounds { message: 100_000 };
    let mut server = Started::bounded("python3", &["-c", script], bounds).await;
    let Event::Noise(noise) = server.next().await else { panic!("the bound is told") };
    assert!(noise.contains("over the bound of 100000 bytes"), "{noise}");
    let Event::Failed { tag: 7, failure } = server.next().await else { panic!("request 7") };
    assert_eq!(failure.kind, FailureKind::Bound);
    assert_eq!(server.message().await, r#"{"jsonrpc": "2.0", "id": 8, "result": "x"}"#);
}

#[tokio::test]
async fn an_exit_is_noticed_at_once_with_the_programs_last_words() {
    let mut server = Started::sh(
        r#"echo '{"jsonrpc":"2.0","method":"ready"}'; read line
        for n in 1 2 3 4; do echo "word $n" >&2; done
        echo '{"jsonrpc":"2.0","id":1,"result":"the last"}'; exit 3"#,
    )
    .await;
    server.message().await;
    server.send("{}").await.expect("written");
    let sent = Instant::now();
    assert!(server.message().await.ends_with(b"\"the last\"}"), "what it said before is heard");
    assert_eq!(
        server.closed().await,
        "the server exited with code 3; it last said: word 2 | word 3 | word 4"
    );
    assert!(sent.elapsed() < Duration::from_millis(500), "{:?}", sent.elapsed());
}

#[tokio::test]
async fn an_exit_is_noticed_although_a_grandchild_holds_the_pipes() {
    // A session of its own, so that even ending the group doesn't end it.
    let mut server = Started::sh(
        r#"setsid sleep 30 & echo "{\"jsonrpc\":\"2.0\",\"method\":\"$!\"}"; kill -9 $$"#,
    )
    .await;
    let line = String::from_utf8(server.message().await.to_vec()).expect("text");
    let started = Instant::now();
    assert_eq!(server.closed().await, "the server was killed by signal 9");
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    let pid = line.split('"').nth(7).expect("its id").to_owned();
    std::process::Command::new("kill").arg(pid).status().expect("kill runs");
}

#[tokio::test]
async fn the_rest_of_a_group_goes_with_its_leader() {
    let mut server =
        Started::sh(r#"sleep 30 & echo "{\"jsonrpc\":\"2.0\",\"method\":\"$!\"}"; read line"#)
            .await;
    let line = String::from_utf8(server.message().await.to_vec()).expect("text");
    let pid = line.split('"').nth(7).expect("its id").to_owned();
    assert!(is_alive(&pid));
    server.send("{}").await.expect("written");
    assert_eq!(server.closed().await, "the server exited with code 0");
    until(|| !is_alive(&pid)).await;
}

#[tokio::test]
async fn close_ends_the_whole_tree_even_if_it_ignores_every_request_to_leave() {
    let mut server = Started::sh(TREE).await;
    let pids = tree(&mut server).await;
    let started = Instant::now();
    server.wire.close().await;
    for pid in pids {
        assert!(!is_alive(&pid), "{pid} is gone when close returns");
    }
    let took = started.elapsed();
    assert!((3..7).contains(&took.as_secs()), "input closed, then asked, then killed: {took:?}");
    assert_eq!(server.closed().await, "was stopped and was killed by signal 9");
}

#[tokio::test]
async fn a_dropped_wire_leaves_no_process() {
    let mut server = Started::sh(TREE).await;
    let pids = tree(&mut server).await;
    drop(server);
    until(|| !pids.iter().any(|pid| is_alive(pid))).await;
}

#[test]
fn a_runtime_that_ends_leaves_no_process() {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let (server, pids) = runtime.block_on(async {
        let mut server = Started::sh(TREE).await;
        let pids = tree(&mut server).await;
        (server, pids)
    });
    runtime.shutdown_background();
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    runtime.block_on(until(|| !pids.iter().any(|pid| is_alive(pid))));
    drop(server);
}

#[tokio::test]
async fn a_program_that_leaves_when_its_input_closes_is_given_the_time() {
    let folder = tempfile::tempdir().expect("a folder");
    let note: PathBuf = folder.path().join("note");
    let script = format!("cat > /dev/null; sleep 0.3; echo saved > {}", note.display());
    let server = Started::sh(&script).await;
    server.wire.close().await;
    assert!(Path::new(&note).exists(), "it could save its work");
}

#[tokio::test]
async fn a_program_that_closes_its_output_is_as_good_as_gone() {
    let mut server = Started::sh("exec >&-; exec sleep 30").await;
    assert_eq!(server.closed().await, "the server closed its standard output without exiting");
    server.wire.close().await;
}

#[tokio::test]
async fn a_flood_of_errors_blocks_nobody() {
    let mut server = Started::python(
        r#"
import sys
sys.stderr.write("x" * 3000000 + "\n")
for n in range(20000): sys.stderr.write("line %d\n" % n)
sys.stderr.flush()
print('{"jsonrpc":"2.0","id":1,"result":1}', flush=True)
sys.stdin.read()
"#,
    )
    .await;
    server.message().await;
    until(|| server.log.last_stderr(1) == ["line 19999"]).await;
    assert_eq!(server.log.last(5_000).len(), 1_000);
    assert!(server.log.activity().is_some());
}

#[tokio::test]
async fn a_send_that_was_never_begun_certainly_did_not_run() {
    let (lanes, letters) = writer::lanes();
    let mut group = deaf().start(&Children::new()).await.expect("it starts");
    let (stdin, _stdout, _stderr) = group.stdio();
    let closing = CancellationToken::new();
    let writing = tokio::spawn(writer::write(stdin.expect("piped"), letters, closing.clone()));
    let short = Duration::from_millis(200);

    // Larger than the pipe: begun, never finished.
    let first = lanes.send(request(vec![b'x'; 1_000_000]), short).await.expect_err("not read");
    assert_eq!((first.kind, first.ran), (FailureKind::Gone, Ran::Perhaps));
    assert!(first.reason.contains("has not read its input"), "{}", first.reason);
    let second = lanes.send(request(&b"{}"[..]), short).await.expect_err("behind the first");
    assert_eq!((second.kind, second.ran), (FailureKind::Gone, Ran::CertainlyNot));

    closing.cancel();
    time::timeout(PATIENCE, writing).await.expect("it ends at once").expect("no panic");
    let third = lanes.send(request(&b"{}"[..]), short).await.expect_err("closed");
    assert_eq!(third.ran, Ran::CertainlyNot);
    group.stop().await;
}

#[tokio::test]
async fn a_cancellation_overtakes_what_is_not_yet_begun() {
    let (lanes, letters) = writer::lanes();
    let cancel = Outgoing {
        bytes: Bytes::from_static(b"cancel"),
        kind: Kind::Notification { method: "notifications/cancelled".to_owned() },
    };
    let program = Program { command: "cat".into(), args: Vec::new(), ..deaf() };
    let mut group = program.start(&Children::new()).await.expect("it starts");
    let (stdin, stdout, _stderr) = group.stdio();
    let patience = PATIENCE;
    let mut abandoned = Box::pin(lanes.send(request(&b"abandoned"[..]), patience));
    assert!(futures::poll!(&mut abandoned).is_pending(), "queued");
    drop(abandoned);
    let sending = async {
        let (first, second) = tokio::join!(
            lanes.send(request(&b"request"[..]), patience),
            lanes.send(cancel, patience)
        );
        first.and(second).expect("written");
    };
    let closing = CancellationToken::new();
    let writing = async {
        // Queued first, written then.
        tokio::task::yield_now().await;
        writer::write(stdin.expect("piped"), letters, closing.clone()).await;
    };
    let ending = async {
        sending.await;
        closing.cancel();
    };
    tokio::join!(ending, writing);
    let mut text = String::new();
    stdout.expect("piped").read_to_string(&mut text).await.expect("text");
    assert_eq!(text, "cancel\nrequest\n", "and what was given up is not written at all");
    group.stop().await;
}

/// Never reads its input.
fn deaf() -> Program {
    Program {
        command: "sleep".to_owned(),
        args: vec!["30".to_owned()],
        env: BTreeMap::new(),
        cwd: None,
    }
}
