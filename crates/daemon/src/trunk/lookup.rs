//! The address of the other end of a path that was given by name.
//!
//! The resolver of the C library waits for its answer, so a thread of its own asks it. While the
//! link is down the name is looked up again and again: a dynamic address may have changed, and at
//! boot the name server is out of reach until another link of this host is up.

use sheaf_stage::{Duration, Instant};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::thread::{Builder, JoinHandle};

/// Time between two questions while the link is down: a name server is not to be flooded, and
/// nobody waits much longer than the name's owner needed to change it.
const AGAIN: Duration = Duration::from_secs(10);

/// A host by name, and its port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Name {
    /// The name.
    pub host: String,
    /// The UDP port.
    pub port: u16,
}

/// Returns all addresses of a name.
type Resolve = fn(&Name) -> io::Result<Vec<SocketAddr>>;

/// A name that is looked up.
#[derive(Debug)]
pub struct Lookup {
    name: Name,
    /// Whether an address of IPv4 is wanted; else one of IPv6.
    ipv4: bool,
    /// The question that is open.
    open: Option<JoinHandle<io::Result<Vec<SocketAddr>>>>,
    /// Time from which on it may be asked again.
    next: Instant,
    /// The last question failed.
    failed: bool,
    resolve: Resolve,
}

/// News of a [`Lookup`].
#[derive(Debug, PartialEq, Eq)]
pub enum News {
    /// An address of the name.
    Found(SocketAddr),
    /// The first of some questions in a row that failed, and why.
    Failed(String),
}

impl Lookup {
    /// Nothing is asked before the first [`Lookup::poll`]. `ipv4`: of which family the link is.
    pub fn new(name: Name, ipv4: bool) -> Lookup {
        Lookup::by(name, ipv4, |name| {
            Ok((name.host.as_str(), name.port).to_socket_addrs()?.collect())
        })
    }

    fn by(name: Name, ipv4: bool, resolve: Resolve) -> Lookup {
        Lookup { name, ipv4, open: None, next: Instant::ZERO, failed: false, resolve }
    }

    /// Asks, if it is time to, and returns what an earlier question found. Call it while the link
    /// is down.
    pub fn poll(&mut self, now: Instant) -> Option<News> {
        let Some(question) = self.open.take() else {
            if now >= self.next {
                self.next = now + AGAIN;
                self.ask();
            }
            return None;
        };
        if !question.is_finished() {
            self.open = Some(question);
            return None;
        }
        let found = match question.join() {
            Ok(Ok(addresses)) => {
                let fits = |one: &SocketAddr| one.is_ipv4() == self.ipv4;
                addresses.into_iter().find(fits).ok_or_else(|| {
                    let version = if self.ipv4 { 4 } else { 6 };
                    format!("it has no address of IPv{version}, as this end of the link has")
                })
            }
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err("the resolver ended".to_owned()),
        };
        match found {
            Ok(address) => {
                self.failed = false;
                Some(News::Found(address))
            }
            Err(reason) => {
                let first = !std::mem::replace(&mut self.failed, true);
                first.then_some(News::Failed(reason))
            }
        }
    }

    fn ask(&mut self) {
        let (name, resolve) = (self.name.clone(), self.resolve);
        let thread = Builder::new().name("resolver".to_owned());
        // Without a thread the next question comes in time.
        self.open = thread.spawn(move || resolve(&name)).ok();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    fn name(host: &str) -> Name {
        Name { host: host.to_owned(), port: 7431 }
    }

    /// Calls `poll` at one instant until there is an answer, or none is under way.
    fn answer(lookup: &mut Lookup, now: Instant) -> Option<News> {
        loop {
            match lookup.poll(now) {
                None if lookup.open.is_some() => std::thread::yield_now(),
                news => return news,
            }
        }
    }

    #[test]
    fn the_address_of_the_links_family_is_taken() {
        let both: Resolve = |name| {
            let addresses = ["[2001:db8::7]", "192.0.2.7", "192.0.2.8"];
            let of = |address: &str| format!("{address}:{}", name.port).parse().unwrap();
            Ok(addresses.map(of).to_vec())
        };
        for (ipv4, address) in [(true, "192.0.2.7:7431"), (false, "[2001:db8::7]:7431")] {
            let mut lookup = Lookup::by(name("home.example.org"), ipv4, both);
            let found = answer(&mut lookup, Instant::ZERO);
            assert_eq!(found, Some(News::Found(address.parse().unwrap())));
        }
        let mut lookup = Lookup::by(name("home.example.org"), true, |_| Ok(Vec::new()));
        let Some(News::Failed(reason)) = answer(&mut lookup, Instant::ZERO) else { panic!() };
        assert!(reason.contains("no address of IPv4"), "{reason}");
    }

    #[test]
    fn a_name_that_is_not_there_yet_is_asked_for_every_ten_seconds_and_complained_of_once() {
        static ASKED: AtomicU32 = AtomicU32::new(0);
        let late: Resolve = |_| match ASKED.fetch_add(1, Ordering::SeqCst) {
            0..3 => Err(io::Error::other("try again")),
            _ => Ok(vec![([192, 0, 2, 7], 7431).into()]),
        };
        let mut lookup = Lookup::by(name("home.example.org"), true, late);
        let mut news = Vec::new();
        for second in 0..40 {
            let now = Instant::from_millis(1_000 * second);
            news.extend(answer(&mut lookup, now).map(|news| (second, news)));
        }
        let found = News::Found(([192, 0, 2, 7], 7431).into());
        assert_eq!(news, [(0, News::Failed("try again".to_owned())), (30, found)]);
        assert_eq!(ASKED.load(Ordering::SeqCst), 4, "one question in ten seconds");
    }
}
