//! What the file may be, and what is made of it.

use std::{fs, sync::Arc, time::Duration};

use serde_json::value::RawValue;

use super::*;
use crate::{
    capability::CapabilityType,
    clock::{Clock, wall},
    definition::{Era, LegacyTtl},
    names::{NameLimit, UpstreamName},
    upstream::catalogue::{Catalogue, Pages, Reader},
};

pub fn catalogue(tools: usize) -> Arc<Catalogue> {
    let reader = Reader {
        kind: CapabilityType::Tool,
        upstream: UpstreamName::parse("up").expect("a valid name"),
        name_limit: NameLimit::default(),
        era: Era::Modern,
        legacy_ttl: LegacyTtl::default(),
    };
    let tool = |number| {
        format!(
            r#"{{"name":"t{number}","inputSchema":{{"type":"object","max":18446744073709551616}}}}"#
        )
    };
    let tools: Vec<_> = (0..tools).map(tool).collect();
    let page = format!(r#"{{"tools":[{}],"ttlMs":60000,"cacheScope":"public"}}"#, tools.join(","));
    let page: Box<RawValue> = serde_json::from_str(&page).expect("json");
    let (mut pages, now) = (Pages::new(reader), Clock::default().now());
    pages.take(&page, now).expect("a list");
    Arc::new(pages.into_catalogue(now))
}

pub fn entry(tools: usize) -> Entry<Listed> {
    Entry {
        upstream: UpstreamName::parse("up").expect("a valid name"),
        definition: "fingerprint".to_owned(),
        kind: CapabilityType::Tool,
        items: Listed(catalogue(tools)),
        warnings: Vec::new(),
        scope: "public".to_owned(),
        until: wall() + 60_000,
        written_at: wall() - 1,
    }
}

fn place() -> (tempfile::TempDir, SnapshotFile) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let file = SnapshotFile::below(directory.path());
    (directory, file)
}

fn usable(file: &SnapshotFile) -> usize {
    file.load(wall()).expect("usable").map_or(0, |loaded| loaded.entries.len())
}

#[test]
fn what_was_written_is_read_back_to_the_byte_and_for_this_user_only() {
    let (directory, file) = place();
    assert!(file.load(wall()).expect("no file is fine").is_none());
    file.write(&[entry(3)]).expect("written");
    let Loaded { entries, odd } = file.load(wall()).expect("usable").expect("there");
    assert_eq!(odd, None);
    let texts: Vec<_> = entries[0].items.iter().map(|item| item.get()).collect();
    let want = catalogue(3);
    assert_eq!(texts, want.items.iter().map(|item| item.raw.get()).collect::<Vec<_>>());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(file.path()).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1, "nothing beside");
    file.remove().expect("removed");
    file.remove().expect("nothing there is fine");
}

#[test]
fn a_file_that_is_cut_anywhere_is_not_used() {
    let (_directory, file) = place();
    file.write(&[entry(2)]).expect("written");
    let whole = fs::read(file.path()).expect("there");
    for end in 0..whole.len() {
        fs::write(file.path(), &whole[..end]).expect("cut");
        assert!(matches!(file.load(wall()), Err(Unusable::Garbled)), "cut at {end}");
    }
}

