//! The wire against real servers on real sockets.

use std::{future::pending, net::SocketAddr};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse, Response as Answer},
};
use futures::{StreamExt as _, stream};
use http::StatusCode;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::{
    super::{
        Event, Ran,
        testing::{Asked, BODY, Client, RESULT, Server, events, json, open_stream, within},
    },
    *,
};

impl Client {
    fn of(url: &str) -> Self {
        Self::with(url, HeaderMap::new(), Bounds::default())
    }

    fn with(url: &str, headers: HeaderMap, bounds: Bounds) -> Self {
        let url = url.parse().expect("a url");
        let sockets = Sockets::open().expect("sockets");
        let (wire, events) = connect(url, headers, sockets, &Arc::new(UpstreamLog::new()), bounds);
        Self { wire, events }
    }
}

fn initialized() -> Kind {
    Kind::Notification { method: "notifications/initialized".into() }
}

/// A legacy connection with the session `s-123456`, and the GET that it opened.
async fn handshake(server: &mut Server, client: &mut Client) -> Asked {
    client.request(1, "initialize").await;
    server.next().await.reply(([("mcp-session-id", "s-123456")], json(RESULT)));
    client.message().await;
    client.wire.negotiated("2025-06-18", Era::Legacy);
    let (sent, ()) = tokio::join!(client.send(initialized()), async {
        server.next().await.reply(StatusCode::ACCEPTED);
    });
    sent.expect("accepted");
    let get = server.next().await;
    assert_eq!(get.method, Method::GET);
    get
}

#[tokio::test]
async fn a_session_and_a_version_are_repeated_from_the_handshake_to_the_farewell() {
    let mut server = Server::start().await;
    let own = HeaderMap::from_iter([
        (http::header::AUTHORIZATION, HeaderValue::from_static("Bearer secret-token")),
        (http::header::ACCEPT, HeaderValue::from_static("text/html")),
    ]);
    let mut client = Client::with(&server.url(), own, Bounds::default());

    client.request(7, "initialize").await;
    let asked = server.next().await;
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/mcp"));
    assert_eq!(asked.body, BODY);
    assert_eq!(asked.header("accept"), Some("application/json, text/event-stream"));
    assert_eq!(asked.header("content-type"), Some("application/json"));
    assert_eq!(asked.header("authorization"), Some("Bearer secret-token"));
    assert!(asked.header("user-agent").expect("one").starts_with("Traygate/"));
    for header in ["mcp-session-id", "mcp-protocol-version", "mcp-method"] {
        assert_eq!(asked.header(header), None, "not known yet, or not of this era");
    }
    asked.reply(([("mcp-session-id", "s-123456")], json(RESULT)));
    assert_eq!(client.message().await, (RESULT.into(), Some(7)));
    client.wire.negotiated("2025-06-18", Era::Legacy);

    let (sent, ()) = tokio::join!(client.send(initialized()), async {
        let asked = server.next().await;
        assert_eq!(asked.header("mcp-session-id"), Some("s-123456"));
        assert_eq!(asked.header("mcp-protocol-version"), Some("2025-06-18"));
        asked.reply(StatusCode::NO_CONTENT);
    });
    sent.expect("204 is as good as 202");

    let get = server.next().await;
    assert_eq!(get.method, Method::GET);
    assert_eq!(get.header("accept"), Some("text/event-stream"));
    assert_eq!(get.header("mcp-session-id"), Some("s-123456"));
    assert_eq!(get.header("mcp-protocol-version"), Some("2025-06-18"));
    get.reply(StatusCode::METHOD_NOT_ALLOWED);

    let ((), ()) = tokio::join!(within(client.wire.close()), async {
        let asked = server.next().await;
        assert_eq!(asked.method, Method::DELETE);
        assert_eq!(asked.header("mcp-session-id"), Some("s-123456"));
        asked.reply(StatusCode::METHOD_NOT_ALLOWED);
    });
    assert!(client.events.recv().await.is_none(), "nothing more to say");
    assert_eq!(client.send(initialized()).await.expect_err("it has ended").ran, Ran::CertainlyNot);
}

