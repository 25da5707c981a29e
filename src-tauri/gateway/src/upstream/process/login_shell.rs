//! The search path of the user's login shell.
//!
//! Started from a dock or at login, Traygate is given a bare `PATH`; nvm, Homebrew and their like
//! put themselves on it in the shell's start-up files. So the shell is asked, once.

use std::{
    collections::HashSet,
    env,
    ffi::{OsStr, OsString},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

use super::children::Children;

/// How long the shell's start-up files may take.
#[cfg(unix)]
const BUDGET: Duration = Duration::from_secs(3);

/// The last answer, and when it was asked for. Held while asking, so that everybody waits for
/// one answer.
static KNOWN: Mutex<Option<(Instant, Arc<OsStr>)>> = Mutex::const_new(None);

/// The path on which commands are searched: the login shell's, then Traygate's own, then the
/// usual places. The shell is asked again only if its answer is older than `age`.
pub async fn search_path(age: Duration, children: &Arc<Children>) -> Arc<OsStr> {
    let mut known = KNOWN.lock().await;
    if let Some((at, path)) = &*known
        && at.elapsed() <= age
    {
        return path.clone();
    }
    let login = path_of_login_shell(children).await;
    let own = env::var_os("PATH");
    let path: Arc<OsStr> = merge(&[login, own], &usual_places()).into();
    *known = Some((Instant::now(), path.clone()));
    path
}

#[cfg(unix)]
async fn path_of_login_shell(children: &Arc<Children>) -> Option<OsString> {
    let shell = env::var_os("SHELL").filter(|shell| !shell.is_empty()).map(PathBuf::from);
    let shell = shell.or_else(super::os::shell_of_user).unwrap_or_else(|| "/bin/sh".into());
    let path = ask(&shell, BUDGET, children).await;
    if path.is_none() {
        tracing::info!(shell = %shell.display(), "the login shell doesn't tell its PATH");
    }
    path
}

/// There are no login shells; the user's own `PATH` is given to every program.
#[cfg(windows)]
async fn path_of_login_shell(_children: &Arc<Children>) -> Option<OsString> {
    None
}

/// What `shell` has in `PATH` after it has read its start-up files as for a terminal. `None` if it
/// doesn't say within `budget`; it is ended then, in the background.
#[cfg(unix)]
async fn ask(shell: &Path, budget: Duration, children: &Arc<Children>) -> Option<OsString> {
    let mut command = tokio::process::Command::new(shell);
    command
        // Interactive too: that is where nvm and its like are set up.
        .args(["-l", "-i", "-c"])
        .arg(format!("echo {MARK}; printenv PATH; echo {MARK}"))
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        // Start-up files ask for updates or begin a terminal session of their own otherwise.
        .env("TERM", "dumb")
        .env("DISABLE_AUTO_UPDATE", "true")
        .env("ZSH_TMUX_AUTOSTART", "false");
    let mut group = super::group::Group::spawn(command, children).ok()?;
    let (_, stdout, _) = group.stdio();
    let answer = tokio::time::timeout(budget, marked(stdout?)).await;
    if let Ok(Some(path)) = answer {
        group.release().await;
        return Some(path);
    }
    // Gently, and without anybody waiting for it: killed in the middle, version managers leave
    // locks behind over which every later shell stumbles. Bounded by `stop` itself.
    tokio::spawn(async move { group.stop().await });
    None
}

/// Stands around the answer, since start-up files may greet.
#[cfg(unix)]
const MARK: &str = "traygate-7f3d9b-path";
/// How much a shell may print before it answers.
#[cfg(unix)]
const GREETING: usize = 1024 * 1024;

/// Reads up to the second mark only: what start-up files leave running may hold the pipe open.
#[cfg(unix)]
async fn marked(mut stdout: tokio::process::ChildStdout) -> Option<OsString> {
    use std::os::unix::ffi::OsStringExt;
    use tokio::io::AsyncReadExt;

    let mut read = Vec::new();
    while read.len() < GREETING && stdout.read_buf(&mut read).await.ok()? > 0 {
        let mut parts = read.split_inclusive(|byte| *byte == b'\n');
        if parts.by_ref().any(|line| line.trim_ascii_end().ends_with(MARK.as_bytes())) {
            let rest: Vec<u8> = parts.flatten().copied().collect();
            let end = rest.windows(MARK.len()).position(|part| part == MARK.as_bytes());
            if let Some(end) = end {
                let path = rest[..end].trim_ascii();
                return path.contains(&b'/').then(|| OsString::from_vec(path.to_vec()));
            }
        }
    }
    None
}

/// Where installers put programs without always telling the shell.
fn usual_places() -> Vec<PathBuf> {
    let system = ["/opt/homebrew/bin", "/usr/local/bin"].map(PathBuf::from);
    let below_home = [
        ".local/bin",
        ".cargo/bin",
        ".volta/bin",
        ".bun/bin",
        ".deno/bin",
        ".local/share/mise/shims",
        ".asdf/shims",
    ];
    let home = super::home();
    let below_home =
        home.iter().flat_map(|home| below_home.map(|place| Path::new(home).join(place)));
    system.into_iter().chain(below_home).filter(|place| place.is_dir()).collect()
}

/// Joins the paths in order, each directory once. Relative ones would depend on where Traygate
/// was started.
fn merge(paths: &[Option<OsString>; 2], places: &[PathBuf]) -> OsString {
    let mut seen = HashSet::new();
    let directories: Vec<PathBuf> = paths
        .iter()
        .flatten()
        .flat_map(env::split_paths)
        .chain(places.iter().cloned())
        .filter(|directory| directory.is_absolute() && seen.insert(directory.clone()))
        .collect();
    // Refused only for a directory with the separator in its name, which split_paths can't yield.
    env::join_paths(directories).unwrap_or_default()
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn shell(folder: &tempfile::TempDir, script: &str) -> PathBuf {
        let path = folder.path().join("shell");
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).expect("the shell is written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it is executable");
        path
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().expect("a temporary folder")
    }

    #[tokio::test]
    async fn the_path_of_the_login_shell_is_found_behind_its_greeting() {
        let folder = folder();
        let script = r#"[ "$1$2$3" = "-l-i-c" ] || exit 1
            echo "welcome home"; printf 'no line end'
            PATH=/from/profile:$PATH; export PATH
            eval "$4"; echo bye"#;
        let path = ask(&shell(&folder, script), BUDGET, &Children::new()).await.expect("an answer");
        assert!(path.to_string_lossy().starts_with("/from/profile:/"), "{path:?}");
        assert!(!path.to_string_lossy().contains('\n'), "{path:?}");
    }

    #[tokio::test]
    async fn what_a_profile_leaves_running_delays_nothing() {
        let folder = folder();
        let script = r#"sleep 30 & echo $! > "$0.pid"; eval "$4""#;
        let shell = shell(&folder, script);
        let started = Instant::now();
        assert!(ask(&shell, BUDGET, &Children::new()).await.is_some());
        assert!(started.elapsed() < BUDGET, "the answer is enough");
        let left = fs::read_to_string(shell.with_extension("pid")).expect("its id is noted");
        let ended =
            std::process::Command::new("kill").arg(left.trim()).status().expect("kill runs");
        assert!(ended.success(), "the profile's own daemon was left alone");
    }

    /// Reads /proc.
    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_shell_that_hangs_is_ended_with_its_children() {
        let folder = folder();
        let shell = shell(&folder, r#"sleep 30 & echo $! > "$0.pid"; wait"#);
        assert_eq!(ask(&shell, Duration::from_millis(500), &Children::new()).await, None);
        let left = fs::read_to_string(shell.with_extension("pid")).expect("its id is noted");
        let stat = format!("/proc/{}/stat", left.trim());
        let gone = async {
            while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), gone).await.expect("the sleep is ended");
    }

    #[tokio::test]
    async fn a_shell_that_fails_or_is_missing_tells_nothing() {
        let folder = folder();
        assert_eq!(ask(&shell(&folder, "exit 3"), BUDGET, &Children::new()).await, None);
        assert_eq!(ask(&folder.path().join("missing"), BUDGET, &Children::new()).await, None);
    }

    #[tokio::test]
    async fn real_shells_answer() {
        let folder = folder();
        fs::write(folder.path().join(".profile"), "PATH=/from/profile:$PATH").expect("a profile");
        let home = folder.path().display();
        for real in ["/bin/sh", "/bin/bash", "/bin/zsh"] {
            if Path::new(real).exists() {
                let shell = shell(&folder, &format!(r#"HOME={home} exec {real} "$@""#));
                let path =
                    ask(&shell, Duration::from_secs(20), &Children::new()).await.expect(real);
                // zsh has start-up files of its own.
                let path = path.to_string_lossy().into_owned();
                assert!(real == "/bin/zsh" || path.starts_with("/from/profile:"), "{real}: {path}");
            }
        }
    }

    #[test]
    fn paths_are_joined_in_order_without_doubles_and_relative_ones() {
        let paths = [Some("/login:/both:.".into()), Some("/both::/own:/login".into())];
        let merged = merge(&paths, &["/own".into(), "/usual".into()]);
        assert_eq!(merged, "/login:/both:/own:/usual");
    }
}
