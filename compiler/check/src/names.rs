//! The nearest of some names.

/// The name nearest to a misspelt one, if any is near enough: one letter off in short names, a
/// third of them in long ones.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let length = name.chars().count();
    let limit = (length / 3).max(1);
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
    fn the_first_of_two_equally_near_names_is_taken() {
        assert_eq!(nearest("ab1", ["ab2", "ab3"]), Some("ab2"));
    }
}
