//! The mixes of links that are measured.

use super::link::{LinkSpec, link};

/// A mix of links.
pub struct Mix {
    pub name: &'static str,
    pub links: Vec<LinkSpec>,
}

/// Seven mixes of two kinds of links, then the sixteen of the benchmark
/// (`cargo bench -p sheaf --bench trunk -- mixes`).
pub fn mixes() -> Vec<Mix> {
    let mix = |name, links: &[LinkSpec]| Mix { name, links: links.to_vec() };
    vec![
        mix("20 2% | 20", &[link(20.0, 10.0).loss(2.0), link(20.0, 10.0)]),
        mix("20 0.5% | 20", &[link(20.0, 10.0).loss(0.5), link(20.0, 10.0)]),
        mix("20±9 | 20", &[link(20.0, 10.0).jitter(9.0), link(20.0, 10.0)]),
        mix("LTE 20 50ms | DSL 20 10ms", &[link(20.0, 50.0), link(20.0, 10.0)]),
        mix("LTE 20 50ms | DSL 5 10ms", &[link(20.0, 50.0), link(5.0, 10.0)]),
        mix("100 | 1", &[link(100.0, 10.0), link(1.0, 10.0)]),
        mix("GEO 10 300ms | 20", &[link(10.0, 300.0), link(20.0, 10.0)]),
        mix("base 50 | 50", &[link(50.0, 20.0), link(50.0, 20.0)]),
        mix("50 | 50 40ms", &[link(50.0, 20.0), link(50.0, 40.0)]),
        mix("50 | 50 70ms", &[link(50.0, 20.0), link(50.0, 70.0)]),
        mix("50 | 50 120ms", &[link(50.0, 20.0), link(50.0, 120.0)]),
        mix("50 | 50 320ms", &[link(50.0, 20.0), link(50.0, 320.0)]),
        mix("50±5 | 50±5", &[link(50.0, 20.0).jitter(5.0); 2]),
        mix("50±20 | 50±20", &[link(50.0, 20.0).jitter(20.0); 2]),
        mix("50 .5% | 50 .5%", &[link(50.0, 20.0).loss(0.5); 2]),
        mix("50 2% | 50 2%", &[link(50.0, 20.0).loss(2.0); 2]),
        mix("50 | 12", &[link(50.0, 20.0), link(12.0, 20.0)]),
        mix("100 | 10", &[link(100.0, 20.0), link(10.0, 20.0)]),
        mix(
            "30±5 40 .5% | 45±8 25 .5%",
            &[link(40.0, 30.0).jitter(5.0).loss(0.5), link(25.0, 45.0).jitter(8.0).loss(0.5)],
        ),
        mix("300 8ms | 30 40±8 .5%", &[link(300.0, 8.0), link(30.0, 40.0).jitter(8.0).loss(0.5)]),
        mix(
            "40 35±8 | 100 50±25 1%",
            &[link(40.0, 35.0).jitter(8.0), link(100.0, 50.0).jitter(25.0).loss(1.0)],
        ),
        mix("40 35 | 20 320±20 .5%", &[link(40.0, 35.0), link(20.0, 320.0).jitter(20.0).loss(0.5)]),
        mix(
            "20 50±20 2% | 15 60±25 2%",
            &[link(20.0, 50.0).jitter(20.0).loss(2.0), link(15.0, 60.0).jitter(25.0).loss(2.0)],
        ),
    ]
}
