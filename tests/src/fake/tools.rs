//! What the tools do.

use std::{collections::HashMap, sync::atomic::Ordering, time::Duration};

use serde_json::{Value, json, value::RawValue};

use super::{
    checks::META_LOG_LEVEL,
    content::{RICH, RPC_ERROR_DATA, tools},
    control_dir::LogEntry,
    message::{Message, Refusal, notification},
    methods::complete,
    server::{Caller, Fake, Served},
};

/// Opaque to a client, so it has to come back to the byte.
const STATE: &str = "state/zeta=1&\u{3b1}";

/// One `tools/call`.
struct ToolCall<'a> {
    fake: &'a Fake,
    params: &'a Value,
    /// The params and the arguments as they came.
    raw_params: &'a RawValue,
    arguments: Box<RawValue>,
    served: Served,
    caller: &'a Caller,
}

impl Fake {
    pub async fn call(
        &self,
        message: &Message,
        params: &Value,
        served: Served,
        caller: &Caller,
    ) -> Result<String, Refusal> {
        let name = params["name"].as_str().unwrap_or_default();
        let listed = self.dir.list("tools").ok().flatten().unwrap_or_else(|| tools(&self.options));
        let known = listed.iter().any(|tool| {
            serde_json::from_str::<Value>(tool.get()).is_ok_and(|tool| tool["name"] == name)
        });
        let Some(raw_params) = message.params.as_deref().filter(|_| known) else {
            return Err(Refusal::params(format!("Unknown tool: {name}")));
        };
        let empty = || RawValue::from_string("{}".to_owned()).expect("an object");
        let arguments = message.raw_param("arguments").unwrap_or_else(empty);
        let call = ToolCall { fake: self, params, raw_params, arguments, served, caller };
        call.run(name.strip_prefix(self.options.prefix.as_str()).unwrap_or(name)).await
    }
}

