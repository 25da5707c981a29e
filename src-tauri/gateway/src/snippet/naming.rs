//! A name for a server that has none: from its package, its program or its URL.

use crate::{definition::Transport, names::UpstreamName};

/// Programs that run another one, which says more.
const RUNNERS: [&str; 20] = [
    "npx", "uvx", "bunx", "pnpx", "npm", "pnpm", "yarn", "uv", "pipx", "bun", "deno", "node",
    "python", "python3", "py", "docker", "podman", "cmd", "sh", "bash",
];
/// Their words that only say how to run it.
const VERBS: [&str; 8] = ["run", "exec", "dlx", "tool", "x", "start", "/c", "container"];
/// Their options that take the next word.
const WITH_VALUE: [&str; 22] = [
    "-e",
    "--env",
    "--env-file",
    "-v",
    "--volume",
    "--mount",
    "--name",
    "--network",
    "-w",
    "--workdir",
    "-u",
    "--user",
    "--pull",
    "--platform",
    "-p",
    "--package",
    "--from",
    "--with",
    "--python",
    "--directory",
    "--project",
    "--publish",
];
/// Names of files and packages that could be anybody's.
const NOBODY: [&str; 11] =
    ["index", "server", "main", "dist", "build", "src", "cli", "app", "mcp", "bin", "mcp-server"];
/// Labels of host names, likewise.
const NOBODYS_HOSTS: [&str; 5] = ["mcp", "api", "www", "app", "sse"];

pub fn derive(transport: &Transport) -> UpstreamName {
    let text = match transport {
        Transport::Stdio { command, args, .. } => of_program(command, args),
        Transport::Http { url, .. } => of_url(url),
    };
    UpstreamName::suggest(&text)
        .unwrap_or_else(|| UpstreamName::parse("server").expect("a valid name"))
}

/// `files-2`, within the length that a name may have.
pub fn numbered(name: &UpstreamName, number: u32) -> UpstreamName {
    let suffix = format!("-{number}");
    let start: String = name.as_str().chars().take(31 - suffix.len()).collect();
    UpstreamName::parse(&format!("{start}{suffix}")).expect("a valid name with a number is valid")
}

/// The last part of a program's path, without the ending that Windows wants.
pub fn program(command: &str) -> &str {
    let name = command.rsplit(['/', '\\']).next().unwrap_or(command);
    [".exe", ".cmd", ".bat"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name)
}

/// `npx -y some-server` in one text: several words, of which the first runs the others. A path may
/// have spaces too, so nothing else is split.
pub fn is_runner_line(command: &str) -> bool {
    let first = command.split_whitespace().next().unwrap_or_default();
    first != command && RUNNERS.contains(&first)
}

fn of_program(command: &str, args: &[String]) -> String {
    if !RUNNERS.contains(&program(command)) {
        return of_package(command);
    }
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "-m" {
            // `python -m package`
            return words.next().map_or_else(|| program(command).to_owned(), of_package);
        }
        if WITH_VALUE.contains(&word) {
            words.next();
        } else if RUNNERS.contains(&program(word)) {
            return of_program(word, &words.map(str::to_owned).collect::<Vec<_>>());
        } else if !word.starts_with('-') && !VERBS.contains(&word) {
            return of_package(word);
        }
    }
    program(command).to_owned()
}

/// `@scope/server-files@1.2` → `files`, `ghcr.io/owner/image:tag` → `image`, `git/build/index.js` → `git`.
fn of_package(package: &str) -> String {
    let package = package.split(['?', '#', '[', '=', '<', '>']).next().unwrap_or(package);
    let mut parts: Vec<_> = package.split(['/', '\\']).filter(|part| !part.is_empty()).collect();
    let mut name = String::new();
    // A part that could be anybody's gives way to the one before it.
    while let Some(part) = parts.pop() {
        let plain = without_affixes(&without_version(part));
        if !plain.is_empty() {
            name = plain;
        }
        if !NOBODY.contains(&name.as_str()) {
            break;
        }
    }
    name
}

fn without_version(part: &str) -> String {
    let bare = part.trim_start_matches('@').split(['@', ':']).next().unwrap_or(part);
    let endings = [".js", ".mjs", ".cjs", ".ts", ".py", ".git", ".exe", ".cmd", ".jar", ".sh"];
    let bare = endings.iter().find_map(|ending| bare.strip_suffix(ending)).unwrap_or(bare);
    bare.to_ascii_lowercase().replace('_', "-")
}

fn without_affixes(name: &str) -> String {
    let name = ["mcp-server-", "server-"]
        .iter()
        .find_map(|start| name.strip_prefix(start))
        .unwrap_or(name);
    name.strip_suffix("-mcp-server").unwrap_or(name).to_owned()
}

fn of_url(url: &str) -> String {
    let Ok(parsed) = url::Url::parse(url) else { return String::new() };
    let host = parsed.host_str().unwrap_or_default();
    if !matches!(parsed.host(), Some(url::Host::Domain(domain)) if domain.contains('.')) {
        // Several servers of one machine differ in their ports.
        return parsed.port().map_or_else(|| host.to_owned(), |port| format!("{host}-{port}"));
    }
    let labels: Vec<_> = host.split('.').collect();
    let (_top, labels) = labels.split_last().expect("a domain with a dot has labels");
    let telling = labels.iter().find(|label| !NOBODYS_HOSTS.contains(label));
    telling.or(labels.last()).map_or_else(|| host.to_owned(), |label| (*label).to_owned())
}
