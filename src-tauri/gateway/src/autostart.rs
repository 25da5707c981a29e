//! Starting with the user's session on Linux: an entry in the autostart directory, as the Desktop
//! Entry and the Desktop Application Autostart specifications of freedesktop.org say.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

const ENTRY: &str = "Traygate.desktop";
/// Starts in the tray, without a window.
const HIDDEN: &str = "--hidden";

/// What will happen at the next login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AtLogin {
    Nothing,
    /// This program is started.
    Starts(PathBuf),
    /// The entry is there, but the desktop's own settings have switched it off.
    SwitchedOff,
    /// It names a program that is not there.
    Missing(PathBuf),
}

/// Where the entry is, or would be.
pub fn entry() -> io::Result<PathBuf> {
    let set = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = set("XDG_CONFIG_HOME").or_else(|| Some(env::home_dir()?.join(".config")));
    let config = config.ok_or_else(|| io::Error::other("this user has no home directory"))?;
    Ok(config.join("autostart").join(ENTRY))
}

pub fn at_login() -> io::Result<AtLogin> {
    match fs::read_to_string(entry()?) {
        Ok(text) => Ok(read(&text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(AtLogin::Nothing),
        Err(error) => Err(error),
    }
}

/// Starts this program at each login from now on.
pub fn switch_on(program: &Path) -> io::Result<()> {
    let entry = entry()?;
    if let Some(directory) = entry.parent() {
        fs::create_dir_all(directory)?;
    }
    fs::write(entry, written(program))
}

pub fn switch_off() -> io::Result<()> {
    match fs::remove_file(entry()?) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn written(program: &Path) -> String {
    format!(
        "[Desktop Entry]\nType=Application\nName=Traygate\n\
         Comment=One MCP endpoint for all your AI apps\nExec={} {HIDDEN}\n\
         Icon=traygate-desktop\nTerminal=false\nX-GNOME-Autostart-enabled=true\n",
        quoted(&program.display().to_string())
    )
}

/// A path as `Exec` wants it: quoted, with the characters escaped that a shell would read, and all of
/// that escaped once more, as in every value. A percent sign would begin a field code.
fn quoted(path: &str) -> String {
    let mut quoted = String::from("\"");
    for c in path.chars() {
        match c {
            '"' | '`' | '$' => quoted.extend(["\\\\", c.encode_utf8(&mut [0; 4])]),
            '\\' => quoted.push_str("\\\\\\\\"),
            '%' => quoted.push_str("%%"),
            _ => quoted.push(c),
        }
    }
    quoted + "\""
}

fn read(text: &str) -> AtLogin {
    let value = |key: &str| {
        let mut lines = text.lines().filter_map(|line| line.split_once('='));
        lines.find(|(name, _)| name.trim() == key).map(|(_, value)| value.trim())
    };
    if value("Hidden") == Some("true") || value("X-GNOME-Autostart-enabled") == Some("false") {
        return AtLogin::SwitchedOff;
    }
    let Some(program) = value("Exec").and_then(program) else { return AtLogin::Nothing };
    if program.is_file() { AtLogin::Starts(program) } else { AtLogin::Missing(program) }
}

/// The program of an `Exec`, quoted or, as others write it, not.
fn program(exec: &str) -> Option<PathBuf> {
    let Some(rest) = exec.strip_prefix('"') else {
        let bare = exec.strip_suffix(HIDDEN).unwrap_or(exec).trim();
        return (!bare.is_empty()).then(|| bare.replace("%%", "%").into());
    };
    let mut program = String::new();
    let unescaped = rest.replace("\\\\", "\\");
    let mut chars = unescaped.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return Some(program.replace("%%", "%").into()),
            '\\' => program.push(chars.next()?),
            _ => program.push(c),
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_back_whatever_the_path() {
        for path in ["/usr/bin/traygate-desktop", r#"/opt/a b/100% "$HOME" `x` \n/é"#] {
            let text = written(Path::new(path));
            assert_eq!(read(&text), AtLogin::Missing(path.into()), "{text}");
        }
    }

    #[test]
    fn an_entry_that_was_switched_off_elsewhere_is_off() {
        let on = written(Path::new("/bin/sh"));
        assert_eq!(read(&on), AtLogin::Starts("/bin/sh".into()));
        let off = on.replace("enabled=true", "enabled=false");
        assert_eq!(read(&off), AtLogin::SwitchedOff);
        assert_eq!(read(&format!("{on}Hidden=true\n")), AtLogin::SwitchedOff);
        assert_eq!(read("[Desktop Entry]\n"), AtLogin::Nothing);
    }

    #[test]
    fn an_unquoted_path_with_a_space_is_understood_as_it_was_meant() {
        let entry = "[Desktop Entry]\nExec=/opt/a b/traygate-desktop --hidden\n";
        assert_eq!(read(entry), AtLogin::Missing("/opt/a b/traygate-desktop".into()));
    }
}
