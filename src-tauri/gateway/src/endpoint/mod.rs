//! What AI apps connect to: `/mcp` with everything, `/mcp/<upstream>` with one upstream under its
//! own names, in both eras of the protocol.
//!
//! rmcp serves the protocol (sessions, headers, SSE, discovery, subscriptions); [`layer`] and
//! [`tickets`] carry payloads past its types; [`handler`] brings both to the gateway.

mod answer;
mod follow;
pub mod guard;
mod handler;
mod layer;
mod outline;
mod session;
mod tickets;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use axum::{
    Router,
    extract::{Path, Request, State},
    middleware::{from_fn, from_fn_with_state},
    response::Response,
    routing::any,
};
use http::StatusCode;
use rmcp::transport::streamable_http_server::{
    StreamableHttpServerConfig, StreamableHttpService, session::local::LocalSessionManager,
};

use self::{guard::Guard, handler::Handler, layer::Layer, session::Session, tickets::Tickets};
use crate::gateway::{Gateway, View, manage::Refused};

use crate::lock::lock;

/// A session that nobody uses for this long is over; its app gets 404 and begins a new one.
const SESSION_LIFE: Duration = Duration::from_hours(24);

type Service = StreamableHttpService<Handler, LocalSessionManager>;

/// One rmcp service per view, made when first asked for.
#[derive(Clone)]
struct Services {
    gateway: Arc<Gateway>,
    tickets: Tickets,
    by_view: Arc<Mutex<HashMap<View, Service>>>,
}

/// The routes of the endpoint. The caller adds the guard that every route of the host has.
pub fn routes(guard: &Guard) -> Router {
    let tickets = Tickets::default();
    let services = Services {
        gateway: Arc::clone(&guard.gateway),
        tickets: tickets.clone(),
        by_view: Arc::default(),
    };
    let layer = Layer {
        gateway: Arc::clone(&guard.gateway),
        tickets,
        sessions: layer::Sessions::default(),
    };
    Router::new()
        .route("/mcp", any(all))
        .route("/mcp/{upstream}", any(one))
        .with_state(services)
        .layer(from_fn_with_state(layer, layer::raw_json))
        .layer(from_fn_with_state(guard.clone(), guard::apps_only))
        .layer(from_fn(without_buffering))
}

async fn all(State(services): State<Services>, request: Request) -> Response {
    services.serve(View::All, request).await
}

async fn one(
    State(services): State<Services>,
    Path(upstream): Path<String>,
    request: Request,
) -> Response {
    match services.gateway.view_of(&upstream) {
        Ok(view) => services.serve(view, request).await,
        Err(Refused::NotFound(why)) => guard::refuse(StatusCode::NOT_FOUND, &why),
        Err(refused) => guard::refuse(StatusCode::INTERNAL_SERVER_ERROR, &refused.to_string()),
    }
}

/// Streams must not be held back by anything in between.
async fn without_buffering(request: Request, next: axum::middleware::Next) -> Response {
    let mut response = next.run(request).await;
    response.headers_mut().insert("x-accel-buffering", http::HeaderValue::from_static("no"));
    response
}

impl Services {
    async fn serve(&self, view: View, request: Request) -> Response {
        let response = self.of(view).handle(request).await;
        response.map(axum::body::Body::new)
    }

    fn of(&self, view: View) -> Service {
        let mut by_view = lock(&self.by_view);
        by_view.entry(view.clone()).or_insert_with(|| self.make(view)).clone()
    }

    fn make(&self, view: View) -> Service {
        let mut sessions = LocalSessionManager::default();
        sessions.session_config.keep_alive = Some(SESSION_LIFE);
        let config = StreamableHttpServerConfig::default()
            // Host and Origin were checked before, for every route alike.
            .disable_allowed_hosts()
            .with_json_response(true)
            // The layer has bounded the body already, by the user's setting.
            .with_max_request_body_bytes(usize::MAX)
            .with_cancellation_token(self.gateway.ended().clone());
        let (gateway, tickets) = (Arc::clone(&self.gateway), self.tickets.clone());
        let handler = move || {
            Ok(Handler {
                session: Session::new(gateway.new_session()),
                gateway: Arc::clone(&gateway),
                tickets: tickets.clone(),
                view: view.clone(),
            })
        };
        StreamableHttpService::new(handler, Arc::new(sessions), config)
    }
}
