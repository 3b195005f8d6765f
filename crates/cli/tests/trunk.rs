//! `sheaf trunk` between two hosts joined by several cables. Needs root.

mod pair;

use pair::Pair;

#[test]
fn a_file_arrives_whole_over_three_cables_of_frames_and_all_of_them_carry_it() {
    let pair = Pair::new(3).shaped(&[20, 20, 20]);
    let (here, there) = pair.trunks(&pair.frames());
    pair.transfer("10.99.0", 6 << 20);
    let (sent, received) = (here.shown(), there.shown());
    for link in 0..3 {
        let frames = sent["links"][link]["frames_sent"].as_u64().unwrap();
        assert!(frames > 1000, "link {link} carried {frames}: {sent}");
        assert!(received["links"][link]["frames_received"].as_u64().unwrap() > 1000, "{received}");
    }
    assert_eq!(received["refused"], 0);
    assert_eq!(sent["mtu"], 1492, "the header is 8 bytes");
}

#[test]
fn paths_of_ipv4_and_ipv6_and_frames_mix_and_the_narrowest_rules_the_mtu() {
    let pair = Pair::new(3);
    let members = [
        ["path 10.1.0.1 10.1.0.2".to_owned(), "path 10.1.0.2 10.1.0.1".to_owned()],
        ["path fd01:1::1 fd01:1::2".to_owned(), "path fd01:1::2 fd01:1::1".to_owned()],
        pair.frames()[2].clone(),
    ];
    let (here, there) = pair.trunks(&members);
    assert_eq!(here.shown()["mtu"], 1500 - 48 - 8);
    pair.transfer("10.99.0", 4 << 20);
    pair.transfer("fd99:", 4 << 20);
    let (sent, received) = (here.shown(), there.shown());
    for link in 0..3 {
        assert!(sent["links"][link]["frames_sent"].as_u64().unwrap() > 100, "{sent}");
        assert!(received["links"][link]["frames_received"].as_u64().unwrap() > 100, "{received}");
    }
}
