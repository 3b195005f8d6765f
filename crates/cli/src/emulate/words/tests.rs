//! Command lines of tc-netem(8), and what is wrong with others.

use super::alone::ALONE;
use super::*;
use crate::words::WordError;
use proptest::prelude::*;
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::{
    Chance, Delay, Distribution, FourState, Gemodel, Limit, Link, LinkConfig, Loss, LossPattern,
    Overhead, Packet, QueueConfig, Reorder, Slot, SlotWait,
};
use sheaf_fuzz::{Fuzzer, NUMBERS, play};
use sheaf_netio::vnet;
use sheaf_stage::{Bitrate, Duration};

const MS: Duration = Duration::from_millis(1);
/// Folder of distributions for tests.
const FILES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../emulator/tests/corpus/distribution");

/// The file of a trace for tests.
macro_rules! traces {
    ($name:literal) => {
        concat!(env!("CARGO_MANIFEST_DIR"), "/../emulator/tests/corpus/trace/", $name)
    };
}

/// Reads one LINK.
fn read(line: &str) -> anyhow::Result<LinkConfig> {
    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    let [link, _] = ALONE.parse(&words)?.both(0, Path::new(FILES))?;
    Ok(link)
}

#[track_caller]
fn gives(line: &str, expected: LinkConfig) {
    assert_eq!(read(line).unwrap(), expected, "{line}");
}

fn base() -> LinkConfig {
    LinkConfig {
        delay_limit: link_draft::DELAY_LIMIT,
        overhead: Overhead { packet: -HEADER, ..Overhead::default() },
        ..LinkConfig::default()
    }
}

/// The virtio header, which is not on any wire.
const HEADER: i32 = vnet::LEN as i32;

#[test]
fn the_examples_of_the_manual_mean_what_it_says() {
    gives("delay 100ms", LinkConfig { delay: Delay::constant(100 * MS), ..base() });
    let varied = Delay {
        time: 100 * MS,
        jitter: 10 * MS,
        correlation: 0.25,
        distribution: Distribution::normal(),
    };
    gives("delay 100ms 10ms 25% distribution normal", LinkConfig { delay: varied, ..base() });
    let half = Chance { probability: 0.003, correlation: 0.25 };
    gives("loss 0.3% 25%", LinkConfig { loss: Loss::Random(half), ..base() });
    gives(
        "loss random 0.3 25 ecn",
        LinkConfig { loss: Loss::Random(half), loss_ecn: true, ..base() },
    );
    let rate = Some(Bitrate::from_mbps(100));
    gives("rate 100mbit burst 3k", LinkConfig { rate, burst: Some(3072), ..base() });
    gives("rate 1mbit burst 3k rate 100mbit", LinkConfig { rate, ..base() });
    let pattern = LossPattern::parse("3,7,100-110", Some(1000)).unwrap();
    let loss = Loss::Pattern(pattern.into());
    gives("loss pattern 3,7,100-110 1000", LinkConfig { loss, ..base() });
    gives("loss pattern 3 loss 0.3% 25%", LinkConfig { loss: Loss::Random(half), ..base() });
    gives("duplicate 1%", LinkConfig { duplicate: Chance::of(0.01), ..base() });
    gives("corrupt 0.1%", LinkConfig { corrupt: Chance::of(0.001), ..base() });
    let reorder = Reorder { chance: Chance { probability: 0.25, correlation: 0.5 }, gap: 5 };
    gives(
        "delay 10ms reorder 25% 50% gap 5",
        LinkConfig { delay: Delay::constant(10 * MS), reorder: Some(reorder), ..base() },
    );
    gives(
        "rate 5kbit 20 100 5",
        LinkConfig {
            rate: Some(Bitrate::from_kbps(5)),
            overhead: Overhead { packet: 20 - HEADER, cell: 100, per_cell: 5 },
            ..base()
        },
    );
    gives(
        "rate 1mbit -14 limit 77",
        LinkConfig {
            rate: Some(Bitrate::from_mbps(1)),
            overhead: Overhead { packet: -14 - HEADER, ..Overhead::default() },
            queue: QueueConfig::Fifo(FifoConfig { limit: Limit::Packets(77), drop_head: false }),
            ..base()
        },
    );
    gives("limit 1000 single", LinkConfig { single: true, ..base() });
    let wait = SlotWait::Between(Duration::from_micros(800), MS);
    gives(
        "slot 800us 1ms packets 3 bytes 4000",
        LinkConfig { slot: Some(Slot { wait, packets: 3, bytes: 4000 }), ..base() },
    );
    let wait = SlotWait::Distributed(5 * MS, MS, Distribution::pareto());
    gives(
        "slot distribution pareto 5ms 1ms",
        LinkConfig { slot: Some(Slot { wait, packets: 0, bytes: 0 }), ..base() },
    );
    gives("delay 1500us", LinkConfig { delay: Delay::constant(MS * 3 / 2), ..base() });
}

