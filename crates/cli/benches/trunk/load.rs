//! TCP and QUIC from host 1 to host 2, what arrives of it, and the processor time that it costs.

use crate::pair::Pair;
use crate::quic;
use nix::libc;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::socket::{Backlog, SockaddrIn, bind, connect, listen, setsockopt, sockopt};
use nix::sys::time::TimeValLike;
use sheaf_netio::poller::Poller;
use sheaf_netio::{clock, timer};
use sheaf_stage::Duration;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};

const PORT: u16 = 5001;

/// Where to, and how.
pub enum Target<'a> {
    /// An address of host 2.
    Tcp(&'a str),
    /// The same by the kernel's multipath TCP.
    Mptcp(&'a str),
}

impl Target<'_> {
    fn socket(&self) -> io::Result<(OwnedFd, SockaddrIn)> {
        let (protocol, address) = match self {
            Target::Tcp(address) => (libc::IPPROTO_TCP, address),
            Target::Mptcp(address) => (libc::IPPROTO_MPTCP, address),
        };
        let kind = libc::SOCK_STREAM | libc::SOCK_CLOEXEC;
        // SAFETY: socket(2) takes numbers only; what it returns is ours alone.
        let socket = unsafe {
            match libc::socket(libc::AF_INET, kind, protocol) {
                -1 => return Err(io::Error::last_os_error()),
                fd => OwnedFd::from_raw_fd(fd),
            }
        };
        let address = address.parse().expect("an address of ours");
        Ok((socket, SocketAddrV4::new(address, PORT).into()))
    }

    /// At every address: subflows of MPTCP come to others.
    fn listen(&self) -> io::Result<TcpListener> {
        let (socket, _) = self.socket()?;
        let any = SocketAddrV4::new(Ipv4Addr::UNSPECIFIED, PORT);
        bind(socket.as_raw_fd(), &SockaddrIn::from(any))?;
        listen(&socket, Backlog::new(8)?)?;
        Ok(socket.into())
    }

    fn connect(&self) -> io::Result<TcpStream> {
        let (socket, address) = self.socket()?;
        connect(socket.as_raw_fd(), &address)?;
        Ok(socket.into())
    }
}

/// From host 1 to host 2, or back, by the same connection's other direction.
#[derive(Clone, Copy)]
pub enum Way {
    Forth,
    Back,
}

/// Flows that send as fast as they may. They end with this.
pub struct Load {
    received: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
    /// Each ends both ends of a flow at once, whatever is still under way.
    ends: Vec<Box<dyn FnOnce()>>,
    /// Subflows of MPTCP join while somebody listens only.
    _listener: Option<TcpListener>,
}

impl Load {
    /// So many flows, with this congestion control.
    pub fn start(pair: &Pair, target: &Target<'_>, (flows, control): (usize, &str)) -> Load {
        Load::ways(pair, target, control, &vec![Way::Forth; flows])
    }

    /// A flow each way that is named.
    pub fn ways(pair: &Pair, target: &Target<'_>, control: &str, ways: &[Way]) -> Load {
        let listener = pair.hosts[1].run(|| target.listen()).expect("the port is free");
        let mut load = Load::empty();
        for way in ways {
            let here = pair.hosts[0].run(|| target.connect()).expect("host 2 answers");
            let there = listener.accept().expect("it connects").0;
            let (sender, receiver) = match way {
                Way::Forth => (here, there),
                Way::Back => (there, here),
            };
            setsockopt(&sender, sockopt::TcpCongestion, &control.into()).expect("it is there");
            let both = [&sender, &receiver].map(|end| end.try_clone().expect("a descriptor"));
            load.ends.push(Box::new(move || end(&both)));
            load.threads.push(thread::spawn(move || send(sender)));
            let received = load.received.clone();
            load.threads.push(thread::spawn(move || receive(receiver, &received)));
        }
        load._listener = Some(listener);
        load
    }

    /// One QUIC flow from host 1 to this address of host 2.
    pub fn quic(pair: &Pair, address: &str) -> Load {
        let mut load = Load::empty();
        let [to, from] = [(1, address, PORT), (0, "0.0.0.0", 0)].map(|(host, address, port)| {
            let bind = || UdpSocket::bind((address, port));
            pair.hosts[host].run(bind).expect("the port is free")
        });
        let (threads, end) = quic::start([from, to], load.received.clone());
        load.threads.extend(threads);
        load.ends.push(Box::new(end));
        load
    }

    fn empty() -> Load {
        let received = Arc::new(AtomicU64::new(0));
        Load { received, threads: Vec::new(), ends: Vec::new(), _listener: None }
    }

    /// Bytes that have arrived.
    pub fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// Megabits a second that arrive in this time.
    pub fn measure(&self, time: Duration) -> f64 {
        self.meanwhile(|| wait(time)).1
    }

    /// Does something, and says how many megabits a second arrived meanwhile.
    pub fn meanwhile<T>(&self, work: impl FnOnce() -> T) -> (T, f64) {
        let (from, before) = (clock::now(), self.received());
        let done = work();
        let bytes = self.received() - before;
        (done, bytes as f64 * 8.0 / 1e6 / (clock::now() - from).as_secs_f64())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.ends.drain(..).for_each(|end| end());
        // One that panicked has said so.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}

/// Ends a connection without waiting until what it has still to send has arrived.
fn end(both: &[TcpStream; 2]) {
    for stream in both {
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        // The other end may have ended it.
        let _ = setsockopt(stream, sockopt::Linger, &at_once);
        let _ = stream.shutdown(Shutdown::Both);
    }
}

fn send(mut stream: TcpStream) {
    let data = vec![0; 1 << 16];
    while stream.write_all(&data).is_ok() {}
}

fn receive(mut stream: TcpStream, received: &AtomicU64) {
    let mut data = vec![0; 1 << 18];
    while let Ok(len @ 1..) = stream.read(&mut data) {
        received.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// Waits for `time`.
pub fn wait(time: Duration) {
    let until = clock::now() + time;
    timer::wait(&mut Poller::default(), 0, until, Duration::ZERO).expect("a timer");
}

/// Whether something came true within five seconds.
pub fn within_seconds(holds: impl Fn() -> bool) -> bool {
    (0..250).any(|_| {
        let now = holds();
        if !now {
            wait(Duration::from_millis(20));
        }
        now
    })
}

/// Nanoseconds of processor time that a process of one thread has used. What the kernel does for
/// its packets inside its calls counts, as soft interrupts are charged to whom they interrupt.
pub fn process_time(process: u32) -> u64 {
    let path = format!("/proc/{process}/schedstat");
    let text = std::fs::read_to_string(path).expect("it runs");
    text.split(' ').next().and_then(|word| word.parse().ok()).expect("a number comes first")
}

/// Nanoseconds of processor time that this benchmark, which sends and receives, and the kernel's
/// threads for soft interrupts have used.
pub fn rest_time() -> u64 {
    let usage = getrusage(UsageWho::RUSAGE_SELF).expect("it is our own");
    let own = usage.user_time().num_microseconds() + usage.system_time().num_microseconds();
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let kernel = processes.filter_map(|entry| {
        let id: u32 = entry.file_name().to_str()?.parse().ok()?;
        let name = std::fs::read_to_string(entry.path().join("comm")).ok()?;
        name.starts_with("ksoftirqd/").then(|| process_time(id))
    });
    own as u64 * 1000 + kernel.sum::<u64>()
}
