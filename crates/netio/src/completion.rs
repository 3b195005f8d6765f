//! Events when packets that a socket sent have left the device.
//!
//! Principle: the kernel charges a packet to its socket until the device has sent and freed it, and
//! tells the socket then that it is writable. An edge-triggered epoll descriptor (epoll(7)) makes
//! an event of each of these moments, where a level would be there all the time. What is still
//! under way is then asked of the socket ([`crate::socket::unsent`]).

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};

/// Readable when a packet of one of its sockets has left.
#[derive(Debug)]
pub struct Completions {
    epoll: Epoll,
}

impl Completions {
    /// Of no socket yet.
    pub fn new() -> io::Result<Completions> {
        Ok(Completions { epoll: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)? })
    }

    /// Adds those of `socket`, whose owner keeps it open.
    pub fn watch(&self, socket: &impl AsFd) -> io::Result<()> {
        let edges = EpollFlags::EPOLLOUT | EpollFlags::EPOLLET;
        Ok(self.epoll.add(socket, EpollEvent::new(edges, 0))?)
    }

    /// Takes the events that are there, so that the next one makes it readable again.
    pub fn take(&self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); 4];
        match self.epoll.wait(&mut events, EpollTimeout::ZERO) {
            Ok(_) | Err(nix::Error::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

impl AsFd for Completions {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip;
    use crate::netns::Namespace;
    use crate::poller::Poller;
    use crate::socket::unsent;
    use std::net::UdpSocket;

    #[test]
    fn a_packet_that_leaves_a_queue_is_an_event_and_one_that_waits_is_counted() {
        let namespace = Namespace::new().unwrap();
        namespace
            .run(|| {
                ip::run("link add eth0 type veth peer name eth1")?;
                ip::run("addr add 10.0.0.1/24 dev eth0")?;
                ip::run("link set eth0 up")?;
                ip::run("link set eth1 up")?;
                ip::run("neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev eth0")?;
                // 1000 bytes take 40 ms; the first packet leaves with the burst.
                let tbf = ["qdisc", "add", "dev", "eth0", "root", "tbf", "rate", "200kbit"];
                let size = ["burst", "1600", "limit", "100000"];
                assert!(std::process::Command::new("tc").args(tbf).args(size).status()?.success());
                let socket = UdpSocket::bind("10.0.0.1:0")?;
                let completions = Completions::new()?;
                completions.watch(&socket)?;
                completions.take()?;
                for _ in 0..3 {
                    socket.send_to(&[0; 1000], "10.0.0.2:9")?;
                }
                assert!(unsent(&socket)? > 0);
                let mut poller = Poller::default();
                let left = poller.add(&completions);
                while unsent(&socket)? > 0 {
                    poller.wait(None)?;
                    assert!(poller.readable(left));
                    completions.take()?;
                }
                Ok(())
            })
            .unwrap();
    }
}
