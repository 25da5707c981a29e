//! Where Traygate keeps its files: each system's own directories, or all below `TRAYGATE_HOME`.

use std::{
    io,
    path::{Path, PathBuf},
};

/// The directories of one Traygate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The database, and the lock that one host holds.
    pub data: PathBuf,
    /// What may be thrown away.
    pub cache: PathBuf,
    /// The run file.
    pub run: PathBuf,
}

impl Paths {
    /// From the environment. Fails if not even a home directory is known.
    pub fn from_env() -> io::Result<Self> {
        if let Some(home) = variable("TRAYGATE_HOME") {
            return Ok(Self::below(&std::path::absolute(home)?));
        }
        let home = std::env::home_dir().filter(|home| !home.as_os_str().is_empty()).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "no home directory is known; set HOME, or TRAYGATE_HOME to a directory for Traygate",
            )
        })?;
        Ok(Self::of_the_system(&home))
    }

    /// All in one place, for tests and portable use.
    pub fn below(home: &Path) -> Self {
        Self { data: home.join("data"), cache: home.join("cache"), run: home.join("run") }
    }

    #[cfg(target_os = "macos")]
    fn of_the_system(home: &std::path::Path) -> Self {
        let data = home.join("Library/Application Support/Traygate");
        Self { run: data.join("run"), cache: home.join("Library/Caches/Traygate"), data }
    }

    #[cfg(windows)]
    fn of_the_system(home: &std::path::Path) -> Self {
        let local = variable("LOCALAPPDATA").unwrap_or_else(|| home.join("AppData").join("Local"));
        let local = local.join("Traygate");
        Self { data: local.join("data"), cache: local.join("cache"), run: local.join("run") }
    }

    #[cfg(not(any(target_os = "macos", windows)))]
    fn of_the_system(home: &std::path::Path) -> Self {
        // The XDG specification: a relative path in these variables is to be ignored.
        let xdg = |name| variable(name).filter(|path| path.is_absolute());
        let data =
            xdg("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share")).join("traygate");
        Self {
            cache: xdg("XDG_CACHE_HOME").unwrap_or_else(|| home.join(".cache")).join("traygate"),
            run: xdg("XDG_RUNTIME_DIR")
                .map_or_else(|| data.join("run"), |dir| dir.join("traygate")),
            data,
        }
    }

    pub fn database(&self) -> PathBuf {
        self.data.join("traygate.db")
    }

    pub fn lock(&self) -> PathBuf {
        self.data.join("host.lock")
    }

    pub fn run_file(&self) -> PathBuf {
        self.run.join("host.json")
    }

    /// Makes the directories, for this user only.
    pub fn create(&self) -> io::Result<()> {
        for directory in [&self.data, &self.cache, &self.run] {
            std::fs::create_dir_all(directory).map_err(|error| {
                io::Error::new(error.kind(), format!("{}: {error}", directory.display()))
            })?;
            #[cfg(unix)]
            {
                use std::os::unix::fs::PermissionsExt as _;
                std::fs::set_permissions(directory, std::fs::Permissions::from_mode(0o700))?;
            }
        }
        Ok(())
    }
}

fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}
