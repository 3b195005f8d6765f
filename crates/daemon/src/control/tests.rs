use super::client::{ask_in, services_in, watch_in};
use super::*;
use crate::run_directory::{self, Reserved};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use serde_json::{Value, json};
use sheaf_netio::clock;
use sheaf_netio::poller::Poller;
use sheaf_stage::Instant;
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// A user who is neither root nor the one who runs the tests.
const STRANGER: u32 = 65_534;
/// Orders for the helper processes below.
const SOCKET: &str = "SHEAF_TEST_SOCKET";
/// Tries to set a terminal's title and to clear it.
const ESCAPES: &str = "\u{1b}]0;owned\u{7}\u{9b}2J";

/// A base directory that goes with the test.
struct Base(TempDir);

impl Base {
    fn new() -> Base {
        Base(TempDir::new().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("sheaf")
    }

    fn reserve(&self) -> Reserved {
        run_directory::reserve_in(&self.path(), "net-1").unwrap()
    }

    fn directory(&self) -> PathBuf {
        self.path().join("net-1")
    }

    fn server(&self, name: &ServiceName) -> Result<Server, Error> {
        Server::bind_in(self.reserve(), name, &[])
    }
}

fn trunk(name: &str) -> ServiceName {
    ServiceName::new(Kind::Trunk, name).unwrap()
}

/// Serves until `client` has returned.
fn serve<T: Send>(
    server: &mut Server,
    mut respond: impl FnMut(&Request) -> Result<Value, String>,
    client: impl FnOnce() -> T + Send,
) -> T {
    let (done, finished) = UnixStream::pair().unwrap();
    std::thread::scope(|scope| {
        let client = scope.spawn(move || {
            let _done = done;
            client()
        });
        let mut poller = Poller::default();
        poller.add(server);
        let ended = poller.add(&finished);
        loop {
            let until = server.next_deadline().map(|at| at.saturating_since(clock::now()));
            poller.wait(until).unwrap();
            if poller.readable(ended) {
                return client.join().unwrap();
            }
            server.turn(clock::now());
            while let Some((ticket, request)) = server.next_request() {
                let response = respond(&request);
                server.respond(ticket, response, clock::now());
            }
        }
    })
}

/// This test binary as another user, doing what one of the helpers below does.
fn as_stranger(helper: &str, socket: &Path) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "--nocapture", &format!("control::tests::{helper}")])
        .env(SOCKET, socket)
        .uid(STRANGER)
        .gid(STRANGER)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

/// Waits for a line of a helper that contains `words`.
fn wait_for(child: &mut Child, words: &str) {
    let mut said = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(words) {
        line.clear();
        assert!(said.read_line(&mut line).unwrap() > 0, "it ended without {words:?}");
    }
    child.stdout = Some(said.into_inner());
}

#[test]
#[ignore = "a helper that other tests run as another user"]
fn impostor() {
    let path = std::env::var(SOCKET).unwrap();
    let listener = UnixListener::bind(path).unwrap();
    println!("listening");
    let (mut stream, _) = listener.accept().unwrap();
    let _ = stream.write_all(b"{\"ok\":\"believe me\"}\n");
    let _ = stream.read(&mut [0; 100]);
}

#[test]
#[ignore = "a helper that other tests run as another user"]
fn stranger() {
    let mut stream = UnixStream::connect(std::env::var(SOCKET).unwrap()).unwrap();
    let _ = stream.write_all(b"{\"stop\":{}}\n");
    let mut said = String::new();
    let _ = stream.read_to_string(&mut said);
    println!("heard {said:?}");
}

#[test]
fn a_service_responds_while_it_runs_and_leaves_nothing_behind() {
    let (base, name) = (Base::new(), trunk("t0"));
    let mut server = base.server(&name).unwrap();
    let directory = base.directory();
    let ask = || ask_in(&directory, &name, &Request::Report {}, DEADLINE);
    let answer = serve(&mut server, |_| Ok(json!({"links": 2})), ask);
    assert_eq!(answer.unwrap(), json!({"links": 2}));
    let refused = serve(&mut server, |_| Err("not\nnow".to_owned()), ask);
    assert!(matches!(refused, Err(Error::Refused(why)) if why == "not; now"));
    assert_eq!(services_in(&directory).unwrap(), std::slice::from_ref(&name));
    drop(server);
    assert!(matches!(ask(), Err(Error::NotRunning(_))));
    assert_eq!(fs::read_dir(base.path()).unwrap().count(), 0);
}

