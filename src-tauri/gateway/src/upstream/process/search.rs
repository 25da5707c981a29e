//! Finding the program that a command names, and words for when there is none.

use std::{
    env,
    ffi::OsStr,
    path::{Path, PathBuf},
};

/// Why a command names no program. The text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    #[error("the command {command:?} was not found{hint}; searched {path}")]
    OnPath { command: String, hint: String, path: String },
    #[error("there is no program at {0}; check the command's path")]
    At(String),
    #[error("{0} is not executable; make it so (chmod +x) or name the program that runs it")]
    NotExecutable(String),
}

/// The file that `command` names: itself if it holds a separator (relative to `cwd`), else the
/// first executable of that name on `path`.
pub fn find(command: &str, path: &OsStr, cwd: &Path) -> Result<PathBuf, NotFound> {
    if command.contains(std::path::is_separator) {
        return named(&cwd.join(command));
    }
    let mut unusable = None;
    for candidate in env::split_paths(path).flat_map(|folder| spellings(&folder.join(command))) {
        if is_executable(&candidate) {
            return Ok(candidate);
        }
        if candidate.is_file() {
            unusable.get_or_insert(candidate);
        }
    }
    Err(match unusable {
        Some(file) => NotFound::NotExecutable(file.display().to_string()),
        None => NotFound::OnPath {
            command: command.to_owned(),
            hint: hint(command),
            path: if path.is_empty() {
                "an empty PATH".into()
            } else {
                path.to_string_lossy().into()
            },
        },
    })
}

fn named(path: &Path) -> Result<PathBuf, NotFound> {
    if let Some(program) = spellings(path).into_iter().find(|path| is_executable(path)) {
        return Ok(program);
    }
    let name = path.display().to_string();
    Err(if path.exists() { NotFound::NotExecutable(name) } else { NotFound::At(name) })
}

#[cfg(unix)]
fn spellings(path: &Path) -> [PathBuf; 1] {
    [path.to_owned()]
}

/// A command is written without its extension: `npx` is `npx.cmd`.
#[cfg(windows)]
fn spellings(path: &Path) -> Vec<PathBuf> {
    let extensions = env::var("PATHEXT").unwrap_or_else(|_| ".COM;.EXE;.BAT;.CMD".to_owned());
    let with = |extension: &str| {
        let mut name = path.as_os_str().to_owned();
        name.push(extension);
        PathBuf::from(name)
    };
    let as_written = path.extension().is_some().then(|| path.to_owned());
    as_written.into_iter().chain(extensions.split(';').map(with)).collect()
}

#[cfg(unix)]
fn is_executable(path: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt;
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
}

#[cfg(windows)]
fn is_executable(path: &Path) -> bool {
    path.is_file()
}

/// What to install for the commands that READMEs use.
fn hint(command: &str) -> String {
    let (what, from) = match command {
        "npx" | "npm" | "node" => ("Node.js", "https://nodejs.org"),
        "uvx" | "uv" => ("uv", "https://docs.astral.sh/uv"),
        "docker" => ("Docker", "https://docs.docker.com/get-docker"),
        "podman" => ("Podman", "https://podman.io"),
        "python" | "python3" | "pip" | "pip3" => ("Python", "https://www.python.org"),
        "pipx" => ("pipx", "https://pipx.pypa.io"),
        "bunx" | "bun" => ("Bun", "https://bun.sh"),
        "deno" => ("Deno", "https://deno.com"),
        "pnpm" => ("pnpm", "https://pnpm.io"),
        "yarn" => ("Yarn", "https://yarnpkg.com"),
        "go" => ("Go", "https://go.dev"),
        "cargo" => ("Rust", "https://rustup.rs"),
        "dotnet" | "dnx" => (".NET", "https://dotnet.microsoft.com"),
        "java" => ("Java", "https://adoptium.net"),
        "ruby" | "gem" => ("Ruby", "https://www.ruby-lang.org"),
        "php" => ("PHP", "https://www.php.net"),
        _ => return ", install it or give its full path".to_owned(),
    };
    format!(", install {what} ({from}) or give the command's full path")
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    fn file(folder: &Path, name: &str, mode: u32) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, "").expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("its mode");
        path
    }

    #[test]
    fn the_first_executable_on_the_path_is_taken() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let (first, second) = (folder.path().join("a"), folder.path().join("b"));
        fs::create_dir_all(first.join("tool")).expect("a folder is no program");
        fs::create_dir(&second).expect("a folder");
        let tool = file(&second, "tool", 0o755);
        let path = env::join_paths([&first, &second]).expect("a path");
        assert_eq!(find("tool", &path, Path::new("/")), Ok(tool.clone()));
        assert_eq!(find("./b/tool", &path, folder.path()), Ok(folder.path().join("./b/tool")));
        assert_eq!(find(&tool.to_string_lossy(), &path, Path::new("/")), Ok(tool));
    }

    #[test]
    fn a_missing_command_is_named_with_the_path_and_what_to_install() {
        let message = |command| {
            find(command, "/usr/nowhere:/bin/nowhere".as_ref(), Path::new("/"))
                .expect_err("not there")
                .to_string()
        };
        for (command, install) in [
            ("npx", "install Node.js (https://nodejs.org)"),
            ("uvx", "install uv"),
            ("docker", "install Docker"),
            ("python", "install Python"),
            ("no-such-command-xyz", "install it"),
        ] {
            let message = message(command);
            assert!(message.contains(&format!("{command:?} was not found")), "{message}");
            assert!(message.contains(install), "{message}");
            assert!(message.ends_with("searched /usr/nowhere:/bin/nowhere"), "{message}");
        }
        assert_eq!(
            message("/no/such"),
            "there is no program at /no/such; check the command's path"
        );
    }

    #[test]
    fn what_is_there_but_not_executable_is_told_apart() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let tool = file(folder.path(), "tool", 0o644).display().to_string();
        let path = folder.path().as_os_str();
        let expected = Err(NotFound::NotExecutable(tool.clone()));
        assert_eq!(find("tool", path, Path::new("/")), expected);
        assert_eq!(find(&tool, path, Path::new("/")), expected);
    }
}
