//! Which app started the bridge.

/// Programs that only start others: their name tells nothing.
const STARTERS: [&str; 8] = ["sh", "bash", "zsh", "fish", "dash", "env", "systemd", "timeout"];

/// The name of the program that started this one, else `stdio`.
pub fn of_the_parent() -> String {
    parent()
        .filter(|name| !name.is_empty() && !STARTERS.contains(&name.as_str()))
        .unwrap_or_else(|| "stdio".to_owned())
}

#[cfg(target_os = "linux")]
fn parent() -> Option<String> {
    let parent = std::os::unix::process::parent_id();
    let name = std::fs::read_to_string(format!("/proc/{parent}/comm")).ok()?;
    Some(name.trim().to_owned())
}

#[cfg(not(target_os = "linux"))]
fn parent() -> Option<String> {
    None
}