#[test]
fn what_is_left_out_of_a_loss_model_is_as_in_tc() {
    let state = |p13, p31, p32, p23, p14| LinkConfig {
        loss: Loss::State(FourState { p13, p31, p32, p23, p14 }),
        ..base()
    };
    gives("loss state 25%", state(0.25, 0.75, 0.0, 1.0, 0.0));
    gives("loss state 25% 50% 12.5% 75% 6.25%", state(0.25, 0.5, 0.125, 0.75, 0.0625));
    let ge = |p, r, bad_loss, good_loss| LinkConfig {
        loss: Loss::Gemodel(Gemodel { p, r, bad_loss, good_loss }),
        ..base()
    };
    gives("loss gemodel 25%", ge(0.25, 0.75, 1.0, 0.0));
    gives("loss gemodel 25% 50% 75% 12.5%", ge(0.25, 0.5, 0.75, 0.125));
}

#[test]
fn a_distribution_of_another_name_is_a_file() {
    let config = read("delay 1ms 1ms distribution table").unwrap();
    let text = std::fs::read_to_string(Path::new(FILES).join("table")).unwrap();
    assert_eq!(config.delay.distribution, Distribution::parse(&text).unwrap());
    let error = read("delay 1ms distribution yours").unwrap_err().to_string();
    assert!(error.starts_with("there is no distribution yours; give uniform"), "{error}");
}

fn queue(line: &str) -> QueueConfig {
    read(line).unwrap().queue
}

#[test]
fn red_is_read_as_tc_red_says() {
    // The example of tc-red(8).
    let line = "queue red limit 400000 min 30000 max 90000 avpkt 1000 burst 55 ecn adaptive \
                bandwidth 10mbit delay 5ms";
    let QueueConfig::Red(red) = queue(line) else { panic!("{line}") };
    assert_eq!((red.limit, red.ecn, red.hard_drop), (Limit::Bytes(400_000), true, false));
    let curve = red.curve;
    assert_eq!((curve.min, curve.max, curve.mean_packet), (30_000, 90_000, 1000));
    assert_eq!((curve.probability, curve.adaptive, curve.gentle), (0.02, true, false));
    assert_eq!(curve.bandwidth, Bitrate::from_mbps(10));
    // 55 + 1 - 30 = 26 is below (1 - (31/32)^55) / (1/32) = 26.4, but above 16 · (1 - (15/16)^55).
    assert_eq!(curve.weight, 1.0 / 32.0);
    assert_eq!(read(line).unwrap().delay.time, 5 * MS, "the words of red have ended");

    // Left out: max, min, burst, and the bandwidth of the link, wherever that stands.
    let QueueConfig::Red(red) = queue("queue red limit 120k avpkt 1k harddrop rate 8mbit") else {
        panic!("it is RED")
    };
    assert_eq!((red.curve.min, red.curve.max), (10_240, 30_720));
    assert_eq!((red.curve.bandwidth, red.hard_drop), (Bitrate::from_mbps(8), true));
}

#[test]
fn gred_has_virtual_queues_by_dscp_and_one_for_the_rest() {
    let line = "queue gred ecn vq dscp ef,af41 limit 90000 min 10000 max 30000 avpkt 1000 \
                vq limit 60000 avpkt 1000 probability 5%";
    let QueueConfig::Gred(gred) = queue(line) else { panic!("{line}") };
    assert_eq!((gred.limit, gred.ecn), (Limit::Bytes(150_000), true));
    assert_eq!((gred.by_dscp[46], gred.by_dscp[34], gred.by_dscp[0]), (0, 0, 1));
    let (curve, limit) = gred.virtual_queues[1];
    assert_eq!((curve.min, curve.max, curve.probability, limit), (5_000, 15_000, 0.05, 60_000));
}

