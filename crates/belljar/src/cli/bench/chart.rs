//! The chart: a panel for each language, a bar for each way to run a program, its median against the bare program's and a
//! whisker to the last percent. SVG by hand, with the colours of a light and of a dark page.

use super::report::{Column, Report, Row};

const WIDTH: f64 = 760.0;
/// Where bars begin and where the widest may end; behind it is room for its figures.
const LEFT: f64 = 150.0;
const RIGHT: f64 = 620.0;
const BAR: f64 = 14.0;
const LINE: f64 = 22.0;
const PANEL: f64 = 34.0;
const TOP: f64 = 64.0;
/// A whisker beyond this many times the bare program is cut, and says so with an arrow.
const RATIO_MAX: f64 = 3.0;

const STYLE: &str = "text{font:13px system-ui,-apple-system,'Segoe UI',Helvetica,Arial,sans-serif;fill:#1f2328}\
.head{font-size:16px;font-weight:600}.panel{font-weight:600}.quiet{fill:#59636e;font-size:12px}\
.bare{fill:#8c959f}.fresh{fill:#0969da}.fork{fill:#54aeff}.live{fill:#1a7f37}\
.whisker{stroke:#1f2328;stroke-width:1.5;fill:none}.one{stroke:#8c959f;stroke-dasharray:3 3}\
@media(prefers-color-scheme:dark){text{fill:#e6edf3}.quiet{fill:#9198a1}.bare{fill:#6e7681}.fresh{fill:#4493f8}\
.fork{fill:#1f6feb}.live{fill:#3fb950}.whisker{stroke:#e6edf3}.one{stroke:#6e7681}}";

struct Bar {
    class: &'static str,
    label: &'static str,
    p50_ms: f64,
    /// Both to the median of the bare program that was measured in turn with it.
    ratio: f64,
    ratio_p99: f64,
}

struct Panel {
    title: &'static str,
    /// The first is the bare program.
    bars: Vec<Bar>,
}

/// `None` where nothing was measured that belongs on it.
pub(super) fn draw(report: &Report) -> Option<String> {
    let panels = panels(report);
    if panels.is_empty() {
        return None;
    }
    let lines: usize = panels.iter().map(|panel| panel.bars.len()).sum();
    let height = TOP + panels.len() as f64 * PANEL + lines as f64 * LINE + 12.0;
    let scale = (RIGHT - LEFT) / widest(&panels);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" viewBox=\"0 0 {WIDTH} {height}\" \
         role=\"img\" aria-label=\"Time of a sandboxed run against the bare program\">\n<style>{STYLE}</style>\n"
    );
    svg += &text(16.0, 28.0, "head", "A sealed run against the bare program on the same machine");
    svg += &text(
        16.0,
        48.0,
        "quiet",
        "bar: median as a ratio to the bare program; whisker: 99th percentile; stdio, MCP included",
    );
    let mut y = TOP;
    for panel in &panels {
        svg += &text(16.0, y + 22.0, "panel", panel.title);
        y += PANEL;
        let one = LEFT + scale;
        let bottom = y + panel.bars.len() as f64 * LINE;
        svg += &format!(
            "<line class=\"one\" x1=\"{one:.1}\" y1=\"{:.1}\" x2=\"{one:.1}\" y2=\"{bottom:.1}\"/>\n",
            y - 6.0
        );
        for bar in &panel.bars {
            svg += &bar.draw(y, scale);
            y += LINE;
        }
    }
    svg += "</svg>\n";
    Some(svg)
}

/// How many times the bare program the widest bar or whisker is.
fn widest(panels: &[Panel]) -> f64 {
    panels.iter().flat_map(|panel| &panel.bars).map(|bar| bar.ratio_p99).fold(1.25, f64::max).min(RATIO_MAX)
}

impl Bar {
    fn draw(&self, y: f64, scale: f64) -> String {
        let at = |ratio: f64| (LEFT + scale * ratio).min(RIGHT);
        let (end, whisker, middle) = (at(self.ratio), at(self.ratio_p99), y + BAR / 2.0);
        let (top, bottom) = (middle - 4.0, middle + 4.0);
        let tip = if scale * self.ratio_p99 > RIGHT - LEFT + 0.5 {
            format!("M{:.1} {top:.1}L{whisker:.1} {middle:.1}L{:.1} {bottom:.1}", whisker - 5.0, whisker - 5.0)
        } else {
            format!("M{whisker:.1} {top:.1}V{bottom:.1}")
        };
        let figures = format!("{} ms, {} ×", short(self.p50_ms), Column::Ratio.show(self.ratio));
        [
            text(28.0, y + 12.0, "quiet", self.label),
            format!(
                "<rect class=\"{}\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{BAR}\" rx=\"2\"/>\n",
                self.class,
                (end - LEFT).max(1.0)
            ),
            format!("<path class=\"whisker\" d=\"M{end:.1} {middle:.1}H{whisker:.1}{tip}\"/>\n"),
            text(whisker.max(end) + 8.0, y + 12.0, "quiet", &figures),
        ]
        .concat()
    }
}

