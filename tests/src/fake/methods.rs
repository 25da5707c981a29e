//! What each method answers.

use serde_json::{Value, json, value::RawValue};

use super::{
    checks::{LEGACY, META_CAPABILITIES, MODERN},
    content,
    message::{Message, Refusal, notification, with_members},
    options::{Cursors, Scope},
    server::{Caller, Fake, Listen, ListenEnd, Served, Session},
};

const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";

impl Fake {
    /// The result's text.
    pub async fn result_of(
        &self,
        message: &Message,
        method: &str,
        served: Served,
        caller: &Caller,
    ) -> Result<String, Refusal> {
        let params = message.params();
        let options = &self.options;
        let offered = match method {
            "tools/list" | "tools/call" => !options.no_tools,
            "prompts/list" | "prompts/get" => !options.no_prompts,
            "completion/complete" => !options.no_completions,
            _ if method.starts_with("resources/") => !options.no_resources,
            _ => true,
        };
        if !offered {
            return Err(not_found(method, served));
        }
        match (method, served) {
            ("initialize", Served::Legacy) => Ok(self.initialize(&params, caller)),
            ("ping", Served::Legacy) => Ok("{}".to_owned()),
            ("server/discover", Served::Modern) => Ok(self.discover()),
            ("tools/list", _) => self.list("tools", content::tools, &params, served),
            ("prompts/list", _) => self.list("prompts", content::prompts, &params, served),
            ("resources/list", _) => self.list("resources", content::resources, &params, served),
            ("resources/templates/list", _) => {
                self.list("resourceTemplates", content::templates, &params, served)
            }
            ("tools/call", _) => self.call(message, &params, served, caller).await,
            ("prompts/get", _) => self.get(&params, served),
            ("resources/read", _) => self.read(&params, served),
            ("completion/complete", _) => {
                let completion = content::completions(options, &params["ref"], &params["argument"])
                    .ok_or_else(|| Refusal::params("nothing to complete"))?;
                Ok(complete(&json!({"completion": completion}).to_string(), served))
            }
            ("logging/setLevel", Served::Legacy) => {
                let level = params["level"].as_str().map(str::to_owned);
                self.edit_session(caller, |session| session.log_level = level);
                Ok("{}".to_owned())
            }
            ("resources/subscribe" | "resources/unsubscribe", Served::Legacy) => {
                let uri = params["uri"].as_str().unwrap_or_default().to_owned();
                self.edit_session(caller, |session| {
                    if method == "resources/subscribe" {
                        session.subscribed.insert(uri);
                    } else {
                        session.subscribed.remove(&uri);
                    }
                });
                Ok("{}".to_owned())
            }
            ("subscriptions/listen", Served::Modern) => self.listen(message, &params, caller).await,
            _ => {
                if served == Served::Modern {
                    self.violation("a method that the modern era doesn't have", Some(method));
                }
                Err(not_found(method, served))
            }
        }
    }

    fn edit_session(&self, caller: &Caller, edit: impl FnOnce(&mut Session)) {
        let id = caller.session.as_deref().unwrap_or_default();
        if let Some(session) = self.sessions().get_mut(id) {
            edit(session);
        }
    }

    fn capabilities(&self) -> Value {
        let options = &self.options;
        let mut capabilities = json!({"logging": {}, "experimental": {"x-unknown": {"zeta": 1}}});
        if !options.no_tools {
            capabilities["tools"] = json!({"listChanged": true});
        }
        if !options.no_prompts {
            capabilities["prompts"] = json!({"listChanged": true});
        }
        if !options.no_resources {
            capabilities["resources"] = json!({"listChanged": true, "subscribe": true});
        }
        if !options.no_completions {
            capabilities["completions"] = json!({});
        }
        capabilities
    }

    fn server_info(&self) -> Value {
        json!({"name": self.options.server_name, "version": "1.2.3", "title": "Fake upstream"})
    }

    fn initialize(&self, params: &Value, caller: &Caller) -> String {
        let wanted = params["protocolVersion"].as_str().unwrap_or_default();
        let spoken = LEGACY.iter().find(|revision| **revision == wanted).unwrap_or(&LEGACY[3]);
        let revision = self.options.revision.clone().unwrap_or_else(|| (*spoken).to_owned());
        self.edit_session(caller, |session| {
            session.revision.clone_from(&revision);
            session.capabilities = params["capabilities"].clone();
        });
        json!({
            "protocolVersion": revision,
            "capabilities": self.capabilities(),
            "serverInfo": self.server_info(),
            "instructions": "instructions of the fake upstream",
        })
        .to_string()
    }