#[tokio::test]
async fn a_modern_request_says_in_headers_what_it_says_in_its_body() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    let kind = Kind::Request {
        tag: 3,
        method: "tools/call".into(),
        name: Some("天気".into()),
        headers: vec![
            ("Mcp-Param-Region".into(), "eu west".into()),
            ("Mcp-Param-Pad".into(), " x ".into()),
        ],
        version: Some("2026-07-28".into()),
    };
    client.send(kind).await.expect("begun");
    let asked = server.next().await;
    let expected = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?5aSp5rCX?="),
        ("mcp-param-region", "eu west"),
        ("mcp-param-pad", "=?base64?IHgg?="),
    ];
    for (name, value) in expected {
        assert_eq!(asked.header(name), Some(value), "{name}");
    }
    assert_eq!(asked.header("mcp-session-id"), None);
    asked.reply(([("mcp-session-id", "ignored")], json(RESULT)));
    client.message().await;
    client.wire.negotiated("2026-07-28", Era::Modern);
    within(client.wire.close()).await;
    assert!(server.asked.try_recv().is_err(), "no GET and no DELETE in this era");
}

#[tokio::test]
async fn a_stream_gives_every_message_in_order_however_it_is_cut() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    client.request(5, "tools/call").await;
    let text = "\u{feff}: hi\r\n\r\nid: 1\r\ndata:\r\n\r\nevent: message\r\ndata: {\"method\":\"é世\",\r\n\
                data: \"params\":{}}\r\n\r\ndata: no json\r\n\r\ndata: {\"id\":1,\"result\":{\"a\": 1e2}}\r\n\r\n";
    let bytes: Vec<_> = text.bytes().map(|byte| Ok::<_, std::io::Error>(vec![byte])).collect();
    let body = Body::from_stream(stream::iter(bytes).then(|byte| async {
        tokio::task::yield_now().await;
        byte
    }));
    server.next().await.reply(([("content-type", "Text/Event-Stream;charset=utf-8")], body));
    assert_eq!(client.message().await, ("{\"method\":\"é世\",\n\"params\":{}}".into(), Some(5)));
    assert!(matches!(client.event().await, Event::Noise(words) if words == "no json"));
    assert_eq!(client.message().await, ("{\"id\":1,\"result\":{\"a\": 1e2}}".into(), Some(5)));
}

#[tokio::test]
async fn a_batch_is_delivered_one_by_one() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    client.request(5, "x").await;
    server
        .next()
        .await
        .reply(json(r#"[{"method":"p"},{"id":1,"error":{"code":1,"message":"m"}}]"#));
    assert_eq!(client.message().await, (r#"{"method":"p"}"#.into(), Some(5)));
    assert_eq!(client.message().await.1, Some(5));
}

#[tokio::test]
async fn what_a_status_means_is_said_with_its_kind() {
    use FailureKind::{Busy, Garbage, NeedsSignIn, Status};
    use Ran::{CertainlyNot, Perhaps};
    let html = "<!DOCTYPE html><html><title>Log in</title><body>x</body></html>";
    let table: Vec<(Answer, FailureKind, Ran, &str)> = vec![
        (StatusCode::UNAUTHORIZED.into_response(), NeedsSignIn, CertainlyNot, "sign-in"),
        ((StatusCode::FORBIDDEN, "go away").into_response(), Status(403), Perhaps, "go away"),
        (StatusCode::METHOD_NOT_ALLOWED.into_response(), Status(405), Perhaps, "405"),
        (StatusCode::NOT_FOUND.into_response(), Status(404), Perhaps, "404"),
        (
            (StatusCode::BAD_GATEWAY, "<html><h1>Bad</h1></html>").into_response(),
            Status(502),
            Perhaps,
            "answered 502 Bad Gateway: Bad",
        ),
        (
            (StatusCode::TOO_MANY_REQUESTS, [("retry-after", "4")]).into_response(),
            Busy { retry_after: 4 },
            CertainlyNot,
            "4 s",
        ),
        (
            (StatusCode::SERVICE_UNAVAILABLE, [("retry-after", "2")]).into_response(),
            Busy { retry_after: 2 },
            CertainlyNot,
            "503",
        ),
        (
            ([("content-type", "text/html")], html).into_response(),
            Garbage,
            Perhaps,
            "HTML page instead of MCP: Log in",
        ),
        (json(r#"{"id":1,"resu"#).into_response(), Garbage, Perhaps, "cut off"),
        (json("").into_response(), Garbage, Perhaps, "nothing in it"),
        (StatusCode::ACCEPTED.into_response(), Garbage, Perhaps, "202"),
    ];
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    for (tag, (answer, kind, ran, words)) in (1..).zip(table) {
        client.request(tag, "tools/call").await;
        server.next().await.reply(answer);
        let failure = client.failure(tag).await;
        assert_eq!((failure.kind, failure.ran), (kind, ran), "{failure}");
        assert!(failure.reason.contains(words), "{failure:?} says {words}");
        assert!(!failure.reason.contains('<'), "no markup in {failure}");
    }
}

#[tokio::test]
async fn a_json_rpc_error_is_an_answer_whatever_its_status() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32022,"message":"no","data":{"supported":[]}}}"#;
    for status in
        [StatusCode::BAD_REQUEST, StatusCode::NOT_FOUND, StatusCode::INTERNAL_SERVER_ERROR]
    {
        client.request(1, "server/discover").await;
        server.next().await.reply((status, json(body)));
        assert_eq!(client.message().await, (body.into(), Some(1)), "{status}");
    }
}

#[tokio::test]
async fn a_lost_session_is_told_in_all_its_shapes_and_not_deleted() {
    let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32001,"message":"Session not found"}}"#;
    let shapes: Vec<Answer> = vec![
        StatusCode::NOT_FOUND.into_response(),
        (StatusCode::BAD_REQUEST, json(error)).into_response(),
        (StatusCode::SERVICE_UNAVAILABLE, "Unknown session").into_response(),
        json(error).into_response(),
        events(&format!("data: {error}\n\n")),
    ];
    let mut server = Server::start().await;
    for shape in shapes {
        let mut client = Client::of(&server.url());
        handshake(&mut server, &mut client).await.reply(StatusCode::METHOD_NOT_ALLOWED);
        client.request(9, "tools/call").await;
        server.next().await.reply(shape);
        let failure = client.failure(9).await;
        assert_eq!((failure.kind, failure.ran), (FailureKind::SessionLost, Ran::CertainlyNot));
        within(client.wire.close()).await;
        assert!(server.asked.try_recv().is_err(), "a session that is unknown can't be ended");
    }
}