#[test]
fn a_name_is_taken_once_and_the_socket_of_a_killed_process_is_replaced() {
    let (base, name) = (Base::new(), trunk("t0"));
    let directory = base.reserve().path;
    drop(UnixListener::bind(directory.join("trunk-t0.sock")).unwrap());
    fs::write(directory.join("trunk-t0.lock"), "").unwrap();
    assert_eq!(services_in(&directory).unwrap(), [], "nobody listens there");
    let _server = base.server(&name).unwrap();
    assert!(matches!(base.server(&name), Err(Error::Taken(taken)) if taken == name));
    let _other = base.server(&ServiceName::new(Kind::Window, "t0").unwrap()).unwrap();
}

#[test]
fn an_alias_reaches_the_service_and_is_taken_with_it() {
    let base = Base::new();
    let [one, two] = ["a", "b"].map(|dev| ServiceName::new(Kind::Emulate, dev).unwrap());
    let aliases = std::slice::from_ref(&two);
    let mut server = Server::bind_in(base.reserve(), &one, aliases).unwrap();
    let directory = base.directory();
    let ask = || ask_in(&directory, &two, &Request::Report {}, DEADLINE);
    assert_eq!(serve(&mut server, |_| Ok(json!(1)), ask).unwrap(), json!(1));
    assert_eq!(services_in(&directory).unwrap(), [one], "one service, not two");
    assert!(matches!(base.server(&two), Err(Error::Taken(_))));
}

#[test]
fn directories_of_namespaces_without_services_are_removed() {
    let base = Base::new();
    let dead = run_directory::reserve_in(&base.path(), "net-2").unwrap().path;
    fs::write(dead.join("trunk-t0.lock"), "").unwrap();
    drop(UnixListener::bind(dead.join("trunk-t0.sock")).unwrap());
    let reserved = run_directory::reserve_in(&base.path(), "net-3").unwrap();
    let alive = reserved.path.clone();
    let _server = Server::bind_in(reserved, &trunk("t0"), &[]).unwrap();
    drop(base.reserve());
    assert!(!dead.exists());
    assert!(alive.join("trunk-t0.sock").exists());
    // Nor does a client touch a service that runs.
    run_directory::remove_dead(&base.path(), None);
    assert!(alive.join("trunk-t0.sock").exists());
}

#[test]
fn another_user_can_neither_take_a_name_nor_see_which_are_taken() {
    let (base, name) = (Base::new(), trunk("t0"));
    fs::set_permissions(base.0.path(), Permissions::from_mode(0o755)).unwrap();
    let _server = base.server(&name).unwrap();
    for directory in [base.path(), base.directory()] {
        assert_eq!(fs::metadata(&directory).unwrap().mode() & 0o777, 0o750);
        let shell = |line: String| {
            let mut command = Command::new("sh");
            command.args(["-c", &line]).stderr(Stdio::null()).stdout(Stdio::null());
            command.uid(STRANGER).gid(STRANGER).status().unwrap()
        };
        assert!(!shell(format!("ls {}", directory.display())).success());
        assert!(!shell(format!(": > {}/window-eth0.lock", directory.display())).success());
    }
}

#[test]
fn a_directory_that_another_user_made_or_can_write_is_not_used() {
    let base = Base::new();
    fs::create_dir(base.path()).unwrap();
    chown(base.path(), Some(STRANGER), None).unwrap();
    let error = run_directory::reserve_in(&base.path(), "net-1").unwrap_err();
    assert!(error.to_string().contains("not a directory of root's"), "{error}");
    chown(base.path(), Some(0), None).unwrap();
    fs::set_permissions(base.path(), Permissions::from_mode(0o777)).unwrap();
    drop(base.reserve());
    assert_eq!(fs::metadata(base.path()).unwrap().mode() & 0o777, 0o750);
}