#[test]
fn weighted_queues_are_read_as_in_dummynet() {
    let line = "sched wf2q+ limit 50 queue 0 weight 1 queue 2 weight 7 dscp ef rate 1mbit";
    let QueueConfig::Wf2q(config) = queue(line) else { panic!("{line}") };
    assert_eq!((config.weights, config.limit), (vec![1, 1, 7], Limit::Packets(50)));
    let by_dscp = config.by_dscp.unwrap();
    assert_eq!((by_dscp[46], by_dscp[0]), (2, 0));
    let QueueConfig::Drr(config) = queue("queue drr quantum 3000 queue 1 weight 2") else {
        panic!("it is DRR")
    };
    assert_eq!((config.weights, config.quantum, config.by_dscp), (vec![1, 2], 3000, None));
}

#[test]
fn the_other_kinds_of_queue_take_the_words_of_tc() {
    let QueueConfig::Codel(codel) = queue("queue codel target 2ms interval 30ms ecn") else {
        panic!("it is CoDel")
    };
    assert_eq!((codel.params.target, codel.params.interval), (2 * MS, 30 * MS));
    assert!(codel.params.ecn && !read("queue codel ecn").unwrap().loss_ecn);
    let QueueConfig::FqCodel(fq) = queue("queue fq_codel flows 16 quantum 300 noecn limit 77")
    else {
        panic!("it is FQ-CoDel")
    };
    assert_eq!((fq.flows, fq.quantum, fq.codel.ecn, fq.limit), (16, 300, false, 77));
    let QueueConfig::Pie(pie) = queue("queue pie target 20ms tupdate 10ms ecn") else {
        panic!("it is PIE")
    };
    assert_eq!((pie.target, pie.update, pie.ecn_below), (20 * MS, 10 * MS, 0.1));
    let fifo = |limit, drop_head| QueueConfig::Fifo(FifoConfig { limit, drop_head });
    assert_eq!(queue("queue bfifo limit 30k"), fifo(Limit::Bytes(30_720), false));
    assert_eq!(queue("queue pfifo_head_drop limit 9"), fifo(Limit::Packets(9), true));
}

#[test]
fn errors_name_the_option_and_the_word() {
    for (line, message) in [
        ("dealy 1ms", "unknown keyword \"dealy\"; did you mean \"delay\"?"),
        ("delay", "delay lacks its value; write delay 20ms"),
        ("delay soon", "delay \"soon\" is not a time; write it like 20ms"),
        ("delay 20", "delay 20 has no unit; write 20ms or 20us"),
        ("loss 120%", "loss \"120%\" is not a percentage; write it like 1%, or state, or gemodel"),
        ("packets 3", "packets stands behind slot; write slot 800us packets …"),
        ("target 5ms", "target stands behind queue codel; write queue codel target …"),
        ("slot 2ms 1ms", "slot MIN is above slot MAX; give a value in its range"),
        ("limit 0", "limit 0 is too small; give 1 or more"),
        ("queue red avpkt 1000", "queue red lacks limit; add limit 60k"),
        ("queue red limit 1m", "queue red lacks avpkt; add avpkt 1000"),
        ("queue red limit much", "limit \"much\" is not a size in bytes; write it like 60k"),
        (
            "queue red limit 400000 min 30000 max 90000 avpkt 1000 burst 10",
            "red burst is too small for min; it must be more than 30 packets; give a value in its \
             range",
        ),
        ("queue red limit 9000 avpkt 0", "avpkt must not be zero; give a value in its range"),
        (
            "queue red limit 9k max 9m avpkt 1k",
            "red max is above red limit; give a value in its range",
        ),
        (
            "queue red limit 90k min 9k max 8k avpkt 1k",
            "red min is above red max; give a value in its range",
        ),
        ("queue gred", "queue gred lacks vq; add vq limit 60k avpkt 1000"),
        ("queue gred vq", "vq says nothing; write vq limit 60k avpkt 1000"),
        ("queue drr", "queue drr lacks queue; add queue 0 weight 1"),
        ("queue drr queue 99999", "queue 99999 is out of range; give 0 to 4095"),
        ("queue drr queue 0 weight 0", "weight 0 is out of range; give 1 to 65535"),
        ("queue bfifo", "queue bfifo lacks limit; add limit 30k"),
        ("queue red limit 9k avpkt 1k dscp ef", "dscp stands behind vq; write queue gred vq dscp"),
        ("queue odd", "queue \"odd\" is unknown; give fifo, pfifo, bfifo, pfifo_head_drop, codel"),
        ("delay 5ms burst 3k", "burst stands behind rate; write rate 10mbit burst …"),
        ("rate 1mbit burst", "burst lacks its value; write burst 3028"),
        ("rate 1mbit burst much", "burst \"much\" is not a size in bytes; write it like 3028"),
        ("gap 0", "gap 0 is too small; give 1 or more"),
        ("loss pattern", "loss lacks LIST|FILE, such as 3,7,100-110; add it"),
        ("loss pattern 3,0", "loss pattern: \"0\" is not a packet's number from 1, or a range"),
        ("loss pattern 9 8", "loss pattern: packet 9 is beyond the 8 packets after which"),
        ("loss pattern yours", "cannot read"),
    ] {
        let error = read(line).unwrap_err().to_string();
        assert!(error.starts_with(message) && !error.contains('\n'), "{line}: {error}");
    }
}

