//! What only the operating system can tell or do on Unix.

#![allow(unsafe_code)]

use std::{
    ffi::{CStr, OsStr},
    io, mem,
    os::unix::ffi::OsStrExt,
    path::PathBuf,
    ptr,
};

use super::group::Exit;

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

/// Whether anybody in this process group still runs; who has exited and waits to be reaped
/// doesn't count.
#[cfg(target_os = "linux")]
pub fn has_living_members(group: u32) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    processes.filter_map(Result::ok).any(|process| {
        let is_process = process.file_name().as_bytes().first().is_some_and(u8::is_ascii_digit);
        is_process
            && std::fs::read_to_string(process.path().join("stat"))
                .is_ok_and(|stat| lives_in(&stat, group))
    })
}

/// Reads `pid (name) state ppid pgrp …`; the name may hold anything, even parentheses.
#[cfg(target_os = "linux")]
fn lives_in(stat: &str, group: u32) -> bool {
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next();
    let its_group = fields.nth(1).and_then(|field| field.parse().ok());
    !matches!(state, Some("Z" | "X")) && its_group == Some(group)
}

/// Whether anybody in this process group still runs. Signals to a group of which only the
/// unreaped are left are refused here.
#[cfg(not(target_os = "linux"))]
pub fn has_living_members(group: u32) -> bool {
    // SAFETY: signal 0 is sent to nobody; it only asks whether it could be.
    unsafe { libc::kill(-(group as libc::pid_t), 0) == 0 }
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

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse_the_group() {
        assert!(lives_in("12 (a) Z 1 9) S 1 77 77 0", 77));
        assert!(!lives_in("12 (a) Z 1 77 77 0", 77), "a zombie doesn't live");
        assert!(!lives_in("12 (a) S 77 1 77 0", 77), "its parent isn't its group");
    }
}