#[test]
fn an_impostor_is_not_believed() {
    let directory = TempDir::new().unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let mut child = as_stranger("impostor", &directory.path().join("trunk-t0.sock"));
    wait_for(&mut child, "listening");
    let answer = ask_in(directory.path(), &trunk("t0"), &Request::Report {}, DEADLINE);
    assert!(matches!(answer, Err(Error::Untrusted { user: STRANGER, .. })), "{answer:?}");
    child.wait().unwrap();
}

#[test]
fn another_user_who_reaches_the_socket_is_not_served() {
    let (base, name) = (Base::new(), trunk("t0"));
    let mut server = base.server(&name).unwrap();
    for path in [base.0.path().to_owned(), base.path(), base.directory()] {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
    let socket = base.directory().join("trunk-t0.sock");
    fs::set_permissions(&socket, Permissions::from_mode(0o777)).unwrap();
    let mut requests = 0;
    let count = |_: &Request| {
        requests += 1;
        Ok(json!({}))
    };
    let client = || {
        let mut child = as_stranger("stranger", &socket);
        wait_for(&mut child, "heard \"\"");
        child.wait().unwrap();
    };
    serve(&mut server, count, client);
    assert_eq!(requests, 0);
}

#[test]
fn a_service_that_hangs_does_not_hang_the_client() {
    let directory = TempDir::new().unwrap();
    let listener = UnixListener::bind(directory.path().join("trunk-t0.sock")).unwrap();
    let short = Duration::from_millis(20);
    let ask = || ask_in(directory.path(), &trunk("t0"), &Request::Report {}, short);
    assert!(matches!(ask(), Err(Error::TimedOut(_))), "it accepts nothing");
    // Bytes without an end, each of which comes in time.
    let endless = std::thread::spawn(move || {
        for stream in listener.incoming().take(2) {
            let mut stream = stream.unwrap();
            while stream.write_all(b"[").is_ok() {}
        }
    });
    let answer = ask();
    let ended = matches!(answer, Err(Error::TimedOut(_) | Error::Malformed(_)));
    assert!(ended, "{answer:?}");
    endless.join().unwrap();
}

#[test]
fn a_full_backlog_does_not_hang_the_client() {
    let directory = TempDir::new().unwrap();
    let path = directory.path().join("trunk-t0.sock");
    let kind = (AddressFamily::Unix, SockType::Stream, SockFlag::SOCK_CLOEXEC);
    let listener = socket(kind.0, kind.1, kind.2, None).unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    let _first = UnixStream::connect(&path).unwrap();
    let time = Duration::from_millis(20);
    let answer = ask_in(directory.path(), &trunk("t0"), &Request::Report {}, time);
    assert!(matches!(answer, Err(Error::TimedOut(_))), "{answer:?}");
}

#[test]
fn escapes_of_a_terminal_do_not_reach_it() {
    let (base, name) = (Base::new(), trunk("t0"));
    let mut server = base.server(&name).unwrap();
    let directory = base.directory();
    let ask = || ask_in(&directory, &name, &Request::Report {}, DEADLINE);
    let answer = serve(&mut server, |_| Ok(json!({ESCAPES: [ESCAPES]})), ask).unwrap();
    let escaped = "\\u{1b}]0;owned\\u{7}\\u{9b}2J";
    assert_eq!(answer, json!({escaped: [escaped]}));
    let refused = serve(&mut server, |_| Err(ESCAPES.to_owned()), ask).unwrap_err();
    assert_eq!(refused.to_string(), escaped);
}

#[test]
fn who_connects_in_a_loop_gets_one_accept_a_turn_and_sixteen_places() {
    let (base, name) = (Base::new(), trunk("t0"));
    let mut server = base.server(&name).unwrap();
    let socket = base.directory().join("trunk-t0.sock");
    let clients: Vec<_> = (0..100).map(|_| UnixStream::connect(&socket).unwrap()).collect();
    let at = |millis: u64| Instant::from_nanos(millis * 1_000_000);
    let taken = |clients: &[UnixStream]| {
        let closed = |mut client: &UnixStream| {
            client.set_nonblocking(true).unwrap();
            matches!(client.read(&mut [0; 1]), Ok(0))
        };
        clients.iter().filter(|client| closed(client)).count()
    };
    server.turn(at(0));
    server.turn(at(1));
    assert_eq!(server.connections(), 1, "the second turn came too soon");
    (1..1000).for_each(|turn| server.turn(at(2 * turn)));
    assert_eq!(server.connections(), 16);
    let mut poller = Poller::default();
    let asked = poller.add(&server);
    poller.wait(Some(Duration::ZERO)).unwrap();
    assert!(!poller.readable(asked), "who waits in line does not wake the loop");
    assert_eq!(taken(&clients), 0);
    server.turn(at(2000 + 5000));
    assert_eq!((server.connections(), taken(&clients)), (0, 16), "their time is over");
    server.turn(at(2000 + 5002));
    assert_eq!(server.connections(), 1);
}

#[test]
fn a_watch_brings_reports_until_its_client_goes() {
    let (base, name) = (Base::new(), trunk("t0"));
    let mut server = base.server(&name).unwrap();
    let directory = base.directory();
    let mut count = 0;
    let report = |_: &Request| {
        count += 1;
        Ok(json!(count))
    };
    let watch = || {
        let watch = watch_in(&directory, &name, SHORTEST_PERIOD).unwrap();
        watch.take(3).collect::<Result<Vec<_>, _>>().unwrap()
    };
    assert_eq!(serve(&mut server, report, watch), [json!(1), json!(2), json!(3)]);
    server.turn(clock::now());
    assert_eq!(server.connections(), 0);
}

#[test]
fn what_is_not_a_request_is_refused() {
    let (base, name) = (Base::new(), trunk("t0"));
    let mut server = base.server(&name).unwrap();
    let socket = base.directory().join("trunk-t0.sock");
    let long = vec![b' '; REQUEST_LIMIT + 5000];
    for (request, response) in [
        (&b"\xff\n"[..], "the request is not valid"),
        (b"{\"fly\":{}}\n", "the request is not valid"),
        (b"{\"stop\":{\"when\":1}}\n", "the request is not valid"),
        (&long, "the request is too long"),
    ] {
        let ask = || {
            let mut stream = UnixStream::connect(&socket).unwrap();
            let _ = stream.write_all(request);
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).unwrap();
            line
        };
        let line = serve(&mut server, |_| panic!("it is not a request"), ask);
        assert!(line.starts_with(&format!("{{\"error\":\"{response}")), "{line}");
    }
}

