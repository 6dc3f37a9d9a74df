//! Tables of aligned columns that give way where the terminal is narrow.

use crate::paint::{Paint, Style};

/// A column of figures, right-aligned, behind the words of a row.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// What stands above it.
    pub title: &'static str,
    /// Columns of a higher number are left out first where the width does not suffice; 0 always
    /// stays.
    pub yields: u8,
}

/// A row: words on the left, then a figure for each column.
#[derive(Clone, Debug)]
pub struct Row {
    /// The words, on the left edge.
    pub words: String,
    /// The figures, one for each column; empty where there is none.
    pub figures: Vec<String>,
    /// The style of the words, and of the figures of the column that has one.
    pub style: Option<Style>,
    /// The column whose figure bears `style` instead of the words.
    pub styled_column: Option<usize>,
}

/// The width that words keep beside figures, as long as columns can yield.
const LEAST_WORDS: usize = 30;

/// The table as lines, none wider than `width` unless a word or the columns that stay are. Words
/// too long for their place stand on a line of their own, above their figures.
pub fn table(
    heading: &str,
    columns: &[Column],
    rows: &[Row],
    width: usize,
    paint: Paint,
) -> String {
    let longest = rows
        .iter()
        .map(|r| r.words.chars().count())
        .chain([heading.chars().count()])
        .max()
        .unwrap_or(0);
    let shown = columns_shown(columns, rows, width, longest);
    let widths: Vec<usize> = shown.iter().map(|at| column_width(columns, rows, *at)).collect();
    let figures_width: usize = widths.iter().map(|w| w + 2).sum();
    let left = longest.min(width.saturating_sub(figures_width));
    let mut text = String::new();
    // Writes one row; words too long for their place stand above its figures.
    let mut line = |words: &str,
                    figures: &dyn Fn(usize) -> (String, Option<Style>),
                    words_style: Option<Style>| {
        let mut out = String::new();
        let styled = |text: &str, style: Option<Style>| {
            style.map_or(text.to_string(), |s| paint.style(text, s))
        };
        let count = words.chars().count();
        if count > left && shown.iter().any(|at| !figures(*at).0.is_empty()) {
            out.push_str(&styled(words, words_style));
            out.push('\n');
            out.push_str(&" ".repeat(left));
        } else {
            out.push_str(&styled(words, words_style));
            out.push_str(&" ".repeat(left.saturating_sub(count)));
        }
        for (at, width) in shown.iter().zip(&widths) {
            let (figure, style) = figures(*at);
            let blanks = 2 + width.saturating_sub(figure.chars().count());
            out.push_str(&" ".repeat(blanks));
            out.push_str(&styled(&figure, style));
        }
        for part in out.split('\n') {
            text.push_str(part.trim_end());
            text.push('\n');
        }
    };
    line(heading, &|at| (columns[at].title.to_string(), Some(Style::Faint)), Some(Style::Heading));
    for row in rows {
        let words_style = if row.styled_column.is_none() { row.style } else { None };
        let figure = |at: usize| {
            let style = row.style.filter(|_| row.styled_column.is_none_or(|c| c == at));
            (row.figures.get(at).cloned().unwrap_or_default(), style)
        };
        line(&row.words, &figure, words_style);
    }
    text
}

/// Which columns there is room for: those with a figure in some row, less the most yielding ones.
fn columns_shown(columns: &[Column], rows: &[Row], width: usize, longest: usize) -> Vec<usize> {
    let mut shown: Vec<usize> = (0..columns.len())
        .filter(|at| rows.iter().any(|r| r.figures.get(*at).is_some_and(|f| !f.is_empty())))
        .collect();
    let needed = |shown: &[usize]| -> usize {
        shown.iter().map(|at| column_width(columns, rows, *at) + 2).sum()
    };
    while needed(&shown) + longest.min(LEAST_WORDS) > width {
        let Some(last) = shown
            .iter()
            .copied()
            .filter(|at| columns[*at].yields > 0)
            .max_by_key(|at| columns[*at].yields)
        else {
            break;
        };
        shown.retain(|at| *at != last);
    }
    shown
}

fn column_width(columns: &[Column], rows: &[Row], at: usize) -> usize {
    let figures = rows.iter().filter_map(|r| r.figures.get(at)).map(|f| f.chars().count());
    figures.chain([columns[at].title.chars().count()]).max().unwrap_or(0)
}

impl Row {
    /// A row in no style.
    pub fn plain(words: impl Into<String>, figures: Vec<String>) -> Row {
        Row { words: words.into(), figures, style: None, styled_column: None }
    }
}