    fn discover(&self) -> String {
        let result = json!({
            "supportedVersions": [MODERN],
            "capabilities": self.capabilities(),
            "instructions": "instructions of the fake upstream",
            "_meta": {"io.modelcontextprotocol/serverInfo": self.server_info()},
        });
        self.cacheable(&result.to_string(), Served::Modern, "server/discover", 0)
    }

    /// With the hints of the modern era, or with those that a test set.
    fn cacheable(&self, result: &str, served: Served, method: &str, page: usize) -> String {
        let set = self.dir.hints(method, page).unwrap_or_else(|error| {
            eprintln!("fake upstream: can't read its hints: {error}");
            self.die(2)
        });
        if let Some(hints) = set {
            let result =
                if hints.is_empty() { result.to_owned() } else { with_members(&hints, result) };
            return complete(&result, served);
        }
        if served == Served::Legacy || self.options.no_hints {
            return complete(result, served);
        }
        let scope = match self.options.scope {
            Scope::Public => "public",
            Scope::Private => "private",
        };
        let hints = format!(r#""ttlMs":{},"cacheScope":"{scope}""#, self.options.ttl);
        complete(&with_members(&hints, result), served)
    }

    fn list(
        &self,
        member: &str,
        own: fn(&super::options::Options) -> Vec<Box<RawValue>>,
        params: &Value,
        served: Served,
    ) -> Result<String, Refusal> {
        let listed = self
            .dir
            .list(member)
            .map_err(|error| Refusal::new(-32603, format!("the fake's own lists: {error}")))?;
        let items = listed.unwrap_or_else(|| own(&self.options));
        let size = self.options.page_size.unwrap_or(usize::MAX).max(1);
        let start = match params.get("cursor") {
            None => 0,
            Some(cursor) => self.page_start(cursor.as_str(), size, items.len())?,
        };
        let page: Vec<_> = items.iter().skip(start).take(size).map(|item| item.get()).collect();
        let next = start + page.len();
        let cursor = match self.options.cursors {
            Cursors::Stuck => format!(r#","nextCursor":"at-{start}""#),
            _ if next >= items.len() => String::new(),
            Cursors::Empty if start == 0 => r#","nextCursor":"""#.to_owned(),
            _ => format!(r#","nextCursor":"at-{next}""#),
        };
        let result = format!(r#"{{"{member}":[{}]{cursor}}}"#, page.join(","));
        let method = match member {
            "resourceTemplates" => "resources/templates/list".to_owned(),
            member => format!("{member}/list"),
        };
        Ok(self.cacheable(&result, served, &method, start / size))
    }

    fn page_start(
        &self,
        cursor: Option<&str>,
        size: usize,
        total: usize,
    ) -> Result<usize, Refusal> {
        let start = match cursor {
            Some("") if self.options.cursors == Cursors::Empty => Some(size),
            Some(cursor) => cursor.strip_prefix("at-").and_then(|at| at.parse().ok()),
            None => None,
        };
        start.filter(|start| *start <= total).ok_or_else(|| {
            self.violation("a cursor that was never given", None);
            Refusal::params("no such cursor")
        })
    }

    fn get(&self, params: &Value, served: Served) -> Result<String, Refusal> {
        let name = params["name"].as_str().unwrap_or_default();
        let messages = content::messages(&self.options, name, &params["arguments"])
            .ok_or_else(|| Refusal::params(format!("Unknown prompt: {name}")))?;
        let result = json!({"messages": messages, "x-unknown": {"kept": true}});
        Ok(complete(&result.to_string(), served))
    }

    fn read(&self, params: &Value, served: Served) -> Result<String, Refusal> {
        let uri = params["uri"].as_str().unwrap_or_default();
        let Some(contents) = content::contents(&self.options, uri) else {
            let code = if served == Served::Modern { -32602 } else { -32002 };
            let data = json!({"uri": uri}).to_string();
            return Err(Refusal::new(code, "Resource not found").data(data));
        };
        let result = json!({"contents": contents}).to_string();
        Ok(self.cacheable(&result, served, "resources/read", 0))
    }

    async fn listen(
        &self,
        message: &Message,
        params: &Value,
        caller: &Caller,
    ) -> Result<String, Refusal> {
        let Some(id) = message.id.clone() else { return Err(Refusal::params("no id")) };
        let filter = params["notifications"].clone();
        if !filter.is_object() {
            self.violation("listen without notifications", message.method.as_deref());
            return Err(Refusal::params("notifications is missing"));
        }
        let tag: Value = serde_json::from_str(id.get()).unwrap_or_default();
        let listen = Listen { id, filter: filter.clone(), out: caller.out.clone() };
        let acknowledged = json!({"notifications": filter, "_meta": {SUBSCRIPTION: tag}});
        self.send(caller, notification("notifications/subscriptions/acknowledged", &acknowledged));
        let mine =
            Registered { fake: self, id: listen.id.get().to_owned(), out: listen.out.clone() };
        self.listens().push(listen);
        self.log(&super::control_dir::LogEntry::new("listening"));
        // Whoever runs this drops it when the client goes or cancels.
        let end = self.ends.subscribe().recv().await;
        drop(mine);
        match end {
            Ok(ListenEnd::Answer) => {
                let meta = json!({SUBSCRIPTION: tag});
                Ok(complete(&json!({"_meta": meta}).to_string(), Served::Modern))
            }
            Ok(ListenEnd::Cancel) => {
                let params = json!({"requestId": tag, "reason": "the fake ends it"});
                self.send(caller, notification("notifications/cancelled", &params));
                Err(Refusal::CLOSED)
            }
            Ok(ListenEnd::Drop) | Err(_) => Err(Refusal::CLOSED),
        }
    }

    /// Tells everybody who wants to know: `tools`, `prompts`, `resources`, `log`, or a resource's
    /// URI; `unasked:` and a URI tells of that resource whoever listens to anything. Returns how
    /// many were told.
    pub fn announce(&self, what: &str) -> usize {
        let (what, unasked) = match what.strip_prefix("unasked:") {
            Some(uri) => (uri, true),
            None => (what, false),
        };
        let (method, params, wanted) = match what {
            "tools" | "prompts" | "resources" => (
                format!("notifications/{what}/list_changed"),
                json!({}),
                format!("{what}ListChanged"),
            ),
            "log" => {
                let params = json!({"level": "warning", "logger": "fake", "data": "announced"});
                ("notifications/message".to_owned(), params, String::new())
            }
            uri => {
                ("notifications/resources/updated".to_owned(), json!({"uri": uri}), String::new())
            }
        };
        let of_one_resource = method.ends_with("updated");
        let sessions: Vec<_> = self.sessions().values().cloned().collect();
        let told = sessions
            .iter()
            .filter(|session| session.initialized)
            .filter(|session| unasked || !of_one_resource || session.subscribed.contains(what))
            .filter_map(|session| session.push.as_ref())
            .filter(|push| push.send(message_out(&method, &params)).is_ok())
            .count();
        let listens: Vec<_> = self.listens().clone();
        let heard = listens
            .iter()
            .filter(|listen| {
                let uris = listen.filter["resourceSubscriptions"].as_array();
                unasked
                    || listen.filter[&wanted] == true
                    || of_one_resource
                        && uris.is_some_and(|uris| uris.iter().any(|uri| uri == what))
            })
            .filter(|listen| {
                let id: Value = serde_json::from_str(listen.id.get()).unwrap_or_default();
                let mut params = params.clone();
                params["_meta"] = json!({SUBSCRIPTION: id});
                listen.out.send(message_out(&method, &params)).is_ok()
            })
            .count();
        told + heard
    }

    /// What the client behind this request can do.
    pub fn client_capabilities(&self, params: &Value, served: Served, caller: &Caller) -> Value {
        match served {
            Served::Modern => params["_meta"][META_CAPABILITIES].clone(),
            Served::Legacy => {
                let id = caller.session.as_deref().unwrap_or_default();
                self.sessions().get(id).map(|s| s.capabilities.clone()).unwrap_or_default()
            }
        }
    }
}

/// A listener that is forgotten however its request ends.
struct Registered<'a> {
    fake: &'a Fake,
    id: String,
    out: tokio::sync::mpsc::UnboundedSender<super::server::Out>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.fake
            .listens()
            .retain(|listen| listen.id.get() != self.id || !listen.out.same_channel(&self.out));
    }
}

fn message_out(method: &str, params: &Value) -> super::server::Out {
    super::server::Out::Message(notification(method, params))
}

fn not_found(method: &str, served: Served) -> Refusal {
    let status = if served == Served::Modern { 404 } else { 200 };
    Refusal::new(-32601, format!("Method not found: {method}")).status(status)
}

/// A result that ends a request of its era.
pub fn complete(result: &str, served: Served) -> String {
    match served {
        Served::Legacy => result.to_owned(),
        Served::Modern => with_members(r#""resultType":"complete""#, result),
    }
}