proptest! {
    #[test]
    fn no_words_panic(
        words in proptest::collection::vec(
            prop_oneof![
                "(limit|gap|seed|delay|loss|state|gemodel|random|slot|distribution|rate|reorder)",
                "(corrupt|duplicate|packets|bytes|ecn|queue|codel|normal|mine|ordered)",
                "(red|gred|vq|dscp|drr|wf2q|weight|avpkt|min|max|burst|quantum|sched|ef)",
                "[0-9.]{1,4}(ms|us|%|mbit)?",
            ],
            0..16,
        )
    ) {
        let _ = read(&words.join(" "));
    }
}

/// Whatever is accepted is played: no number in a text may panic, hang, or take more memory than
/// the packets that came.
#[test]
fn damaged_options_are_refused_in_one_line_or_make_a_link() {
    const ROUNDS: u64 = 20_000;
    let fuzzer = Fuzzer::new(env!("CARGO_MANIFEST_DIR"), "options", ROUNDS);
    fuzzer.with_words(&NUMBERS).try_texts(|line, rng| {
        // Damage could name a file of this machine.
        if line.contains("--trace") {
            return false;
        }
        match read(line) {
            Ok(config) => {
                let _ = Link::new(config, 1).map(|link| play(link, rng, Packet::new));
                true
            }
            Err(error) => {
                assert!(!error.to_string().contains('\n'), "{error}");
                false
            }
        }
    });
}

fn parse(line: &str) -> Result<Settings, WordError> {
    let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    match words.split_first() {
        Some((mode, words)) if mode == "link" => LINK.parse(words),
        Some((mode, words)) if mode == "dev" => DEV.parse(words),
        Some((_, words)) => SHELL.parse(words),
        None => panic!("a line without a mode"),
    }
}

#[test]
fn a_link_holds_both_ways_unless_reverse_says_otherwise() {
    let links = |line: &str| match parse(line).unwrap().plan {
        Plan::Links(links) => links.map(|link| link.rate.map(Bitrate::as_bps)),
        Plan::Rules(_) => panic!("no rules were given"),
    };
    assert_eq!(links("link a b rate 1mbit"), [Some(1_000_000); 2]);
    assert_eq!(links("link a b rate 1mbit reverse rate 2mbit"), [Some(1_000_000), Some(2_000_000)]);
    assert_eq!(links("link a b reverse rate 2mbit"), [None, Some(2_000_000)]);
}

#[test]
fn a_link_is_recorded_in_two_loads() {
    let line = concat!("link a b --trace ", traces!("mahimahi"), " --light ", traces!("trains"));
    let Plan::Links(links) = parse(line).unwrap().plan else { panic!("no rules were given") };
    let shown = links.map(|link| link.words(0));
    let trace = "--trace (delivery opportunities) --light (trains) queue fifo limit 1000";
    assert_eq!(shown, [trace; 2]);
}

