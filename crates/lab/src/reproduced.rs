//! The published values beside ours, one by one.

use crate::plan_file::Published;
use crate::reading::Reading;
use crate::result::RunResult;
use crate::view::Axis;

/// Part by which a value of ours may differ from a published one and still counts as reproduced.
/// The works print two or three digits, and none says all that its testbed was.
pub const TOLERANCE: f64 = 0.15;

/// A published value beside ours.
#[derive(Clone, Debug)]
pub struct Value<'a> {
    /// Its entry in the plan.
    pub published: &'a Published,
    /// Key of the number, as in the plan.
    pub key: &'a str,
    /// Its label and unit; no unit for multiples of another treatment.
    pub axis: Axis,
    /// Its place in the sweep; `None` for a value of the whole sweep.
    pub x: Option<f64>,
    /// The published value.
    pub theirs: f64,
    /// Ours; `None` where it was not measured.
    pub ours: Option<Reading>,
}

impl Value<'_> {
    /// Ours over theirs; `None` where ours was not measured, or only theirs is zero.
    pub fn ratio(&self) -> Option<f64> {
        let ours = self.ours?.value;
        match self.theirs == 0.0 {
            true => (ours == 0.0).then_some(1.0),
            false => Some(ours / self.theirs),
        }
    }

    /// Whether ours is theirs within the [tolerance](TOLERANCE), or as the source rounds it.
    pub fn is_reproduced(&self) -> bool {
        let difference = self.ours.map(|ours| (ours.value - self.theirs).abs());
        let hidden = self.published.rounded.unwrap_or(0.0) / 2.0;
        difference.is_some_and(|difference| difference <= hidden.max(TOLERANCE * self.theirs.abs()))
    }
}

/// The published values of `result`, in the order of its plan.
pub fn values(result: &RunResult) -> Vec<Value<'_>> {
    let mut values = Vec::new();
    for published in &result.published {
        let Published { scenario, treatment, times, .. } = published;
        let times = Some(times.as_str()).filter(|times| !times.is_empty());
        let axis = |axis: Option<Axis>, key: &str| {
            let axis = axis.unwrap_or_else(|| Axis::new(key, ""));
            match times {
                None => axis,
                Some(times) => Axis::new(&format!("{}, times that of {times}", axis.label), ""),
            }
        };
        for (key, theirs) in &published.summary {
            let column = result.view.summary.iter().find(|column| column.key == *key);
            let axis = axis(column.map(|column| column.axis()), key);
            let ours = result.number(scenario, treatment, times, key, None);
            values.push(Value { published, key, axis, x: None, theirs: *theirs, ours });
        }
        for (key, points) in &published.points {
            let axis = axis(result.view.metric(key).map(|metric| metric.axis()), key);
            for (x, theirs) in points {
                let ours = result.number(scenario, treatment, times, key, Some(*x));
                let (axis, x) = (axis.clone(), Some(*x));
                values.push(Value { published, key, axis, x, theirs: *theirs, ours });
            }
        }
    }
    values
}
