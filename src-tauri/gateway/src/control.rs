//! The control API: what the command line and the window use (`docs/control-api.md`). Every route
//! is one deed of the gateway; what it says and does is decided there.

pub mod caller;
mod journal;

use std::{convert::Infallible, sync::Arc};

use axum::{
    Json, Router,
    body::{Body, Bytes},
    extract::{FromRequest, Path, Query, Request, State, rejection::JsonRejection},
    http::StatusCode,
    middleware::from_fn_with_state,
    response::{IntoResponse, Response},
    routing::{delete, get, post},
};
use futures::{StreamExt as _, stream};
use serde::Deserialize;
use tokio::sync::Notify;
use tokio_stream::wrappers::BroadcastStream;

use crate::{
    api::{
        Add, AppView, Call, Capabilities, CapabilityView, Change, Export, Imported, NewApp,
        NewToken, PauseRequest, Problem, SettingValue, SettingView, Snapshot, TestReport, Toggle,
        UpstreamView,
    },
    capability::CapabilityType,
    definition::Definition,
    endpoint::guard::{Guard, user_only},
    events::By,
    fault::{Code, Fault},
    gateway::{Gateway, Place, manage::Refused, without_secrets},
};

/// Log lines without a number asked for.
const LOG_LINES: usize = 200;

/// What the routes know.
#[derive(Clone)]
pub struct Control {
    pub gateway: Arc<Gateway>,
    pub place: Arc<Place>,
    /// Somebody asked the host to end.
    pub shutdown: Arc<Notify>,
    /// Somebody wants to see the window; `None` where there is none.
    pub window: Option<Arc<Notify>>,
}

/// The routes below `/control/v1`. The caller adds the guard that every route of the host has.
pub fn routes(control: Control, guard: &Guard) -> Router {
    let routes = Router::new()
        .route("/status", get(status))
        .route("/upstreams", get(upstreams).post(add))
        .route("/upstreams/{name}", get(upstream).patch(change).delete(remove))
        .route("/upstreams/{name}/definition", get(definition))
        .route("/upstreams/{name}/refresh", post(refresh))
        .route("/upstreams/{name}/restart", post(restart))
        .route("/upstreams/{name}/test", post(test))
        .route("/upstreams/{name}/first-contact", post(first_contact))
        .route("/upstreams/{name}/capabilities", get(capabilities).patch(toggle).delete(forget))
        .route("/upstreams/{name}/log", get(log))
        .route("/journal", get(journal::journal))
        .route("/test", post(test_definition))
        .route("/call", post(call))
        .route("/apps", get(apps).post(new_app))
        .route("/apps/{name}", delete(revoke_app))
        .route("/settings", get(settings))
        .route("/settings/{key}", get(setting).put(set).delete(reset))
        .route("/pause", post(pause).delete(resume))
        .route("/export", get(export))
        .route("/import", post(import))
        .route("/shutdown", post(shut_down))
        .route("/window", post(show_window))
        .fallback(no_route)
        .with_state(control)
        .layer(from_fn_with_state(guard.clone(), user_only));
    Router::new().nest("/control/v1", routes)
}

type Answer<T> = Result<Json<T>, Refused>;

async fn status(State(control): State<Control>) -> Json<Snapshot> {
    control.gateway.look_at_all().await;
    Json(control.gateway.snapshot(&control.place))
}

async fn upstreams(State(control): State<Control>) -> Json<Vec<UpstreamView>> {
    let gateway = &control.gateway;
    gateway.look_at_all().await;
    Json(gateway.upstreams().iter().map(|upstream| gateway.view(upstream)).collect())
}

async fn add(
    State(control): State<Control>,
    by: By,
    JsonBody(add): JsonBody<Add>,
) -> Result<Response, Refused> {
    let added = control.gateway.add(by, add).await?;
    Ok((StatusCode::CREATED, Json(added)).into_response())
}

async fn upstream(
    State(control): State<Control>,
    Path(name): Path<String>,
) -> Answer<UpstreamView> {
    let upstream = control.gateway.named(&name)?;
    Ok(Json(control.gateway.view(&upstream)))
}

async fn definition(
    State(control): State<Control>,
    Path(name): Path<String>,
) -> Answer<Definition> {
    Ok(Json(without_secrets(&control.gateway.named(&name)?.definition())))
}

async fn change(
    State(control): State<Control>,
    by: By,
    Path(name): Path<String>,
    JsonBody(change): JsonBody<Change>,
) -> Answer<UpstreamView> {
    let upstream = control.gateway.change(by, &name, change).await?;
    Ok(Json(control.gateway.view(&upstream)))
}