impl ToolCall<'_> {
    async fn run(&self, name: &str) -> Result<String, Refusal> {
        match name {
            "add" => Ok(self.add()),
            "rich" => Ok(complete(RICH, self.served)),
            "fail" => Ok(self.failed("it failed on purpose")),
            "rpc-error" => Err(Refusal::new(4242, "refused on purpose").data(RPC_ERROR_DATA)),
            "progress" => Ok(self.progress().await),
            "log" => Ok(self.log()),
            "ask" => {
                let params = json!({
                    "mode": "form",
                    "message": "What is your name?",
                    "requestedSchema": {
                        "type": "object",
                        "properties": {"name": {"type": "string", "pattern": "^[a-z]+$"}},
                    },
                });
                self.ask("elicitation", "elicitation/create", params).await
            }
            "sample" => {
                let params = json!({
                    "messages": [{"role": "user", "content": {"type": "text", "text": "Say hello"}}],
                    "maxTokens": 10,
                    "temperature": 0.7,
                });
                self.ask("sampling", "sampling/createMessage", params).await
            }
            "roots" => self.ask("roots", "roots/list", json!({})).await,
            "slow" => {
                tokio::time::sleep(Duration::from_millis(self.number("ms").unwrap_or(100))).await;
                self.ran("slow");
                Ok(self.text("slow is done"))
            }
            "read-only" | "idempotent" | "counter" => {
                let count = self.fake.counter.fetch_add(1, Ordering::Relaxed) + 1;
                self.ran(name);
                Ok(self.text(&count.to_string()))
            }
            "env" => Ok(self.env()),
            "spawn" => self.spawn(),
            "end-session" => {
                if let Some(session) = &self.caller.session {
                    self.fake.sessions().remove(session);
                }
                Ok(self.text("the session is forgotten"))
            }
            "link" => {
                let uri = format!("fake://{}/linked", self.fake.options.authority);
                let content = json!([{"type": "resource_link", "uri": uri, "name": "linked"}]);
                Ok(self.complete(&json!({"content": content}).to_string()))
            }
            "large" => {
                let bytes = self.number("bytes").unwrap_or(1024);
                Ok(self.text(&"x".repeat(bytes as usize)))
            }
            "say" => self.say(),
            _ => Ok(self.echo()),
        }
    }

    /// What it is told to say, to the byte: a `result`, or an error with this `error` as its data.
    /// Where progress is wanted, `progress` stands in a notification before it.
    fn say(&self) -> Result<String, Refusal> {
        let told: HashMap<String, Box<RawValue>> =
            serde_json::from_str(self.arguments.get()).unwrap_or_default();
        let token = self.params["_meta"].get("progressToken");
        if let (Some(token), Some(progress)) = (token, told.get("progress")) {
            let text = format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1,"x-unknown":{progress}}}}}"#
            );
            self.fake.send(self.caller, text);
        }
        match (told.get("result"), told.get("error")) {
            (Some(result), _) => Ok(self.complete(result.get())),
            (_, Some(data)) => Err(Refusal::new(4242, "as told").data(data.get())),
            _ => Ok(self.failed("nothing to say")),
        }
    }

    fn complete(&self, result: &str) -> String {
        complete(result, self.served)
    }

    fn text(&self, text: &str) -> String {
        self.complete(&json!({"content": [{"type": "text", "text": text}]}).to_string())
    }

    fn failed(&self, text: &str) -> String {
        let content = json!([{"type": "text", "text": text}]);
        self.complete(&json!({"content": content, "isError": true}).to_string())
    }

    fn number(&self, name: &str) -> Option<u64> {
        self.params["arguments"][name].as_u64()
    }

    fn ran(&self, name: &str) {
        self.fake.log(&LogEntry::new("ran").what(name));
    }

    /// The arguments and the params as they came, to the byte.
    fn echo(&self) -> String {
        let result = format!(
            r#"{{"content":[{{"type":"text","text":{}}}],"structuredContent":{{"arguments":{},"params":{}}}}}"#,
            json!(self.arguments.get()),
            self.arguments,
            self.raw_params,
        );
        self.complete(&result)
    }

    fn add(&self) -> String {
        let addend = |name: &str| self.params["arguments"][name].as_f64();
        let (Some(a), Some(b)) = (addend("a"), addend("b")) else {
            return self.failed("add needs the numbers a and b");
        };
        let sum = a + b;
        let content = json!([{"type": "text", "text": sum.to_string()}]);
        self.complete(&json!({"content": content, "structuredContent": {"sum": sum}}).to_string())
    }

    async fn progress(&self) -> String {
        let steps = self.number("n").unwrap_or(3);
        let pause = Duration::from_millis(self.number("ms").unwrap_or(0));
        for step in 1..=steps {
            // Without a token nobody asked for progress.
            if let Some(token) = self.params["_meta"].get("progressToken") {
                let params = json!({
                    "progressToken": token, "progress": step, "total": steps,
                    "message": format!("step {step}"),
                });
                self.fake.send(self.caller, notification("notifications/progress", &params));
            }
            tokio::time::sleep(pause).await;
        }
        self.text(&format!("{steps} steps"))
    }

    fn log(&self) -> String {
        let wanted = match self.served {
            Served::Modern => self.params["_meta"].get(META_LOG_LEVEL).is_some(),
            Served::Legacy => true,
        };
        if wanted {
            let data = &self.params["arguments"]["data"];
            let params = json!({"level": "error", "logger": "fake", "data": data});
            self.fake.send(self.caller, notification("notifications/message", &params));
        }
        self.text("logged")
    }

    /// Asks the client for something: during the call in the legacy era, by ending the call with
    /// what is missing in the modern one.
    async fn ask(&self, capability: &str, method: &str, params: Value) -> Result<String, Refusal> {
        let able = self.fake.client_capabilities(self.params, self.served, self.caller);
        if self.served == Served::Legacy {
            if able.get(capability).is_none() {
                return Ok(self.failed(&format!("the client has no {capability}")));
            }
            let answer = self.fake.ask(self.caller, method, &params).await?;
            return Ok(match (answer.result, answer.error) {
                (Some(result), _) => self.answered(&result),
                (None, Some(error)) => self.failed(&format!("the client refused: {error}")),
                (None, None) => self.failed("the client said nothing"),
            });
        }
        match self.params.get("inputResponses") {
            Some(_) if self.params["requestState"] == STATE => Ok(self
                .response()
                .map_or_else(|| self.failed("no answer"), |answer| self.answered(&answer))),
            Some(_) => {
                self.fake.violation("requestState isn't echoed", Some("tools/call"));
                Err(Refusal::params("requestState is wrong"))
            }
            None if able.get(capability).is_none() => {
                let data = json!({"requiredCapabilities": {capability: {}}}).to_string();
                Err(Refusal::new(-32021, "Missing required client capability")
                    .data(data)
                    .status(400))
            }
            None => Ok(json!({
                "resultType": "input_required",
                "inputRequests": {"answer": {"method": method, "params": params}},
                "requestState": STATE,
            })
            .to_string()),
        }
    }

    /// The answer to what was asked, as it came.
    fn response(&self) -> Option<Box<RawValue>> {
        type Members = std::collections::HashMap<String, Box<RawValue>>;
        let mut params: Members = serde_json::from_str(self.raw_params.get()).ok()?;
        let responses = params.remove("inputResponses")?;
        serde_json::from_str::<Members>(responses.get()).ok()?.remove("answer")
    }

    fn answered(&self, answer: &RawValue) -> String {
        let result = format!(
            r#"{{"content":[{{"type":"text","text":{}}}],"structuredContent":{{"answer":{answer}}}}}"#,
            json!(answer.get()),
        );
        self.complete(&result)
    }

    /// The names of its environment variables.
    fn env(&self) -> String {
        let names: Vec<_> =
            std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned()).collect();
        let result = json!({
            "content": [{"type": "text", "text": names.join(" ")}],
            "structuredContent": {
                "names": names,
                "cwd": std::env::current_dir().ok(),
            },
        });
        self.complete(&result.to_string())
    }

    /// A grandchild that outlives the fake unless somebody ends it.
    fn spawn(&self) -> Result<String, Refusal> {
        let child = std::process::Command::new("sleep")
            .arg("600")
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .spawn()
            .map_err(|error| Refusal::new(-32603, format!("sleep: {error}")))?;
        Ok(self.text(&child.id().to_string()))
    }
}
