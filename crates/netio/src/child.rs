//! Child processes whose end wakes a [`Poller`](crate::poller::Poller).

use nix::sys::signal::{SigSet, Signal, kill};
use nix::unistd::Pid;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

/// Added to the number of a signal, this is the status that a shell gives a process which the
/// signal ended (POSIX, "Exit Status for Commands").
const BY_SIGNAL: i32 = 128;

/// A child process and a descriptor that is readable once it has ended.
#[derive(Debug)]
pub struct Child {
    process: std::process::Child,
    watch: OwnedFd,
}

impl Child {
    /// Starts `command`. Needs Linux 5.3, for pidfd_open(2).
    pub fn spawn(command: &mut Command) -> io::Result<Child> {
        let mut process = command.spawn()?;
        match watch(process.id()) {
            Ok(watch) => Ok(Child { process, watch }),
            Err(error) => {
                // Nobody could wait for it; neither step fails on a child of ours.
                let _ = process.kill().and_then(|()| process.wait());
                Err(error)
            }
        }
    }

    /// Number of the process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Sends `signal`.
    pub fn signal(&self, signal: Signal) -> io::Result<()> {
        // The child has not been waited for, so its number is its own.
        Ok(kill(Pid::from_raw(self.process.id() as i32), signal)?)
    }

    /// Asks the process to end (SIGTERM).
    pub fn terminate(&self) {
        // It may have ended already, which is what is asked for.
        let _ = self.signal(Signal::SIGTERM);
    }

    /// Waits for the end of the process.
    pub fn wait(mut self) -> io::Result<ExitStatus> {
        self.process.wait()
    }
}

impl AsFd for Child {
    /// Readable when the process has ended.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.watch.as_fd()
    }
}

/// Makes the kernel send `signal` to the process that `command` starts when this thread ends,
/// however it ends.
pub fn end_with_parent(command: &mut Command, signal: Signal) {
    let parent = Pid::this();
    let bind = move || {
        nix::sys::prctl::set_pdeathsig(signal)?;
        // A parent that ended before the call sends no signal any more.
        if Pid::parent() != parent {
            return Err(io::ErrorKind::NotConnected.into());
        }
        Ok(())
    };
    // SAFETY: the closure makes two system calls and allocates nothing.
    unsafe { command.pre_exec(bind) };
}

/// Lets the process that `command` starts hear all signals: those that this thread blocks would be
/// blocked there, too.
pub fn unblock_signals(command: &mut Command) {
    // SAFETY: the closure makes a system call and allocates nothing.
    unsafe { command.pre_exec(|| Ok(SigSet::all().thread_unblock()?)) };
}

/// Opens a descriptor of the process with number `id`.
fn watch(id: u32) -> io::Result<OwnedFd> {
    // SAFETY: a bare system call.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, id, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Returns the status that a shell would give for `status`.
pub fn shell_status(status: ExitStatus) -> u8 {
    let by_signal = || BY_SIGNAL + status.signal().unwrap_or(0);
    status.code().unwrap_or_else(by_signal) as u8
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::poller::Poller;

    #[test]
    fn the_end_of_a_child_wakes_a_poller_and_has_the_status_that_a_shell_gives() {
        for (script, status) in [("exit 3", 3), ("kill -9 $$", 137)] {
            let child = Child::spawn(Command::new("sh").args(["-c", script])).unwrap();
            let mut poller = Poller::default();
            poller.add(&child);
            poller.wait(None).unwrap();
            assert_eq!(shell_status(child.wait().unwrap()), status);
        }
    }

    #[test]
    fn a_child_that_is_asked_to_end_ends() {
        let child = Child::spawn(Command::new("sleep").arg("1000")).unwrap();
        child.terminate();
        assert_eq!(shell_status(child.wait().unwrap()), 143);
    }

    #[test]
    fn a_program_that_does_not_exist_is_refused() {
        let error = Child::spawn(&mut Command::new("/nowhere/at/all")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
