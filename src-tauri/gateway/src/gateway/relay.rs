//! One request of an app, on its way to the upstream that serves it.

use serde_json::value::RawValue;

use super::{
    Asker, Gateway, Route, View,
    relaying::{Opened, Relaying, Source},
};
use crate::{
    capability::CapabilityType,
    fault::{Code, Fault},
    json::{RawObject, raw},
    upstream::{
        UpstreamEvent,
        ask::{self, Asked, code_of},
        lists::Ended,
    },
};

const INVALID_PARAMS: i64 = -32602;
const METHOD_NOT_FOUND: i64 = -32601;
/// A result larger than this isn't looked through for URIs.
const SCANNED: usize = 1 << 20;

/// The requests that are relayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Relayed {
    CallTool,
    GetPrompt,
    ReadResource,
    Complete,
}

impl Relayed {
    pub const fn method(self) -> &'static str {
        match self {
            Self::CallTool => "tools/call",
            Self::GetPrompt => "prompts/get",
            Self::ReadResource => "resources/read",
            Self::Complete => "completion/complete",
        }
    }

    /// A completion is refused for its argument, and by servers that have none at all.
    const fn names_what_is_listed(self) -> bool {
        !matches!(self, Self::Complete)
    }
}

/// Why a request can't even be routed.
pub enum NotRelayed {
    /// The params lack what the method needs.
    BadParams(&'static str),
    Fault(Fault),
}

impl From<Fault> for NotRelayed {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}

impl Gateway {
    /// Routes a request and begins it. The params go on as they came, with the upstream's own name
    /// in the place of the one that the app sees.
    pub async fn relay(
        &self,
        asker: &Asker,
        method: Relayed,
        params: RawObject,
    ) -> Result<(Route, Relaying), NotRelayed> {
        let mut opened = Opened::new(&self.recorder, asker, method);
        if let (Relayed::CallTool | Relayed::GetPrompt, Some(name)) = (method, params.str("name")) {
            opened.asked_for(&name);
        }
        match self.begin_relay(asker, method, params, &mut opened).await {
            Ok((route, source)) => Ok((route, Relaying::new(source, opened))),
            Err(why) => {
                opened.refused(&why);
                Err(why)
            }
        }
    }

    async fn begin_relay(
        &self,
        asker: &Asker,
        method: Relayed,
        mut params: RawObject,
        opened: &mut Opened,
    ) -> Result<(Route, Source), NotRelayed> {
        let mut route = match method {
            Relayed::CallTool => self.by_name(asker, CapabilityType::Tool, &mut params).await?,
            Relayed::GetPrompt => self.by_name(asker, CapabilityType::Prompt, &mut params).await?,
            Relayed::ReadResource => self.by_uri(asker, &mut params).await?,
            Relayed::Complete => self.by_reference(asker, &mut params).await?,
        };
        opened.routed(&route);
        if method == Relayed::ReadResource {
            if let Some(result) = self.kept(&route, asker.era, &params) {
                return Ok((route, Source::Kept(Some(result))));
            }
            route = Self::to_be_kept(route, &params);
        }
        let request = Asked {
            method: method.method(),
            params,
            caller: Some(asker.caller()),
            headers: Vec::new(),
            nature: route.nature,
        };
        let asking = ask::ask(&route.upstream, request).await?;
        Ok((route, Source::Asking(Box::new(asking))))
    }

    async fn by_name(
        &self,
        asker: &Asker,
        kind: CapabilityType,
        params: &mut RawObject,
    ) -> Result<Route, NotRelayed> {
        let name =
            params.str("name").ok_or(NotRelayed::BadParams("params.name must be a string"))?;
        let route = self.route(asker, kind, &name).await?;
        params.set("name", raw(&route.key));
        Ok(route)
    }

    async fn by_uri(&self, asker: &Asker, params: &mut RawObject) -> Result<Route, NotRelayed> {
        let uri = params.str("uri").ok_or(NotRelayed::BadParams("params.uri must be a string"))?;
        let route = self.route_uri(asker, &uri).await?;
        params.set("uri", raw(&route.key));
        Ok(route)
    }

