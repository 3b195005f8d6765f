//! Tables of distributions: read, written, made from pings.

use proptest::prelude::*;
use sheaf_emulator::Distribution;
use sheaf_emulator::distribution::{DistError, DistProblem};

#[test]
fn a_written_table_reads_back_as_the_same_shape() {
    for name in ["uniform", "normal"] {
        let distribution = Distribution::named(name).unwrap();
        let text = distribution.to_dist_text();
        assert_eq!(text.lines().count(), 1 + 4096 / 8);
        let back = Distribution::parse(&text).unwrap();
        for i in 0..=100 {
            let p = f64::from(i) / 100.0;
            assert!((distribution.quantile(p) - back.quantile(p)).abs() < 1e-3);
        }
    }
}

#[test]
fn a_file_of_any_scale_has_deviation_one_and_needs_no_order() {
    let a = Distribution::parse("# made up\n3 -3 0\n 1 -1 # and so on\n").unwrap();
    let b = Distribution::parse("-300 -100 0 100 300").unwrap();
    for i in 0..=20 {
        let p = f64::from(i) / 20.0;
        assert!((a.quantile(p) - b.quantile(p)).abs() < 1e-12);
    }
}

#[test]
fn errors_carry_the_line() {
    let error = |text: &str| Distribution::parse(text).unwrap_err();
    assert_eq!(error("1 2\n3 x\n"), DistError { line: 2, problem: DistProblem::Number });
    assert_eq!(error("1 2\n\n40000\n"), DistError { line: 3, problem: DistProblem::Number });
    assert_eq!(error(""), DistError { line: 1, problem: DistProblem::TooFew });
    assert_eq!(error("5\n5 5\n"), DistError { line: 2, problem: DistProblem::TooFew });
    assert_eq!(error(&"1 2 ".repeat(40_000)), DistError { line: 1, problem: DistProblem::TooMany });
    assert_eq!(error("1 x").to_string(), "line 1: no number of this kind");
}

#[test]
fn a_ping_log_gives_mean_deviation_correlation_and_shape() {
    let log = "PING 192.0.2.1 (192.0.2.1) 56(84) bytes of data.\n\
        64 bytes from 192.0.2.1: icmp_seq=1 ttl=64 time=10.0 ms\n\
        64 bytes from 192.0.2.1: icmp_seq=2 ttl=64 time=20.0 ms\n\
        64 bytes from 192.0.2.1: icmp_seq=3 ttl=64 time=10.0 ms\n\
        64 bytes from 192.0.2.1: icmp_seq=4 ttl=64 time=20.0 ms\n\
        rtt min/avg/max/mdev = 10.0/15.0/20.0/5.0 ms\n";
    let ping = Distribution::from_ping(log).unwrap();
    assert_eq!((ping.samples, ping.mean_ms), (4, 15.0));
    assert!((ping.deviation_ms - (100.0f64 / 3.0).sqrt()).abs() < 1e-12);
    assert!((ping.correlation + 0.75).abs() < 1e-12);
    let median = ping.distribution.quantile(0.5);
    assert!(median.abs() < 1e-9 && ping.distribution.quantile(0.1) < -1.0);
    let wrong = Distribution::from_ping("time=1 ms\ntime=x ms").unwrap_err();
    assert_eq!(wrong, DistError { line: 2, problem: DistProblem::Number });
    assert_eq!(Distribution::from_ping("").unwrap_err().problem, DistProblem::TooFew);
}

proptest! {
    #[test]
    fn no_text_panics(text in "[-0-9 #\\ntime=.<ms]{0,80}") {
        let ping = Distribution::from_ping(&text).ok().map(|ping| ping.distribution);
        for distribution in [Distribution::parse(&text).ok(), ping].into_iter().flatten() {
            prop_assert!(distribution.quantile(0.3).is_finite());
            let _ = distribution.to_dist_text();
        }
    }
}
