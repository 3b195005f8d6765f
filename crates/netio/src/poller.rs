//! Waits for descriptors and a time at once, to the nanosecond that the kernel offers.

use nix::libc;
use sheaf_stage::Duration;
use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// A set of descriptors to wait for. It borrows none: their owner outlives it.
#[derive(Debug, Default)]
pub struct Poller {
    fds: Vec<libc::pollfd>,
}

impl Poller {
    /// Waits for `fd` to be readable, too; answers the number to ask [`Poller::readable`] with.
    pub fn add(&mut self, fd: &impl AsFd) -> usize {
        let fd = fd.as_fd().as_raw_fd();
        self.fds.push(libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
        self.fds.len() - 1
    }

    /// Waits for descriptor number `index` no longer, or again.
    pub fn pause(&mut self, index: usize, paused: bool) {
        let poll = &mut self.fds[index];
        // ppoll(2) leaves negative descriptors alone.
        if (poll.fd < 0) != paused {
            poll.fd = !poll.fd;
            poll.revents = 0;
        }
    }

    /// Waits until a descriptor is readable or `timeout` is over (`None`: for ever). A signal ends
    /// it early.
    pub fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let time = timeout.map(|timeout| libc::timespec {
            tv_sec: timeout.as_secs() as _,
            // Below 10^9, so it fits on 32 bits, too.
            tv_nsec: timeout.subsec_nanos() as _,
        });
        let time = time.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
        let count = self.fds.len() as libc::nfds_t;
        // SAFETY: the array has `count` entries, and the time, where there is one, lives on.
        let ready = unsafe { libc::ppoll(self.fds.as_mut_ptr(), count, time, std::ptr::null()) };
        if ready < 0 {
            self.fds.iter_mut().for_each(|fd| fd.revents = 0);
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
        Ok(())
    }

    /// Whether the last wait found any descriptor readable.
    pub fn any_readable(&self) -> bool {
        self.fds.iter().any(|fd| fd.revents != 0)
    }

    /// Whether the last wait found descriptor number `index` readable, or its other end gone.
    pub fn readable(&self, index: usize) -> bool {
        self.fds[index].revents != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn a_paused_descriptor_ends_no_wait_until_it_goes_on() {
        let (here, there) = UnixDatagram::pair().unwrap();
        let mut poller = Poller::default();
        let index = poller.add(&here);
        there.send(b"now").unwrap();
        for _ in 0..2 {
            poller.pause(index, true);
            poller.wait(Some(Duration::from_millis(1))).unwrap();
            assert!(!poller.readable(index) && !poller.any_readable());
        }
        poller.pause(index, false);
        poller.wait(None).unwrap();
        assert!(poller.readable(index) && poller.any_readable());
    }
}
