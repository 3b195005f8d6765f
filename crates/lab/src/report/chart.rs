//! One line chart as inline SVG: series of ours as lines, published points as markers.

use plotters::coord::Shift;
use plotters::prelude::*;

/// What is drawn.
pub(super) struct Chart<'a> {
    pub x_axis: &'a str,
    pub y_axis: &'a str,
    pub series: Vec<Series>,
    /// Values above are cut off, so that an overload does not flatten the rest.
    pub y_max: Option<f64>,
    /// Horizontal lines with a name: limits of the rules or of the air.
    pub marks: Vec<(String, f64)>,
}

/// A line, or markers for published figures.
pub(super) struct Series {
    pub colour: RGBColor,
    pub points: Vec<(f64, f64)>,
    pub published: bool,
}

const SIZE: (u32, u32) = (760, 380);
const GREY: RGBColor = RGBColor(128, 128, 128);

impl Chart<'_> {
    /// The chart as SVG. Text and grid take the colour of the page around it.
    pub fn svg(&self) -> anyhow::Result<String> {
        let mut svg = String::new();
        {
            let area = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            self.draw(&area)?;
            area.present()?;
        }
        // Plotters knows no "current colour"; black is used for text and axes only.
        let fixed = format!("width=\"{}\" height=\"{}\" ", SIZE.0, SIZE.1);
        Ok(svg.replacen(&fixed, "", 1).replace("#000000", "currentColor"))
    }

    fn draw(&self, area: &DrawingArea<SVGBackend<'_>, Shift>) -> anyhow::Result<()> {
        let points = || self.series.iter().flat_map(|series| &series.points);
        let x_max = points().map(|point| point.0).fold(1.0, f64::max) * 1.02;
        let marks = self.marks.iter().map(|mark| mark.1);
        let top = points().map(|point| point.1).chain(marks).fold(1e-9, f64::max) * 1.05;
        let top = self.y_max.map_or(top, |limit| top.min(limit));

        let mut chart = ChartBuilder::on(area)
            .margin(12)
            .x_label_area_size(52)
            .y_label_area_size(70)
            .build_cartesian_2d(0.0..x_max, 0.0..top)?;
        chart
            .configure_mesh()
            .x_desc(self.x_axis)
            .y_desc(self.y_axis)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| if top < 5.0 { format!("{y:.1}") } else { format!("{y:.0}") })
            .label_style(("sans-serif", 17))
            .axis_desc_style(("sans-serif", 18))
            .bold_line_style(GREY.mix(0.25))
            .light_line_style(TRANSPARENT)
            .draw()?;
        for (name, value) in self.marks.iter().filter(|mark| mark.1 <= top) {
            let line = vec![(0.0, *value), (x_max, *value)];
            chart.draw_series(DashedLineSeries::new(line, 6, 5, GREY.stroke_width(1)))?;
            let place = (x_max * 0.01, *value + top * 0.035);
            chart.draw_series([Text::new(name.clone(), place, ("sans-serif", 16))])?;
        }
        for series in &self.series {
            let inside = series.points.iter().copied().filter(|point| point.1 <= top);
            let style = series.colour.stroke_width(2);
            if series.published {
                let cross = |point| Cross::new(point, 6, style);
                chart.draw_series(inside.map(cross))?;
                continue;
            }
            // Up to the first point above the edge, so that the line leaves the picture.
            let last = series.points.iter().position(|point| point.1 > top);
            let shown = &series.points[..last.map_or(series.points.len(), |last| last + 1)];
            chart.draw_series(LineSeries::new(shown.iter().copied(), style))?;
            let dot = |point| Circle::new(point, 3, series.colour.filled());
            chart.draw_series(inside.map(dot))?;
        }
        Ok(())
    }
}
