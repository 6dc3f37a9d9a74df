//! Helpers: Python functions that an exported module contains because its code calls them.

use std::collections::BTreeSet;

/// A Python file of helpers, as text. Two blank lines separate the functions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Helpers(pub(crate) &'static str);

impl Helpers {
    /// The name and the text of each function, in the order of the file.
    fn functions(self) -> impl Iterator<Item = (&'static str, &'static str)> {
        self.0.split("\n\n\n").filter_map(|text| {
            let name = text.strip_prefix("def ")?.split('(').next()?;
            Some((name, text.trim_end()))
        })
    }

    /// The names of all of them.
    pub(crate) fn names(self) -> impl Iterator<Item = &'static str> {
        self.functions().map(|(name, _)| name)
    }

    /// The texts of the helpers that `text` calls, directly or through other helpers, in the order
    /// of the file and without those in `left_out`.
    pub(crate) fn called_by(self, text: &str, left_out: &[&str]) -> Vec<&'static str> {
        let mut called: BTreeSet<&str> = BTreeSet::new();
        let mut unread: Vec<&str> = vec![text];
        while let Some(text) = unread.pop() {
            for (name, function) in self.functions() {
                if calls(text, name) && called.insert(name) {
                    unread.push(function);
                }
            }
        }
        self.functions()
            .filter(|(name, text)| called.contains(name) && !left_out.contains(text))
            .map(|(_, text)| text)
            .collect()
    }
}

fn calls(text: &str, name: &str) -> bool {
    let call = format!("{name}(");
    text.match_indices(&call).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        !before.is_some_and(|c| c.is_alphanumeric() || c == '_' || c == '.')
    })
}

#[cfg(test)]
mod tests {
    use crate::to_jax::Jax;
    use crate::words::Words;

    #[test]
    fn a_module_gets_what_it_calls_and_what_that_calls() {
        let got = Jax.helpers().called_by("    y = einsum_scattering(a)\n", &[]);
        let names: Vec<&str> =
            got.iter().filter_map(|text| text.strip_prefix("def ")?.split('(').next()).collect();
        assert_eq!(names, ["ring", "turns", "einsum_scattering"]);
        assert!(Jax.helpers().called_by("a = lax.ring(b)", &[]).is_empty());
    }
}
