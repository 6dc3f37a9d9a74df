//! Reading a TOML table key by key, so that every error has its key and its place.

use std::collections::BTreeSet;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::HardwareError;

/// A table that is being read: it knows which keys have been asked for, and refuses the others at the end.
pub(super) struct Table<'t, 'i> {
    /// The path of the table: empty at the top, `chip.`.
    path: String,
    span: Range<usize>,
    entries: &'t DeTable<'i>,
    asked: BTreeSet<String>,
}

/// What numbers a key takes.
#[derive(Clone, Copy)]
pub(super) enum Numbers {
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
}

impl<'t, 'i> Table<'t, 'i> {
    /// The top table of a file.
    pub(super) fn top(table: &'t Spanned<DeTable<'i>>) -> Table<'t, 'i> {
        // An error about the file as a whole points at its first byte and not at all of it.
        let start = table.span().start;
        Table { path: String::new(), span: start..start, entries: table.get_ref(), asked: BTreeSet::new() }
    }

    fn path_of(&self, key: &str) -> String {
        format!("{}{key}", self.path)
    }

    fn find(&mut self, key: &str) -> Option<&'t Spanned<DeValue<'i>>> {
        self.asked.insert(key.to_string());
        self.entries.iter().find(|(k, _)| k.get_ref() == key).map(|(_, v)| v)
    }

    fn missing(&self, key: &str, example: &str) -> HardwareError {
        let key = self.path_of(key);
        HardwareError {
            message: format!("the hardware file has no `{key}`"),
            key,
            span: self.span.clone(),
            help: Some(example.to_string()),
        }
    }

    fn wrong(&self, key: &str, at: Range<usize>, wanted: &str, found: &str) -> HardwareError {
        let key = self.path_of(key);
        HardwareError { message: format!("`{key}` must be {wanted}, and is {found}"), key, span: at, help: None }
    }

    /// The sub-table of a key, if it is there.
    pub(super) fn table(&mut self, key: &str) -> Result<Option<Table<'t, 'i>>, HardwareError> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let Some(entries) = value.get_ref().as_table() else {
            return Err(self.wrong(key, value.span(), "a table", value.get_ref().type_str()));
        };
        let path = format!("{}.", self.path_of(key));
        Ok(Some(Table { path, span: value.span(), entries, asked: BTreeSet::new() }))
    }

    /// The sub-table of a key that must be there.
    pub(super) fn need_table(&mut self, key: &str, example: &str) -> Result<Table<'t, 'i>, HardwareError> {
        self.table(key)?.ok_or_else(|| self.missing(key, example))
    }

    /// The string of a key, if it is there, and its place.
    pub(super) fn string(&mut self, key: &str) -> Result<Option<(String, Range<usize>)>, HardwareError> {
        let Some(value) = self.find(key) else { return Ok(None) };
        match value.get_ref().as_str() {
            Some(text) => Ok(Some((text.to_string(), value.span()))),
            None => Err(self.wrong(key, value.span(), "a string", value.get_ref().type_str())),
        }
    }

    /// The string of a key that must be there, and its place.
    pub(super) fn need_string(&mut self, key: &str, example: &str) -> Result<(String, Range<usize>), HardwareError> {
        self.string(key)?.ok_or_else(|| self.missing(key, example))
    }

    /// The number of a key, if it is there.
    pub(super) fn number(&mut self, key: &str, allowed: Numbers) -> Result<Option<f64>, HardwareError> {
        let Some(value) = self.find(key) else { return Ok(None) };
        let (wanted, max) = match allowed {
            Numbers::Positive { max } => (format!("a number greater than 0 and at most {max:e}"), max),
            Numbers::NotNegative { max } => (format!("a number from 0 to {max:e}"), max),
        };
        let number = match value.get_ref() {
            DeValue::Integer(i) => i128::from_str_radix(&i.as_str().replace('_', ""), i.radix()).ok().map(|n| n as f64),
            DeValue::Float(f) => f.as_str().replace('_', "").parse::<f64>().ok(),
            other => return Err(self.wrong(key, value.span(), &wanted, other.type_str())),
        };
        let in_range = |n: &f64| match allowed {
            Numbers::Positive { .. } => *n > 0.0 && *n <= max,
            Numbers::NotNegative { .. } => *n >= 0.0 && *n <= max,
        };
        match number.filter(in_range) {
            Some(number) => Ok(Some(number)),
            None => {
                let found = match value.get_ref() {
                    DeValue::Integer(i) => i.as_str(),
                    DeValue::Float(f) => f.as_str(),
                    other => other.type_str(),
                };
                Err(self.wrong(key, value.span(), &wanted, found))
            }
        }
    }

    /// The number of a key that must be there.
    pub(super) fn need_number(&mut self, key: &str, allowed: Numbers, example: &str) -> Result<f64, HardwareError> {
        self.number(key, allowed)?.ok_or_else(|| self.missing(key, example))
    }

    /// The keys of the table with their places, in the order of their names.
    pub(super) fn keys(&self) -> Vec<(String, Range<usize>)> {
        self.entries.keys().map(|k| (k.get_ref().to_string(), k.span())).collect()
    }

    /// An error at one of the table's keys.
    pub(super) fn error_at(
        &self,
        key: &str,
        span: Range<usize>,
        message: String,
        help: Option<String>,
    ) -> HardwareError {
        HardwareError { message, key: self.path_of(key), span, help }
    }

    /// Refuses every key that was not asked for.
    pub(super) fn finish(self) -> Result<(), HardwareError> {
        match self.entries.keys().find(|k| !self.asked.contains(k.get_ref().as_ref())) {
            None => Ok(()),
            Some(key) => {
                let known: Vec<&str> = self.asked.iter().map(String::as_str).collect();
                let path = self.path_of(key.get_ref());
                Err(HardwareError {
                    message: format!("unknown key `{path}`"),
                    key: path,
                    span: key.span(),
                    help: Some(format!("the keys here are {}", known.join(", "))),
                })
            }
        }
    }
}
