//! Reads a TOML table key by key, so that all errors are found, each with its key and its place.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::HardwareError;

/// The errors of a file, in the order in which they are found.
#[derive(Default)]
pub(crate) struct Errors(RefCell<Vec<HardwareError>>);

impl Errors {
    pub(crate) fn push(&self, error: HardwareError) {
        self.0.borrow_mut().push(error);
    }

    /// Everything, in file order.
    pub(crate) fn sorted(self) -> Vec<HardwareError> {
        let mut errors = self.0.into_inner();
        errors.sort_by_key(|e| e.span.start);
        errors
    }
}

/// A table that is being read. It remembers which keys have been asked for, and refuses all others
/// in [`Table::finish`]. If the value of a key is wrong, the error is kept and the key counts as
/// not given.
pub(crate) struct Table<'t, 'i> {
    /// The path of the table, in front of its keys: `chip.`; empty at the top.
    path: String,
    span: Range<usize>,
    entries: &'t DeTable<'i>,
    asked: BTreeSet<String>,
    errors: &'t Errors,
}

/// Which numbers a key takes.
#[derive(Clone, Copy)]
pub(crate) enum Numbers {
    /// Greater than zero, at most the largest.
    Positive {
        /// The largest.
        max: f64,
    },
    /// Zero or more, at most the largest.
    NotNegative {
        /// The largest.
        max: f64,
    },
    /// Whole, at least 1, at most the largest.
    Whole {
        /// The largest.
        max: f64,
    },
}

impl Numbers {
    fn words(self) -> String {
        match self {
            Numbers::Positive { max } => format!("a number greater than 0 and at most {max:e}"),
            Numbers::NotNegative { max } => format!("a number from 0 to {max:e}"),
            Numbers::Whole { max } => format!("a whole number from 1 to {max}"),
        }
    }

    fn allows(self, n: f64) -> bool {
        match self {
            Numbers::Positive { max } => n > 0.0 && n <= max,
            Numbers::NotNegative { max } => n >= 0.0 && n <= max,
            Numbers::Whole { max } => n >= 1.0 && n <= max && n.fract() == 0.0,
        }
    }

    /// The number that a value is, or an error: what was found instead.
    fn read(self, value: &DeValue<'_>) -> Result<f64, String> {
        let (number, found) = match value {
            DeValue::Integer(i) => (
                i128::from_str_radix(&i.as_str().replace('_', ""), i.radix())
                    .ok()
                    .map(|n| n as f64),
                i.as_str(),
            ),
            DeValue::Float(f) => (f.as_str().replace('_', "").parse::<f64>().ok(), f.as_str()),
            other => (None, other.type_str()),
        };
        number.filter(|n| self.allows(*n)).ok_or_else(|| found.to_string())
    }
}

impl<'t, 'i> Table<'t, 'i> {
    /// The top table of a file.
    pub(crate) fn top(table: &'t Spanned<DeTable<'i>>, errors: &'t Errors) -> Table<'t, 'i> {
        // An error about the file as a whole points at its first byte.
        let start = table.span().start;
        Table {
            path: String::new(),
            span: start..start,
            entries: table.get_ref(),
            asked: BTreeSet::new(),
            errors,
        }
    }

    fn find(&mut self, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.asked.insert(key.to_string());
        self.entries.iter().find(|(k, _)| k.get_ref() == key).map(|(_, v)| v)
    }

    /// Says what is wrong with one of the table's keys.
    pub(crate) fn error(
        &self,
        key: &str,
        span: Range<usize>,
        message: String,
        help: Option<String>,
        known: Vec<String>,
    ) {
        let key = format!("{}{key}", self.path);
        self.errors.push(HardwareError { message, key, span, help, known });
    }

    fn missing(&self, key: &str, example: &str) {
        let message = format!("the hardware file has no `{}{key}`", self.path);
        self.error(key, self.span.clone(), message, Some(example.to_string()), Vec::new());
    }

    fn wrong(&self, key: &str, at: Range<usize>, wanted: &str, found: &str) {
        let message = format!("`{}{key}` must be {wanted}, and is {found}", self.path);
        self.error(key, at, message, None, Vec::new());
    }

    /// Whether a key is there, with a right value or a wrong one.
    pub(crate) fn has(&self, key: &str) -> bool {
        self.entries.keys().any(|k| k.get_ref() == key)
    }

