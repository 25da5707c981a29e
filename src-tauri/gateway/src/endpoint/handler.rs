//! What rmcp calls for one app: typed where rmcp must understand, raw where Traygate only carries.

// The legacy era's log levels are deprecated in rmcp, and still asked for by apps.
#![allow(deprecated)]

use std::{borrow::Cow, sync::Arc};

use http::request::Parts;
use rmcp::{
    ErrorData, RoleServer, ServerHandler,
    model::{
        CacheScope, CallToolRequestParams, CallToolResponse, CallToolResult, CompleteRequestParams,
        CompleteResult, CompletionInfo, CustomRequest, CustomResult, DiscoverResult,
        GetPromptRequestParams, GetPromptResponse, GetPromptResult, Implementation,
        InitializeRequestParams, InitializeResult, ListPromptsResult, ListResourceTemplatesResult,
        ListResourcesResult, ListToolsResult, MetaObject, PaginatedRequestParams, ProtocolVersion,
        ReadResourceRequestParams, ReadResourceResponse, ReadResourceResult, ServerCapabilities,
        ServerConfig, SetLevelRequestMethod, SetLevelRequestParams, SubscriptionFilter,
    },
    service::{NotificationContext, RequestContext, SubscriptionContext},
};

use super::{
    answer,
    guard::App,
    layer::{RawBody, session_of},
    session::Session,
    tickets::{Payload, Tickets},
};
use crate::{
    capability::CapabilityType,
    clock::wall,
    definition::{Era, LogLevel},
    gateway::{
        Asker, Gateway, View,
        list::NotListed,
        relay::{NotRelayed, Relayed},
    },
    json::{Envelope, RawObject, raw},
    upstream::{hints::Scope, link::PROTOCOL_META},
};

/// One app's view of the gateway: one instance per legacy session or per modern request.
#[derive(Clone)]
pub struct Handler {
    pub gateway: Arc<Gateway>,
    pub tickets: Tickets,
    pub view: View,
    pub session: Arc<Session>,
}

/// A request as it came, with its asker.
pub(super) struct Received {
    pub asker: Asker,
    pub params: RawObject,
    /// The session's id in the HTTP header; legacy only.
    pub session: Option<String>,
    pub progress_token: Option<Box<serde_json::value::RawValue>>,
}