#[test]
fn foreign_files_and_those_of_another_version_are_not_used() {
    let (_directory, file) = place();
    file.write(&[entry(1)]).expect("written");
    let ours = fs::read_to_string(file.path()).expect("there");
    for (text, other) in [
        ("not json".to_owned(), false),
        ("[]".to_owned(), false),
        ("{}".to_owned(), false),
        ("\u{0}\u{1}\u{2}".to_owned(), false),
        (
            r#"{"format":"traygate-catalogues-0000000000000000","entries":"new shape"}"#.to_owned(),
            true,
        ),
        (format!(r#"{{"format":"{}","entries":[{{}}]}}"#, entry::format()), false),
        (ours.replace("\"scope\":", "\"more\":1,\"scope\":"), false),
        (ours.replace("\"type\":\"tool\"", "\"type\":\"gadget\""), false),
        (ours.replace("\"upstream\":\"up\"", "\"upstream\":\"../up\""), false),
    ] {
        fs::write(file.path(), &text).expect("written");
        let why = file.load(wall()).expect_err(&text);
        assert_eq!(matches!(why, Unusable::OtherFormat), other, "{text}: {why}");
    }
}

#[test]
fn an_entry_that_may_not_be_there_is_refused_whoever_wrote_it_and_the_others_are_used() {
    let (_directory, file) = place();
    let private = Entry { scope: "private".to_owned(), ..entry(1) };
    let future = Entry { written_at: wall() + 60_000, until: wall() + 90_000, ..entry(1) };
    let over = Entry { until: wall() - 1, written_at: wall() - 2, ..entry(1) };
    file.write(&[private, entry(1), future, over.clone()]).expect("written");
    let Loaded { entries, odd } = file.load(wall()).expect("usable").expect("there");
    assert_eq!(entries.len(), 1);
    assert_eq!(odd.expect("told"), "2 of its entries not used, the first because it is not public");
    file.write(&[over]).expect("written");
    assert_eq!(file.load(wall()).expect("usable").expect("there").odd, None, "the usual end");
}

#[cfg(unix)]
#[test]
fn what_others_could_have_written_is_not_used() {
    use std::os::unix::fs::PermissionsExt as _;
    let (_directory, file) = place();
    file.write(&[entry(1)]).expect("written");
    for (mode, fine) in
        [(0o600, true), (0o644, true), (0o620, false), (0o602, false), (0o666, false)]
    {
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).expect("changed");
        assert_eq!(file.load(wall()).is_ok(), fine, "{mode:o}");
    }
    file.write(&[entry(1)]).expect("replaced");
    assert_eq!(usable(&file), 1, "and its successor is this user's again");
}

#[cfg(unix)]
#[test]
fn a_directory_a_link_or_a_pipe_in_its_place_is_not_used_and_never_waited_for() {
    let (directory, file) = place();
    fs::create_dir(file.path()).expect("a directory");
    assert!(matches!(file.load(wall()), Err(Unusable::NotOurs(_) | Unusable::Io(_))));
    assert!(file.write(&[entry(1)]).is_err());
    assert!(file.remove().is_err());
    fs::remove_dir(file.path()).expect("removed");
    let elsewhere = directory.path().join("elsewhere");
    SnapshotFile { path: elsewhere.clone() }.write(&[entry(1)]).expect("written");
    std::os::unix::fs::symlink(&elsewhere, file.path()).expect("a link");
    assert!(file.load(wall()).is_err());
    file.write(&[entry(1)]).expect("a link is replaced, not followed");
    assert_eq!(usable(&file), 1);
    fs::remove_file(file.path()).expect("removed");
    let made = std::process::Command::new("mkfifo").arg(file.path()).status();
    if made.is_ok_and(|status| status.success()) {
        let began = std::time::Instant::now();
        assert!(file.load(wall()).is_err());
        assert!(began.elapsed() < Duration::from_secs(5));
    }
}

/// Names the directory for the process whose files can't grow.
#[cfg(target_os = "linux")]
const CRAMPED: &str = "TRAYGATE_TEST_DIRECTORY_OF_THE_CRAMPED_PROCESS";

/// Runs this same test in a process that the system lets write no more than 8 KiB to a file: it
/// refuses the rest, as a full disk does.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_takes_no_more_leaves_the_old_file_and_nothing_beside_it() {
    if let Some(directory) = std::env::var_os(CRAMPED) {
        let file = SnapshotFile::below(directory.as_ref());
        let error = file.write(&[entry(1_000)]).expect_err("it doesn't fit");
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        return;
    }
    let (directory, file) = place();
    file.write(&[entry(1)]).expect("written");
    let name =
        "snapshot_file::tests::a_disk_that_takes_no_more_leaves_the_old_file_and_nothing_beside_it";
    let cramped = r#"trap '' XFSZ; ulimit -f 16; exec "$0" --exact "$1" --nocapture"#;
    let ended = std::process::Command::new("sh")
        .args(["-c", cramped])
        .arg(std::env::current_exe().expect("this program"))
        .arg(name)
        .env(CRAMPED, directory.path())
        .output()
        .expect("started");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stdout));
    assert!(String::from_utf8_lossy(&ended.stdout).contains("1 passed"));
    let Loaded { entries, .. } = file.load(wall()).expect("usable").expect("there");
    assert_eq!(entries[0].items.len(), 1, "the old one");
    assert_eq!(fs::read_dir(directory.path()).expect("a directory").count(), 1);
}