    /// The sub-table of a key, if it is there.
    pub(crate) fn table(&mut self, key: &str) -> Option<Table<'t, 'i>> {
        let value = self.find(key)?;
        let Some(entries) = value.get_ref().as_table() else {
            self.wrong(key, value.span(), "a table", value.get_ref().type_str());
            return None;
        };
        let path = format!("{}{key}.", self.path);
        Some(Table {
            path,
            span: value.span(),
            entries,
            asked: BTreeSet::new(),
            errors: self.errors,
        })
    }

    /// The sub-table of a key that must be there.
    pub(crate) fn need_table(&mut self, key: &str, example: &str) -> Option<Table<'t, 'i>> {
        if !self.has(key) {
            self.asked.insert(key.to_string());
            self.missing(key, example);
        }
        self.table(key)
    }

    /// The string of a key, if it is there, and its place.
    pub(crate) fn string(&mut self, key: &str) -> Option<(String, Range<usize>)> {
        let value = self.find(key)?;
        let text = value.get_ref().as_str();
        if text.is_none() {
            self.wrong(key, value.span(), "a string", value.get_ref().type_str());
        }
        Some((text?.to_string(), value.span()))
    }

    /// The string of a key that must be there, and its place.
    pub(crate) fn need_string(
        &mut self,
        key: &str,
        example: &str,
    ) -> Option<(String, Range<usize>)> {
        if !self.has(key) {
            self.asked.insert(key.to_string());
            self.missing(key, example);
        }
        self.string(key)
    }

    /// The truth value of a key, if it is there.
    pub(crate) fn flag(&mut self, key: &str) -> Option<bool> {
        let value = self.find(key)?;
        let flag = value.get_ref().as_bool();
        if flag.is_none() {
            self.wrong(key, value.span(), "true or false", value.get_ref().type_str());
        }
        flag
    }

    /// The number of a key, if it is there.
    pub(crate) fn number(&mut self, key: &str, allowed: Numbers) -> Option<f64> {
        let value = self.find(key)?;
        let read = allowed.read(value.get_ref());
        if let Err(found) = &read {
            self.wrong(key, value.span(), &allowed.words(), found);
        }
        read.ok()
    }

    /// The number of a key that must be there.
    pub(crate) fn need_number(
        &mut self,
        key: &str,
        allowed: Numbers,
        example: &str,
    ) -> Option<f64> {
        if !self.has(key) {
            self.asked.insert(key.to_string());
            self.missing(key, example);
        }
        self.number(key, allowed)
    }

    /// The numbers of a key, if it is there: a list of one to `most` numbers.
    pub(crate) fn numbers(&mut self, key: &str, allowed: Numbers, most: usize) -> Option<Vec<f64>> {
        let value = self.find(key)?;
        let wanted = format!("a list of 1 to {most} numbers, each {}", allowed.words());
        let Some(list) = value.get_ref().as_array().filter(|list| (1..=most).contains(&list.len()))
        else {
            let found = value.get_ref().as_array().map(|list| format!("one of {}", list.len()));
            self.wrong(
                key,
                value.span(),
                &wanted,
                found.as_deref().unwrap_or(value.get_ref().type_str()),
            );
            return None;
        };
        let mut numbers = Vec::new();
        for item in list.iter() {
            match allowed.read(item.get_ref()) {
                Ok(number) => numbers.push(number),
                Err(found) => {
                    self.wrong(key, item.span(), &wanted, &found);
                    return None;
                }
            }
        }
        Some(numbers)
    }

    /// The keys of the table with their places, in the order of their names.
    pub(crate) fn keys(&self) -> Vec<(String, Range<usize>)> {
        self.entries.keys().map(|k| (k.get_ref().to_string(), k.span())).collect()
    }

    /// Refuses every key that was not asked for.
    pub(crate) fn finish(self) {
        let known: Vec<String> = self.asked.iter().cloned().collect();
        for key in self.entries.keys().filter(|k| !self.asked.contains(k.get_ref().as_ref())) {
            let message = format!("unknown key `{}{}`", self.path, key.get_ref());
            let help = Some(format!("the keys here are {}", known.join(", ")));
            self.error(key.get_ref(), key.span(), message, help, known.clone());
        }
    }
}
