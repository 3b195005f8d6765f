//! Settings of `sheaf window`.

use sheaf_stage::Bitrate;
use sheaf_window::{Config, Direction, Formula, Source};

/// Where the capacity of a direction comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Capacity {
    /// It is known.
    Given(Bitrate),
    /// It is found.
    Auto {
        /// It is never taken to be less; `None` for the default.
        least: Option<Bitrate>,
        /// It is never taken to be more; `None` for the default.
        most: Option<Bitrate>,
    },
    /// It is the interface's speed.
    Link,
}

impl Capacity {
    /// It is found, without bounds.
    pub const AUTO: Capacity = Capacity::Auto { least: None, most: None };

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Capacity::Given(_) => "given",
            Capacity::Auto { .. } => "auto",
            Capacity::Link => "link",
        }
    }
}

/// Settings of the service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Name of the interface.
    pub dev: String,
    /// Data that is governed.
    pub directions: Vec<Direction>,
    /// Where the capacity of downloads comes from.
    pub download: Capacity,
    /// Where the capacity of uploads comes from.
    pub upload: Capacity,
    /// Everything else.
    pub config: Config,
}

impl Settings {
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
            (Capacity::Auto { least, most }, _) => {
                config.capacity = Source::AUTO.within(least, most);
            }
            (Capacity::Link, None) => {}
        }
        config
    }

    /// Formula by which the capacity is divided, as on the command line.
    pub fn formula(&self) -> String {
        let name = match self.config.formula {
            Formula::EqualWindow => "1",
            Formula::EqualRate => "2",
            Formula::MaxMin => "maxmin",
            Formula::Fixed(window) => return format!("fixed {window}"),
        };
        name.to_owned()
    }
}
