//! One line chart as inline SVG: measured series as lines with whiskers, published points as
//! markers.

use plotters::coord::Shift;
use plotters::prelude::*;

/// The content of a chart.
pub(super) struct Drawing {
    pub x_axis: String,
    pub y_axis: String,
    pub lines: Vec<Line>,
    /// Values above are cut off, so that an overload does not flatten the rest.
    pub y_max: Option<f64>,
    /// Values below are drawn at this one.
    pub y_min: Option<f64>,
    /// Whether the vertical axis is logarithmic; values that are not above zero are left out.
    pub log: bool,
    /// Horizontal lines with a name: limits of the rules or of the air.
    pub marks: Vec<(String, f64)>,
    /// Whether each point has a dot; curves of many points have none.
    pub dots: bool,
}

/// A line, or markers for published figures.
pub(super) struct Line {
    pub colour: RGBColor,
    pub points: Vec<(f64, f64)>,
    /// Intervals of the values: place, lower and upper end.
    pub whiskers: Vec<(f64, f64, f64)>,
    pub published: bool,
}

/// Width and height in the units of the text: small, so that labels can still be read when a
/// telephone shows the chart 360 pixels wide.
const SIZE: (u32, u32) = (560, 320);
const GREY: RGBColor = RGBColor(128, 128, 128);

