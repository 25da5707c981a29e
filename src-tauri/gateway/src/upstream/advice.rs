//! What a person can do about a failure: the second half of the sentence that says what is wrong.

use super::wire::{Failure, FailureKind};
use crate::{definition::Transport, names::UpstreamName};

/// The failure with what to do about it, for the upstream's state and for those who ask in vain.
pub fn advised(mut failure: Failure, transport: &Transport, name: &UpstreamName) -> Failure {
    let advice = match transport {
        Transport::Stdio { .. } => of_a_program(&failure, name),
        Transport::Http { .. } => of_an_address(&failure),
    };
    if let Some(advice) = advice.or_else(|| of_either(&failure)) {
        failure.reason = format!("{}; {advice}", failure.reason);
    }
    failure
}

fn of_a_program(failure: &Failure, name: &UpstreamName) -> Option<String> {
    match failure.kind {
        FailureKind::Gone if failure.reason.contains("it last said") => {
            Some(format!("put that right; all that it said: traygate logs {name}"))
        }
        FailureKind::Gone => Some(format!(
            "run its command in a terminal to see why, or look at: traygate logs {name}"
        )),
        FailureKind::Silent | FailureKind::Garbage if misunderstood(failure) => {
            Some("only its maker can change that; look for an option that keeps its standard output clean, or for an update".to_owned())
        }
        FailureKind::Silent => Some(format!(
            "if it only needs longer, start its command once in a terminal; else look at: traygate logs {name}"
        )),
        _ => None,
    }
}

fn misunderstood(failure: &Failure) -> bool {
    failure.reason.contains("its output begins with")
}

fn of_an_address(failure: &Failure) -> Option<String> {
    let advice = match failure.kind {
        // Its words give the advice already.
        FailureKind::Gone if failure.reason.contains(['?', ';']) => return None,
        FailureKind::Gone => {
            "look if the server runs and the network is there; Traygate tries again by itself"
        }
        FailureKind::NeedsSignIn => {
            "give it what it asks for, such as a header with a token (traygate add --help)"
        }
        FailureKind::Status(300..=399) => return None,
        FailureKind::Status(403) => {
            "ask who runs it for access, or give it the header that it wants"
        }
        FailureKind::Status(500..) => "the fault is the server's; Traygate tries again by itself",
        FailureKind::Garbage if speaks_other_version(failure) => return None,
        FailureKind::Status(_) | FailureKind::Garbage | FailureKind::Silent => {
            "check that its URL is the one for MCP"
        }
        _ => return None,
    };
    Some(advice.to_owned())
}

fn of_either(failure: &Failure) -> Option<String> {
    let advice = match failure.kind {
        FailureKind::Bound => "to allow more: traygate config message_limit 256MiB",
        FailureKind::Garbage if speaks_other_version(failure) => {
            "an update of the older of the two helps"
        }
        FailureKind::Garbage => "look if there is an update of it, or tell its maker",
        FailureKind::Refused(_) => "its documentation may say why, or an update may help",
        _ => return None,
    };
    Some(advice.to_owned())
}

fn speaks_other_version(failure: &Failure) -> bool {
    failure.reason.contains("Traygate doesn't speak")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::{definition::HttpFlavour, upstream::wire::Ran};

    #[test]
    fn every_failure_but_one_that_says_it_itself_tells_what_to_do() {
        let program = Transport::Stdio {
            command: "x".to_owned(),
            args: Vec::new(),
            env: BTreeMap::new(),
            cwd: None,
        };
        let address = Transport::Http {
            url: "http://localhost/mcp".to_owned(),
            headers: BTreeMap::new(),
            flavour: HttpFlavour::Auto,
        };
        let name = UpstreamName::parse("files").expect("a valid name");
        for (transport, kind, reason, part) in [
            (&program, FailureKind::Gone, "the server exited with code 0", "traygate logs files"),
            (&program, FailureKind::Gone, "exited; it last said: no key", "put that right"),
            (&program, FailureKind::Silent, "did not answer within 60 s", "terminal"),
            (&program, FailureKind::Silent, "no; its output begins with \"{\"", "its maker"),
            (&program, FailureKind::Bound, "too large", "message_limit"),
            (&address, FailureKind::Gone, "broke off", "the network"),
            (&address, FailureKind::Status(404), "answered 404", "its URL"),
            (&address, FailureKind::Status(502), "answered 502", "the server's"),
            (&address, FailureKind::NeedsSignIn, "wants a token", "header"),
            (&address, FailureKind::Garbage, "a version that Traygate doesn't speak", "update"),
        ] {
            let failure = Failure::new(kind, Ran::Perhaps, reason);
            let words = advised(failure, transport, &name).reason;
            let rest = words.strip_prefix(reason).expect("what is wrong comes first");
            assert!(rest.starts_with("; ") && rest.contains(part), "{words}");
        }
        let refused = "127.0.0.1:9 refused the connection; is the server running?";
        let failure = Failure::new(FailureKind::Gone, Ran::CertainlyNot, refused);
        assert_eq!(advised(failure, &address, &name).reason, refused);
    }
}
