//! The line of the user's program on which a spec is written: StableHLO does not say it.

use std::cmp::Reverse;

use super::Files;
use crate::before::sharding::{Spec, partition_spec, whole_partition_spec};
use crate::hlo::tables::Place;

/// The line that has the spec of a value and names the value, in the file that uses the value;
/// without such a line or without the file, the line `used` that uses the value first.
pub(super) fn line_of_spec(
    value: &str,
    spec: &Spec,
    used: Option<&Place>,
    files: Files<'_>,
) -> Option<Place> {
    let used = used?;
    let Some(text) = files(&used.file) else { return Some(used.clone()) };
    let sought = Sought::of(value, spec);
    let scored = text.lines().zip(1..).filter_map(|(line, at)| Some((sought.score(line)?, at)));
    let best = scored.max_by_key(|(score, at)| (*score, Reverse(*at)));
    Some(Place { file: used.file.clone(), line: best.map_or(used.line, |(_, line)| line) })
}

/// What a line that has a spec is known by. Texts are [`plain`].
struct Sought<'v> {
    /// The spec, with and without a `None` for each dim at the end.
    specs: [String; 2],
    /// The name of the argument that the value is, or is in.
    word: &'v str,
    /// The last key in the tree of arguments: `down` of `p['down']`.
    key: Option<&'v str>,
}

impl<'v> Sought<'v> {
    fn of(value: &'v str, spec: &Spec) -> Sought<'v> {
        let word = value.split(['[', '.']).next().unwrap_or(value);
        // `p['down']` is written as `"down": P(..)` in the tree of specs.
        let mut inside = value[word.len()..].split(['[', ']', '.', '\'', '"']);
        let is_key = |part: &&str| part.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let specs = [partition_spec(spec), whole_partition_spec(spec)].map(|spec| plain(&spec));
        Sought { specs, word, key: inside.rfind(is_key) }
    }

    /// How likely a line has the spec of the value; `None` where the line has no such spec.
    fn score(&self, line: &str) -> Option<usize> {
        let line = plain(line.split('#').next().unwrap_or(line));
        let has_spec = if self.specs.iter().any(|spec| is_called(&line, spec)) {
            4
        } else if self.specs.iter().any(|spec| is_argument_list(&line, spec)) {
            2
        } else {
            return None;
        };
        let names_key = self.key.is_some_and(|key| has_word(&line, key));
        // Results are annotated by many names: `out_shardings`, `RESULTS`.
        let names_value = match self.word {
            "out" => {
                let line = line.to_lowercase();
                line.contains("out") || line.contains("result")
            }
            word => has_word(&line, word),
        };
        let is_of_key = |key: &str| self.specs.iter().any(|spec| stands_behind(&line, spec, key));
        Some(
            has_spec
                + usize::from(names_value)
                + 5 * usize::from(names_key)
                + 2 * usize::from(self.key.is_some_and(is_of_key)),
        )
    }
}

/// A text without blanks and with double quotes.
fn plain(text: &str) -> String {
    text.replace('\'', "\"").replace(' ', "")
}

/// Whether a line calls a `PartitionSpec` with the arguments of a spec.
fn is_called(line: &str, spec: &str) -> bool {
    let arguments = spec.trim_start_matches('P');
    line.match_indices(arguments).any(|(at, _)| {
        // `PartitionSpec` has many short names, most of which begin as it does. Blanks are gone:
        // `else P(..)` is one name here.
        let name = line[..at].rsplit(|c| !is_of_name(c)).next().unwrap_or_default();
        // What stands between quotes is about a spec and is none.
        name.rfind('P').is_some_and(|from| !line[..at - name.len() + from].ends_with('"'))
    })
}

/// Whether the arguments of a spec end those of a call that has another one in front.
fn is_argument_list(line: &str, spec: &str) -> bool {
    let inner = spec.trim_start_matches("P(").trim_end_matches(')');
    inner.contains('"') && line.contains(&format!(",{inner})"))
}

/// Whether a spec stands behind a key: `"down": P(..)`, where a line has several.
fn stands_behind(line: &str, spec: &str, key: &str) -> bool {
    line.match_indices(spec.trim_start_matches('P')).any(|(at, _)| {
        let before = line[..at].trim_end_matches(|c: char| c.is_alphanumeric());
        before.trim_end_matches(['"', ':', '=']).ends_with(key)
    })
}

/// Whether a line has a name as a word of its own.
fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        !line[..at].ends_with(is_of_name) && !line[at + word.len()..].starts_with(is_of_name)
    })
}

fn is_of_name(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}