impl Drawing {
    /// The chart as SVG. Text and grid take the colour of the page around it.
    pub fn svg(mut self) -> anyhow::Result<String> {
        let least = self.y_min.unwrap_or(f64::NEG_INFINITY);
        let points = self.lines.iter_mut().flat_map(|line| &mut line.points);
        points.for_each(|point| point.1 = point.1.max(least));
        for (_, low, high) in self.lines.iter_mut().flat_map(|line| &mut line.whiskers) {
            (*low, *high) = (low.max(least), high.max(least));
        }
        if self.log {
            for line in &mut self.lines {
                line.points.retain(|point| point.1 > 0.0);
                line.points.iter_mut().for_each(|point| point.1 = libm::log10(point.1));
                line.whiskers.retain(|whisker| whisker.1 > 0.0);
                line.whiskers.iter_mut().for_each(|(_, low, high)| {
                    (*low, *high) = (libm::log10(*low), libm::log10(*high));
                });
            }
            self.marks.retain(|mark| mark.1 > 0.0);
            self.marks.iter_mut().for_each(|mark| mark.1 = libm::log10(mark.1));
            self.y_max = self.y_max.map(libm::log10);
        }
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.draw(&area)?;
            area.present()?;
        }
        // Plotters has no "current colour"; black is used for text and axes only.
        let fixed = format!("width=\"{}\" height=\"{}\" ", SIZE.0, SIZE.1);
        Ok(svg.replacen(&fixed, "", 1).replace("#000000", "currentColor"))
    }

    /// The lowest and the highest value shown.
    fn range(&self) -> (f64, f64) {
        let values = || {
            let marks = self.marks.iter().map(|mark| mark.1);
            let whiskers = self.lines.iter().flat_map(|line| &line.whiskers);
            let ends = whiskers.flat_map(|(_, low, high)| [*low, *high]);
            let points = self.lines.iter().flat_map(|line| &line.points).map(|point| point.1);
            points.chain(ends).chain(marks)
        };
        let top = values().fold(f64::NEG_INFINITY, f64::max);
        let bottom = values().fold(f64::INFINITY, f64::min);
        let top = match (self.log, top.is_finite()) {
            (_, false) => 1.0,
            (true, true) => top.ceil().max(bottom.floor() + 1.0),
            (false, true) if top > 0.0 => top * 1.05,
            // All zero, or below it.
            (false, true) => {
                if bottom < 0.0 {
                    -0.05 * bottom
                } else {
                    1.0
                }
            }
        };
        let top = self.y_max.map_or(top, |limit| top.min(limit));
        match self.log {
            true if bottom.is_finite() => (bottom.floor().min(top - 1.0), top),
            true => (top - 1.0, top),
            // Errors may lie below zero.
            false => (bottom.min(0.0) * 1.05, top),
        }
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> anyhow::Result<()> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x_max = points().map(|point| point.0).fold(0.0, f64::max);
        let x_max = if x_max > 0.0 { x_max * 1.02 } else { 1.0 };
        let (bottom, top) = self.range();
        let number = |value: f64| match value.abs() {
            0.0 => "0".to_owned(),
            size if size >= 1e6 => format!("{value:.0e}"),
            size if size >= 10.0 => format!("{value:.0}"),
            size if size >= 0.1 => format!("{value:.1}"),
            _ => format!("{value:.0e}"),
        };
        let label = |y: &f64| match self.log {
            true => number(libm::pow(10.0, *y)),
            false if top - bottom < 0.1 => format!("{y:.1e}"),
            false if top - bottom < 2.0 => format!("{y:.2}"),
            // Ten steps of less than 1 need a digit, or labels repeat.
            false if top - bottom < 10.0 => format!("{y:.1}"),
            false => format!("{y:.0}"),
        };

        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(52)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..x_max, bottom..top)?;
        chart
            .configure_mesh()
            .x_desc(&self.x_axis)
            .y_desc(&self.y_axis)
            .x_label_formatter(&|x| if x_max < 5.0 { format!("{x:.1}") } else { format!("{x:.0}") })
            .y_label_formatter(&label)
            .label_style(("sans-serif", 16))
            .axis_desc_style(("sans-serif", 17))
            .bold_line_style(GREY.mix(0.25))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (name, value) in self.marks.iter().filter(|mark| mark.1 <= top) {
            let line = vec![(0.0, *value), (x_max, *value)];
            chart.draw_series(DashedLineSeries::new(line, 6, 5, GREY.stroke_width(1)))?;
            let place = (x_max * 0.01, *value + (top - bottom) * 0.035);
            chart.draw_series([Text::new(name.clone(), place, ("sans-serif", 16))])?;
        }
        for line in &self.lines {
            let inside = line.points.iter().copied().filter(|point| point.1 <= top);
            let style = line.colour.stroke_width(2);
            if line.published {
                let cross = |point| Cross::new(point, 6, style);
                chart.draw_series(inside.map(cross))?;
                continue;
            }
            // Up to the first point above the edge, so that the line leaves the picture.
            let last = line.points.iter().position(|point| point.1 > top);
            let shown = &line.points[..last.map_or(line.points.len(), |last| last + 1)];
            chart.draw_series(LineSeries::new(shown.iter().copied(), style))?;
            let whiskers = line.whiskers.iter().filter(|(_, low, high)| low < high && *low <= top);
            chart.draw_series(whiskers.map(|(x, low, high)| {
                PathElement::new([(*x, *low), (*x, high.min(top))], line.colour.stroke_width(1))
            }))?;
            if self.dots {
                let dot = |point| Circle::new(point, 3, line.colour.filled());
                chart.draw_series(inside.map(dot))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(points: &[(f64, f64)], log: bool) -> Drawing {
        let line =
            Line { colour: GREY, points: points.to_vec(), whiskers: Vec::new(), published: false };
        Drawing {
            x_axis: "time (s)".to_owned(),
            y_axis: "loss (%)".to_owned(),
            lines: vec![line],
            y_max: None,
            y_min: None,
            log,
            marks: vec![("limit".to_owned(), 0.0)],
            dots: true,
        }
    }

    #[test]
    fn a_logarithmic_axis_is_labelled_with_values_and_leaves_out_what_it_cannot_show() {
        let svg = drawing(&[(1.0, 10.0), (2.0, 1000.0), (3.0, 0.0), (4.0, -1.0)], true).svg();
        let svg = svg.unwrap();
        assert_eq!(svg.matches("<circle").count(), 2, "{svg}");
        for label in [">\n10\n<", ">\n1000\n<", ">\nloss (%)\n<", ">\ntime (s)\n<"] {
            assert!(svg.contains(label), "{label:?} {svg}");
        }
    }

    #[test]
    fn an_interval_is_a_whisker_that_the_chart_has_room_for_or_cuts_off_at_its_edge() {
        let drawn = |whiskers: &[(f64, f64, f64)], y_max, log| {
            let mut drawing = drawing(&[(1.0, 10.0), (2.0, 20.0)], log);
            drawing.lines[0].colour = RGBColor(1, 2, 3);
            drawing.lines[0].whiskers = whiskers.to_vec();
            drawing.y_max = y_max;
            let range = drawing.range();
            let svg = drawing.svg().unwrap();
            (svg.matches("stroke=\"#010203\" stroke-width=\"1\"").count(), range)
        };
        let (count, range) = drawn(&[(1.0, -3.0, 12.0), (2.0, 18.0, 40.0)], None, false);
        assert_eq!(count, 2);
        assert!(range.0 <= -3.0 && range.1 >= 40.0, "{range:?}");
        // The second begins above the edge.
        let (count, range) = drawn(&[(1.0, 8.0, 16.0), (2.0, 18.0, 40.0)], Some(15.0), false);
        assert_eq!((count, range.1), (1, 15.0));
        // A value without spread has no whisker, nor has zero a place on a logarithmic axis.
        assert_eq!(drawn(&[(1.0, 10.0, 10.0), (2.0, 0.0, 40.0)], None, true).0, 0);
    }

    #[test]
    fn nothing_zeros_and_one_point_can_be_drawn() {
        let cases: [&[(f64, f64)]; 4] = [&[], &[(0.0, 0.0)], &[(5.0, -3.0)], &[(1e-9, 1e12)]];
        for points in cases {
            for log in [false, true] {
                assert!(drawing(points, log).svg().unwrap().starts_with("<svg"), "{points:?}");
            }
        }
    }
}