impl Handler {
    pub(super) fn received(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<Received, ErrorData> {
        let parts = context.extensions.get::<Parts>();
        let (Some(body), Some(App(app))) = (
            parts.and_then(|parts| parts.extensions.get::<RawBody>()),
            parts.and_then(|parts| parts.extensions.get::<App>()),
        ) else {
            return Err(ErrorData::internal_error(
                "the request did not pass Traygate's layers",
                None,
            ));
        };
        let message: Envelope = serde_json::from_slice(&body.0)
            .map_err(|error| ErrorData::invalid_request(error.to_string(), None))?;
        let params = message.params.map(RawObject::parse).transpose();
        let params = params
            .map_err(|_| ErrorData::invalid_params("params must be an object", None))?
            .unwrap_or_default();
        let meta = params.object("_meta").unwrap_or_default();
        let era = era_of(context);
        let (capabilities, client_info, id) = match era {
            Era::Modern => (
                meta.object(&format!("{PROTOCOL_META}clientCapabilities")).unwrap_or_default(),
                meta.get(&format!("{PROTOCOL_META}clientInfo")).map(ToOwned::to_owned),
                modern_id(app),
            ),
            Era::Legacy => {
                let info = context.peer.peer_info();
                let capabilities = info.as_ref().map(|info| raw(&info.capabilities));
                let capabilities = capabilities.and_then(|raw| RawObject::parse(&raw).ok());
                (
                    capabilities.unwrap_or_default(),
                    info.map(|info| raw(&info.client_info)),
                    self.session.id,
                )
            }
        };
        let progress_token = meta.get("progressToken").map(ToOwned::to_owned);
        let session = parts.and_then(|parts| session_of(&parts.headers));
        Ok(Received {
            asker: Asker {
                app: Arc::clone(app),
                view: self.view.clone(),
                era,
                id,
                capabilities,
                client_info,
                wants_progress: progress_token.is_some(),
            },
            params,
            session,
            progress_token,
        })
    }

    /// Relays the request being served; the returned `_meta` stands for its raw answer.
    async fn relay(
        &self,
        method: Relayed,
        context: RequestContext<RoleServer>,
    ) -> Result<MetaObject, ErrorData> {
        let received = self.received(&context)?;
        self.meet(&received.asker, &context);
        let era = received.asker.era;
        let begun = tokio::select! {
            begun = self.gateway.relay(&received.asker, method, received.params.clone()) => begun,
            () = context.ct.cancelled() => return Err(cancelled()),
        };
        let payload = match begun {
            Ok((route, asking)) => self.follow(method, &received, &route, asking, &context).await?,
            Err(NotRelayed::BadParams(why)) => return Err(ErrorData::invalid_params(why, None)),
            Err(NotRelayed::Fault(fault)) => {
                answer::fault(method == Relayed::CallTool, era, &fault)
            }
        };
        Ok(self.tickets.deposit(payload))
    }

    async fn list(
        &self,
        kind: CapabilityType,
        context: RequestContext<RoleServer>,
    ) -> Result<MetaObject, ErrorData> {
        let received = self.received(&context)?;
        self.meet(&received.asker, &context);
        let cursor = match received.params.get("cursor") {
            Some(cursor) if cursor.get() != "null" => {
                Some(crate::json::as_str(cursor).ok_or_else(bad_cursor)?)
            }
            _ => None,
        };
        let payload = match self.gateway.list(&received.asker, kind, cursor.as_deref()).await {
            Ok(listed) => {
                self.session.saw(&self.gateway, kind, listed.digest);
                if kind == CapabilityType::Tool {
                    self.note_listed(&received.asker.app, listed.items);
                }
                Payload::Result(listed.result)
            }
            Err(NotListed::BadCursor) => return Err(bad_cursor()),
            Err(NotListed::Fault(fault)) => answer::fault(false, received.asker.era, &fault),
        };
        Ok(self.tickets.deposit(payload))
    }

    /// Notes how many tools an app was given. People see that number, not each listing.
    fn note_listed(&self, app: &Arc<str>, tools: usize) {
        let mut before = None;
        self.gateway.apps().note(app, |seen| {
            before = seen.listed_tools.replace(tools);
            seen.listed_at = Some(wall());
        });
        if before != Some(tools) {
            self.gateway.changed();
        }
    }

    /// How Traygate introduces itself to an app.
    fn introduction(&self) -> ServerConfig {
        let mut info = self.get_info();
        info.instructions = self.gateway.instructions(&self.view);
        info
    }

    /// Notes who asks.
    fn meet(&self, asker: &Asker, context: &RequestContext<RoleServer>) {
        let client = context.client_info();
        self.note(&asker.app, asker.era, context.protocol_version(), client.as_ref());
    }

    /// An app as it says itself. One that doesn't say keeps the name that it said before.
    fn note(
        &self,
        app: &Arc<str>,
        era: Era,
        version: Option<ProtocolVersion>,
        client: Option<&Implementation>,
    ) {
        let client = client.map(|info| format!("{} {}", info.name, info.version));
        self.gateway.apps().note(app, |seen| {
            seen.era = Some(era);
            seen.protocol_version = version.map(|version| version.to_string());
            if let Some(client) = client {
                seen.client = Some(crate::text::one_line(&client, 100));
            }
        });
    }
}

impl ServerHandler for Handler {
    /// Asked for with every modern request, so it is cheap: what upstreams say about their use is
    /// added where an app is told.
    fn get_info(&self) -> ServerConfig {
        let capabilities = ServerCapabilities::builder()
            .enable_completions()
            .enable_logging()
            .enable_prompts()
            .enable_prompts_list_changed()
            .enable_resources()
            .enable_resources_list_changed()
            .enable_tools()
            .enable_tool_list_changed()
            .build();
        ServerConfig::new(capabilities)
            .with_server_info(Implementation::new("traygate", env!("CARGO_PKG_VERSION")))
            // rmcp would offer the modern era's version in a handshake, which has none.
            .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    /// What a request may name in its own `_meta`: only versions that have no handshake. The
    /// others are negotiated by `initialize`.
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(&[ProtocolVersion::V_2026_07_28])
    }

