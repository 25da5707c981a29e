//! A loopback proxy that adds an app's token and changes nothing else, for programs that can't send
//! one. The product has no switch for "no token".

use anyhow::{Context as _, Result};
use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{HeaderMap, StatusCode, header},
    response::{IntoResponse as _, Response},
};
use tokio::{net::TcpListener, task::JoinHandle};

/// Runs as long as it is held.
pub struct TokenProxy {
    port: u16,
    task: JoinHandle<()>,
}

#[derive(Clone)]
struct Target {
    /// `http://127.0.0.1:8717`
    origin: String,
    token: String,
    http: reqwest::Client,
}

impl TokenProxy {
    pub async fn start(origin: &str, token: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("the proxy's port")?;
        let port = listener.local_addr()?.port();
        let target = Target {
            origin: origin.to_owned(),
            token: token.to_owned(),
            http: reqwest::Client::builder().no_proxy().build()?,
        };
        let routes = Router::new().fallback(pass).with_state(target);
        let task = tokio::spawn(async move {
            if let Err(error) = axum::serve(listener, routes).await {
                eprintln!("the proxy ended: {error}");
            }
        });
        Ok(Self { port, task })
    }

    pub fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }
}

impl Drop for TokenProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(State(target): State<Target>, request: Request) -> Response {
    match forward(&target, request).await {
        Ok(response) => response,
        Err(error) => (StatusCode::BAD_GATEWAY, error.to_string()).into_response(),
    }
}

async fn forward(target: &Target, request: Request) -> Result<Response> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
    let body = axum::body::to_bytes(body, usize::MAX).await?;
    let answer = target
        .http
        .request(parts.method, format!("{}{path}", target.origin))
        .headers(end_to_end(&parts.headers))
        .bearer_auth(&target.token)
        .body(body)
        .send()
        .await?;
    let mut response = Response::new(Body::empty());
    *response.status_mut() = answer.status();
    *response.headers_mut() = end_to_end(answer.headers());
    *response.body_mut() = Body::from_stream(answer.bytes_stream());
    Ok(response)
}

/// Those that don't belong to one hop. `Host` names the proxy, and both are this machine.
fn end_to_end(headers: &HeaderMap) -> HeaderMap {
    let mut headers = headers.clone();
    for one_hop in [
        header::CONNECTION,
        header::TRANSFER_ENCODING,
        header::CONTENT_LENGTH,
        header::UPGRADE,
        header::TE,
        header::TRAILER,
    ] {
        headers.remove(one_hop);
    }
    headers
}
