//! The rewrite rules that made an instruction, by name.

use std::borrow::Cow;

/// Names of rules, in the order in which they apply: rules of the compiler, or any names that a
/// `.shir` file has. In text and in JSON they are one word, joined by `+`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules(Vec<Cow<'static, str>>);

impl Rules {
    /// Rules of the compiler.
    pub fn of(names: impl IntoIterator<Item = &'static str>) -> Rules {
        Rules(names.into_iter().map(Cow::Borrowed).collect())
    }

    /// The rules that a text names, as [`Rules::text`] writes it.
    pub fn named(text: &str) -> Rules {
        Rules(text.split('+').map(|name| Cow::Owned(name.to_string())).collect())
    }

    /// Adds a rule at the end.
    pub fn push(&mut self, name: &'static str) {
        self.0.push(Cow::Borrowed(name));
    }

    /// The names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|name| name.as_ref())
    }

    /// One word for all of them; `None` where there is no rule.
    pub fn text(&self) -> Option<String> {
        (!self.0.is_empty()).then(|| self.0.join("+"))
    }

    /// The names, to be replaced.
    pub fn names_mut(&mut self) -> impl Iterator<Item = &mut String> {
        self.0.iter_mut().map(Cow::to_mut)
    }
}
