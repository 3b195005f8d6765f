//! The HTTP server for metrics.
//!
//! It is a process of its own, so that what strangers send reaches no other part. It serves `GET
//! /metrics` and nothing else; connections are few, short, and closed after one response.

use super::text::{self, Form};
use crate::output;
use crate::reports;
use anyhow::Context;
use nix::sys::signal::{SigSet, Signal};
use sd_notify::NotifyState;
use sheaf_netio::clock;
use sheaf_stage::{Duration, Instant};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// Most connections at a time; more are closed. A Prometheus server needs one.
const CONNECTIONS: usize = 8;
/// Time for a request and its response.
const DEADLINE: Duration = Duration::from_secs(5);
/// Longest request in bytes. Prometheus sends about 300.
const LONGEST: usize = 8 << 10;
/// Most header fields.
const FIELDS: usize = 64;
/// The services are asked once in this time at most, however often this process is.
const FRESH: Duration = Duration::from_secs(1);

/// Serves until SIGINT or SIGTERM.
pub fn listen(address: SocketAddr) -> anyhow::Result<()> {
    end_on_signals()?;
    let listener = TcpListener::bind(address).with_context(|| {
        format!("cannot listen on {address}; give an address of this machine and a free port")
    })?;
    // Without a service manager nobody needs to know.
    let _ = sd_notify::notify(&[NotifyState::Ready]);
    let address = listener.local_addr()?;
    output::warn(format_args!("sheaf: metrics under http://{address}/metrics"));
    let shared = Arc::new(Shared::default());
    for stream in listener.incoming() {
        // A connection that ended before it was taken, or too few descriptors for a moment.
        let Ok(stream) = stream else { continue };
        if shared.open.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
            shared.open.fetch_sub(1, Ordering::Relaxed);
            continue;
        }
        let own = shared.clone();
        let thread = std::thread::Builder::new().name("metrics".to_owned()).spawn(move || {
            // Who goes early needs no response.
            let _ = serve(&own, stream);
            own.open.fetch_sub(1, Ordering::Relaxed);
        });
        if thread.is_err() {
            shared.open.fetch_sub(1, Ordering::Relaxed);
        }
    }
    Ok(())
}

/// Ends the process on SIGINT and SIGTERM; SIGHUP, which ends no service, does not end it. Call it
/// before other threads begin: these inherit the blocked signals.
fn end_on_signals() -> anyhow::Result<()> {
    let signals = SigSet::from_iter([Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP]);
    signals.thread_block()?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        while let Ok(Signal::SIGHUP) = signals.wait() {
            output::warn(format_args!("sheaf: metrics: SIGHUP changes nothing; goes on"));
        }
        std::process::exit(0)
    })?;
    Ok(())
}

#[derive(Default)]
struct Shared {
    open: AtomicUsize,
    /// The last texts and when they were made: OpenMetrics, Prometheus.
    last: Mutex<Option<(Instant, Arc<[String; 2]>)>>,
}

impl Shared {
    /// The metrics, at most [`FRESH`] old.
    fn texts(&self) -> Result<Arc<[String; 2]>, String> {
        let mut last = self.last.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if let Some((made, texts)) = &*last
            && clock::now().saturating_since(*made) < FRESH
        {
            return Ok(texts.clone());
        }
        let reports = reports::gather().map_err(|error| format!("{error:#}"))?;
        let forms = [Form::OpenMetrics, Form::Prometheus];
        let texts = Arc::new(forms.map(|form| text::render(&reports, form)));
        *last = Some((clock::now(), texts.clone()));
        Ok(texts)
    }
}

fn serve(shared: &Shared, mut stream: TcpStream) -> io::Result<()> {
    let deadline = clock::now() + DEADLINE;
    let response = match read(&mut stream, deadline)? {
        Request::Metrics(form) => match shared.texts() {
            Ok(texts) => {
                let index = if form == Form::OpenMetrics { 0 } else { 1 };
                response("200 OK", form.content_type(), &texts[index])
            }
            Err(error) => response("503 Service Unavailable", PLAIN, &format!("{error}\n")),
        },
        Request::Other => response("404 Not Found", PLAIN, "see /metrics\n"),
        Request::Method => response("405 Method Not Allowed", PLAIN, "use GET\n"),
        Request::Invalid => response("400 Bad Request", PLAIN, "this is not HTTP/1.1\n"),
    };
    stream.set_write_timeout(Some(left(deadline)?))?;
    stream.write_all(response.as_bytes())
}

