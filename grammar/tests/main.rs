//! Tests of the parser and of what is said of text that it refuses.
//!
//! One binary for all of them: to link one for each file takes longer than most of them take to
//! run.

mod layout_words;
mod other_languages;
mod parse;
mod round_trip;
mod syntax_errors;
