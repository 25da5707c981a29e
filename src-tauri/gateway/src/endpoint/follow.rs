//! A relayed request while it runs: its progress, the upstream's questions, and its answer reach
//! exactly the request they belong to, in order.

// The legacy era's log messages are deprecated in rmcp, and still spoken by every server.
#![allow(deprecated)]

use rmcp::{
    ErrorData, RoleServer,
    model::{
        CustomRequest, LoggingLevel, LoggingMessageNotificationParam, ProgressNotificationParam,
        ProgressToken, ServerRequest,
    },
    service::{PeerRequestOptions, RequestContext},
};
use serde_json::value::RawValue;

use super::{
    answer,
    handler::{Handler, Received, cancelled},
    outline,
    tickets::{Answer, Payload},
};
use crate::{
    definition::{Era, LogLevel},
    gateway::{Relaying, Route, relay::Relayed},
    json::{RawObject, raw},
    upstream::{
        ask::Told,
        link::{PROTOCOL_META, Question, error},
    },
};

const METHOD_NOT_FOUND: i32 = -32601;
const INTERNAL_ERROR: i32 = -32603;

impl Handler {
    /// Carries everything to the app until the answer is there. Returning early drops `asking`,
    /// which cancels it upstream.
    pub(super) async fn follow(
        &self,
        method: Relayed,
        received: &Received,
        route: &Route,
        mut asking: Relaying,
        context: &RequestContext<RoleServer>,
    ) -> Result<Payload, ErrorData> {
        let era = received.asker.era;
        loop {
            let told = tokio::select! {
                told = asking.next() => told,
                () = context.ct.cancelled() => return Err(cancelled()),
            };
            match told {
                Told::Progress(params) => self.progress(params, received, context).await,
                Told::Log(params) => self.log_message(params, received, context).await,
                Told::Question(question) => {
                    self.question(question, received, route, context).await?;
                }
                Told::Result(result) => {
                    self.gateway.learn(route, method, Ok(&result));
                    let result = match method {
                        Relayed::ReadResource => self.gateway.keep(route, era, result),
                        _ => result,
                    };
                    let is_call = method == Relayed::CallTool;
                    return Ok(answer::result(is_call, era, &route.upstream.name, result));
                }
                Told::Error(error) => {
                    self.gateway.learn(route, method, Err(&error));
                    return Ok(answer::upstream_error(era, error));
                }
                Told::Fault(fault) => {
                    return Ok(answer::fault(method == Relayed::CallTool, era, &fault));
                }
            }
        }
    }

    async fn progress(
        &self,
        mut params: RawObject,
        received: &Received,
        context: &RequestContext<RoleServer>,
    ) {
        let Some(token) = &received.progress_token else { return };
        params.set("progressToken", token.clone());
        // rmcp finds the right stream by the token, so the placeholder needs it too.
        let shown = outline::marked(token);
        let Ok(typed) = serde_json::from_str::<ProgressToken>(shown.get()) else { return };
        let mut placeholder = ProgressNotificationParam::new(typed, 0.0);
        placeholder.meta = Some(self.tickets.deposit(Payload::Params(params.to_raw())).into());
        // An app that has left is noticed by its cancellation.
        let _ = context.peer.notify_progress(placeholder).await;
    }

    /// A legacy session sets a level once; a modern request carries the level it wants, or gets
    /// none (protocol 2026-07-28, "Logging").
    async fn log_message(
        &self,
        params: Box<RawValue>,
        received: &Received,
        context: &RequestContext<RoleServer>,
    ) {
        let Ok(object) = RawObject::parse(&params) else { return };
        let level = |object: &RawObject, key: &str| -> Option<LogLevel> {
            serde_json::from_str(object.get(key)?.get()).ok()
        };
        let Some(severity) = level(&object, "level") else { return };
        let wanted = match received.asker.era {
            Era::Legacy => self.gateway.log_levels().wants(self.session.id, severity),
            Era::Modern => {
                let meta = received.params.object("_meta").unwrap_or_default();
                level(&meta, &format!("{PROTOCOL_META}logLevel"))
                    .is_some_and(|least| severity >= least)
            }
        };
        if !wanted {
            return;
        }
        let meta = self.tickets.deposit(Payload::Params(params));
        let mut placeholder =
            LoggingMessageNotificationParam::new(LoggingLevel::Debug, serde_json::Value::Null);
        placeholder.meta = Some(meta.into());
        // An app that has left is noticed by its cancellation.
        let _ = context.peer.notify_logging_message(placeholder).await;
    }

    /// Asks the app what the upstream asks, in its own era. An app that can't is answered for.
    async fn question(
        &self,
        question: Question,
        received: &Received,
        route: &Route,
        context: &RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        let Question { method, params, reply } = question;
        if received.asker.era == Era::Modern || !can_answer(&received.asker.capabilities, &method) {
            let name = &route.upstream.name;
            let why = format!("the app that called {name} can't answer {method}");
            let _ = reply.send(Err(error(METHOD_NOT_FOUND, &why)));
            return Ok(());
        }
        let params = with_asker_named(&method, params, route);
        let meta = self.tickets.deposit(Payload::Params(params));
        let placeholder = serde_json::json!({ "_meta": meta });
        let request = ServerRequest::CustomRequest(CustomRequest::new(method, Some(placeholder)));
        // From this task: rmcp finds the stream of the request being served by it.
        let sent =
            context.peer.send_cancellable_request(request, PeerRequestOptions::no_options()).await;
        let answer = match sent {
            Ok(handle) => {
                let id = handle.id.to_string();
                let answered = tokio::select! {
                    answered = handle.await_response() => answered,
                    () = context.ct.cancelled() => return Err(cancelled()),
                };
                let session = received.session.as_deref().unwrap_or_default();
                let raw_answer: Option<Answer> = self.tickets.fetch_answer(session, &id);
                raw_answer.unwrap_or_else(|| {
                    Err(error(
                        INTERNAL_ERROR,
                        &match answered {
                            Ok(_) => "the app's answer got lost".to_owned(),
                            Err(problem) => problem.to_string(),
                        },
                    ))
                })
            }
            Err(problem) => Err(error(INTERNAL_ERROR, &problem.to_string())),
        };
        let _ = reply.send(answer);
        Ok(())
    }
}

/// Whether the app said that it can.
fn can_answer(capabilities: &RawObject, method: &str) -> bool {
    let capability = match method {
        "elicitation/create" => "elicitation",
        "sampling/createMessage" => "sampling",
        "roots/list" => "roots",
        _ => return false,
    };
    capabilities.get(capability).is_some_and(|value| value.get() != "null")
}

/// The person who answers must know who asks (protocol 2026-07-28, "Elicitation").
fn with_asker_named(method: &str, params: Option<Box<RawValue>>, route: &Route) -> Box<RawValue> {
    let params = params.unwrap_or_else(|| RawObject::default().to_raw());
    if method != "elicitation/create" {
        return params;
    }
    let Ok(mut object) = RawObject::parse(&params) else { return params };
    let Some(message) = object.str("message") else { return params };
    object.set("message", raw(&format!("[{}] {message}", route.upstream.name)));
    object.to_raw()
}