#[tokio::test]
async fn a_notification_that_is_refused_says_so_to_its_sender() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    handshake(&mut server, &mut client).await.reply(StatusCode::METHOD_NOT_ALLOWED);
    for (answer, kind) in [
        (StatusCode::NOT_FOUND, FailureKind::SessionLost),
        (StatusCode::INTERNAL_SERVER_ERROR, FailureKind::Status(500)),
    ] {
        let (sent, ()) = tokio::join!(client.send(Kind::Response), async {
            server.next().await.reply(answer);
        });
        assert_eq!(sent.expect_err("refused").kind, kind);
    }
}

#[tokio::test]
async fn a_notification_is_accepted_with_any_success() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    handshake(&mut server, &mut client).await.reply(StatusCode::METHOD_NOT_ALLOWED);
    for answer in [
        StatusCode::OK.into_response(),
        StatusCode::ACCEPTED.into_response(),
        StatusCode::NO_CONTENT.into_response(),
        json("null").into_response(),
        events(": nothing\n\n"),
    ] {
        let (sent, ()) = tokio::join!(client.send(Kind::Response), async {
            server.next().await.reply(answer);
        });
        sent.expect("accepted");
    }
}

#[tokio::test]
async fn a_stream_that_ends_early_is_taken_up_behind_its_last_event() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    handshake(&mut server, &mut client).await.reply(StatusCode::METHOD_NOT_ALLOWED);
    client.request(4, "tools/call").await;
    server.next().await.reply(events("id: e1\nretry: 10\ndata:\n\n"));
    let asked = server.next().await;
    assert_eq!(asked.method, Method::GET);
    assert_eq!(asked.header("last-event-id"), Some("e1"));
    assert_eq!(asked.header("mcp-session-id"), Some("s-123456"));
    asked.reply(events("id: e2\ndata: {\"method\":\"notifications/progress\"}\n\n"));
    let asked = server.next().await;
    assert_eq!(asked.header("last-event-id"), Some("e2"));
    asked.reply(events(&format!("id: e3\ndata: {RESULT}\n\n")));
    assert_eq!(client.message().await.1, Some(4));
    assert_eq!(client.message().await, (RESULT.into(), Some(4)));

    client.request(5, "tools/call").await;
    server.next().await.reply(events("id: e4\nretry: 10\ndata:\n\n"));
    server.next().await.reply(StatusCode::METHOD_NOT_ALLOWED);
    let failure = client.failure(5).await;
    assert_eq!((failure.kind, failure.ran), (FailureKind::Gone, Ran::Perhaps));
}

