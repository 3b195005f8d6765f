//! Quotas: how much a link may carry in a calendar period, as data plans count it.
//!
//! A [`Meter`] counts bytes, without I/O: the monotonic clock and the calendar's are arguments. A
//! period ends when the calendar is in a later one. The calendar's clock may be wrong, above all at
//! boot (1970, or the date of a firmware), so a clock that goes back keeps the later period with
//! all that was counted, and only when it stayed behind for [`BEHIND`] is it believed: what was
//! counted belongs to its period from then on. Counted bytes are never forgotten before their
//! period ends.

use sheaf_stage::{Duration, Instant};
use std::fmt;

/// Time for which the clock has to be behind the counted period before it is believed. A clock that
/// was not set at boot is set long before; one that is wrong for longer is not set by anybody.
pub const BEHIND: Duration = Duration::from_secs(3600);
/// Part of the quota, in percent, at which it counts as nearly used.
pub const NEARLY: u64 = 80;
const DAY: u64 = 86_400;
/// Days from Monday to the Thursday that 1 January 1970 was.
const MONDAY_TO_EPOCH: u64 = 3;
/// Units in which a quota is written, in bytes: decimal, as data plans have them.
const UNITS: [(&str, u64); 4] =
    [("TB", 1_000_000_000_000), ("GB", 1_000_000_000), ("MB", 1_000_000), ("kB", 1_000)];

/// A period of the calendar in UTC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Period {
    /// From midnight on.
    Day,
    /// From Monday on (ISO 8601).
    Week,
    /// From the first of a month on.
    Month,
}

impl Period {
    /// All of them.
    pub const ALL: [Period; 3] = [Period::Day, Period::Week, Period::Month];

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Period::Day => "day",
            Period::Week => "week",
            Period::Month => "month",
        }
    }

    /// The period with this name.
    pub fn named(name: &str) -> Option<Period> {
        Period::ALL.into_iter().find(|period| period.name() == name)
    }

    /// The number of the period in which `utc` is, in seconds since 1970. Later periods have
    /// greater numbers, without a gap.
    pub fn number(self, utc: u64) -> u64 {
        let days = utc / DAY;
        match self {
            Period::Day => days,
            Period::Week => (days + MONDAY_TO_EPOCH) / 7,
            Period::Month => month(days),
        }
    }
}

/// Months from March of the year 0 to the one that is `days` after 1 January 1970, in the Gregorian
/// calendar.
///
/// Years that begin in March have their leap day last, so that months begin where a line says
/// (Hinnant, "chrono-compatible low-level date algorithms", `civil_from_days`).
fn month(days: u64) -> u64 {
    /// Days of 400 years, after which the calendar repeats; of a century and of four years.
    const ERA: u64 = 146_097;
    const CENTURY: u64 = 36_524;
    const FOUR_YEARS: u64 = 1_460;
    /// Days from 1 March of the year 0 to 1 January 1970.
    const EPOCH: u64 = 719_468;
    let days = days + EPOCH;
    let (era, day) = (days / ERA, days % ERA);
    let year = (day - day / FOUR_YEARS + day / CENTURY - day / (ERA - 1)) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    // Five months in a row have 153 days.
    (era * 400 + year) * 12 + (5 * day_of_year + 2) / 153
}

/// The most that a link may carry in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Bytes, both directions together, with the headers of IP and UDP or of Ethernet.
    pub bytes: u64,
    /// The period in which they are counted.
    pub period: Period,
}

impl Quota {
    /// The least quota in bytes: the probes of a day alone take more.
    pub const LEAST: u64 = 1_000_000;

    /// Reads `50GB/month`: a number, a decimal unit in any case, and a period.
    pub fn parse(text: &str) -> Option<Quota> {
        let (size, period) = text.split_once('/')?;
        let digits = size.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, unit) = size.split_at(digits);
        let number: f64 = number.parse().ok()?;
        let (_, factor) = UNITS.into_iter().find(|(name, _)| name.eq_ignore_ascii_case(unit))?;
        // The conversion saturates.
        let bytes = (number * factor as f64).round() as u64;
        Some(Quota { bytes, period: Period::named(period)? })
    }
}