async fn remove(
    State(control): State<Control>,
    by: By,
    Path(name): Path<String>,
) -> Result<StatusCode, Refused> {
    control.gateway.remove(by, &name).await.map(|()| StatusCode::NO_CONTENT)
}

async fn refresh(State(control): State<Control>, Path(name): Path<String>) -> Answer<UpstreamView> {
    let upstream = control.gateway.refresh(&name).await?;
    Ok(Json(control.gateway.view(&upstream)))
}

async fn restart(
    State(control): State<Control>,
    by: By,
    Path(name): Path<String>,
) -> Answer<UpstreamView> {
    let upstream = control.gateway.restart(by, &name).await?;
    Ok(Json(control.gateway.view(&upstream)))
}

async fn test(State(control): State<Control>, Path(name): Path<String>) -> Answer<TestReport> {
    let definition = control.gateway.named(&name)?.definition();
    control.gateway.test(Definition::clone(&definition)).await.map(Json)
}

async fn first_contact(
    State(control): State<Control>,
    Path(name): Path<String>,
) -> Answer<TestReport> {
    control.gateway.first_contact(&name).await.map(Json)
}

async fn test_definition(
    State(control): State<Control>,
    JsonBody(definition): JsonBody<Definition>,
) -> Answer<TestReport> {
    control.gateway.test(definition).await.map(Json)
}

#[derive(Deserialize)]
struct Live {
    #[serde(default)]
    live: bool,
}

async fn capabilities(
    State(control): State<Control>,
    Path(name): Path<String>,
    Query(Live { live }): Query<Live>,
) -> Answer<Capabilities> {
    let upstream = control.gateway.look(&name).await?;
    Ok(Json(control.gateway.capabilities(&upstream, live)))
}

async fn toggle(
    State(control): State<Control>,
    by: By,
    Path(name): Path<String>,
    JsonBody(toggle): JsonBody<Toggle>,
) -> Answer<CapabilityView> {
    control.gateway.toggle(by, &name, toggle).await.map(Json)
}

#[derive(Deserialize)]
struct Which {
    #[serde(rename = "type")]
    kind: CapabilityType,
    key: String,
}

