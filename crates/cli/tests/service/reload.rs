//! Reloads under load: a section that did not change loses no packet.

use crate::ground::{Ground, Service, Stream};

const AGGREGATE: &str = "[[aggregate]]\ndev = \"right\"\npeer = \"10.8.0.2\"\n";
const EMULATE: &str = "[[emulate]]\ndev = \"near\"\negress = true\n";
const TRUNK: &str = "[[trunk]]\nname = \"t0\"\npath = \"10.7.0.1 10.7.0.2\"\nplain = true\n\
                     address = \"10.99.0.1/24\"\n";
const WINDOW: &str = "[[window]]\ndev = \"east\"\ncapacity = \"900mbit\"\n";

/// The file, with `words` in a section of each.
fn text(sections: [(&str, &str); 4]) -> String {
    sections.map(|(section, words)| format!("{section}{words}\n")).concat()
}

/// Runs `work` while packets are under way in all streams.
fn during(streams: &mut [&mut Stream], work: &mut dyn FnMut()) {
    match streams {
        [] => work(),
        [first, rest @ ..] => first.during(|| during(rest, work)),
    }
}

/// Reloads a file that differs in one section from the one before, while packets are under way in
/// all streams but that of section `apart`; returns what the reload prints.
fn reload(
    ground: &Ground,
    run: &mut Service,
    streams: &mut [Stream],
    (text, apart): (&str, Option<usize>),
) -> String {
    let beside = streams.iter_mut().enumerate().filter(|(index, _)| Some(*index) != apart);
    let mut beside: Vec<_> = beside.map(|(_, stream)| stream).collect();
    let mut printed = String::new();
    during(&mut beside, &mut || {
        ground.write("sheaf.toml", text);
        printed = ground.works("reload");
        assert_eq!(printed.lines().count(), 1, "{printed}");
        if let Some((name, _)) = printed.split_once(": restarted") {
            run.says(&format!("{name}: at work"));
            if name.starts_with("trunk") {
                run.says(" is up");
            }
        }
    });
    printed
}

#[test]
fn sections_that_did_not_change_lose_no_packet_at_a_reload() {
    let ground = Ground::new();
    ground.lay("east", "west", 7);
    ground.split();
    let far = "trunk t0 path 10.7.0.2 10.7.0.1 plain address 10.99.0.2/24";
    let _there = Service::start_on(&ground, 1, far);
    let all = [(AGGREGATE, ""), (EMULATE, "delay = \"1ms\""), (TRUNK, ""), (WINDOW, "")];
    let file = ground.write("sheaf.toml", &text(all));
    let mut run = Service::spawn(ground.command(0, &format!("run -c {file}")));
    run.says_all(&[
        "aggregate right: at work",
        "emulate near: at work",
        "window east: at work",
        "10.8.0.2 splits",
        " is up",
    ]);
    let to = ["10.8.0.2", "10.9.0.2", "10.99.0.2"];
    let mut streams = to.map(|to| ground.stream(to));
    // The section, its new words, what the reload prints, and the stream that may suffer.
    for (section, words, printed, apart) in [
        (3, "slack = \"2ms\"", "window east: changed", None),
        (0, "policy = \"forced\"", "aggregate right: changed", None),
        (1, "delay = \"2ms\"", "emulate near: changed", None),
        (2, "loose = \"match proto udp dport 9\"", "trunk t0: changed", None),
        (3, "direction = \"upload\"", "window east: restarted", None),
        (1, "delay = \"1ms\"\nseed = 7", "emulate near: restarted", Some(1)),
        (2, "scheduler = \"rr\"", "trunk t0: restarted", Some(2)),
        (0, "engine = \"user\"", "aggregate right: changed", Some(0)),
    ] {
        let mut sections = all;
        sections[section].1 = words;
        let changed = reload(&ground, &mut run, &mut streams, (&text(sections), apart));
        assert!(changed.starts_with(printed), "{changed}");
        // A word that is taken away may need a new process.
        reload(&ground, &mut run, &mut streams, (&text(all), Some(section)));
    }
}

#[test]
fn a_section_that_is_removed_takes_no_packet_of_the_others_along() {
    let ground = Ground::new();
    ground.split();
    let both = format!("{AGGREGATE}{EMULATE}delay = \"1ms\"\n");
    let file = ground.write("sheaf.toml", &both);
    let mut run = Service::spawn(ground.command(0, &format!("run -c {file}")));
    run.says_all(&["aggregate right: at work", "emulate near: at work", "10.8.0.2 splits"]);
    let mut stream = ground.stream("10.8.0.2");
    stream.during(|| {
        ground.write("sheaf.toml", AGGREGATE);
        assert_eq!(ground.works("reload"), "emulate near: removed\n");
        run.says("emulate near: ");
        ground.write("sheaf.toml", &both);
        assert_eq!(ground.works("reload"), "emulate near: added\n");
        run.says("emulate near: at work");
    });
}