impl fmt::Display for Quota {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Quota { bytes, period } = *self;
        match UNITS.into_iter().find(|(_, factor)| bytes.is_multiple_of(*factor)) {
            Some((unit, factor)) => write!(f, "{}{unit}/{}", bytes / factor, period.name()),
            // A fraction of the smallest unit.
            None => write!(f, "{}kB/{}", bytes as f64 / 1e3, period.name()),
        }
    }
}

/// The bytes counted in a period, to be kept over restarts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record {
    /// Number of the period, see [`Period::number`].
    pub number: u64,
    /// Bytes counted in it.
    pub used: u64,
}

/// News of a quota, from [`Meter::poll`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum News {
    /// [`NEARLY`] percent are used.
    NearlyUsed,
    /// All is used: the link is closed.
    UsedUp,
    /// Another period began: the link is open again.
    Opened,
    /// The clock has been behind the counted period for [`BEHIND`], and is believed now.
    SetBack,
}

/// The use of a quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Level {
    Open,
    Nearly,
    Closed,
}

/// Counts what a link carries against its quota.
#[derive(Clone, Debug)]
pub struct Meter {
    quota: Quota,
    record: Record,
    /// The record that was last kept over restarts.
    kept: Record,
    level: Level,
    /// Time since which the clock has been behind the counted period.
    behind_since: Option<Instant>,
}

impl Meter {
    /// Goes on from `record`, if there is one of an earlier run; else begins at `utc`, in seconds
    /// since 1970.
    pub fn new(quota: Quota, record: Option<Record>, utc: u64) -> Meter {
        let begun = Record { number: quota.period.number(utc), used: 0 };
        let record = record.unwrap_or(begun);
        Meter { quota, record, kept: record, level: Level::Open, behind_since: None }
    }

    /// The quota.
    pub fn quota(&self) -> Quota {
        self.quota
    }

    /// The bytes counted so far.
    pub fn record(&self) -> Record {
        self.record
    }

    /// Whether the link is closed, as its quota was used up at the last [`Meter::poll`].
    pub fn is_closed(&self) -> bool {
        self.level == Level::Closed
    }

    /// Counts `bytes` that were sent or received.
    pub fn count(&mut self, bytes: usize) {
        self.record.used = self.record.used.saturating_add(bytes as u64);
    }

    /// Looks what is used up and which period it is: `utc` is the calendar's time in seconds since
    /// 1970. Returns the first thing that changed, so call it until it returns nothing.
    pub fn poll(&mut self, now: Instant, utc: u64) -> Option<News> {
        let number = self.quota.period.number(utc);
        if number >= self.record.number {
            self.behind_since = None;
            if number > self.record.number {
                self.record = Record { number, used: 0 };
            }
        } else if now - *self.behind_since.get_or_insert(now) >= BEHIND {
            self.record.number = number;
            return Some(News::SetBack);
        }
        let Quota { bytes, .. } = self.quota;
        let level = match self.record.used {
            used if used >= bytes => Level::Closed,
            used if u128::from(used) * 100 >= u128::from(bytes) * u128::from(NEARLY) => {
                Level::Nearly
            }
            _ => Level::Open,
        };
        match (std::mem::replace(&mut self.level, level), level) {
            (Level::Open | Level::Nearly, Level::Closed) => Some(News::UsedUp),
            (Level::Closed, Level::Open | Level::Nearly) => Some(News::Opened),
            (Level::Open, Level::Nearly) => Some(News::NearlyUsed),
            _ => None,
        }
    }

    /// Whether it counted since [`Meter::keep`].
    pub fn has_changed(&self) -> bool {
        self.record != self.kept
    }

    /// Whether a percent of the quota or more was used since [`Meter::keep`], or a period began.
    pub fn has_changed_much(&self) -> bool {
        let used = self.record.used.saturating_sub(self.kept.used);
        self.record.number != self.kept.number || used >= (self.quota.bytes / 100).max(1)
    }

