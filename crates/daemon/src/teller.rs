//! Control sockets: how a running command is asked what it knows.
//!
//! A command that runs on an interface has one Unix socket, named after both, in the abstract space
//! of the interface's namespace: the kernel gives the name to one process only, and takes it back
//! when that process ends, however it ends. Answers are JSON.

use serde::Serialize;
use serde::de::DeserializeOwned;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::Duration;

/// The most bytes that a question or an answer may have.
const LONGEST: u64 = 1 << 20;
/// Who takes longer than this for a question or an answer gets none.
pub const PATIENCE: Duration = Duration::from_secs(5);

/// Those that can be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Service {
    /// `sheaf aggregate`.
    Aggregate,
    /// `sheaf emulate`.
    Emulate,
    /// `sheaf trunk`.
    Trunk,
    /// `sheaf window`.
    Window,
}

impl Service {
    /// The address of the one that runs on interface `dev`.
    fn address(self, dev: &str) -> io::Result<SocketAddr> {
        let command = match self {
            Service::Aggregate => "aggregate",
            Service::Emulate => "emulate",
            Service::Trunk => "trunk",
            Service::Window => "window",
        };
        SocketAddr::from_abstract_name(format!("sheaf/{command}/{dev}"))
    }

    /// A socket that waits for questions about `dev`; an error when another process has it.
    pub fn listen(self, dev: &str) -> io::Result<UnixListener> {
        UnixListener::bind_addr(&self.address(dev)?)
    }

    /// A connection to the one that runs on `dev`; `None` when none does.
    pub fn connect(self, dev: &str) -> io::Result<Option<UnixStream>> {
        Ok(UnixStream::connect_addr(&self.address(dev)?).ok())
    }

    /// What the one that runs on `dev` tells whoever connects; `None` when none does.
    pub fn ask<T: DeserializeOwned>(self, dev: &str) -> anyhow::Result<Option<T>> {
        let Some(stream) = self.connect(dev)? else { return Ok(None) };
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Some(serde_json::from_slice(&read(&stream)?)?))
    }
}

/// All that the other end of `stream` says until it ends.
pub fn read(stream: &UnixStream) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    stream.take(LONGEST).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The socket of a command that tells the same to whoever connects, from a loop that must not wait.
#[derive(Debug)]
pub struct Teller {
    listener: UnixListener,
}

impl Teller {
    /// For `command` on `dev`; an error when another process has it.
    pub fn bind(command: Service, dev: &str) -> io::Result<Teller> {
        let listener = command.listen(dev)?;
        listener.set_nonblocking(true)?;
        Ok(Teller { listener })
    }

    /// Tells `report` to everyone who is there by now; someone who does not read it, or has gone,
    /// is dropped.
    pub fn tell<T: Serialize>(&self, mut report: impl FnMut() -> anyhow::Result<T>) {
        while let Ok((mut stream, _)) = self.listener.accept() {
            match report().and_then(|report| Ok(serde_json::to_vec(&report)?)) {
                Ok(json) => {
                    let _ = stream.set_nonblocking(true).and_then(|()| stream.write_all(&json));
                }
                Err(error) => eprintln!("sheaf: cannot answer `sheaf show`: {error:#}"),
            }
        }
    }
}

impl AsFd for Teller {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.listener.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A name of this process alone: all tests share the namespace of the host.
    fn name(test: &str) -> String {
        format!("{test}-{}", std::process::id())
    }

    #[test]
    fn whoever_asks_is_told_and_without_a_teller_there_is_no_answer() {
        let dev = name("told");
        assert_eq!(Service::Trunk.ask::<u32>(&dev).unwrap(), None);
        let teller = Teller::bind(Service::Trunk, &dev).unwrap();
        let gone = Service::Trunk.connect(&dev).unwrap();
        drop(gone);
        let asker = Service::Trunk.connect(&dev).unwrap().unwrap();
        teller.tell(|| Ok(7));
        assert_eq!(read(&asker).unwrap(), b"7", "one that went first is in nobody's way");
        drop(teller);
        assert_eq!(Service::Trunk.ask::<u32>(&dev).unwrap(), None);
    }

    #[test]
    fn a_command_runs_once_on_an_interface_beside_other_commands() {
        let dev = name("once");
        let _teller = Teller::bind(Service::Window, &dev).unwrap();
        assert!(Teller::bind(Service::Window, &dev).is_err());
        assert!(Teller::bind(Service::Aggregate, &dev).is_ok());
    }

    #[test]
    fn an_answer_without_end_is_cut() {
        let (mut end, other) = UnixStream::pair().unwrap();
        let writer = std::thread::spawn(move || while end.write_all(&[b' '; 1 << 16]).is_ok() {});
        assert_eq!(read(&other).unwrap().len() as u64, LONGEST);
        drop(other);
        writer.join().unwrap();
    }
}
