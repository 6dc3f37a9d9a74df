//! Texts made from correct ones. Most changes keep the text in the language (another number,
//! another name of the same file, another op), so that the result reaches the late passes; the
//! others are arbitrary.

use shard_runtime::Random;

use super::text_of;
use super::tokens::{Kind, Token, tokens};

/// Bytes of a text that is made.
const MAX_BYTES: usize = 1 << 16;

/// Numbers that mostly keep a text correct.
const SMALL: &[&str] =
    &["1", "2", "3", "4", "6", "8", "12", "16", "24", "5", "7", "32", "64", "128"];

/// Numbers that mostly make a text wrong.
const EXTREMES: &[&str] = &[
    "0",
    "00",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "999999999999999999",
    "9223372036854775807",
    "9223372036854775808",
    "18446744073709551615",
    "18446744073709551616",
    "340282366920938463463374607431768211456",
    "1e308",
    "1e309",
    "5e-324",
    "0.1",
    "nan",
    "inf",
    "0x10",
    "1_000",
    "1.",
    "-1",
    "-0.0",
];

/// Characters that few texts have: of two, three and four bytes, combining, wide, without width, of
/// the other direction, controls.
const CHARACTERS: &[&str] = &[
    "ä",
    "É",
    "ß",
    "λ",
    "→",
    "字",
    "😀",
    "e\u{301}",
    "\u{200b}",
    "\u{202e}",
    "\u{feff}",
    "\u{0}",
    "\u{1b}[31m",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "\r",
    "\t",
    "\u{fffd}",
    "İ",
    "ﬁ",
];

/// Makes texts from correct ones.
pub struct Mutator<'a> {
    random: &'a mut Random,
    /// Right texts.
    corpus: &'a [Vec<u8>],
    /// Words of the language; a word may be replaced by another of its group.
    groups: &'a [&'a [&'a str]],
}

impl<'a> Mutator<'a> {
    /// A maker of texts of one language.
    pub fn new(
        random: &'a mut Random,
        corpus: &'a [Vec<u8>],
        groups: &'a [&'a [&'a str]],
    ) -> Mutator<'a> {
        Mutator { random, corpus, groups }
    }

    /// A text made from one text of the corpus, sometimes from two.
    pub fn text(&mut self) -> String {
        let start = self.any_text();
        self.spoil(start)
    }

    /// A text of the corpus, as it is or spoiled.
    pub fn text_or_spoiled(&mut self) -> String {
        let start = self.any_text();
        if self.random.below(2) == 0 { start } else { self.spoil(start) }
    }

    /// A text made from this one.
    pub fn spoil(&mut self, mut text: String) -> String {
        let gentle = self.random.below(100) < 70;
        for _ in 0..1 + self.random.below(if gentle { 3 } else { 5 }) {
            text = if gentle || self.random.below(100) < 40 {
                self.nudge(text)
            } else {
                self.wreck(text)
            };
        }
        let mut end = text.len().min(MAX_BYTES);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text
    }

    fn any_text(&mut self) -> String {
        let corpus = self.corpus;
        text_of(self.pick(corpus).map_or(&[][..], Vec::as_slice))
    }

