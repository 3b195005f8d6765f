//! Links with a rate of their own, bit errors at basic rates, and collisions.

use sheaf_medium::phy::Phy;
use sheaf_medium::{Config, ConfigError, Frame, Hearing, Link, Medium, RadioId, To, Transmission};
use sheaf_stage::{Bitrate, Instant, Stage};

const DSSS: Phy = Phy::Dsss { short_preamble: false };

/// Two radios at 11 Mbit/s that hear each other over `link`.
fn pair(link: Link) -> Config {
    let mut config = Config::new(DSSS, 2, Bitrate::from_mbps(11));
    config.hearing = Hearing::Table(vec![vec![link; 2]; 2]);
    config
}

fn frame(from: u32, to: To) -> Frame<()> {
    Frame { from: RadioId(from), to, bytes: 1500, payload: () }
}

/// Runs the medium until nothing is left to do.
fn drain(medium: &mut Medium<()>) -> Vec<Transmission<()>> {
    let mut done = Vec::new();
    while let Some(now) = medium.next_deadline() {
        done.extend(std::iter::from_fn(|| medium.dequeue(now)));
    }
    done
}

#[test]
fn a_link_with_a_rate_of_its_own_is_used_at_that_rate_and_a_group_at_the_lowest() {
    let slow = Link { rate: Some(Bitrate::from_mbps(2)), ..Link::PERFECT };
    for (link, micros) in [(Link::PERFECT, 192 + 1118), (slow, 192 + 6144)] {
        let mut medium = Medium::new(pair(link), 1).unwrap();
        medium.enqueue(frame(0, To::Radio(RadioId(1))), Instant::ZERO).unwrap();
        drain(&mut medium);
        assert_eq!(medium.stats(RadioId(0)).air_time.as_micros(), micros);
    }
    let mut medium = Medium::new(pair(slow), 1).unwrap();
    medium.enqueue(frame(0, To::Broadcast), Instant::ZERO).unwrap();
    drain(&mut medium);
    assert_eq!(medium.stats(RadioId(0)).air_time.as_micros(), 192 + 12_288);
    let wrong = Link { rate: Some(Bitrate::from_mbps(6)), ..Link::PERFECT };
    let refused = Medium::<()>::new(pair(wrong), 1).unwrap_err();
    assert_eq!(refused, ConfigError::Rate { radio: 0, rate: Bitrate::from_mbps(6) });
}

#[test]
fn bit_errors_at_the_data_rate_spare_groups_and_those_at_basic_rates_spare_data() {
    let spoilt = |ber, basic_ber, to| {
        let mut medium = Medium::new(pair(Link { ber, basic_ber, ..Link::PERFECT }), 1).unwrap();
        medium.enqueue(frame(0, to), Instant::ZERO).unwrap();
        drain(&mut medium)[0].result.is_err()
    };
    let one = To::Radio(RadioId(1));
    assert!(spoilt(0.1, Some(0.0), one) && !spoilt(0.1, Some(0.0), To::Broadcast));
    assert!(spoilt(0.0, Some(0.1), To::Broadcast) && spoilt(0.1, None, To::Broadcast));
    // The data arrives; its acknowledgement, at a basic rate, does not.
    let mut medium = Medium::new(pair(Link { basic_ber: Some(0.5), ..Link::PERFECT }), 1).unwrap();
    medium.enqueue(frame(0, one), Instant::ZERO).unwrap();
    assert_eq!(drain(&mut medium)[0].retries, 6);
}

#[test]
fn hidden_stations_count_the_frames_that_they_spoil_and_a_lone_one_counts_none() {
    let mut config = Config::new(DSSS, 3, Bitrate::from_mbps(11));
    let mut links = vec![vec![Link::PERFECT; 3]; 3];
    (links[0][2], links[2][0]) = (Link::NONE, Link::NONE);
    config.hearing = Hearing::Table(links);
    let mut medium = Medium::new(config, 1).unwrap();
    let middle = To::Radio(RadioId(1));
    medium.enqueue(frame(0, middle), Instant::ZERO).unwrap();
    drain(&mut medium);
    assert_eq!(medium.stats(RadioId(0)).collisions, 0);
    let now = Instant::from_millis(100);
    for from in [0, 2] {
        medium.enqueue(frame(from, middle), now).unwrap();
    }
    drain(&mut medium);
    for radio in [0, 2] {
        let stats = medium.stats(RadioId(radio));
        assert!(stats.collisions >= 1, "both began at the same time");
        assert_eq!(stats.collisions, stats.retries, "nothing else spoils frames here");
    }
}
