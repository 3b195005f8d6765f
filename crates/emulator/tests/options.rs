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
    assert_eq!(message("gap 0"), "reorder gap must not be zero");
}

proptest! {
    #[test]
    fn no_words_panic(
        words in proptest::collection::vec(
            prop_oneof![
                "(limit|gap|seed|delay|loss|state|gemodel|random|slot|distribution|rate|reorder)",
                "(corrupt|duplicate|packets|bytes|ecn|queue|codel|normal|mine|ordered)",
                "[0-9.]{1,4}(ms|us|%|mbit)?",
            ],
            0..12,
        )
    ) {
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let _ = Options::parse(&words, |_| None);
    }
}
