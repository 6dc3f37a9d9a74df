//! Letters that names cannot have, and how to spell them with those that they can have.

use shard_words::Span;

use crate::limits::MAX_NAME_BYTES;

const OF_NAMES: &str = "names have the letters a to z and A to Z, digits and `_`";

/// The usual spellings of small letters: of letters with accents, which are left out or written
/// out, and of the Greek letters of formulas.
const SPELLINGS: [(&str, &str); 36] = [
    ("áàâãăą", "a"),
    ("ä", "ae"),
    ("å", "aa"),
    ("æ", "ae"),
    ("ç", "c"),
    ("ćč", "c"),
    ("ďđ", "d"),
    ("ð", "d"),
    ("éèêëęě", "e"),
    ("ğ", "g"),
    ("íìîïı", "i"),
    ("ł", "l"),
    ("ñńň", "n"),
    ("óòôõő", "o"),
    ("öø", "oe"),
    ("œ", "oe"),
    ("ř", "r"),
    ("śšş", "s"),
    ("ß", "ss"),
    ("ťţ", "t"),
    ("þ", "th"),
    ("úùûůű", "u"),
    ("ü", "ue"),
    ("ýÿ", "y"),
    ("źžż", "z"),
    ("α", "alpha"),
    ("β", "beta"),
    ("γ", "gamma"),
    ("δ", "delta"),
    ("ε", "epsilon"),
    ("η", "eta"),
    ("θ", "theta"),
    ("λ", "lambda"),
    ("μµ", "mu"),
    ("σ", "sigma"),
    ("φ", "phi"),
];

/// The help for a letter that no name can have: the whole name in other letters, where each letter
/// has a usual spelling. `None` for a character that is no letter.
pub(crate) fn help(text: &str, letter: Span) -> Option<String> {
    let is_letter = |c: char| c.is_alphabetic() || is_accent(c);
    if !text[letter.start..letter.end].chars().all(is_letter) {
        return None;
    }
    // A word longer than any name is not read to its end: a whole file may be one such word.
    let is_part = |c: &char| c.is_alphanumeric() || *c == '_' || is_accent(*c);
    let before = text[..letter.start].chars().rev().take_while(is_part).take(MAX_NAME_BYTES);
    let behind = text[letter.end..].chars().take_while(is_part).take(MAX_NAME_BYTES);
    let start = letter.start - before.map(char::len_utf8).sum::<usize>();
    let end = letter.end + behind.map(char::len_utf8).sum::<usize>();
    let name = Some(&text[start..end]).filter(|name| name.len() <= MAX_NAME_BYTES);
    let spelt = name.and_then(|name| name.chars().map(spelling).collect::<Option<String>>());
    Some(match spelt {
        Some(spelt) => format!("{spelt}    ({OF_NAMES})"),
        None => OF_NAMES.to_string(),
    })
}

/// Whether a character is an accent of the letter before it.
fn is_accent(c: char) -> bool {
    ('\u{300}'..='\u{36f}').contains(&c)
}

/// A character of a name in letters that names can have. A capital becomes a single letter, since
/// most capitals are dims, which stand side by side.
fn spelling(c: char) -> Option<String> {
    if c.is_ascii() || is_accent(c) {
        return Some(c.to_string().replace(is_accent, ""));
    }
    let small = c.to_lowercase().next()?;
    let (_, spelt) = SPELLINGS.iter().find(|(letters, _)| letters.contains(small))?;
    let capital = || spelt.chars().next().map(|first| first.to_ascii_uppercase().to_string());
    if c.is_uppercase() { capital() } else { Some((*spelt).to_string()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn helped(text: &str, letter: char) -> Option<String> {
        let start = text.find(letter).expect("it is there");
        help(text, Span::new(start, start + letter.len_utf8()))
    }

    #[test]
    fn a_name_with_other_letters_is_spelt_with_those_of_the_language() {
        for (text, letter, spelt) in [
            ("layer größe(", 'ö', "groesse"),
            ("let σ_2 = a", 'σ', "sigma_2"),
            ("bf16 ÄE_x", 'Ä', "AE_x"),
            ("(déjà: bf16 B)", 'é', "deja"),
        ] {
            let help = helped(text, letter).expect("a help");
            assert_eq!(help.split("    ").next(), Some(spelt), "{help}");
        }
        assert!(helped("let gro\u{308}n", '\u{308}').is_some_and(|help| help.starts_with("gron ")));
        assert_eq!(helped(&"aö".repeat(MAX_NAME_BYTES), 'ö').as_deref(), Some(OF_NAMES));
        assert_eq!(helped("let 重み = a", '重').as_deref(), Some(OF_NAMES));
        assert_eq!(helped("let a = b £ c", '£'), None);
    }
}
