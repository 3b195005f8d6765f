//! Another user of the machine: can neither see, change nor stop a service, nor pass for one.

use crate::ground::{Ground, LONG, Service, errors};
use nix::unistd::{Gid, Uid};
use sheaf_netio::clock;
use std::fs;
use std::os::unix::fs::{DirBuilderExt, chown};
use std::os::unix::net::UnixListener;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The user that owns nothing.
const NOBODY: u32 = 65534;
const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];
/// Processes that connect in a loop.
const CROWD: usize = 3;
/// The trunk transfers this many batches beside the crowd.
const BATCHES: usize = 200;

#[test]
fn another_user_can_neither_see_nor_change_nor_stop_services() {
    let ground = Ground::new();
    let file = ground.write(
        "sheaf.toml",
        "[[emulate]]\ndev = \"right\"\ndelay = \"1ms\"\n\
         [[window]]\ndev = \"near\"\ncapacity = \"20mbit\"\n",
    );
    let mut run = Service::spawn(ground.command(0, &format!("run -c {file}")));
    run.says_all(&["emulate right: at work", "window near: at work"]);
    let before = ground.works("emulate show right --json");
    for line in [
        "show",
        "show dev right",
        "emulate show right",
        "emulate stop right",
        "emulate change dev right delay 9ms",
        "change window near slack 9ms",
        "reload",
        "metrics",
    ] {
        let output = ground.under(0, &AS_NOBODY, line).output().unwrap();
        let said = errors(&output);
        assert_eq!(output.status.code(), Some(2), "{line}: {said}");
        assert!(said.starts_with("sheaf: ") && said.lines().count() == 1, "{line}: {said}");
        let told = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(!told.contains("right") && !told.contains("near"), "{line}: {told}");
    }
    let settings = |text: &str| {
        let shown: serde_json::Value = serde_json::from_str(text).unwrap();
        shown["links"]["right egress"]["settings"].clone()
    };
    assert_eq!(settings(&ground.works("emulate show right --json")), settings(&before));
    ground.stream("10.8.0.2").batch();
}

#[test]
fn no_socket_of_a_service_is_in_the_abstract_namespace_or_open_to_others() {
    let ground = Ground::new();
    let _service = Service::start(&ground, "window dev right capacity 20mbit");
    let sockets = ground.hosts[0].run(|| fs::read_to_string("/proc/thread-self/net/unix"));
    assert!(!sockets.unwrap().contains("@sheaf"));
    let directory = ground.run_directory().display().to_string();
    for what in [format!("ls {directory}"), format!("touch {directory}/window-near.sock")] {
        let words = AS_NOBODY.iter().copied().skip(1).chain(what.split(' '));
        let output = std::process::Command::new(AS_NOBODY[0]).args(words).output().unwrap();
        assert!(!output.status.success(), "{what}");
        assert!(errors(&output).contains("Permission denied"), "{what}: {}", errors(&output));
    }
}

#[test]
fn a_socket_that_another_user_made_is_not_believed() {
    let ground = Ground::new();
    // Root's runtime directory is that of a user, as `sudo -E` leaves it.
    let base = ground.directory.path().join("sheaf");
    let place = base.join(ground.run_directory().file_name().unwrap());
    fs::DirBuilder::new().mode(0o755).recursive(true).create(&place).unwrap();
    let listener = UnixListener::bind(place.join("window-right.sock")).unwrap();
    for path in [&base, &place, &place.join("window-right.sock")] {
        let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
        chown(path, Some(user.as_raw()), Some(group.as_raw())).unwrap();
    }
    listener.set_nonblocking(true).unwrap();
    for line in ["show dev right", "change window right slack 1ms"] {
        let mut command = ground.command(0, line);
        command.env("XDG_RUNTIME_DIR", ground.directory.path());
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}");
        assert!(listener.accept().is_err(), "{line}: nobody was asked");
    }
}

#[test]
fn who_connects_in_a_loop_costs_a_trunk_neither_packets_nor_links() {
    let ground = Ground::new();
    let [here, _there] = ground.trunks();
    let socket = ground.run_directory().join("trunk-t0.sock");
    // As root, because nobody else reaches the socket at all.
    let (over, accepted) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = clock::now();
    std::thread::scope(|scope| {
        for _ in 0..CROWD {
            scope.spawn(|| {
                while !over.load(Ordering::Relaxed) {
                    let Ok(stream) = std::os::unix::net::UnixStream::connect(&socket) else {
                        continue;
                    };
                    stream.set_read_timeout(Some(LONG)).unwrap();
                    // What is not a request is refused in a line: it was accepted.
                    let refused = std::io::Write::write_all(&mut &stream, b"\n").is_ok()
                        && std::io::Read::read(&mut &stream, &mut [0]).is_ok_and(|len| len > 0);
                    accepted.fetch_add(u64::from(refused), Ordering::Relaxed);
                }
            });
        }
        let mut stream = ground.stream("10.99.0.2");
        (0..BATCHES).for_each(|_| stream.batch());
        while accepted.load(Ordering::Relaxed) < 10 {
            stream.batch();
        }
        over.store(true, Ordering::Relaxed);
    });
    let took = clock::now() - began;
    // One accept in 2 ms, and what was accepted before the last.
    let most = took.as_millis() as u64 / 2 + CROWD as u64 + 1;
    let accepted = accepted.load(Ordering::Relaxed);
    assert!(accepted <= most, "{accepted} accepts in {took:?}");
    here.signal(nix::sys::signal::Signal::SIGTERM);
    let (status, said) = here.end();
    assert!(status.success());
    assert!(!said.iter().any(|line| line.contains(" is down")), "{said:#?}");
}
