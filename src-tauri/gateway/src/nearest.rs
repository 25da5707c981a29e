//! The known word that somebody most likely meant.

/// One that differs in at most a third of its letters (two that changed places count once), else
/// one that holds the wanted word or is held by it; upper and lower case are the same.
///
/// ```
/// # use traygate_gateway::nearest::nearest;
/// assert_eq!(nearest("gihtub", ["files", "github"]), Some("github"));
/// ```
pub fn nearest<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let wanted = wanted.to_lowercase();
    let candidates = known.into_iter().filter_map(|word| Some((rank(&wanted, word)?, word)));
    candidates.min_by_key(|(rank, _)| *rank).map(|(_, word)| word)
}

/// The least is the nearest; likeness comes before containment.
fn rank(wanted: &str, word: &str) -> Option<(bool, usize)> {
    let lower = word.to_lowercase();
    let length = wanted.chars().count().max(lower.chars().count());
    let distance = strsim::damerau_levenshtein(wanted, &lower);
    let alike = distance <= length / 3;
    // A letter or two are in everything.
    let shorter = wanted.len().min(lower.len());
    let holds = shorter > 2 && (lower.contains(wanted) || wanted.contains(&lower));
    (alike || holds).then_some((!alike, distance))
}

/// `; did you mean "github"?`, or nothing: for the end of an error.
pub fn did_you_mean<'a>(wanted: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    nearest(wanted, known).map(|word| format!("; did you mean {word:?}?")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slip_of_the_finger_finds_the_word() {
        let known = ["github", "gitlab", "files", "server-memory", "port"];
        for (wanted, expected) in [
            ("gihtub", Some("github")),
            ("GitHub", Some("github")),
            ("gitlb", Some("gitlab")),
            ("file", Some("files")),
            ("memory", Some("server-memory")),
            ("my-github-server", Some("github")),
            ("prot", Some("port")),
            ("xyz", None),
            ("", None),
            ("s", None),
        ] {
            assert_eq!(nearest(wanted, known), expected, "{wanted}");
        }
        assert_eq!(nearest("anything", []), None);
    }

    #[test]
    fn the_end_of_an_error_names_it_or_is_empty() {
        assert_eq!(did_you_mean("gihtub", ["github"]), "; did you mean \"github\"?");
        assert_eq!(did_you_mean("other", ["github"]), "");
    }
}
