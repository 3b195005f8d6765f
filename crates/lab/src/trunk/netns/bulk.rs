//! Bulk TCP of Linux's own stack between two namespaces: one thread sends, one receives.

use super::station;
use crate::tcp::Congestion;
use crate::trunk::outcome::Meter;
use anyhow::Context;
use sheaf_netio::clock;
use sheaf_netio::netns::Namespace;
use sheaf_netio::poller::Poller;
use sheaf_stage::{Duration, Instant};
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Port of the first flow's receiver; the others follow.
const PORT: u16 = 5001;
/// Time within which a thread sees that it is to stop.
const LOOK: Duration = Duration::from_millis(100);
/// Duration of one attempt to connect.
const CONNECT: Duration = Duration::from_secs(2);

/// Sends as much as it can until it is to stop.
pub fn send(
    near: &Namespace,
    flow: u16,
    control: Congestion,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let to = SocketAddr::from((station::address(1), PORT + flow));
    let content = vec![0; 1 << 16];
    let mut stream: Option<TcpStream> = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(connected) = &mut stream else {
            // The receiver, or the trunk, may not be there yet.
            stream = near.run(|| TcpStream::connect_timeout(&to, CONNECT)).ok();
            if let Some(stream) = &stream {
                control.set(stream)?;
                stream.set_write_timeout(Some(LOOK))?;
            }
            continue;
        };
        match connected.write(&content) {
            Ok(_) => {}
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error).context("the TCP sender"),
        }
    }
    Ok(())
}

/// Counts received bytes until it is to stop. `start`: the machine's time at the testbed's time
/// zero.
pub fn receive(
    far: &Namespace,
    flow: u16,
    start: Instant,
    measured: Range<Instant>,
    stop: &AtomicBool,
) -> anyhow::Result<Meter> {
    let listener = far.run(|| TcpListener::bind((station::address(1), PORT + flow)))?;
    listener.set_nonblocking(true)?;
    let mut meter = Meter::new(measured, 1);
    let mut buffer = vec![0; 1 << 16];
    let mut stream: Option<TcpStream> = None;
    while !stop.load(Ordering::Relaxed) {
        let Some(accepted) = &mut stream else {
            let mut poller = Poller::default();
            poller.add(&listener);
            poller.wait(Some(LOOK))?;
            if let Ok((accepted, _)) = listener.accept() {
                accepted.set_nonblocking(false)?;
                accepted.set_read_timeout(Some(LOOK))?;
                stream = Some(accepted);
            }
            continue;
        };
        match accepted.read(&mut buffer) {
            Ok(0) => break,
            Ok(len) => meter.received(len, Instant::ZERO + (clock::now() - start)),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error).context("the TCP receiver"),
        }
    }
    Ok(meter)
}

fn is_timeout(error: &std::io::Error) -> bool {
    [ErrorKind::WouldBlock, ErrorKind::TimedOut, ErrorKind::Interrupted].contains(&error.kind())
}
