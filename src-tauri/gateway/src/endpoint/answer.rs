//! Answers made right for the app's era, and failures in the shape that apps read (design section
//! 5.4). Everything else of a payload stays as it came.

use rmcp::model::ContentBlock;
use serde_json::value::RawValue;

use super::tickets::Payload;
use crate::{
    definition::Era,
    fault::{Code, Fault},
    json::{RawObject, raw},
    names::UpstreamName,
    upstream::ask::code_of,
};

const INTERNAL_ERROR: i32 = -32603;
const INVALID_PARAMS: i32 = -32602;
/// "Resource not found" and "URL elicitation required" of the legacy era; the modern one forbids
/// to emit them (protocol 2026-07-28, "Error Codes").
const LEGACY_NOT_FOUND: i64 = -32002;
const LEGACY_URL_ELICITATION: i64 = -32042;

/// What an app sees if an answer's place is ever lost.
pub fn lost() -> ContentBlock {
    ContentBlock::text("The answer of this call is no longer available.")
}

/// A failure of Traygate's own, or of an upstream as Traygate tells it. Models read tool results,
/// and many apps hide protocol errors, so what goes wrong with an upstream during a call is a
/// tool result; an unknown or disabled name is an error, as the protocol asks.
pub fn fault(is_call: bool, era: Era, fault: &Fault) -> Payload {
    let unroutable = matches!(fault.code, Code::UnknownCapability | Code::CapabilityDisabled);
    if !is_call || unroutable {
        return Payload::Error(raw(&serde_json::json!({
            "code": fault.code.number(), "message": fault.message, "data": fault.data(),
        })));
    }
    let mut result = RawObject::default()
        .with("content", &serde_json::json!([{ "type": "text", "text": fault.message }]))
        .with("isError", &true)
        .with("_meta", &serde_json::json!({ "traygate/error": fault.data() }));
    if era == Era::Modern {
        result.set("resultType", raw("complete"));
    }
    Payload::Result(result.to_raw())
}

/// An upstream's result for an app of this era.
pub fn result(is_call: bool, era: Era, upstream: &UpstreamName, result: Box<RawValue>) -> Payload {
    let useless = |why: &str| {
        let words = format!("{upstream} answered with a result {why}");
        fault(is_call, era, &Fault::new(Code::UpstreamUnavailable, Some(upstream), words))
    };
    let Ok(mut object) = RawObject::parse(&result) else {
        return useless("that is not an object; look if there is an update of it");
    };
    let kind = object.str("resultType");
    match (era, kind.as_deref()) {
        (Era::Modern, None) => {
            object.set("resultType", raw("complete"));
            Payload::Result(object.to_raw())
        }
        (Era::Modern, Some("complete" | "input_required" | "task")) | (Era::Legacy, None) => {
            Payload::Result(result)
        }
        (Era::Legacy, Some("complete")) => {
            object.retain(|key| key != "resultType");
            Payload::Result(object.to_raw())
        }
        (Era::Legacy, Some("input_required")) => {
            useless("that asks for input in a way that this app's protocol version doesn't have")
        }
        (_, Some(other)) => {
            let shown = crate::text::one_line(other, 60);
            useless(&format!(
                "of a kind that Traygate doesn't know, {shown:?}; an update of the older of the two may help"
            ))
        }
    }
}

/// An upstream's error for an app of this era: as it came, except for the codes that speak of the
/// upstream's own hop or that the app's era spells otherwise.
pub fn upstream_error(era: Era, raw_error: Box<RawValue>) -> Payload {
    let code = match code_of(&raw_error) {
        Some(-32022..=-32020) => INTERNAL_ERROR,
        Some(LEGACY_NOT_FOUND) if era == Era::Modern => INVALID_PARAMS,
        Some(LEGACY_URL_ELICITATION) if era == Era::Modern => INTERNAL_ERROR,
        Some(_) => return Payload::Error(raw_error),
        None => {
            return error(INTERNAL_ERROR, "the upstream answered with an error that has no code");
        }
    };
    let mut object = RawObject::parse(&raw_error).unwrap_or_default();
    object.set("code", raw(&code));
    Payload::Error(object.to_raw())
}

fn error(code: i32, message: &str) -> Payload {
    Payload::Error(crate::upstream::link::error(code, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(payload: Payload) -> String {
        match payload {
            Payload::Result(raw) | Payload::Error(raw) | Payload::Params(raw) => {
                raw.get().to_owned()
            }
        }
    }

    fn json(text: &str) -> Box<RawValue> {
        serde_json::from_str(text).expect("json")
    }

    #[test]
    fn a_legacy_result_gets_the_modern_eras_members_and_nothing_else_changes() {
        let read = r#"{"contents":[{"n":1e3}]}"#;
        let name = UpstreamName::parse("up").expect("a valid name");
        assert_eq!(
            text(result(false, Era::Modern, &name, json(read))),
            r#"{"contents":[{"n":1e3}],"resultType":"complete"}"#
        );
        assert_eq!(text(result(true, Era::Legacy, &name, json(read))), read);
        let unknown = json(r#"{"resultType":"x"}"#);
        let told = text(result(true, Era::Modern, &name, unknown));
        assert!(told.contains("up answered") && told.contains("\"isError\":true"), "{told}");
    }

    #[test]
    fn codes_of_the_upstreams_own_hop_are_not_relayed() {
        let code = |era, code: i64| {
            let error = json(&format!(r#"{{"code":{code},"message":"m","data":{{"x":1.0}}}}"#));
            text(upstream_error(era, error))
        };
        assert_eq!(code(Era::Legacy, -32020), r#"{"code":-32603,"message":"m","data":{"x":1.0}}"#);
        assert_eq!(code(Era::Modern, -32002), r#"{"code":-32602,"message":"m","data":{"x":1.0}}"#);
        assert_eq!(code(Era::Legacy, -32002), r#"{"code":-32002,"message":"m","data":{"x":1.0}}"#);
        assert_eq!(code(Era::Modern, -31999), r#"{"code":-31999,"message":"m","data":{"x":1.0}}"#);
    }
}