fn short(ms: f64) -> String {
    if ms < 100.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

fn text(x: f64, y: f64, class: &str, words: &str) -> String {
    let words = words.replace('&', "&amp;").replace('<', "&lt;");
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{words}</text>\n")
}

fn panels(report: &Report) -> Vec<Panel> {
    let python = |group: &'static str| (group, "python, stdio, sequential");
    [
        panel(
            report,
            "Python, print(1+1)",
            ("fresh", "bare python3 -c"),
            python("fresh"),
            Some(python("fork")),
            "python, stdio",
        ),
        panel(report, "Python, import pandas", ("pandas", "bare python3 -c"), python("pandas"), None, ""),
        panel(
            report,
            "JavaScript",
            ("fresh", "bare node -e"),
            ("fresh", "javascript, stdio, sequential"),
            None,
            "javascript, stdio",
        ),
        panel(
            report,
            "TypeScript",
            ("fresh", "bare node -e"),
            ("fresh", "typescript, stdio, sequential"),
            None,
            "typescript, stdio",
        ),
        panel(report, "Shell", ("fresh", "bare bash -c"), ("fresh", "shell, stdio, sequential"), None, "shell, stdio"),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Names are those of a group and of a row in it. Without the bare program or a fresh run there is nothing to show.
fn panel(
    report: &Report,
    title: &'static str,
    bare: (&str, &str),
    fresh: (&str, &str),
    fork: Option<(&str, &str)>,
    live: &str,
) -> Option<Panel> {
    let bar = |class, label, row: Option<&Row>| {
        let get = |column| row?.get(column);
        let (ratio, ratio_p99) = (get(Column::Ratio)?, get(Column::RatioP99)?);
        Some(Bar { class, label, p50_ms: get(Column::P50)?, ratio, ratio_p99 })
    };
    let mut bars = vec![
        bar("bare", "bare", report.row(bare.0, bare.1))?,
        bar("fresh", "fresh sandbox", report.row(fresh.0, fresh.1))?,
    ];
    bars.extend(fork.and_then(|(group, row)| bar("fork", "fresh, no pool", report.row(group, row))));
    bars.extend(bar("live", "live sandbox", report.row("live", live)));
    Some(Panel { title, bars })
}

#[cfg(test)]
mod tests {
    use super::super::report::{Findings, Group, Outcome};
    use super::*;

    fn report() -> Report {
        let row = |name: &str, p50: f64, floor: f64, p99: f64| {
            let row = Row::new(name).with(Column::P50, p50);
            row.with(Column::Ratio, p50 / floor).with(Column::RatioP99, p99 / floor)
        };
        let group =
            |name, rows| Group { name, about: "", outcome: Outcome::Measured(Findings { rows, notes: Vec::new() }) };
        let fresh = vec![
            row("bare python3 -c", 10.0, 10.0, 14.0),
            row("python, stdio, sequential", 2.0, 10.0, 900.0),
            row("bare bash -c", 2.0, 2.0, 3.0),
        ];
        Report {
            groups: vec![group("fresh", fresh), group("live", vec![row("python, stdio", 0.8, 10.0, 1.0)])],
            ..Report::default()
        }
    }

    /// Tags that open are closed, in order; what has no content closes itself.
    fn assert_well_formed(svg: &str) {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (tag, after) = tag.split_once('>').expect("a tag ends");
            assert!(!after.contains('>') && tag.matches('"').count() % 2 == 0, "{tag}");
            match tag.strip_prefix('/') {
                Some(name) => assert_eq!(open.pop(), Some(name)),
                None if tag.ends_with('/') => {}
                None => open.push(tag.split(' ').next().unwrap()),
            }
        }
        assert!(open.is_empty() && !svg.replace("&lt;", "").replace("&amp;", "").contains('&'));
    }

    #[test]
    fn it_is_well_formed_and_has_what_was_measured() {
        let svg = draw(&report()).unwrap();
        assert_well_formed(&svg);
        assert_eq!((svg.matches("<rect").count(), svg.matches("class=\"panel\"").count()), (3, 1));
        assert!(svg.contains("2.0 ms, 0.20 ×") && svg.contains("prefers-color-scheme:dark"));
        assert!(!svg.contains("http://") || svg.matches("http").count() == 1, "only the name of the format");
    }

    #[test]
    fn nothing_leaves_the_picture() {
        let svg = draw(&report()).unwrap();
        let ends = svg.split("x=\"").skip(1).filter_map(|rest| rest.split('"').next()?.parse::<f64>().ok());
        assert!(ends.into_iter().all(|x| x < RIGHT + 10.0));
    }

    #[test]
    fn without_figures_there_is_no_chart() {
        assert_eq!(draw(&Report::default()), None);
    }
}
