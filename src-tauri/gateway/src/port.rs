//! Who holds a port, where the system tells it.

/// For people: `nginx (process 1234)`.
#[cfg(target_os = "linux")]
pub fn holder(port: u16) -> Option<String> {
    let inodes =
        ["/proc/net/tcp", "/proc/net/tcp6"].into_iter().flat_map(|table| listening(table, port));
    let wanted: Vec<String> = inodes.map(|inode| format!("socket:[{inode}]")).collect();
    let processes = std::fs::read_dir("/proc").ok()?.flatten();
    processes.into_iter().find_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        // Other users' processes don't show theirs.
        let mut files = std::fs::read_dir(process.path().join("fd")).ok()?.flatten();
        let holds = files.any(|file| {
            std::fs::read_link(file.path())
                .is_ok_and(|link| wanted.iter().any(|socket| link.as_os_str() == socket.as_str()))
        });
        let name = std::fs::read_to_string(process.path().join("comm")).ok()?;
        holds.then(|| format!("{} (process {pid})", name.trim()))
    })
}

#[cfg(not(target_os = "linux"))]
pub fn holder(_port: u16) -> Option<String> {
    None
}

/// The inodes of the sockets that listen on a port.
#[cfg(target_os = "linux")]
fn listening(table: &str, port: u16) -> Vec<String> {
    const LISTEN: &str = "0A";
    let table = std::fs::read_to_string(table).unwrap_or_default();
    let rows = table.lines().skip(1).filter_map(|row| {
        let fields: Vec<&str> = row.split_whitespace().collect();
        let local = fields.get(1)?.rsplit_once(':')?.1;
        let matches = u16::from_str_radix(local, 16).ok()? == port && *fields.get(3)? == LISTEN;
        matches.then(|| fields.get(9).map(|inode| (*inode).to_owned())).flatten()
    });
    rows.collect()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn the_holder_of_a_port_is_named() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = socket.local_addr().expect("an address").port();
        let holder = super::holder(port).expect("this process");
        assert!(holder.contains(&std::process::id().to_string()), "{holder}");
        drop(socket);
        assert_eq!(super::holder(port), None);
    }
}