#[tokio::test]
async fn a_stream_without_ids_that_ends_early_is_a_failure() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    client.request(4, "tools/call").await;
    server.next().await.reply(events("data: {\"method\":\"notifications/progress\"}\n\n"));
    client.message().await;
    let failure = client.failure(4).await;
    assert_eq!((failure.kind, failure.ran), (FailureKind::Gone, Ran::Perhaps));
    assert_eq!(failure.reason, "the stream ended before the answer");
}

#[tokio::test]
async fn what_the_server_says_unasked_comes_over_a_stream_that_is_opened_again() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    let get = handshake(&mut server, &mut client).await;
    get.reply(events("id: 41\ndata: {\"method\":\"notifications/tools/list_changed\"}\n\n"));
    assert_eq!(
        client.message().await,
        (r#"{"method":"notifications/tools/list_changed"}"#.into(), None)
    );
    let again = server.next().await;
    assert_eq!(again.method, Method::GET);
    assert_eq!(again.header("last-event-id"), Some("41"));
    again.reply(StatusCode::NOT_FOUND);
    match client.event().await {
        Event::Closed(failure) => {
            assert_eq!((failure.kind, failure.ran), (FailureKind::SessionLost, Ran::CertainlyNot));
        }
        other => panic!("{other:?}"),
    }
    assert!(within(client.events.recv()).await.is_none(), "the channel ends after Closed");
}

#[tokio::test]
async fn a_request_that_is_forgotten_closes_its_stream() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    client.request(6, "subscriptions/listen").await;
    let (stream, answer) = open_stream();
    server.next().await.reply(answer);
    stream.send("data: {\"method\":\"a\"}\n\n").expect("open");
    client.message().await;
    client.wire.forget(6);
    within(stream.closed()).await;
    client.request(7, "x").await;
    server.next().await.reply(json(RESULT));
    assert_eq!(client.message().await.1, Some(7), "the wire lives on and says nothing of 6");
}

#[tokio::test]
async fn a_wire_that_is_dropped_closes_its_streams() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    client.request(6, "subscriptions/listen").await;
    let (stream, answer) = open_stream();
    server.next().await.reply(answer);
    stream.send("data: {\"method\":\"a\"}\n\n").expect("open");
    client.message().await;
    drop(client);
    within(stream.closed()).await;
}

#[tokio::test]
async fn more_than_the_bound_is_refused_in_every_shape() {
    let mut server = Server::start().await;
    let mut client = Client::with(&server.url(), HeaderMap::new(), Bounds { message: 1_000 });
    let long = format!(r#"{{"id":1,"result":{{"x":"{}"}}}}"#, "x".repeat(2_000));
    for (tag, answer) in (1..).zip([
        ([("content-type", "application/json")], long.clone()).into_response(),
        events(&format!("data: {long}\n\n")),
        events(&"data: xxxxxxxxx\n".repeat(200)),
    ]) {
        client.request(tag, "x").await;
        server.next().await.reply(answer);
        assert_eq!(client.failure(tag).await.kind, FailureKind::Bound);
    }
}

#[tokio::test]
async fn a_redirect_within_the_origin_is_followed_and_remembered() {
    let mut server = Server::start().await;
    let own = HeaderMap::from_iter([(
        http::header::AUTHORIZATION,
        HeaderValue::from_static("Bearer secret-token"),
    )]);
    let mut client = Client::with(&server.url(), own, Bounds::default());
    client.request(1, "x").await;
    server.next().await.reply((StatusCode::TEMPORARY_REDIRECT, [("location", "/mcp/")]));
    let asked = server.next().await;
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("POST", "/mcp/"));
    assert_eq!(asked.body, BODY, "the body goes along");
    assert_eq!(asked.header("authorization"), Some("Bearer secret-token"));
    asked.reply(json(RESULT));
    client.message().await;
    client.request(2, "x").await;
    let asked = server.next().await;
    assert_eq!(asked.path, "/mcp/", "the second time without the detour");
    asked.reply(json(RESULT));
}

#[tokio::test]
async fn other_redirects_are_failures_that_say_where_they_point() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    for (status, to, words) in [
        (
            StatusCode::PERMANENT_REDIRECT,
            "https://other.example/mcp?key=topsecret",
            "https://other.example:443/mcp,",
        ),
        (StatusCode::MOVED_PERMANENTLY, "/new?key=topsecret", "/new;"),
    ] {
        client.request(1, "x").await;
        server.next().await.reply((status, [("location", to)]));
        let failure = client.failure(1).await;
        assert_eq!(failure.kind, FailureKind::Status(status.as_u16()));
        assert!(failure.reason.contains(words), "{failure}");
        assert!(!failure.reason.contains("topsecret"), "no query in {failure}");
    }
    client.request(2, "x").await;
    for _ in 0..=10 {
        server.next().await.reply((StatusCode::TEMPORARY_REDIRECT, [("location", "/mcp")]));
    }
    assert!(client.failure(2).await.reason.contains("in a circle"));
}

