//! Command lines of tc-netem(8).

use proptest::prelude::*;
use sheaf_emulator::options::{OptionError, Options};
use sheaf_emulator::queue::fifo::FifoConfig;
use sheaf_emulator::{
    Chance, Delay, Distribution, FourState, Gemodel, Limit, LinkConfig, Loss, Overhead,
    QueueConfig, Reorder, Slot, SlotWait,
};
use sheaf_stage::{Bitrate, Duration};

const MS: Duration = Duration::from_millis(1);

fn parse(line: &str) -> Result<Options, OptionError> {
    let words: Vec<&str> = line.split_whitespace().collect();
    Options::parse(&words, |name| (name == "mine").then(|| "1 2 3 4".to_owned()))
}

#[track_caller]
fn gives(line: &str, expected: LinkConfig) {
    assert_eq!(parse(line).unwrap().config, expected, "{line}");
}

fn base() -> LinkConfig {
    LinkConfig::default()
}

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
            overhead: Overhead { packet: 20, cell: 100, per_cell: 5 },
            ..base()
        },
    );
    gives(
        "rate 1mbit -14 limit 77",
        LinkConfig {
            rate: Some(Bitrate::from_mbps(1)),
            overhead: Overhead { packet: -14, ..Overhead::default() },
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
    assert_eq!(parse("seed 42 delay 1500").unwrap().seed, Some(42));
    gives("delay 1500", LinkConfig { delay: Delay::constant(MS * 3 / 2), ..base() });
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
    let config = parse("delay 1ms 1ms distribution mine").unwrap().config;
    assert_eq!(config.delay.distribution, Distribution::parse("1 2 3 4").unwrap());
    let error = parse("delay 1ms distribution yours").unwrap_err();
    assert_eq!(error, OptionError::NoDistribution("yours".into()));
}

fn queue(line: &str) -> QueueConfig {
    parse(line).unwrap().config.queue
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
    assert_eq!(parse(line).unwrap().config.delay.time, 5 * MS, "the words of red have ended");

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
    assert!(codel.params.ecn && !parse("queue codel ecn").unwrap().config.loss_ecn);
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
    let message = |line: &str| parse(line).unwrap_err().to_string();
    assert_eq!(message("dealy 1ms"), "\"dealy\" is no option");
    assert_eq!(message("delay"), "delay: nothing is no time");
    assert_eq!(message("delay soon"), "delay: \"soon\" is no time");
    assert_eq!(message("loss 120%"), "loss: \"120%\" is no percentage");
    assert_eq!(message("packets 3"), "\"packets\" is no option");
    assert_eq!(message("slot 2ms 1ms"), "slot MIN is above slot MAX");
    assert_eq!(message("limit 0"), "limit must not be zero");
    assert_eq!(message("queue red avpkt 1000"), "queue red lacks limit SIZE");
    assert_eq!(message("queue red limit 1m"), "queue red lacks avpkt SIZE");
    assert_eq!(message("queue red limit much"), "queue: \"much\" is no size");
    assert_eq!(
        message("queue red limit 400000 min 30000 max 90000 avpkt 1000 burst 10"),
        "red burst is too small for min; it must be more than 30 packets"
    );
    assert_eq!(message("queue red limit 9000 avpkt 0"), "avpkt must not be zero");
    assert_eq!(message("queue red limit 9k max 9m avpkt 1k"), "red max is above red limit");
    assert_eq!(message("queue red limit 90k min 9k max 8k avpkt 1k"), "red min is above red max");
    assert_eq!(message("queue gred"), "queue gred lacks vq limit SIZE avpkt SIZE");
    assert_eq!(message("queue drr"), "queue drr lacks queue N weight W");
    assert_eq!(message("queue drr queue 99999"), "queue: 99999 is more than 4095");
    assert_eq!(message("queue drr queue 0 weight 0"), "weight must not be zero");
    assert_eq!(message("queue bfifo"), "queue bfifo lacks limit SIZE");
    assert_eq!(message("queue odd"), "queue: \"odd\" is no kind of queue");
    assert_eq!(message("gap 0"), "reorder gap must not be zero");
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
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let _ = Options::parse(&words, |_| None);
    }
}
