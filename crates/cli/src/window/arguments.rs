//! The command line of `sheaf window`.

use crate::grammar::{self, Words};
use anyhow::{Context, ensure};
use sheaf_stage::Bitrate;
use sheaf_window::flow::MAX_WINDOW;
use sheaf_window::{Config, Direction, Formula, Policy, Push, Source};

/// Where the capacity of a direction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// It is known.
    Given(Bitrate),
    /// It is found.
    Auto,
    /// It is the interface's speed.
    Link,
}

impl Capacity {
    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Capacity::Given(_) => "given",
            Capacity::Auto => "auto",
            Capacity::Link => "link",
        }
    }
}

/// What the command line says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arguments {
    /// Name of the interface.
    pub dev: String,
    /// Which data is governed.
    pub directions: Vec<Direction>,
    download: Capacity,
    upload: Capacity,
    /// Everything else.
    config: Config,
}

const KEYWORDS: [&str; 10] = [
    "dev",
    "capacity",
    "upload",
    "formula",
    "fixed",
    "direction",
    "quic",
    "push",
    "slack",
    "segments",
];
const FORMULAS: [(&str, Formula); 3] =
    [("1", Formula::EqualWindow), ("2", Formula::EqualRate), ("maxmin", Formula::MaxMin)];

impl Arguments {
    /// Reads `words`.
    pub fn parse(words: &[String]) -> anyhow::Result<Arguments> {
        let mut words = Words::new(words);
        let mut config = Config::default();
        let (mut dev, mut download, mut upload) = (None, None, None);
        let (mut formula, mut fixed, mut directions) = (None, None, &Direction::BOTH[..]);
        while let Some(keyword) = words.next() {
            match keyword {
                "dev" => dev = Some(words.only(keyword, "eth0")?.to_owned()),
                "capacity" => download = Some(capacity(keyword, words.only(keyword, "20mbit")?)?),
                "upload" => upload = Some(capacity(keyword, words.only(keyword, "4mbit")?)?),
                "formula" => {
                    let word = words.only(keyword, "maxmin")?;
                    formula = Some(grammar::choice(keyword, word, &FORMULAS)?);
                }
                "fixed" => fixed = Some(grammar::size(keyword, words.only(keyword, "20000")?)?),
                "direction" => {
                    let [download, upload] = &Direction::BOTH;
                    let choices = [
                        ("download", std::slice::from_ref(download)),
                        ("upload", std::slice::from_ref(upload)),
                        ("both", &Direction::BOTH[..]),
                    ];
                    directions = grammar::choice(keyword, words.only(keyword, "both")?, &choices)?;
                }
                "quic" => {
                    let choices = [("limit", Policy::Limit), ("leave", Policy::Leave)];
                    config.quic =
                        grammar::choice(keyword, words.only(keyword, "leave")?, &choices)?;
                }
                "push" => {
                    let choices = [("auto", Push::Auto), ("on", Push::On), ("off", Push::Off)];
                    config.push = grammar::choice(keyword, words.only(keyword, "auto")?, &choices)?;
                }
                "slack" => config.slack = grammar::time(keyword, words.only(keyword, "1ms")?)?,
                "segments" => {
                    config.min_segments = grammar::number(keyword, words.only(keyword, "2")?)?;
                }
                word => return Err(grammar::unknown(word, &KEYWORDS)),
            }
        }
        let dev = dev.context("no interface is named; write dev eth0")?;
        ensure!(
            formula.is_none() || fixed.is_none(),
            "formula and fixed exclude each other; leave out either"
        );
        if let Some(window) = fixed {
            ensure!(
                (1..=MAX_WINDOW).contains(&window),
                "fixed {window} is no window; give 1 to {MAX_WINDOW} bytes"
            );
            config.formula = Formula::Fixed(window);
        }
        config.formula = formula.unwrap_or(config.formula);
        ensure!(
            upload.is_none() || directions.contains(&Direction::Out),
            "upload has a capacity, but only downloads are governed; leave out either"
        );
        let download = match (download, fixed) {
            (Some(capacity), _) => capacity,
            (None, Some(_)) => Capacity::Auto,
            (None, None) => upload.filter(|_| directions == [Direction::Out]).context(
                "the bottleneck's capacity is missing; write capacity 20mbit, auto, or link",
            )?,
        };
        let arguments = Arguments {
            dev,
            directions: directions.to_vec(),
            download,
            upload: upload.unwrap_or(download),
            config,
        };
        for direction in &arguments.directions {
            // Any speed will do to check the rest.
            arguments.config(*direction, Some(Bitrate::from_mbps(1))).check()?;
        }
        Ok(arguments)
    }

    /// Where the capacity of `direction` comes from.
    pub fn capacity(&self, direction: Direction) -> Capacity {
        match direction {
            Direction::In => self.download,
            Direction::Out => self.upload,
        }
    }

    /// Whether the interface's speed is needed.
    pub fn needs_speed(&self) -> bool {
        self.directions.iter().any(|direction| self.capacity(*direction) == Capacity::Link)
    }

    /// The parameters of one direction on an interface with `speed`, where that is needed.
    pub fn config(&self, direction: Direction, speed: Option<Bitrate>) -> Config {
        let mut config = self.config.clone();
        match (self.capacity(direction), speed) {
            (Capacity::Given(rate), _) => config.capacity = Source::Given(rate),
            (Capacity::Link, Some(speed)) => config.capacity = Source::Given(speed),
            (Capacity::Auto | Capacity::Link, _) => {}
        }
        config
    }