const PLAIN: &str = "text/plain; charset=utf-8";

fn response(status: &str, content_type: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    )
}

/// Request of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// The metrics in this form.
    Metrics(Form),
    /// Another page.
    Other,
    /// To do something else than to read.
    Method,
    /// Nothing that can be understood.
    Invalid,
}

/// Time until `deadline`; an error where none is left.
fn left(deadline: Instant) -> io::Result<Duration> {
    match deadline.saturating_since(clock::now()) {
        left if left.is_zero() => Err(io::ErrorKind::TimedOut.into()),
        left => Ok(left),
    }
}

/// Reads a request, whole by `deadline`: a timeout for each piece would let a client that sends a
/// byte now and then hold a connection for ever.
fn read(stream: &mut TcpStream, deadline: Instant) -> io::Result<Request> {
    let mut bytes = Vec::new();
    loop {
        let mut piece = [0; 2048];
        stream.set_read_timeout(Some(left(deadline)?))?;
        match stream.read(&mut piece) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(len) => bytes.extend_from_slice(&piece[..len]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        match parse(&bytes) {
            Some(request) => return Ok(request),
            None if bytes.len() > LONGEST => return Ok(Request::Invalid),
            None => {}
        }
    }
}

/// The request in `bytes`; `None` where it is not complete.
fn parse(bytes: &[u8]) -> Option<Request> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(_) => return Some(Request::Invalid),
    }
    if request.method != Some("GET") {
        return Some(Request::Method);
    }
    let path = request.path.unwrap_or_default();
    if path.split('?').next() != Some("/metrics") {
        return Some(Request::Other);
    }
    let accepts = |field: &&httparse::Header<'_>| field.name.eq_ignore_ascii_case("accept");
    let open = |field: &httparse::Header<'_>| {
        String::from_utf8_lossy(field.value).contains("application/openmetrics-text")
    };
    let form = match request.headers.iter().find(accepts) {
        Some(field) if open(field) => Form::OpenMetrics,
        _ => Form::Prometheus,
    };
    Some(Request::Metrics(form))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_get_of_metrics_is_served_in_the_form_that_is_asked_for() {
        let open = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5";
        for (text, expected) in [
            ("GET /metrics HTTP/1.1\r\n\r\n", Request::Metrics(Form::Prometheus)),
            (
                &*format!("GET /metrics?x=1 HTTP/1.1\r\n{open}\r\n\r\n"),
                Request::Metrics(Form::OpenMetrics),
            ),
            ("GET / HTTP/1.0\r\n\r\n", Request::Other),
            ("GET /metrics/ HTTP/1.1\r\n\r\n", Request::Other),
            ("POST /metrics HTTP/1.1\r\n\r\n", Request::Method),
            ("\u{1}\r\n\r\n", Request::Invalid),
        ] {
            assert_eq!(parse(text.as_bytes()), Some(expected), "{text}");
        }
        assert_eq!(parse(b"GET /metrics HTTP/1.1\r\nHost: a\r\n"), None, "the rest is to come");
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(FIELDS + 1));
        assert_eq!(parse(many.as_bytes()), Some(Request::Invalid));
    }

    #[test]
    fn a_request_without_end_is_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut stream, _) = listener.accept().unwrap();
        client.write_all(b"GET /metrics HTTP/1.1\r\na: ").unwrap();
        client.write_all(&vec![b'x'; LONGEST]).unwrap();
        let deadline = clock::now() + Duration::from_secs(60);
        assert_eq!(read(&mut stream, deadline).unwrap(), Request::Invalid);
        let over = read(&mut stream, clock::now()).unwrap_err();
        assert_eq!(over.kind(), io::ErrorKind::TimedOut);
    }
}