    fn pick<'t, T>(&mut self, from: &'t [T]) -> Option<&'t T> {
        from.get(self.random.below(from.len() as u64) as usize)
    }

    fn word(&mut self, from: &[&'static str]) -> &'static str {
        self.pick(from).copied().unwrap_or("")
    }

    /// A small change.
    fn nudge(&mut self, text: String) -> String {
        match self.random.below(12) {
            0..=2 => self.replace(
                text,
                |t, _| t.kind == Kind::Number,
                |me, _| me.word(SMALL).to_string(),
            ),
            3 | 4 => self.another_name(text),
            5..=7 => self.another_word(text),
            8 => self.another_layout(text),
            9 => self.lines(text),
            10 => self.replace(
                text,
                |t, _| t.kind == Kind::Mark,
                |me, text| me.token(text, Kind::Mark),
            ),
            _ => self.stretch_of_another(text),
        }
    }

    /// A large change.
    fn wreck(&mut self, text: String) -> String {
        match self.random.below(12) {
            0 | 1 => self.replace(
                text,
                |t, _| t.kind == Kind::Number,
                |me, _| me.word(EXTREMES).to_string(),
            ),
            2 => self.replace(text, |_, _| true, |_, _| String::new()),
            3 => self.replace(text, |_, _| true, |me, _| me.dictionary()),
            4 => self.insert(text, |me, _| format!(" {} ", me.dictionary())),
            5 => self.insert(text, |me, _| me.word(CHARACTERS).to_string()),
            6 => self.replace(
                text,
                |t, _| t.kind == Kind::Word,
                |me, text| {
                    let word = me.token(text, Kind::Word);
                    let at = word
                        .char_indices()
                        .nth(me.random.below(4) as usize)
                        .map_or(word.len(), |(at, _)| at);
                    format!("{}{}{}", &word[..at], me.word(CHARACTERS), &word[at..])
                },
            ),
            7 => self.repeat(text),
            8 => self.cross(text),
            9 => {
                let at = self.place(&text);
                text[..at].to_string()
            }
            10 => self.nest(text),
            _ => self.insert(text, |me, _| me.word(EXTREMES).to_string()),
        }
    }

    /// Another text in place of a token.
    fn replace(
        &mut self,
        text: String,
        wanted: impl Fn(&Token, &str) -> bool,
        by: impl FnOnce(&mut Self, &str) -> String,
    ) -> String {
        let found: Vec<Token> =
            tokens(&text).into_iter().filter(|t| wanted(t, &text[t.start..t.end])).collect();
        let Some(token) = self.pick(&found).copied() else { return text };
        let new = by(self, &text);
        format!("{}{new}{}", &text[..token.start], &text[token.end..])
    }

    fn insert(&mut self, text: String, what: impl FnOnce(&mut Self, &str) -> String) -> String {
        let (at, new) = (self.place(&text), what(self, &text));
        format!("{}{new}{}", &text[..at], &text[at..])
    }

    /// The start of some token.
    fn place(&mut self, text: &str) -> usize {
        let all = tokens(text);
        self.pick(&all).map_or(0, |token| token.start)
    }

    /// A token of the text.
    fn token(&mut self, text: &str, kind: Kind) -> String {
        let found: Vec<Token> = tokens(text).into_iter().filter(|t| t.kind == kind).collect();
        self.pick(&found).map_or(String::new(), |t| text[t.start..t.end].to_string())
    }

    fn dictionary(&mut self) -> String {
        let groups = self.groups;
        let Some(group) = self.pick(groups) else { return String::new() };
        self.pick(group).map_or(String::new(), |word| word.to_string())
    }

    /// A name in place of another one; both start in the same case.
    fn another_name(&mut self, text: String) -> String {
        let upper = self.random.below(2) == 0;
        let same = |word: &str| word.starts_with(|c: char| c.is_uppercase() == upper);
        let names: Vec<Token> = tokens(&text)
            .into_iter()
            .filter(|t| t.kind == Kind::Word && same(&text[t.start..t.end]))
            .collect();
        let Some(new) = self.pick(&names).map(|t| text[t.start..t.end].to_string()) else {
            return text;
        };
        self.replace(text, |t, word| t.kind == Kind::Word && same(word), |_, _| new)
    }

    /// A word of a group in the place of another of that group.
    fn another_word(&mut self, text: String) -> String {
        let groups = self.groups;
        let Some(group) = self.pick(groups) else { return text };
        let Some(new) = self.pick(group) else { return text };
        self.replace(text, |_, word| group.contains(&word), |_, _| new.to_string())
    }

    /// A word with a capital letter in it, with one character removed, added, or moved.
    fn another_layout(&mut self, text: String) -> String {
        let wanted = |t: &Token, word: &str| {
            t.kind == Kind::Word && word.contains(|c: char| c.is_ascii_uppercase())
        };
        let found: Vec<Token> =
            tokens(&text).into_iter().filter(|t| wanted(t, &text[t.start..t.end])).collect();
        let Some(token) = self.pick(&found).copied() else { return text };
        let mut letters: Vec<char> = text[token.start..token.end].chars().collect();
        let at = self.random.below(letters.len() as u64) as usize;
        let other = self.random.below(letters.len() as u64) as usize;
        match self.random.below(4) {
            0 => letters.swap(at, other),
            1 => {
                letters.remove(at);
            }
            2 => letters.insert(at, letters[other]),
            _ => {
                let new = self.word(&["x", "y", "z", "_", "2", "B", "E", "F"]);
                letters.splice(at..at, new.chars());
            }
        }
        let new: String = letters.into_iter().collect();
        format!("{}{new}{}", &text[..token.start], &text[token.end..])
    }

    /// Lines swapped, doubled or left out.
    fn lines(&mut self, text: String) -> String {
        let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
        if lines.is_empty() {
            return text;
        }
        let (at, other) =
            (self.random.below(lines.len() as u64), self.random.below(lines.len() as u64));
        let (at, other) = (at as usize, other as usize);
        match self.random.below(3) {
            0 => lines.swap(at, other),
            1 => lines.insert(at, lines[other]),
            _ => {
                lines.remove(at);
            }
        }
        lines.concat()
    }

    /// A line, or a few tokens, of another text.
    fn stretch_of_another(&mut self, text: String) -> String {
        let other = self.any_text();
        if self.random.below(2) == 0 {
            let lines: Vec<&str> = other.lines().collect();
            let Some(line) = self.pick(&lines) else { return text };
            let starts: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
            let at = self.pick(&starts).copied().unwrap_or(0);
            return format!("{}{line}\n{}", &text[..at], &text[at..]);
        }
        let all = tokens(&other);
        let first = self.random.below(all.len() as u64) as usize;
        let Some(last) =
            all.get((first + self.random.below(8) as usize).min(all.len().saturating_sub(1)))
        else {
            return text;
        };
        let stretch = other[all[first].start..last.end].to_string();
        self.insert(text, |_, _| stretch)
    }

    /// A part of the text several times, sometimes very often.
    fn repeat(&mut self, text: String) -> String {
        let all = tokens(&text);
        let first = self.random.below(all.len() as u64) as usize;
        let Some(last) =
            all.get((first + self.random.below(12) as usize).min(all.len().saturating_sub(1)))
        else {
            return text;
        };
        let (start, end) = (all[first].start, last.end);
        let times =
            if self.random.below(8) == 0 { 2000 } else { 1 + self.random.below(6) as usize };
        let times = times.min(MAX_BYTES / (end - start).max(1));
        format!("{}{}{}", &text[..end], text[start..end].repeat(times), &text[end..])
    }

    /// The head of one text and the tail of another.
    fn cross(&mut self, text: String) -> String {
        let other = self.any_text();
        let (at, from) = (self.place(&text), self.place(&other));
        format!("{}{}", &text[..at], &other[from..])
    }

    /// Brackets, one in another.
    fn nest(&mut self, text: String) -> String {
        let (open, close) = match self.random.below(5) {
            0 => ("(", ")"),
            1 => ("[", "]"),
            2 => ("{", "}"),
            3 => ("gelu(", ")"),
            _ => ("-", ""),
        };
        let deep = [2, 20, 70, 300, 5000][self.random.below(5) as usize];
        self.replace(
            text,
            |t, _| t.kind != Kind::Blank,
            |me, text| {
                format!("{}{}{}", open.repeat(deep), me.token(text, Kind::Word), close.repeat(deep))
            },
        )
    }
}
