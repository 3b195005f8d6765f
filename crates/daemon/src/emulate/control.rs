//! Questions and changes while an emulation runs.
//!
//! The question is a line of JSON, the answer another, over one control socket for each interface.
//! Threads of their own read and parse, files included, so that no packet waits for that; the
//! datapath only takes the finished change.

use super::machine::Change;
use super::place::Place;
use super::status::Status;
use crate::teller::{self, PATIENCE, Service};
use anyhow::{Context, anyhow, ensure};
use nix::sys::eventfd::{EfdFlags, EventFd};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use serde::{Deserialize, Serialize};
use std::io::Write;
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, SyncSender, channel, sync_channel};

/// Reads the words of a change; relative paths among them start from the directory.
pub type ParseChange = Arc<dyn Fn(&[String], &Path) -> anyhow::Result<Change> + Send + Sync>;

#[derive(Debug, Deserialize, Serialize)]
enum Question {
    Show,
    Change { words: Vec<String>, directory: PathBuf },
}

/// What the datapath is asked.
pub struct Request {
    /// The change to make; `None` to tell only.
    pub change: Option<Change>,
    /// Where the answer goes.
    pub reply: SyncSender<anyhow::Result<Status>>,
}

/// Where the datapath finds what it is asked.
pub struct Inbox {
    /// Requests.
    pub requests: Receiver<Request>,
    /// Readable when there is one.
    pub wake: Arc<EventFd>,
}

/// Whether something emulates on `dev`.
pub fn is_taken(dev: &str) -> bool {
    Service::Emulate.connect(dev).is_ok_and(|stream| stream.is_some())
}

/// Begins to answer for `place`.
pub fn listen(place: &Place, parse: ParseChange) -> anyhow::Result<Inbox> {
    let (sender, requests) = channel();
    let wake = EventFd::from_flags(EfdFlags::EFD_CLOEXEC | EfdFlags::EFD_NONBLOCK)?;
    let wake = Arc::new(wake);
    let desk = Desk { sender, wake: wake.clone(), parse };
    for dev in &place.answers_to {
        let listener = Service::Emulate.listen(dev).map_err(|_| {
            anyhow!("{dev} is emulated already; stop the other `sheaf emulate` first")
        })?;
        let desk = desk.clone();
        std::thread::Builder::new().name("control".to_owned()).spawn(move || {
            for stream in listener.incoming().flatten() {
                // Who does not wait for the answer does not want it.
                let _ = desk.serve(stream);
            }
        })?;
    }
    Ok(Inbox { requests, wake })
}

#[derive(Clone)]
struct Desk {
    sender: Sender<Request>,
    wake: Arc<EventFd>,
    parse: ParseChange,
}

impl Desk {
    fn serve(&self, mut stream: UnixStream) -> anyhow::Result<()> {
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        let answer = self.answer(&stream).map_err(|error| format!("{error:#}"));
        stream.write_all(&serde_json::to_vec(&answer)?)?;
        Ok(())
    }

    fn answer(&self, stream: &UnixStream) -> anyhow::Result<Status> {
        // Anybody can reach a socket in the abstract space.
        let asks = getsockopt(stream, PeerCredentials)?.uid();
        let own = nix::unistd::geteuid().as_raw();
        ensure!(asks == own || asks == 0, "user {asks} may not ask; be root");
        let change = match serde_json::from_slice(&teller::read(stream)?)? {
            Question::Show => None,
            Question::Change { words, directory } => Some((self.parse)(&words, &directory)?),
        };
        let (reply, answer) = sync_channel(1);
        let gone = "the emulation is ending";
        self.sender.send(Request { change, reply }).map_err(|_| anyhow!(gone))?;
        self.wake.write(1)?;
        answer.recv_timeout(PATIENCE).map_err(|_| anyhow!(gone))?
    }
}

/// Asks what emulates on `dev`.
fn ask(dev: &str, question: &Question) -> anyhow::Result<Status> {
    let mut stream = Service::Emulate.connect(dev)?.with_context(|| {
        format!("nothing emulates on {dev}; start `sheaf emulate dev {dev} LINK`")
    })?;
    stream.set_read_timeout(Some(2 * PATIENCE))?;
    stream.write_all(&serde_json::to_vec(question)?)?;
    stream.shutdown(Shutdown::Write)?;
    let answer: Result<Status, String> = serde_json::from_slice(&teller::read(&stream)?)
        .with_context(|| format!("{dev} ended while asked"))?;
    answer.map_err(|error| anyhow!(error))
}

/// `sheaf emulate show`.
pub fn show(dev: &str) -> anyhow::Result<Status> {
    ask(dev, &Question::Show)
}

/// `sheaf emulate change`.
pub fn change(dev: &str, words: &[String]) -> anyhow::Result<()> {
    ensure!(!words.is_empty(), "change says nothing; write change dev {dev} LINK");
    let directory = std::env::current_dir().unwrap_or_default();
    ask(dev, &Question::Change { words: words.to_vec(), directory }).map(drop)
}
