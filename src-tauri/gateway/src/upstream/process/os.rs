//! What only the operating system can tell or do on Unix.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, OsStr},
    io::{self, PipeWriter},
    mem,
    os::{
        fd::AsRawFd,
        unix::{ffi::OsStrExt, process::CommandExt},
    },
    path::PathBuf,
    ptr,
    sync::Arc,
};

use super::{
    group::Exit,
    table::{self, Seen},
};

#[cfg(target_os = "macos")]
pub use macos::{look, pids};

/// Blocks until this child of ours has exited, and leaves it to be reaped: until then nobody else
/// can be given its process id or the id of its group.
pub fn wait_without_reaping(pid: u32) -> io::Result<Exit> {
    loop {
        // SAFETY: siginfo_t is plain data for which all zeroes is a valid value.
        let mut info: libc::siginfo_t = unsafe { mem::zeroed() };
        let flags = libc::WEXITED | libc::WNOWAIT;
        // SAFETY: `info` outlives the call, which writes nothing else.
        if unsafe { libc::waitid(libc::P_PID, pid, &raw mut info, flags) } == 0 {
            // SAFETY: waitid succeeded for WEXITED, so the fields of SIGCHLD are filled in.
            let status = unsafe { info.si_status() };
            return Ok(match info.si_code {
                libc::CLD_EXITED => Exit::Code(status),
                _ => Exit::Signal(status),
            });
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// Whether anybody in this session still runs; who has exited and waits to be reaped doesn't
/// count.
#[cfg(any(target_os = "linux", target_os = "macos"))]
pub fn has_living_members(session: u32) -> bool {
    table::all().iter().any(|seen| seen.session == session && seen.lives)
}

/// Whether anybody in this process group still runs. Signals to a group of which only the
/// unreaped are left are refused here.
#[cfg(not(any(target_os = "linux", target_os = "macos")))]
pub fn has_living_members(group: u32) -> bool {
    // SAFETY: signal 0 is sent to nobody; it only asks whether it could be.
    unsafe { libc::kill(-(group as libc::pid_t), 0) == 0 }
}

/// Signals those in this session who have made a group of their own in it, as `timeout` and shells
/// with job control do. The caller holds the session's leader unreaped, so the number is its own.
pub fn signal_other_groups(session: u32, signal: i32) {
    for seen in table::all() {
        if seen.session == session && seen.group != session && seen.lives {
            signal_exactly(&seen, signal);
        }
    }
}

/// Signals this very process and nobody who was given its number since it was seen.
pub fn signal_exactly(seen: &Seen, signal: i32) {
    let pid = seen.pid as libc::pid_t;
    let is_same = || {
        table::look(seen.pid)
            .is_some_and(|now| now.started == seen.started && now.session == seen.session)
    };
    #[cfg(target_os = "linux")]
    {
        // SAFETY: both calls take numbers and no memory of ours; the descriptor is closed once.
        unsafe {
            let handle = libc::syscall(libc::SYS_pidfd_open, pid, 0) as libc::c_int;
            if handle >= 0 {
                // The handle means one process for ever: what is checked after it was opened holds.
                if is_same() {
                    let info = ptr::null::<libc::siginfo_t>();
                    libc::syscall(libc::SYS_pidfd_send_signal, handle, signal, info, 0);
                }
                libc::close(handle);
                return;
            }
        }
    }
    // A system without such handles.
    if pid > 1 && is_same() {
        // SAFETY: takes numbers only.
        unsafe { libc::kill(pid, signal) };
    }
}

/// The session of this process.
pub fn own_session() -> u32 {
    // SAFETY: takes a number only, and can't fail for this process.
    unsafe { libc::getsid(0) as u32 }
}

/// Whether this number is this process's own, its group's or its session's.
pub fn is_own_session(id: u32) -> bool {
    // SAFETY: takes nothing and can't fail.
    let group = unsafe { libc::getpgrp() } as u32;
    [own_session(), group, std::process::id()].contains(&id)
}

/// Begins a session of this process's own, and hears no signal that asks to end: what is sent to
/// the host's group, or to everybody at the end of a user's session, must not reach the one who
/// cleans up after the host.
pub fn stand_aside() {
    // SAFETY: both take numbers only. Refused only for one that leads a session already.
    unsafe {
        libc::setsid();
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
            libc::signal(signal, libc::SIG_IGN);
        }
    }
}

/// Has the child write its own number to `pen` before it becomes the program: whenever the host is
/// killed, nobody runs who isn't known.
pub fn announce_itself(command: &mut std::process::Command, pen: Arc<PipeWriter>) {
    let announce = move || {
        let mut line = [0u8; 16];
        // SAFETY: takes nothing and can't fail.
        let length = line_of(unsafe { libc::getpid() } as u32, &mut line);
        // SAFETY: all three may be called between fork and exec; the pointer and the length are
        // those of a local, and the descriptor lives in the captured `pen`. The signal is ignored
        // for the one write only, since programs inherit what is ignored.
        unsafe {
            let usual = libc::signal(libc::SIGPIPE, libc::SIG_IGN);
            // Refused where nobody reads; then the host has nobody to tell either.
            libc::write(pen.as_raw_fd(), line.as_ptr().cast(), length);
            libc::signal(libc::SIGPIPE, usual);
        }
        Ok(())
    };
    // SAFETY: the closure allocates nothing and takes no lock.
    unsafe { command.pre_exec(announce) };
}

/// `+<pid>` and a line's end, made without memory from the heap.
fn line_of(pid: u32, line: &mut [u8; 16]) -> usize {
    let mut digits = [0u8; 10];
    let (mut rest, mut count) = (pid, 0);
    loop {
        digits[count] = b'0' + (rest % 10) as u8;
        (rest, count) = (rest / 10, count + 1);
        if rest == 0 {
            break;
        }
    }
    line[0] = b'+';
    for (at, digit) in digits[..count].iter().rev().enumerate() {
        line[at + 1] = *digit;
    }
    line[count + 1] = b'\n';
    count + 2
}

/// Writes that would wait fail instead: the host and its children stand still for nobody.
pub fn never_block(pen: &PipeWriter) -> io::Result<()> {
    let descriptor = pen.as_raw_fd();
    // SAFETY: the descriptor is open, and the calls take numbers only.
    let set = unsafe {
        let flags = libc::fcntl(descriptor, libc::F_GETFL);
        libc::fcntl(descriptor, libc::F_SETFL, flags | libc::O_NONBLOCK)
    };
    if set == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Waits until there is something to read, or the writers are gone, for at most `milliseconds`
/// (-1: for ever). Whether there is.
pub fn readable(reader: &impl AsRawFd, milliseconds: i32) -> bool {
    let mut asked = libc::pollfd { fd: reader.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one entry, which outlives the call.
    unsafe { libc::poll(&raw mut asked, 1, milliseconds) > 0 }
}

/// In how many parts a second is cut where the system tells start times.
#[cfg(target_os = "linux")]
pub fn ticks_a_second() -> u64 {
    // SAFETY: takes a number only.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) };
    u64::try_from(ticks).unwrap_or(100)
}

/// The login shell that the system's user database names for this user.
pub fn shell_of_user() -> Option<PathBuf> {
    let mut buffer = vec![0; 16 * 1024];
    let mut found = ptr::null_mut();
    // SAFETY: passwd is plain data and pointers, for which all zeroes is a valid value.
    let mut entry: libc::passwd = unsafe { mem::zeroed() };
    // SAFETY: all pointers are to locals that outlive the call, the length is the buffer's.
    let code = unsafe {
        libc::getpwuid_r(
            libc::getuid(),
            &raw mut entry,
            buffer.as_mut_ptr(),
            buffer.len(),
            &raw mut found,
        )
    };
    if code != 0 || found.is_null() || entry.pw_shell.is_null() {
        return None;
    }
    // SAFETY: the call succeeded, so `pw_shell` is a terminated string inside `buffer`.
    let shell = unsafe { CStr::from_ptr(entry.pw_shell) };
    (!shell.is_empty()).then(|| OsStr::from_bytes(shell.to_bytes()).into())
}

#[cfg(target_os = "macos")]
mod macos {
    use std::{mem, ptr};

    use super::super::table::Seen;

    const ZOMBIE: u32 = 5;

    /// The numbers of all processes.
    pub fn pids() -> Vec<u32> {
        // SAFETY: without a buffer the call only tells how many there are.
        let count = unsafe { libc::proc_listallpids(ptr::null_mut(), 0) };
        // Some may be started meanwhile.
        let mut pids = vec![0i32; usize::try_from(count).unwrap_or(0) + 64];
        let size = (pids.len() * mem::size_of::<i32>()) as libc::c_int;
        // SAFETY: the buffer is as large as is said.
        let count = unsafe { libc::proc_listallpids(pids.as_mut_ptr().cast(), size) };
        pids.truncate(usize::try_from(count).unwrap_or(0));
        pids.into_iter().map(i32::unsigned_abs).collect()
    }

    /// This process, if it is there and this user's.
    pub fn look(pid: u32) -> Option<Seen> {
        // SAFETY: plain data, for which all zeroes is a valid value.
        let mut info: libc::proc_bsdinfo = unsafe { mem::zeroed() };
        let size = mem::size_of::<libc::proc_bsdinfo>() as libc::c_int;
        // SAFETY: the buffer is as large as is said.
        let told = unsafe {
            libc::proc_pidinfo(
                pid as libc::c_int,
                libc::PROC_PIDTBSDINFO,
                0,
                (&raw mut info).cast(),
                size,
            )
        };
        if told != size {
            return None;
        }
        // SAFETY: takes a number only.
        let session = unsafe { libc::getsid(pid as libc::pid_t) };
        Some(Seen {
            pid,
            group: info.pbi_pgid,
            session: u32::try_from(session).ok()?,
            started: info.pbi_start_tvsec * 1_000_000 + info.pbi_start_tvusec,
            lives: info.pbi_status != ZOMBIE,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_writes_its_number_as_anybody_would() {
        for pid in [1, 9, 10, 4_194_304, u32::MAX] {
            let mut line = [0; 16];
            let length = line_of(pid, &mut line);
            assert_eq!(line[..length], *format!("+{pid}\n").as_bytes());
        }
    }
}