async fn forget(
    State(control): State<Control>,
    by: By,
    Path(name): Path<String>,
    Query(Which { kind, key }): Query<Which>,
) -> Result<StatusCode, Refused> {
    control.gateway.forget(by, &name, kind, &key).await.map(|()| StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct LogQuery {
    lines: Option<usize>,
    #[serde(default)]
    follow: bool,
}

async fn log(
    State(control): State<Control>,
    Path(name): Path<String>,
    Query(LogQuery { lines, follow }): Query<LogQuery>,
) -> Result<Response, Refused> {
    let upstream = control.gateway.named(&name)?;
    let (lines, news) = upstream.log().follow(lines.unwrap_or(LOG_LINES));
    if !follow {
        return Ok(Json(lines).into_response());
    }
    let news = BroadcastStream::new(news).filter_map(|line| async move { line.ok() });
    let ended = control.gateway.ended().clone();
    let lines = stream::iter(lines)
        .chain(news)
        .map(|line| Ok::<_, Infallible>(as_line(&line)))
        .take_until(async move { ended.cancelled().await });
    Ok(([("content-type", "application/x-ndjson")], Body::from_stream(lines)).into_response())
}

fn as_line(line: &impl serde::Serialize) -> Bytes {
    let mut bytes = serde_json::to_vec(line).expect("a line always serializes");
    bytes.push(b'\n');
    bytes.into()
}

async fn call(
    State(control): State<Control>,
    JsonBody(call): JsonBody<Call>,
) -> Result<Response, Refused> {
    let result = control.gateway.call(call).await?;
    Ok(([("content-type", "application/json")], result.get().to_owned()).into_response())
}

async fn apps(State(control): State<Control>) -> Json<Vec<AppView>> {
    Json(control.gateway.apps().views())
}

async fn new_app(
    State(control): State<Control>,
    by: By,
    JsonBody(app): JsonBody<NewApp>,
) -> Result<Response, Refused> {
    let token = control.gateway.new_app(by, &app.name).await?;
    let endpoint = control.place.endpoint.clone();
    Ok((StatusCode::CREATED, Json(NewToken { name: app.name, token, endpoint })).into_response())
}

async fn revoke_app(
    State(control): State<Control>,
    by: By,
    Path(name): Path<String>,
) -> Result<StatusCode, Refused> {
    control.gateway.revoke_app(by, &name).await.map(|()| StatusCode::NO_CONTENT)
}

async fn settings(State(control): State<Control>) -> Json<Vec<SettingView>> {
    Json(control.gateway.setting_views())
}

async fn setting(State(control): State<Control>, Path(key): Path<String>) -> Answer<SettingView> {
    control.gateway.setting(&key).map(Json)
}

async fn set(
    State(control): State<Control>,
    by: By,
    Path(key): Path<String>,
    JsonBody(SettingValue { value }): JsonBody<SettingValue>,
) -> Answer<SettingView> {
    control.gateway.set(by, &key, Some(&value)).await.map(Json)
}

async fn reset(
    State(control): State<Control>,
    by: By,
    Path(key): Path<String>,
) -> Answer<SettingView> {
    control.gateway.set(by, &key, None).await.map(Json)
}

async fn pause(
    State(control): State<Control>,
    by: By,
    JsonBody(request): JsonBody<PauseRequest>,
) -> Answer<Snapshot> {
    control.gateway.set_pause(by, Some(request)).await?;
    Ok(status(State(control)).await)
}

async fn resume(State(control): State<Control>, by: By) -> Answer<Snapshot> {
    control.gateway.set_pause(by, None).await?;
    Ok(status(State(control)).await)
}

async fn export(State(control): State<Control>) -> Json<Export> {
    Json(control.gateway.export())
}

async fn import(
    State(control): State<Control>,
    by: By,
    JsonBody(import): JsonBody<Export>,
) -> Answer<Imported> {
    control.gateway.import(by, import).await.map(Json)
}

async fn shut_down(State(control): State<Control>) -> StatusCode {
    control.shutdown.notify_one();
    StatusCode::ACCEPTED
}

async fn show_window(State(control): State<Control>) -> Response {
    let Some(window) = &control.window else {
        let why = "this Traygate serves without a window".to_owned();
        return problem(StatusCode::CONFLICT, why, None);
    };
    window.notify_one();
    StatusCode::ACCEPTED.into_response()
}

async fn no_route(request: Request) -> Response {
    let path = crate::text::one_line(request.uri().path(), 200);
    problem(StatusCode::NOT_FOUND, format!("the control API has no route {path}"), None)
}

/// A JSON body whose refusal is a [`Problem`] too.
struct JsonBody<T>(T);

impl<S: Send + Sync, T> FromRequest<S> for JsonBody<T>
where
    Json<T>: FromRequest<S, Rejection = JsonRejection>,
{
    type Rejection = Response;

    async fn from_request(request: Request, state: &S) -> Result<Self, Response> {
        match Json::<T>::from_request(request, state).await {
            Ok(Json(body)) => Ok(Self(body)),
            Err(rejection) => {
                // 422 and 415 are refinements of "the body is of the wrong shape".
                let status = match rejection.status() {
                    StatusCode::PAYLOAD_TOO_LARGE => StatusCode::PAYLOAD_TOO_LARGE,
                    _ => StatusCode::BAD_REQUEST,
                };
                Err(problem(status, rejection.body_text(), None))
            }
        }
    }
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        let status = match &self {
            Self::BadInput(_) => StatusCode::BAD_REQUEST,
            Self::NotFound(_) => StatusCode::NOT_FOUND,
            Self::Taken(_) => StatusCode::CONFLICT,
            Self::Fault(fault) => status_of(fault.code),
            Self::Store(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        match self {
            Self::Fault(fault) => problem(status, fault.message.clone(), Some(&fault)),
            refused => problem(status, refused.to_string(), None),
        }
    }
}

fn status_of(code: Code) -> StatusCode {
    match code {
        Code::UpstreamUnavailable | Code::UpstreamNeedsSignIn | Code::OutcomeUnknown => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        Code::UpstreamTimeout => StatusCode::GATEWAY_TIMEOUT,
        Code::Paused | Code::CapabilityDisabled => StatusCode::CONFLICT,
        Code::UnknownCapability => StatusCode::NOT_FOUND,
    }
}

fn problem(status: StatusCode, message: String, fault: Option<&Fault>) -> Response {
    let problem = Problem {
        message,
        code: fault.map(|fault| fault.code),
        upstream: fault.and_then(|fault| fault.upstream.clone()),
    };
    (status, Json(problem)).into_response()
}
