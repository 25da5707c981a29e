//! The wire against real servers on real sockets.

use axum::response::IntoResponse as _;
use http::{StatusCode, header::AUTHORIZATION};

use super::{
    super::testing::{Asked, BODY, Client, RESULT, Server, events, json, open_stream, within},
    *,
};

async fn dial(url: String, headers: HeaderMap) -> Result<Client, Failure> {
    let url = url.parse().expect("a url");
    let sockets = Sockets::open().expect("sockets");
    let log = Arc::new(UpstreamLog::new());
    let (wire, events) = within(connect(url, headers, sockets, &log, Bounds::default())).await?;
    Ok(Client { wire, events })
}

/// A connection whose server named this endpoint, and the way to write on its stream.
async fn connected(
    server: &mut Server,
    path: &str,
    endpoint: &'static str,
) -> (Client, mpsc::UnboundedSender<&'static str>) {
    let own =
        HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_static("Bearer secret-token"))]);
    let dialled = dial_with(server, path, own, endpoint).await;
    dialled.unwrap_or_else(|failure| panic!("{endpoint:?} is an endpoint: {failure}"))
}

async fn dial_with(
    server: &mut Server,
    path: &str,
    own: HeaderMap,
    endpoint: &'static str,
) -> Result<(Client, mpsc::UnboundedSender<&'static str>), Failure> {
    let (stream, answer) = open_stream();
    stream.send(endpoint).expect("open");
    let url = format!("http://{}{path}", server.address);
    let dialling = tokio::spawn(dial(url, own));
    let asked = server.next().await;
    assert_eq!((asked.method.as_str(), asked.path.as_str()), ("GET", path));
    assert_eq!(asked.header("accept"), Some("text/event-stream"));
    asked.reply(answer);
    Ok((within(dialling).await.expect("no panic")?, stream))
}

/// The client's next request, as the server saw it.
async fn posted(server: &mut Server, client: &Client, tag: u64) -> Asked {
    client.request(tag, "tools/call").await;
    let asked = server.next().await;
    assert_eq!((asked.method.as_str(), &asked.body[..]), ("POST", BODY.as_bytes()));
    asked
}

#[tokio::test]
async fn an_endpoint_in_any_form_is_where_messages_go() {
    for (event, path) in [
        ("event: endpoint\ndata: /messages?sessionId=1\n\n", "/messages?sessionId=1"),
        ("event: endpoint\r\ndata: messages/?s=a%20b&c\r\n\r\n", "/deep/messages/?s=a%20b&c"),
        (": hello\n\nevent:endpoint\rdata:?x=1\r\r", "/deep/sse?x=1"),
    ] {
        let mut server = Server::start().await;
        let (mut client, stream) = connected(&mut server, "/deep/sse", event).await;
        client.wire.negotiated("2024-11-05", Era::Legacy);
        let asked = posted(&mut server, &client, 1).await;
        assert_eq!(asked.path, path);
        assert_eq!(asked.header("authorization"), Some("Bearer secret-token"));
        assert_eq!(asked.header("mcp-protocol-version"), Some("2024-11-05"));
        asked.reply((StatusCode::ACCEPTED, "Accepted"));
        stream.send("event: message\ndata: {\"id\":1,\ndata: \"result\":{}}\n\n").expect("open");
        assert_eq!(client.message().await, ("{\"id\":1,\n\"result\":{}}".into(), None));
    }
}

#[tokio::test]
async fn an_absolute_endpoint_must_be_of_the_same_origin() {
    let mut server = Server::start().await;
    let own = format!("event: endpoint\ndata: http://{}/m?s=1\n\n", server.address);
    let own: &'static str = Box::leak(own.into_boxed_str());
    let (client, _stream) = connected(&mut server, "/sse", own).await;
    assert_eq!(posted(&mut server, &client, 1).await.path, "/m?s=1");

    let evil = "event: endpoint\ndata: http://127.0.0.2:9/m?s=topsecret\n\n";
    let refused = dial_with(&mut server, "/sse", HeaderMap::new(), evil).await;
    let failure = refused.err().expect("refused");
    assert_eq!((failure.kind, failure.ran), (FailureKind::Garbage, Ran::CertainlyNot));
    assert_eq!(
        failure.reason,
        "is no HTTP+SSE server: it named an endpoint of another origin, http://127.0.0.2:9/m, which was refused"
    );
}

