//! Tests of the parser and of what is said of text that it refuses.
//!
//! All tests are one binary, since linking one for each file would take longer than most of them
//! run.

mod layout_words;
mod other_languages;
mod parse;
mod round_trip;
mod syntax_errors;