    /// Completion for an argument of a prompt or of a resource template.
    async fn by_reference(
        &self,
        asker: &Asker,
        params: &mut RawObject,
    ) -> Result<Route, NotRelayed> {
        let wrong = NotRelayed::BadParams(
            "params.ref must be a ref/prompt with a name or a ref/resource with a uri",
        );
        let Some(mut reference) = params.object("ref") else { return Err(wrong) };
        let (member, route) =
            match (reference.str("type").as_deref(), reference.str("name"), reference.str("uri")) {
                (Some("ref/prompt"), Some(name), _) => {
                    ("name", self.route(asker, CapabilityType::Prompt, &name).await?)
                }
                (Some("ref/resource"), _, Some(uri)) => ("uri", self.template(asker, &uri).await?),
                _ => return Err(wrong),
            };
        reference.set(member, raw(&route.key));
        params.set("ref", reference.to_raw());
        Ok(route)
    }

    /// A reference names a template by its text, or a resource by its URI.
    async fn template(&self, asker: &Asker, uri: &str) -> Result<Route, Fault> {
        let (upstream, key) = match super::uri::original(uri).filter(|_| asker.view == View::All) {
            Some((name, original)) => (Some(name), original),
            None => (None, uri.to_owned()),
        };
        let one = asker.clone();
        let asker = Asker { view: upstream.map_or(one.view.clone(), View::One), ..one };
        let listed = self.visible(&asker.view).into_iter().find(|upstream| {
            let catalogue = upstream.last_good(CapabilityType::Template);
            catalogue.is_some_and(|catalogue| catalogue.get(&key).is_some())
        });
        match listed {
            Some(upstream) => {
                let asker = Asker { view: View::One(upstream.name.clone()), ..asker };
                self.route(&asker, CapabilityType::Template, &key).await
            }
            None => self.route_uri(&asker, &key).await,
        }
    }

    /// What an answer teaches the gateway: URIs that it handed out, and a list that may no longer
    /// be what it was (design section 4.3).
    pub fn learn(&self, route: &Route, method: Relayed, answer: Result<&RawValue, &RawValue>) {
        match answer {
            Ok(result) if result.get().len() <= SCANNED => {
                self.hand_out(route.upstream.id, uris(result));
            }
            Err(error) if method.names_what_is_listed() && is_doubt(error) => {
                let listed = route.upstream.last_good(route.kind);
                if listed.is_some_and(|catalogue| catalogue.get(&route.key).is_some()) {
                    let kinds = vec![route.kind];
                    route.upstream.invalidate(&kinds, Ended::Suspected);
                    let event = UpstreamEvent::Invalidated(kinds, Ended::Suspected);
                    self.heard(route.upstream.id, event);
                }
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// "No such tool", or parameters that its schema no longer allows.
fn is_doubt(error: &RawValue) -> bool {
    matches!(code_of(error), Some(INVALID_PARAMS | METHOD_NOT_FOUND))
}

/// Every text under a member `uri`.
fn uris(result: &RawValue) -> Vec<String> {
    const MEMBER: &str = "\"uri\"";
    let text = result.get();
    let members = text.match_indices(MEMBER).filter_map(|(at, _)| {
        let value = text[at + MEMBER.len()..].trim_start().strip_prefix(':')?;
        serde_json::Deserializer::from_str(value).into_iter::<String>().next()?.ok()
    });
    members.collect()
}

impl NotRelayed {
    /// For those who only know faults.
    pub fn into_fault(self) -> Fault {
        match self {
            Self::BadParams(why) => Fault::new(Code::UnknownCapability, None, why),
            Self::Fault(fault) => fault,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_are_found_wherever_a_result_names_one() {
        let result = raw(&serde_json::json!({
            "content": [{ "type": "resource_link", "uri": "mem://1" }],
            "structuredContent": { "deep": [{ "uri": "mem://2" }, { "uri": 3 }], "not": "\"uri\":\"mem://no" },
        }));
        let found = uris(&result);
        assert!(
            found.contains(&"mem://1".to_owned()) && found.contains(&"mem://2".to_owned()),
            "{found:?}"
        );
    }
}