    async fn initialize(
        &self,
        request: InitializeRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<InitializeResult, ErrorData> {
        context.peer.set_peer_info(request.clone());
        let wanted = &request.protocol_version;
        let spoken = ProtocolVersion::KNOWN_VERSIONS.contains(wanted) && wanted.has_initialize();
        let mut result = self.introduction();
        if spoken {
            result.protocol_version = wanted.clone();
        }
        let received = self.received(&context)?;
        let version = Some(result.protocol_version.clone());
        self.note(&received.asker.app, Era::Legacy, version, Some(&request.client_info));
        self.session.opened(&self.gateway, &received.asker.app);
        self.gateway.changed();
        Ok(result)
    }

    async fn discover(
        &self,
        _context: RequestContext<RoleServer>,
    ) -> Result<DiscoverResult, ErrorData> {
        let versions = self.supported_protocol_versions().into_owned();
        let told = self.gateway.introductions(&self.view).await;
        let mut result = DiscoverResult::from_server_info(versions, self.introduction());
        result.ttl_ms = told.ttl_ms;
        result.cache_scope = match told.scope {
            Scope::Public => CacheScope::Public,
            Scope::Private => CacheScope::Private,
        };
        Ok(result)
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.session.announce(&self.gateway, &self.view, context.peer);
    }

    async fn list_tools(
        &self,
        _params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        let meta = Some(self.list(CapabilityType::Tool, context).await?);
        Ok(ListToolsResult { meta, ..Default::default() })
    }

    async fn list_prompts(
        &self,
        _params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListPromptsResult, ErrorData> {
        let meta = Some(self.list(CapabilityType::Prompt, context).await?);
        Ok(ListPromptsResult { meta, ..Default::default() })
    }

    async fn list_resources(
        &self,
        _params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourcesResult, ErrorData> {
        let meta = Some(self.list(CapabilityType::Resource, context).await?);
        Ok(ListResourcesResult { meta, ..Default::default() })
    }

    async fn list_resource_templates(
        &self,
        _params: Option<PaginatedRequestParams>,
        context: RequestContext<RoleServer>,
    ) -> Result<ListResourceTemplatesResult, ErrorData> {
        let meta = Some(self.list(CapabilityType::Template, context).await?);
        Ok(ListResourceTemplatesResult { meta, ..Default::default() })
    }

    async fn call_tool(
        &self,
        _params: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        // What an app sees if the ticket is ever lost must not look like an empty success.
        let mut placeholder = CallToolResult::error(vec![answer::lost()]);
        placeholder.meta = Some(self.relay(Relayed::CallTool, context).await?);
        Ok(placeholder.into())
    }

    async fn get_prompt(
        &self,
        _params: GetPromptRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<GetPromptResponse, ErrorData> {
        let mut placeholder = GetPromptResult::new(Vec::new());
        placeholder.meta = Some(self.relay(Relayed::GetPrompt, context).await?);
        Ok(placeholder.into())
    }

    async fn read_resource(
        &self,
        _params: ReadResourceRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<ReadResourceResponse, ErrorData> {
        let mut placeholder = ReadResourceResult::new(Vec::new());
        placeholder.meta = Some(self.relay(Relayed::ReadResource, context).await?);
        Ok(placeholder.into())
    }

    async fn complete(
        &self,
        _params: CompleteRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CompleteResult, ErrorData> {
        let mut placeholder = CompleteResult::new(CompletionInfo::default());
        placeholder.meta = Some(self.relay(Relayed::Complete, context).await?);
        Ok(placeholder)
    }

    /// Params that don't fit rmcp's types come here; relayed requests are relayed all the same.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let meta = match request.method.as_str() {
            "tools/list" => self.list(CapabilityType::Tool, context).await?,
            "prompts/list" => self.list(CapabilityType::Prompt, context).await?,
            "resources/list" => self.list(CapabilityType::Resource, context).await?,
            "resources/templates/list" => self.list(CapabilityType::Template, context).await?,
            "tools/call" => self.relay(Relayed::CallTool, context).await?,
            "prompts/get" => self.relay(Relayed::GetPrompt, context).await?,
            "resources/read" => self.relay(Relayed::ReadResource, context).await?,
            "completion/complete" => self.relay(Relayed::Complete, context).await?,
            method => {
                let code = rmcp::model::ErrorCode::METHOD_NOT_FOUND;
                let shown = crate::text::one_line(method, 100);
                return Err(ErrorData::new(
                    code,
                    format!("Traygate has no method {shown:?}"),
                    None,
                ));
            }
        };
        Ok(CustomResult(serde_json::json!({ "_meta": meta })))
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        // The modern era has no such request, and rmcp asks all the same.
        if era_of(&context) == Era::Modern {
            return Err(ErrorData::method_not_found::<SetLevelRequestMethod>());
        }
        let level = serde_json::to_value(request.level).and_then(serde_json::from_value);
        let level: LogLevel =
            level.map_err(|error| ErrorData::invalid_params(error.to_string(), None))?;
        self.gateway.set_log_level(self.session.id, Some(level));
        Ok(())
    }

    fn accepted_subscription_filter(
        &self,
        requested: &SubscriptionFilter,
    ) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let received = self.received(context.request_context())?;
        self.meet(&received.asker, context.request_context());
        self.session.listen(&self.gateway, &self.view, &received.asker.app, &context).await;
        Ok(())
    }
}

fn era_of(context: &RequestContext<RoleServer>) -> Era {
    match context.protocol_version() {
        Some(version) if !version.has_initialize() => Era::Modern,
        _ => Era::Legacy,
    }
}

/// Equal for all modern requests of one app, and no session's number: those count from 1.
fn modern_id(app: &str) -> u64 {
    use std::hash::{DefaultHasher, Hash as _, Hasher as _};
    let mut hasher = DefaultHasher::new();
    app.hash(&mut hasher);
    hasher.finish() | 1 << 63
}

fn bad_cursor() -> ErrorData {
    ErrorData::invalid_params(
        "the cursor is not one that this list gave; ask without a cursor to begin anew",
        None,
    )
}

pub(super) fn cancelled() -> ErrorData {
    ErrorData::internal_error("the request was cancelled", None)
}
