//! The environment of a child: what programs need to find their way, and what the definition
//! says. Whatever else is in Traygate's own environment, tokens above all, stays with Traygate.

use std::{collections::BTreeMap, ffi::OsString};

/// Passed on by name.
const NAMES: &[&str] = &[
    // Who and where the user is.
    "HOME",
    "USER",
    "LOGNAME",
    "SHELL",
    "LANG",
    "LANGUAGE",
    "TERM",
    "TMPDIR",
    "TZ",
    // The session: servers open windows, browsers and keychains.
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "XAUTHORITY",
    "DBUS_SESSION_BUS_ADDRESS",
    // Addresses of this user's own agents and daemons. They hold no secret; git and docker
    // servers are of no use without them.
    "SSH_AUTH_SOCK",
    "DOCKER_HOST",
    "DOCKER_CONTEXT",
    "DOCKER_CONFIG",
    // Without these nothing on the network is reached from behind a company's proxy.
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "NO_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "no_proxy",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "NODE_EXTRA_CA_CERTS",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    // Where package runners keep and fetch packages. By name, because npm_config_*, UV_* and
    // PIP_* in general may also be publishing tokens.
    "npm_config_registry",
    "npm_config_cache",
    "npm_config_prefix",
    "npm_config_userconfig",
    "npm_config_cafile",
    "NPM_CONFIG_REGISTRY",
    "NPM_CONFIG_CACHE",
    "NPM_CONFIG_PREFIX",
    "NPM_CONFIG_USERCONFIG",
    "NPM_CONFIG_CAFILE",
    "UV_CACHE_DIR",
    "UV_TOOL_DIR",
    "UV_PYTHON_INSTALL_DIR",
    "UV_CONFIG_FILE",
    "UV_INDEX",
    "UV_INDEX_URL",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_NATIVE_TLS",
    "UV_OFFLINE",
    "PIP_CACHE_DIR",
    "PIP_CONFIG_FILE",
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_CERT",
    // Where version managers keep what their shims look for.
    "NVM_DIR",
    "FNM_DIR",
    "VOLTA_HOME",
    "PNPM_HOME",
    "BUN_INSTALL",
    "DENO_DIR",
    "PYENV_ROOT",
    "ASDF_DIR",
    "ASDF_DATA_DIR",
    "MISE_DATA_DIR",
    "MISE_CONFIG_DIR",
    "MISE_CACHE_DIR",
    "CARGO_HOME",
    "RUSTUP_HOME",
    "GOPATH",
    "JAVA_HOME",
    "HOMEBREW_PREFIX",
    // Windows can't start most programs without its own.
    "SystemRoot",
    "SystemDrive",
    "windir",
    "APPDATA",
    "LOCALAPPDATA",
    "PROGRAMDATA",
    "USERPROFILE",
    "USERNAME",
    "USERDOMAIN",
    "HOMEDRIVE",
    "HOMEPATH",
    "PATHEXT",
    "COMSPEC",
    "TEMP",
    "TMP",
    "PROGRAMFILES",
    "PROGRAMFILES(X86)",
    "PROGRAMW6432",
    "COMMONPROGRAMFILES",
    "NUMBER_OF_PROCESSORS",
    "PROCESSOR_ARCHITECTURE",
    "OS",
    "COMPUTERNAME",
    "PUBLIC",
];

/// Passed on by the beginning of their name: the locale's parts and the base directories.
const PREFIXES: &[&str] = &["LC_", "XDG_"];

/// The environment of a child, `PATH` included. The definition's own variables win.
pub fn of_child(
    own: impl Iterator<Item = (OsString, OsString)>,
    search_path: &std::ffi::OsStr,
    defined: &BTreeMap<String, String>,
) -> BTreeMap<OsString, OsString> {
    let mut environment: BTreeMap<_, _> =
        own.filter(|(name, _)| name.to_str().is_some_and(is_passed_on)).collect();
    environment.insert("PATH".into(), search_path.to_owned());
    for (name, value) in defined {
        // Windows' names differ in case only by accident.
        if cfg!(windows) {
            environment.retain(|known, _| !known.eq_ignore_ascii_case(name));
        }
        environment.insert(name.into(), value.into());
    }
    environment
}

fn is_passed_on(name: &str) -> bool {
    if cfg!(windows) {
        return NAMES.iter().any(|known| known.eq_ignore_ascii_case(name));
    }
    NAMES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_secrets_stay_with_the_host() {
        let own = [
            ("HOME", "/home/ann"),
            ("LC_ALL", "C"),
            ("XDG_RUNTIME_DIR", "/run/user/1000"),
            ("PATH", "/own"),
            ("GITHUB_TOKEN", "secret"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
            ("npm_config__auth", "secret"),
            ("UV_PUBLISH_TOKEN", "secret"),
            ("TRAYGATE_HOME", "/x"),
        ];
        let own = own.into_iter().map(|(name, value)| (name.into(), value.into()));
        let defined = BTreeMap::from([("KEY".to_owned(), "v".to_owned())]);
        let environment = of_child(own, "/found".as_ref(), &defined);
        let names: Vec<_> = environment.keys().filter_map(|name| name.to_str()).collect();
        if cfg!(unix) {
            assert_eq!(names, ["HOME", "KEY", "LC_ALL", "PATH", "XDG_RUNTIME_DIR"]);
            assert_eq!(environment[std::ffi::OsStr::new("PATH")], "/found");
        }
        assert!(!environment.values().any(|value| value == "secret"));
    }

    #[test]
    fn the_definition_wins_over_everything() {
        let own = [("LANG".into(), "C".into())].into_iter();
        let defined = BTreeMap::from([
            ("LANG".to_owned(), "de".to_owned()),
            ("PATH".to_owned(), "/mine".to_owned()),
        ]);
        let environment = of_child(own, "/found".as_ref(), &defined);
        assert_eq!(environment[std::ffi::OsStr::new("LANG")], "de");
        assert_eq!(environment[std::ffi::OsStr::new("PATH")], "/mine");
    }
}
