//! Files that only this user may read, from the first byte.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write as _},
    path::Path,
};

/// How such a file is opened, or made.
pub fn options() -> OpenOptions {
    let mut options = File::options();
    options.write(true).create(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt as _;
        options.mode(0o600);
    }
    options
}

/// Written beside and moved into place, so that nobody reads half of it.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = options().truncate(true).open(&beside)?;
    file.write_all(content)?;
    file.sync_all()?;
    std::fs::rename(&beside, path)
}