#[tokio::test]
async fn what_is_no_server_of_this_transport_is_said_to_be_none() {
    let mut server = Server::start().await;
    let table = [
        (StatusCode::METHOD_NOT_ALLOWED.into_response(), FailureKind::Status(405)),
        (StatusCode::NOT_FOUND.into_response(), FailureKind::Status(404)),
        (json(RESULT).into_response(), FailureKind::Garbage),
        (events(": no endpoint\n\n"), FailureKind::Gone),
    ];
    for (answer, kind) in table {
        let (dialled, ()) = tokio::join!(dial(server.url(), HeaderMap::new()), async {
            server.next().await.reply(answer);
        });
        let failure = dialled.err().expect("no server");
        assert_eq!((failure.kind, failure.ran), (kind, Ran::CertainlyNot), "{failure}");
        assert!(failure.reason.starts_with("is no HTTP+SSE server: it "), "{failure}");
    }
    let (dialled, ()) = tokio::join!(dial(server.url(), HeaderMap::new()), async {
        server.next().await.reply(StatusCode::UNAUTHORIZED);
    });
    assert_eq!(dialled.err().expect("refused").kind, FailureKind::NeedsSignIn);
}

#[tokio::test]
async fn a_server_that_never_names_its_endpoint_is_given_up() {
    let mut server = Server::start().await;
    let url = server.url().parse().expect("a url");
    let remote = Remote::new(Sockets::open().expect("sockets"), url, HeaderMap::new());
    let (stream, answer) = open_stream();
    stream.send(": ping\n\n").expect("open");
    let patience = Duration::from_secs(1);
    let (opened, ()) = tokio::join!(open_within(patience, &remote, Bounds::default()), async {
        server.next().await.reply(answer);
    });
    let failure = opened.err().expect("given up");
    assert_eq!((failure.kind, failure.ran), (FailureKind::Gone, Ran::CertainlyNot));
    assert_eq!(failure.reason, "is no HTTP+SSE server: it sent no endpoint event within 1 s");
}

#[tokio::test]
async fn a_stream_that_ends_ends_the_connection() {
    let mut server = Server::start().await;
    let (mut client, stream) =
        connected(&mut server, "/sse", "event: endpoint\ndata: /m\n\n").await;
    posted(&mut server, &client, 1).await.reply(StatusCode::ACCEPTED);
    drop(stream);
    match client.event().await {
        Event::Closed(failure) => {
            assert_eq!((failure.kind, failure.ran), (FailureKind::Gone, Ran::Perhaps));
        }
        other => panic!("{other:?}"),
    }
    assert!(within(client.events.recv()).await.is_none(), "the channel ends after Closed");
    assert_eq!(client.send(Kind::Response).await.expect_err("over").ran, Ran::CertainlyNot);
}

#[tokio::test]
async fn a_post_that_fails_is_the_failure_of_its_request_alone() {
    let mut server = Server::start().await;
    let (mut client, stream) =
        connected(&mut server, "/sse", "event: endpoint\ndata: /m\n\n").await;
    let table = [
        ((StatusCode::NOT_FOUND, "Could not find session"), FailureKind::SessionLost),
        ((StatusCode::BAD_REQUEST, "Could not find session ID 7"), FailureKind::SessionLost),
        ((StatusCode::INTERNAL_SERVER_ERROR, "oh"), FailureKind::Status(500)),
        ((StatusCode::TOO_MANY_REQUESTS, ""), FailureKind::Busy { retry_after: 1 }),
    ];
    for (tag, (answer, kind)) in (1..).zip(table) {
        posted(&mut server, &client, tag).await.reply(answer);
        assert_eq!(client.failure(tag).await.kind, kind);
    }
    let (told, ()) = tokio::join!(client.send(Kind::Response), async {
        server.next().await.reply(StatusCode::INTERNAL_SERVER_ERROR);
    });
    assert_eq!(told.expect_err("refused").kind, FailureKind::Status(500));

    posted(&mut server, &client, 8).await.reply(json(RESULT));
    assert_eq!(client.message().await, (RESULT.into(), Some(8)), "an answer in the POST's own");
    stream.send("data: {\"method\":\"a\"}\n\n").expect("the stream lives on");
    client.message().await;
}

#[tokio::test]
async fn closing_lets_go_of_the_stream() {
    let mut server = Server::start().await;
    let (mut client, stream) =
        connected(&mut server, "/sse", "event: endpoint\ndata: /m\n\n").await;
    within(client.wire.close()).await;
    within(stream.closed()).await;
    assert!(client.events.recv().await.is_none(), "nothing more to say");
}
