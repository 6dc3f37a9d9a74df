//! The nearest of some names.

/// The known name that is nearest to a misspelt one, if any is near enough: a third of its letters
/// may be wrong, and one letter in short names. The last part of a name with dots is near the
/// whole: `wq` is near `block.wq`.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let limit = (length / 3).max(1);
    let known: Vec<&str> = known.into_iter().collect();
    let is_last_part = |known: &&&str| known.rsplit_once('.').is_some_and(|(_, last)| last == name);
    if let Some(whole) = known.iter().find(is_last_part) {
        return Some(whole);
    }
    known
        .into_iter()
        .filter(|k| *k != name && k.chars().count().abs_diff(length) <= limit)
        .map(|k| (distance(name, k), k))
        .filter(|(d, k)| *d <= limit && *d < k.chars().count().max(length))
        .min_by_key(|(d, _)| *d)
        .map(|(_, k)| k)
}

/// Edits between two names; a change of case alone is the smallest.
fn distance(a: &str, b: &str) -> usize {
    if a.eq_ignore_ascii_case(b) { 0 } else { strsim::damerau_levenshtein(a, b) }
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn a_transposed_letter_is_near() {
        assert_eq!(nearest("w_ni", ["x", "w_in", "w_out"]), Some("w_in"));
    }

    #[test]
    fn a_single_letter_is_near_only_to_its_other_case() {
        assert_eq!(nearest("q", ["x", "y"]), None);
        assert_eq!(nearest("e", ["E"]), Some("E"));
    }

    #[test]
    fn the_last_part_of_a_name_is_near_the_whole() {
        assert_eq!(nearest("wq", ["q", "block.wq"]), Some("block.wq"));
    }

    #[test]
    fn the_first_of_two_equally_near_names_is_taken() {
        assert_eq!(nearest("ab1", ["ab2", "ab3"]), Some("ab2"));
    }
}