    /// Notes that what is counted now is kept over restarts.
    pub fn keep(&mut self) {
        self.kept = self.record;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seconds since 1970 at midnight of a date.
    fn midnight(year: u64, month: u64, day: u64) -> u64 {
        let leap = |year: u64| {
            year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400)
        };
        let years: u64 = (1970..year).map(|year| if leap(year) { 366 } else { 365 }).sum();
        let february = if leap(year) { 29 } else { 28 };
        let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let months: u64 = lengths[..month as usize - 1].iter().sum();
        (years + months + day - 1) * DAY
    }

    fn quota(text: &str) -> Quota {
        Quota::parse(text).unwrap()
    }

    /// A meter that begins at `utc`, and all that it says at `seconds` of the monotonic clock.
    fn meter(text: &str, utc: u64) -> Meter {
        Meter::new(quota(text), None, utc)
    }

    fn news(meter: &mut Meter, seconds: u64, utc: u64) -> Vec<News> {
        let now = Instant::from_millis(seconds * 1000);
        std::iter::from_fn(|| meter.poll(now, utc)).collect()
    }

    #[test]
    fn a_month_ends_at_midnight_after_its_last_day_in_leap_years_too() {
        let number = |utc| Period::Month.number(utc);
        let mut before = number(0);
        for year in 1970..2500 {
            for month in 1..=12 {
                let first = midnight(year, month, 1);
                assert_eq!(number(first), before + u64::from(first > 0), "{year}-{month}");
                assert!(first == 0 || number(first - 1) == before, "{year}-{month}");
                before = number(first);
            }
        }
        // Leap years by each of the rules.
        for (year, days) in [(2023, 28), (2024, 29), (2000, 29), (2100, 28), (2400, 29)] {
            let last = midnight(year, 2, days);
            assert_eq!(number(last), number(midnight(year, 2, 1)), "{year}");
            assert_eq!(number(last + DAY), number(last) + 1, "{year}");
        }
    }

    #[test]
    fn a_week_begins_on_monday_and_a_day_at_midnight() {
        // A Monday.
        let monday = midnight(2026, 11, 23);
        let week = |utc| Period::Week.number(utc);
        assert_eq!(week(monday), week(monday - 1) + 1);
        assert_eq!(week(monday + 7 * DAY - 1), week(monday));
        assert_eq!(week(monday + 7 * DAY), week(monday) + 1);
        let day = |utc| Period::Day.number(utc);
        assert_eq!((day(monday - 1) + 1, day(monday + DAY - 1)), (day(monday), day(monday)));
    }

