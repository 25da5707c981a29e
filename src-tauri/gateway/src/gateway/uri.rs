//! Resource URIs: passed unchanged, except where two upstreams list the same one.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::names::UpstreamName;

const SCHEME: &str = "traygate://";
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// `traygate://<upstream>/<percent-encoded original>`
pub fn expose(upstream: &UpstreamName, uri: &str) -> String {
    format!("{SCHEME}{upstream}/{}", utf8_percent_encode(uri, ENCODED))
}

/// The upstream and the original of a URI in that form.
pub fn original(uri: &str) -> Option<(UpstreamName, String)> {
    let (upstream, encoded) = uri.strip_prefix(SCHEME)?.split_once('/')?;
    let original = percent_decode_str(encoded).decode_utf8().ok()?;
    Some((UpstreamName::parse(upstream).ok()?, original.into_owned()))
}

/// Whether a URI can come from a template (RFC 6570). An expression stands for any text without
/// `/`, or for any text at all where its operator or a `*` lets one through.
pub fn matches_template(template: &str, uri: &str) -> bool {
    let Some((literal, rest)) = template.split_once('{') else { return template == uri };
    let Some(uri) = uri.strip_prefix(literal) else { return false };
    let Some((expression, rest)) = rest.split_once('}') else { return false };
    let crosses =
        expression.starts_with(['+', '#', '/', '?', '&', ';', '.']) || expression.contains('*');
    let ends = uri.char_indices().map(|(at, c)| at + c.len_utf8());
    std::iter::once(0)
        .chain(ends)
        .take_while(|end| crosses || !uri[..*end].contains('/'))
        .any(|end| matches_template(rest, &uri[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exposed_uri_leads_back_to_its_original() {
        let upstream = UpstreamName::parse("files").expect("a valid name");
        for uri in ["file:///a b/ä?x=1#y", "traygate://files/x", "", "a%2Fb"] {
            assert_eq!(original(&expose(&upstream, uri)), Some((upstream.clone(), uri.to_owned())));
        }
        assert_eq!(original("file:///a"), None);
    }

    #[test]
    fn templates_match_what_they_can_make() {
        for (template, uri, want) in [
            ("mem://{id}", "mem://7", true),
            ("mem://{id}", "mem://7/8", false),
            ("mem://{+path}", "mem://7/8", true),
            ("mem://{id}/x", "mem://7/x", true),
            ("mem://{id}/x", "mem://7/y", false),
            ("mem://a", "mem://a", true),
            ("mem://{a}-{b}", "mem://1-2", true),
            ("q{?x,y}", "q?x=1&y=2", true),
            ("broken{", "broken", false),
        ] {
            assert_eq!(matches_template(template, uri), want, "{template} {uri}");
        }
    }
}
