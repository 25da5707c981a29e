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
mod sessions;
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
    StreamableHttpServerConfig, StreamableHttpService,
    session::{SessionManager as _, local::LocalSessionManager},
};

use self::{
    guard::{App, Guard},
    handler::Handler,
    layer::Layer,
    session::Session,
    tickets::Tickets,
};
use crate::gateway::{Gateway, View, manage::Refused};

use crate::lock::lock;

/// How long the end of a session may take.
const FAREWELL: Duration = Duration::from_secs(1);

/// On one machine a stream that broke off can be resumed at once …
const RESUME_AFTER: Duration = Duration::from_millis(250);
/// … so an answer needn't wait for that for long. rmcp looks through all that wait at each request:
/// kept for its minute, they made every call of a busy session slower than the one before.
const RESUMABLE: Duration = Duration::from_secs(1);

type Service = StreamableHttpService<Handler, LocalSessionManager>;
type AppSessions = sessions::Sessions<Arc<LocalSessionManager>>;

/// One rmcp service per view, made when first asked for.
#[derive(Clone)]
struct Services {
    gateway: Arc<Gateway>,
    tickets: Tickets,
    sessions: AppSessions,
    by_view: Arc<Mutex<HashMap<View, Served>>>,
}

/// A view's service, and its share of the sessions.
#[derive(Clone)]
struct Served {
    service: Service,
    sessions: Arc<LocalSessionManager>,
}

/// The routes of the endpoint. The caller adds the guard that every route of the host has.
pub fn routes(guard: &Guard) -> Router {
    let tickets = Tickets::default();
    let sessions = AppSessions::default();
    let services = Services {
        gateway: Arc::clone(&guard.gateway),
        tickets: tickets.clone(),
        sessions: sessions.clone(),
        by_view: Arc::default(),
    };
    let layer = Layer { gateway: Arc::clone(&guard.gateway), tickets, sessions };
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
        let named = layer::session_of(request.headers());
        let app = request.extensions().get::<App>().map(|App(name)| Arc::clone(name));
        let served = self.of(view);
        let response = served.service.handle(request).await;
        if let (None, Some(id), Some(app)) = (named, layer::session_of(response.headers()), app) {
            end(self.sessions.opened(&id, &app, served.sessions)).await;
        }
        response.map(axum::body::Body::new)
    }

    fn of(&self, view: View) -> Served {
        let mut by_view = lock(&self.by_view);
        by_view.entry(view.clone()).or_insert_with(|| self.make(view)).clone()
    }

    fn make(&self, view: View) -> Served {
        let mut sessions = LocalSessionManager::default();
        // Which end for want of use is decided here: rmcp would also end one whose app listens.
        sessions.session_config.keep_alive = None;
        sessions.session_config.sse_retry = Some(RESUME_AFTER);
        sessions.session_config.completed_cache_ttl = RESUMABLE;
        let sessions = Arc::new(sessions);
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
        let service = StreamableHttpService::new(handler, Arc::clone(&sessions), config);
        Served { service, sessions }
    }
}

/// Ends these sessions; their apps get 404 from then on.
async fn end(over: Vec<(String, Arc<LocalSessionManager>)>) {
    for (id, sessions) in over {
        // It is out of the manager's list at once; only its last words may take a moment.
        let _ = tokio::time::timeout(FAREWELL, sessions.close_session(&id.into())).await;
    }
}