#[test]
fn a_response_larger_than_the_socket_arrives_whole_and_an_endless_one_does_not() {
    let (base, name) = (Base::new(), trunk("t0"));
    let mut server = base.server(&name).unwrap();
    let directory = base.directory();
    let ask = || ask_in(&directory, &name, &Request::Report {}, DEADLINE);
    let large = Value::String("x".repeat(RESPONSE_LIMIT - 100));
    assert_eq!(serve(&mut server, |_| Ok(large.clone()), ask).unwrap(), large);
    let larger = Value::String("x".repeat(RESPONSE_LIMIT));
    let refused = serve(&mut server, |_| Ok(larger.clone()), ask).unwrap_err();
    assert_eq!(refused.to_string(), "the response is too long");
}

#[test]
fn names_that_would_leave_the_directory_are_refused() {
    for name in ["", ".", "..", "../x", "a/b", "a b", "a\n", "sixteencharacters"] {
        assert!(ServiceName::new(Kind::Trunk, name).is_err(), "{name:?}");
    }
    for name in ["eth0", "eth0.100", "wg-home", "br_lan:1"] {
        let service = trunk(name);
        assert_eq!(ServiceName::of_socket(&service.file("sock")), Some(service));
    }
}

#[test]
fn requests_are_written_as_documented() {
    let change = Request::Change { words: vec!["policy".into()], directory: "/etc".into() };
    for (request, json) in [
        (Request::Report {}, json!({"report": {}})),
        (Request::Watch { every_ms: 1000 }, json!({"watch": {"every_ms": 1000}})),
        (change, json!({"change": {"words": ["policy"], "directory": "/etc"}})),
        (Request::Reload {}, json!({"reload": {}})),
        (Request::Stop {}, json!({"stop": {}})),
    ] {
        assert_eq!(serde_json::to_value(&request).unwrap(), json);
    }
}
