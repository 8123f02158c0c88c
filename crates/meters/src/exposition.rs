//! The text format of OpenMetrics, read again: for the exporter, which sends the same figures in another form, and for
//! tests. It reads what [`crate::Meters::text`] writes, and refuses what is no such text.

/// One family of figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Figure {
    /// Without the endings that samples have (`_total`, `_bucket`).
    pub name: String,
    pub kind: FigureKind,
    pub help: String,
    pub samples: Vec<Sample>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FigureKind {
    Counter,
    Gauge,
    Histogram,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Sample {
    /// What its name has behind the figure's: empty, `_total`, `_bucket`, `_sum` or `_count`.
    pub suffix: String,
    pub labels: Vec<(String, String)>,
    pub value: f64,
}

/// The samples of one histogram, put together.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramPoint {
    pub labels: Vec<(String, String)>,
    pub bounds: Vec<f64>,
    /// Of each bucket by itself; one more than there are bounds.
    pub counts: Vec<u64>,
    pub count: u64,
    pub sum: f64,
}

/// `Err` has the line that is wrong.
pub fn parse(text: &str) -> Result<Vec<Figure>, String> {
    let mut figures: Vec<Figure> = Vec::new();
    let mut help: Option<(String, String)> = None;
    let mut has_ended = false;
    for line in text.lines() {
        let wrong = || line.to_owned();
        if has_ended {
            return Err(wrong());
        }
        if line == "# EOF" {
            has_ended = true;
        } else if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, words) = rest.split_once(' ').ok_or_else(wrong)?;
            help = Some((name.to_owned(), words.to_owned()));
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').ok_or_else(wrong)?;
            let kind = match kind {
                "counter" => FigureKind::Counter,
                "gauge" => FigureKind::Gauge,
                "histogram" => FigureKind::Histogram,
                _ => return Err(wrong()),
            };
            let help = help.take().filter(|(of, _)| of == name).ok_or_else(wrong)?.1;
            if figures.iter().any(|figure| figure.name == name) {
                return Err(wrong());
            }
            figures.push(Figure { name: name.to_owned(), kind, help, samples: Vec::new() });
        } else {
            let figure = figures.last_mut().ok_or_else(wrong)?;
            let sample = sample(line, figure).ok_or_else(wrong)?;
            figure.samples.push(sample);
        }
    }
    if has_ended { Ok(figures) } else { Err("the end is missing".to_owned()) }
}

fn sample(line: &str, figure: &Figure) -> Option<Sample> {
    let rest = line.strip_prefix(&figure.name)?;
    let at = rest.find(['{', ' '])?;
    let (suffix, rest) = rest.split_at(at);
    let allowed: &[&str] = match figure.kind {
        FigureKind::Counter => &["_total"],
        FigureKind::Gauge => &[""],
        FigureKind::Histogram => &["_bucket", "_sum", "_count"],
    };
    allowed.contains(&suffix).then_some(())?;
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => labels(rest)?,
        None => (Vec::new(), rest),
    };
    let value = match value.strip_prefix(' ')? {
        "+Inf" => f64::INFINITY,
        value => value.parse().ok()?,
    };
    Some(Sample { suffix: suffix.to_owned(), labels, value })
}

/// The labels up to the closing bracket, and what comes behind that.
fn labels(mut rest: &str) -> Option<(Vec<(String, String)>, &str)> {
    let mut labels = Vec::new();
    loop {
        if let Some(behind) = rest.strip_prefix('}') {
            return Some((labels, behind));
        }
        let (name, behind) = rest.split_once("=\"")?;
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        (!name.is_empty() && name.bytes().all(is_name)).then_some(())?;
        let mut value = String::new();
        let mut characters = behind.char_indices();
        let end = loop {
            match characters.next()? {
                (at, '"') => break at,
                (_, '\\') => value.push(match characters.next()?.1 {
                    'n' => '\n',
                    escaped @ ('"' | '\\') => escaped,
                    _ => return None,
                }),
                (_, character) => value.push(character),
            }
        };
        labels.push((name.to_owned(), value));
        rest = &behind[end + 1..];
        rest = rest.strip_prefix(',').unwrap_or(rest);
    }
}

impl Figure {
    /// One for each set of labels; `None` where buckets do not grow, or do not add up.
    pub fn histograms(&self) -> Option<Vec<HistogramPoint>> {
        let mut points: Vec<HistogramPoint> = Vec::new();
        // What the buckets so far have, since each has those before it as well.
        let mut before = 0;
        for sample in &self.samples {
            let labels: Vec<_> = sample.labels.iter().filter(|(name, _)| name != "le").cloned().collect();
            if points.last().is_none_or(|point| point.labels != labels) {
                before = 0;
                let (bounds, counts) = (Vec::new(), Vec::new());
                points.push(HistogramPoint { labels, bounds, counts, count: 0, sum: 0.0 });
            }
            let point = points.last_mut()?;
            match sample.suffix.as_str() {
                "_sum" => point.sum = sample.value,
                "_count" => point.count = sample.value as u64,
                _ => {
                    let bound = &sample.labels.iter().find(|(name, _)| name == "le")?.1;
                    let here = sample.value as u64;
                    point.counts.push(here.checked_sub(before)?);
                    before = here;
                    if bound != "+Inf" {
                        point.bounds.push(bound.parse().ok()?);
                    }
                }
            }
        }
        let adds_up = |point: &HistogramPoint| {
            point.counts.len() == point.bounds.len() + 1
                && point.counts.iter().sum::<u64>() == point.count
                && point.bounds.is_sorted()
        };
        points.iter().all(adds_up).then_some(points)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_such_text_is_refused() {
        for text in [
            "",
            "# TYPE a gauge\na 1\n# EOF\n",
            "# HELP a A\n# TYPE a gauge\na 1\n",
            "# HELP a A\n# TYPE a gauge\nb 1\n# EOF\n",
            "# HELP a A\n# TYPE a gauge\na{x=\"1} 1\n# EOF\n",
            "# HELP a A\n# TYPE a gauge\na{x y=\"1\"} 1\n# EOF\n",
            "# HELP a A\n# TYPE a counter\na 1\n# EOF\n",
            "# HELP a A\n# TYPE a gauge\na one\n# EOF\n",
            "# HELP a A\n# TYPE a gauge\n# EOF\na 1\n",
            "# HELP a A\n# TYPE a gauge\n# HELP a A\n# TYPE a gauge\n# EOF\n",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn labels_are_read_with_what_is_escaped() {
        let figures = parse("# HELP a A\n# TYPE a counter\na_total{x=\"1\",y=\"a\\\"\\\\\\n}\"} 2.5\n# EOF\n").unwrap();
        let expected = vec![("x".to_owned(), "1".to_owned()), ("y".to_owned(), "a\"\\\n}".to_owned())];
        assert_eq!(figures[0].samples[0].labels, expected);
        assert_eq!(figures[0].samples[0].value, 2.5);
    }
}