#[test]
fn flags_stand_anywhere_and_a_command_keeps_its_own() {
    let arguments =
        parse("shell delay 1ms --audit rate 1mbit --budget 2ms seed 7 -- ls --audit").unwrap();
    assert_eq!(arguments.mode, Mode::Shell { command: vec!["ls".into(), "--audit".into()] });
    assert!(arguments.run.audit);
    assert_eq!((arguments.seed, arguments.run.budget), (7, Duration::from_millis(2)));
    let Plan::Links(links) = arguments.plan else { panic!("no rules were given") };
    assert_eq!(links[0].link_header, vnet::LEN);
    assert_eq!(links[0].overhead.packet, -(vnet::LEN as i32));
}

#[test]
fn what_is_wrong_is_told_with_its_remedy() {
    for (line, told) in [
        ("link a", "link lacks IF2, such as eth2; add it"),
        ("link a a", "a link has two ends"),
        ("link a b dellay 1ms", "did you mean \"delay\"?"),
        ("link a b delay", "delay lacks its value; write delay 20ms"),
        ("link a b rate fast", "rate \"fast\" is not a rate; write it like 10mbit"),
        ("link a b rate 1", "rate 1 has no unit; write 1mbit or 1kbit"),
        ("link a b delay 20", "delay 20 has no unit; write 20ms or 20us"),
        ("link a b delay 20ms 5", "delay 5 has no unit; write 5ms or 5us"),
        ("dev a rate 1mbit reverse rate 2mbit", "write dev a both, or leave it out"),
        ("dev a ingress reverse rate 2mbit", "write dev a both, or leave it out"),
        ("link a b loss 200%", "not a percentage"),
        ("link a b --adit", "did you mean \"--audit\"?"),
        ("link a b --budget", "--budget lacks its value"),
        ("link a b --trace /nonexistent", "cannot read /nonexistent"),
        ("link a b --once", "add --trace FILE"),
        ("link a b --arm", "add --trace FILE"),
        ("link a b --light a", "--light without a trace; add --trace FILE"),
        (
            concat!("link a b --trace ", traces!("steps"), " --light ", traces!("trains")),
            "is not in Mahimahi's form; leave out --light",
        ),
        (
            concat!("link a b --trace ", traces!("mahimahi"), " --light ", traces!("steps")),
            "steps, line 1: no whole number of milliseconds; give a line for each train",
        ),
        ("link a b packets 3", "packets stands behind slot; write slot 800us packets"),
        ("link a b reverse reverse", "give it once"),
        ("link a b -- ls", "link takes no command; leave out"),
        ("link a b rate 1mbit --rules x", "two plans"),
        ("link a b delay 1ms 1ms distribution odd", "no distribution odd"),
        ("dev", "write dev eth0"),
        ("link a b --fifo 100", "give 1 to 99"),
        ("link a b --spin", "write --spin 200us"),
        ("link a b --gro", "write --gro 100us"),
        ("shell --gro 100us", "--gro is for packets between two interfaces; leave it out"),
        ("link a b queue red limit 60k", "queue red lacks avpkt; add avpkt 1000"),
        (
            "link a b rate 1mbit burst 1k",
            "burst 1024 is less than a frame of 1514 bytes; give 1514",
        ),
        ("shell rate 1mbit burst 1499", "less than a frame of 1500 bytes; give 1500 or more"),
        (
            concat!("link a b rate 1mbit burst 3k --trace ", traces!("mahimahi")),
            "burst does not go with delivery opportunities; leave out one of them",
        ),
        ("link a b burst 3k", "burst stands behind rate"),
        ("link a b rate 1mbit 24 burst 1514", "a frame of 1538 bytes; give 1538 or more"),
        ("link a b limit 9 single queue codel", "leave out one of them"),
        ("link a b sched drr", "sched drr lacks queue; add queue 0 weight 1"),
    ] {
        let error = format!("{:#}", parse(line).unwrap_err());
        assert!(error.contains(told), "{line}: {error}");
        assert!(!error.contains('\n'), "{line}: {error}");
    }
}