#[tokio::test]
async fn a_reason_repeats_no_secret_that_the_server_repeats() {
    let mut server = Server::start().await;
    let own = HeaderMap::from_iter([(
        http::header::AUTHORIZATION,
        HeaderValue::from_static("Bearer hunter2-hunter2"),
    )]);
    let url = format!("{}?key=k-987654", server.url());
    let mut client = Client::with(&url, own, Bounds::default());
    client.request(1, "x").await;
    let body = "no entry for hunter2-hunter2 at /mcp?key=k-987654";
    server.next().await.reply((StatusCode::FORBIDDEN, body));
    let failure = client.failure(1).await;
    assert_eq!(failure.reason, "answered 403 Forbidden: no entry for … at /mcp?key=…");
}

#[tokio::test]
async fn a_compressed_answer_is_decoded() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server.url());
    client.request(1, "x").await;
    let asked = server.next().await;
    let accepted = asked.header("accept-encoding").expect("offered");
    assert!(["gzip", "br", "deflate"].iter().all(|coding| accepted.contains(coding)), "{accepted}");
    let headers = [("content-encoding", "gzip"), ("content-type", "application/json")];
    asked.reply((headers, gzipped(RESULT)));
    assert_eq!(client.message().await, (RESULT.into(), Some(1)));
}

/// One stored block in a gzip frame.
fn gzipped(text: &str) -> Vec<u8> {
    let crc = text.bytes().fold(u32::MAX, |crc, byte| {
        (0..8).fold(crc ^ u32::from(byte), |crc, _| {
            (crc >> 1) ^ (0xEDB8_8320 & (crc & 1).wrapping_neg())
        })
    });
    let length = u16::try_from(text.len()).expect("short");
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255, 1];
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(text.bytes());
    out.extend((!crc).to_le_bytes());
    out.extend(u32::from(length).to_le_bytes());
    out
}

#[tokio::test]
async fn a_refused_connection_certainly_ran_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    for host in ["127.0.0.1", "localhost"] {
        let mut client = Client::of(&format!("http://{host}:{port}/mcp?token=topsecret"));
        client.request(1, "tools/call").await;
        let failure = client.failure(1).await;
        assert_eq!((failure.kind, failure.ran), (FailureKind::Gone, Ran::CertainlyNot));
        assert_eq!(
            failure.reason,
            format!("{host}:{port} refused the connection; is the server running?")
        );
    }
}

#[tokio::test]
async fn localhost_is_found_whichever_family_the_server_listens_on() {
    for address in ["127.0.0.1:0", "[::1]:0"] {
        // A machine without the family can't have a server on it.
        let Ok(listener) = TcpListener::bind(address).await else { continue };
        let port = listener.local_addr().expect("an address").port();
        let app = Router::new().fallback(|| async { json(RESULT) });
        let server = tokio::spawn(async move { axum::serve(listener, app).await });
        let mut client = Client::of(&format!("http://localhost:{port}/mcp"));
        client.request(1, "x").await;
        client.message().await;
        server.abort();
    }
}

/// Answers one connection with these bytes once it has sent something, then hangs up.
async fn raw(answer: &'static str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        let mut asked = Vec::new();
        while !asked.ends_with(BODY.as_bytes()) {
            assert!(socket.read_buf(&mut asked).await.expect("a request") > 0, "all of it comes");
        }
        socket.write_all(answer.as_bytes()).await.expect("written");
        socket.shutdown().await.expect("shut down");
        pending::<()>().await;
    });
    address
}

#[tokio::test]
async fn a_connection_that_drops_after_the_request_may_have_run_it() {
    for answer in [
        "",
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 500\r\n\r\n{\"id\":1",
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n5\r\ndata:",
    ] {
        let address = raw(answer).await;
        let mut client = Client::of(&format!("http://{address}/mcp"));
        client.request(1, "tools/call").await;
        let failure = client.failure(1).await;
        assert_eq!((failure.kind, failure.ran), (FailureKind::Gone, Ran::Perhaps), "{failure}");
    }
}