    /// How the capacity is divided, as on the command line.
    pub fn formula(&self) -> String {
        if let Formula::Fixed(window) = self.config.formula {
            return format!("fixed {window}");
        }
        let name = FORMULAS.iter().find(|(_, formula)| *formula == self.config.formula);
        name.map_or_else(String::new, |(name, _)| (*name).to_owned())
    }
}

/// `20mbit`, `auto` or `link`. A bare number would be bits per second, which nobody expects.
fn capacity(keyword: &str, word: &str) -> anyhow::Result<Capacity> {
    match word {
        "auto" => Ok(Capacity::Auto),
        "link" => Ok(Capacity::Link),
        word => sheaf_emulator::units::rate(word)
            .filter(|_| word.ends_with(|last: char| last.is_ascii_alphabetic()))
            .map(Capacity::Given)
            .with_context(|| {
                format!("{keyword} {word:?} is no rate; write it like 20mbit, or auto, or link")
            }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn parse(line: &str) -> anyhow::Result<Arguments> {
        let words: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
        Arguments::parse(&words)
    }

    #[test]
    fn keywords_stand_in_any_order() {
        let a = parse(
            "dev eth0 capacity 20mbit upload 1.5mbit formula 2 direction both quic limit \
             slack 2ms push on segments 3",
        );
        let b = parse(
            "segments 3 slack 2000us push on quic limit direction both formula 2 upload 1500kbit \
             capacity 20000kbit dev eth0",
        );
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!(a, b);
        let [download, upload] = Direction::BOTH.map(|direction| a.config(direction, None));
        assert_eq!(download.capacity, Source::Given(Bitrate::from_mbps(20)));
        assert_eq!(upload.capacity, Source::Given(Bitrate::from_kbps(1500)));
        assert_eq!((upload.formula, upload.quic), (Formula::EqualRate, Policy::Limit));
        assert_eq!(upload.push, Push::On);
        assert_eq!((upload.slack, upload.min_segments), (Duration::from_millis(2), 3));
    }

    #[test]
    fn what_is_not_given_is_as_for_downloads_and_the_models_default() {
        let arguments = parse("dev x capacity link").unwrap();
        assert!(arguments.needs_speed());
        assert_eq!(arguments.directions, Direction::BOTH);
        let speed = Bitrate::from_mbps(100);
        let expected = Config { capacity: Source::Given(speed), ..Config::default() };
        for direction in Direction::BOTH {
            assert_eq!(arguments.config(direction, Some(speed)), expected);
        }
        let arguments = parse("dev x capacity auto upload 1mbit").unwrap();
        assert!(!arguments.needs_speed());
        assert_eq!(arguments.config(Direction::In, None), Config::default());
        assert_eq!(arguments.formula(), "maxmin");
    }

    #[test]
    fn a_fixed_window_and_an_upload_alone_need_no_capacity() {
        let fixed = parse("dev x fixed 20k").unwrap();
        assert_eq!(fixed.config(Direction::In, None).formula, Formula::Fixed(20 * 1024));
        assert_eq!(fixed.formula(), "fixed 20480");
        let upload = parse("dev x direction upload upload 4mbit").unwrap();
        let rate = Source::Given(Bitrate::from_mbps(4));
        assert_eq!(upload.config(Direction::Out, None).capacity, rate);
        assert_eq!(upload.directions, [Direction::Out]);
    }

    #[test]
    fn every_wrong_line_names_cause_and_remedy() {
        for (line, cause) in [
            ("", "no interface is named; write dev eth0"),
            ("dev", "dev lacks its value; write dev eth0"),
            ("dev x", "capacity is missing; write capacity 20mbit, auto, or link"),
            ("dev x upload 4mbit", "capacity is missing"),
            ("dev x capacity 20", "is no rate; write it like 20mbit"),
            ("dev x capacity fast", "is no rate; write it like 20mbit"),
            ("dev x capacity 0mbit", "a capacity of 0 leaves nothing to divide"),
            ("dev x capacity auto upload 0kbit", "a capacity of 0 leaves nothing to divide"),
            ("dev x capacity auto capacity auto", "capacity is given twice"),
            ("dev x capacity auto formula 3", "give 1 or 2 or maxmin"),
            ("dev x capacity auto formula 1 fixed 9000", "exclude each other; leave out either"),
            ("dev x fixed 0", "fixed 0 is no window; give 1 to"),
            ("dev x fixed 2000m", "is no window"),
            ("dev x capacity auto direction up", "give download or upload or both"),
            ("dev x capacity auto direction download upload 1mbit", "only downloads are governed"),
            ("dev x capacity auto quic drop", "give limit or leave"),
            ("dev x capacity auto push now", "give auto or on or off"),
            ("dev x capacity auto slack 5", "write it like 5ms"),
            ("dev x capacity auto slack 200ms", "choose at most 100 ms"),
            ("dev x capacity auto segments 0", "choose 1 to 10"),
            ("dev x capcity auto", "did you mean \"capacity\"?"),
        ] {
            let error = parse(line).unwrap_err().to_string();
            assert!(error.contains(cause) && error.lines().count() == 1, "{line}: {error}");
        }
    }
}