    #[test]
    fn sizes_are_decimal_as_data_plans_write_them() {
        for (text, bytes, period, shown) in [
            ("50GB/month", 50_000_000_000, Period::Month, "50GB/month"),
            ("1.5tb/week", 1_500_000_000_000, Period::Week, "1500GB/week"),
            ("500MB/day", 500_000_000, Period::Day, "500MB/day"),
            ("1000.5kB/day", 1_000_500, Period::Day, "1000.5kB/day"),
        ] {
            assert_eq!(quota(text), Quota { bytes, period });
            assert_eq!(quota(text).to_string(), shown);
            assert_eq!(quota(shown), quota(text));
        }
        for wrong in [
            "50GB",
            "50/month",
            "GB/month",
            "50GiB/month",
            "-1GB/month",
            "1e3GB/month",
            "50 GB/day",
            "1.2.3GB/day",
            "50GB/year",
            "50GB/",
            "/month",
            "nanGB/day",
            "",
        ] {
            assert_eq!(Quota::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn it_warns_once_at_four_fifths_and_once_when_used_up_and_opens_with_the_next_month() {
        let now = midnight(2026, 11, 23);
        let mut meter = meter("10MB/month", now);
        meter.count(7_999_999);
        assert_eq!(news(&mut meter, 0, now), []);
        meter.count(1);
        assert_eq!(news(&mut meter, 1, now), [News::NearlyUsed]);
        meter.count(1_999_999);
        assert_eq!(news(&mut meter, 2, now), []);
        assert!(!meter.is_closed());
        meter.count(1);
        assert_eq!(news(&mut meter, 3, now), [News::UsedUp]);
        assert!(meter.is_closed());
        meter.count(1500);
        let end = midnight(2026, 12, 1);
        assert_eq!(news(&mut meter, 4, end - 1), []);
        assert!(meter.is_closed());
        assert_eq!(news(&mut meter, 5, end), [News::Opened]);
        assert_eq!((meter.is_closed(), meter.record().used), (false, 0));
        // What is used at one go is one warning.
        meter.count(20_000_000);
        assert_eq!(news(&mut meter, 6, end), [News::UsedUp]);
        // The whole of the next month passed with the machine asleep.
        assert_eq!(news(&mut meter, 7, midnight(2027, 2, 1)), [News::Opened]);
    }

    #[test]
    fn a_run_goes_on_where_the_one_before_ended_and_another_quota_counts_what_was_used() {
        let now = midnight(2026, 11, 23);
        let mut first = meter("10MB/month", now);
        first.count(10_000_000);
        let resume = |text| Meter::new(quota(text), Some(first.record()), now + DAY);
        let mut same = resume("10MB/month");
        assert_eq!(news(&mut same, 0, now + DAY), [News::UsedUp]);
        let mut larger = resume("20MB/month");
        assert_eq!(news(&mut larger, 0, now + DAY), []);
        assert_eq!(larger.record().used, 10_000_000);
        let mut later = resume("10MB/month");
        assert_eq!(news(&mut later, 0, midnight(2026, 12, 1)), []);
        assert_eq!(later.record().used, 0);
    }

    #[test]
    fn a_clock_that_is_not_set_at_boot_forgets_nothing_and_opens_nothing() {
        let now = midnight(2026, 11, 23);
        let used = Record { number: Period::Month.number(now), used: 10_000_000 };
        for boot in [0, midnight(2000, 1, 1), midnight(2026, 10, 31)] {
            let mut meter = Meter::new(quota("10MB/month"), Some(used), boot);
            assert_eq!(news(&mut meter, 0, boot), [News::UsedUp]);
            assert_eq!(news(&mut meter, 3599, boot + 3599), []);
            assert_eq!(meter.record(), used);
            // Set: the same month goes on, and the next one begins as always.
            assert_eq!(news(&mut meter, 3600, now), []);
            assert_eq!((meter.record(), meter.is_closed()), (used, true));
            assert_eq!(news(&mut meter, 3601, midnight(2026, 12, 1)), [News::Opened]);
        }
    }

    #[test]
    fn a_clock_that_stays_behind_is_believed_after_an_hour_and_what_was_used_stays_used() {
        let now = midnight(2026, 11, 23);
        // Counted with a clock of the year 2099.
        let wrong = Record { number: Period::Month.number(midnight(2099, 1, 1)), used: 9_000_000 };
        let mut meter = Meter::new(quota("10MB/month"), Some(wrong), now);
        assert_eq!(news(&mut meter, 0, now), [News::NearlyUsed]);
        assert_eq!(news(&mut meter, 3599, now), []);
        assert_eq!(news(&mut meter, 3600, now), [News::SetBack]);
        let right = Record { number: Period::Month.number(now), used: 9_000_000 };
        assert_eq!(meter.record(), right);
        assert!(meter.has_changed_much());
        // A number that no clock shows is one of the future, too.
        let absurd = Record { number: u64::MAX, used: u64::MAX };
        let mut meter = Meter::new(quota("10MB/month"), Some(absurd), now);
        meter.count(1500);
        assert_eq!(news(&mut meter, 0, now), [News::UsedUp]);
        assert_eq!(news(&mut meter, 3600, now), [News::SetBack]);
        assert_eq!(news(&mut meter, 3601, midnight(2026, 12, 1)), [News::Opened]);
        // The clock's own end is no reason to panic.
        assert!(Period::ALL.iter().all(|period| period.number(u64::MAX) > 0));
    }

    #[test]
    fn it_is_worth_keeping_with_each_percent_and_each_period() {
        let now = midnight(2026, 11, 23);
        let mut meter = meter("10MB/month", now);
        assert!(!meter.has_changed());
        meter.count(99_999);
        assert!(meter.has_changed() && !meter.has_changed_much());
        meter.count(1);
        assert!(meter.has_changed_much());
        meter.keep();
        assert!(!meter.has_changed());
        news(&mut meter, 0, midnight(2026, 12, 1));
        assert!(meter.has_changed_much());
    }
}
