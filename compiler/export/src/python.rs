//! Python expressions, laid out as `ruff format` does.

/// The most columns that a line may have.
const COLUMNS: usize = 88;

/// An expression.
#[derive(Clone, Debug)]
pub(crate) enum Py {
    /// A name, a number or a string, never broken.
    Atom(String),
    /// A call. The function may be a method: `a.astype`.
    Call(String, Vec<(Option<&'static str>, Py)>),
    /// Two operands and a sign between them.
    Binary(Box<Py>, &'static str, Box<Py>),
    /// A tuple.
    Tuple(Vec<Py>),
    /// A list.
    List(Vec<Py>),
    /// A dictionary. The keys are Python text.
    Dict(Vec<(String, Py)>),
}

impl Py {
    pub(crate) fn atom(text: impl ToString) -> Py {
        Py::Atom(text.to_string())
    }

    /// A string literal, escaped where needed.
    pub(crate) fn string(text: &str) -> Py {
        Py::Atom(string(text))
    }

    pub(crate) fn call(function: impl ToString, arguments: impl IntoIterator<Item = Py>) -> Py {
        Py::Call(
            function.to_string(),
            arguments.into_iter().map(|argument| (None, argument)).collect(),
        )
    }

    /// The call with one more keyword argument; other expressions stay as they are.
    pub(crate) fn with(self, name: &'static str, value: Py) -> Py {
        match self {
            Py::Call(function, mut arguments) => {
                arguments.push((Some(name), value));
                Py::Call(function, arguments)
            }
            other @ (Py::Atom(_) | Py::Binary(..) | Py::Tuple(_) | Py::List(_) | Py::Dict(_)) => {
                other
            }
        }
    }

    pub(crate) fn binary(left: Py, sign: &'static str, right: Py) -> Py {
        Py::Binary(Box::new(left), sign, Box::new(right))
    }

    /// Numbers as a tuple: `(0, 2)`.
    pub(crate) fn numbers<N: ToString>(numbers: impl IntoIterator<Item = N>) -> Py {
        Py::Tuple(numbers.into_iter().map(Py::atom).collect())
    }

    /// The expression on one line.
    pub(crate) fn flat(&self) -> String {
        match self {
            Py::Atom(text) => text.clone(),
            Py::Call(function, arguments) => format!("{function}({})", flat_arguments(arguments)),
            Py::Binary(left, sign, right) => format!("{} {sign} {}", left.flat(), right.flat()),
            Py::Tuple(items) => match items.as_slice() {
                [one] => format!("({},)", one.flat()),
                items => format!("({})", items.iter().map(Py::flat).collect::<Vec<_>>().join(", ")),
            },
            Py::List(items) => {
                format!("[{}]", items.iter().map(Py::flat).collect::<Vec<_>>().join(", "))
            }
            Py::Dict(entries) => {
                let entry = |(key, value): &(String, Py)| format!("{key}: {}", value.flat());
                format!("{{{}}}", entries.iter().map(entry).collect::<Vec<_>>().join(", "))
            }
        }
    }

    /// The expression from a column on, over several lines where it is too long. `behind` columns
    /// stay free at its end; all lines but the first have their indentation.
    fn laid_out(&self, indent: usize, column: usize, behind: usize) -> String {
        let flat = self.flat();
        if column + width(&flat) + behind <= COLUMNS {
            return flat;
        }
        let (inner, pad, close) = (indent + 4, " ".repeat(indent + 4), " ".repeat(indent));
        match self {
            Py::Atom(text) => text.clone(),
            Py::Binary(left, sign, right) => {
                // The formatter breaks a call on the right within its parentheses.
                if let Py::Call(function, arguments) = &**right
                    && !arguments.is_empty()
                {
                    let head = format!("{} {sign} ", left.flat());
                    if column + width(&head) + width(function) < COLUMNS {
                        let column = column + width(&head);
                        return head + &right.laid_out(indent, column, behind);
                    }
                }
                let (left, right) = (
                    left.laid_out(inner, inner, 0),
                    right.laid_out(inner, inner + sign.len() + 1, 0),
                );
                format!("(\n{pad}{left}\n{pad}{sign} {right}\n{close})")
            }
            Py::Call(function, arguments) if arguments.is_empty() => format!("{function}()"),
            Py::Call(function, arguments) => {
                let one_line = flat_arguments(arguments);
                if inner + width(&one_line) <= COLUMNS {
                    return format!("{function}(\n{pad}{one_line}\n{close})");
                }
                let lines: String = arguments
                    .iter()
                    .map(|(name, value)| {
                        let name = name.map_or(String::new(), |name| format!("{name}="));
                        let value = value.laid_out(inner, inner + name.len(), 1);
                        format!("{pad}{name}{value},\n")
                    })
                    .collect();
                // The formatter puts no comma behind a single argument.
                let alone = arguments.len() == 1;
                let lines =
                    if alone { lines.trim_end_matches(",\n").to_string() + "\n" } else { lines };
                format!("{function}(\n{lines}{close})")
            }
            Py::Tuple(items) => format!("(\n{}{close})", lines(items, inner)),
            Py::List(items) => format!("[\n{}{close}]", lines(items, inner)),
            Py::Dict(entries) => {
                let line = |(key, value): &(String, Py)| {
                    format!("{pad}{key}: {},\n", value.laid_out(inner, inner + width(key) + 2, 1))
                };
                format!("{{\n{}{close}}}", entries.iter().map(line).collect::<String>())
            }
        }
    }
}

fn lines(items: &[Py], indent: usize) -> String {
    let pad = " ".repeat(indent);
    items.iter().map(|item| format!("{pad}{},\n", item.laid_out(indent, indent, 1))).collect()
}

fn flat_arguments(arguments: &[(Option<&'static str>, Py)]) -> String {
    let one = |(name, value): &(Option<&'static str>, Py)| match name {
        Some(name) => format!("{name}={}", value.flat()),
        None => value.flat(),
    };
    arguments.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// A string literal.
pub(crate) fn string(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => out.push_str(&format!("\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// How many columns a text takes; letters of East Asia take two.
fn width(text: &str) -> usize {
    text.chars().map(|c| if ('\u{1100}'..).contains(&c) { 2 } else { 1 }).sum()
}

/// `target = value  # comment`. A comment that does not fit stands on the line before.
pub(crate) fn assignment(indent: usize, target: &str, value: &Py, comment: &str) -> String {
    commented(indent, &format!("{target} = "), value, "", comment)
}

/// An entry of a dictionary with a comment, laid out as [`assignment`] does.
pub(crate) fn entry(indent: usize, key: &str, value: &Py, comment: &str) -> String {
    commented(indent, &format!("{key}: "), value, ",", comment)
}

/// A line of the texts `before` and `behind` around a value, with a comment.
fn commented(indent: usize, before: &str, value: &Py, behind: &str, comment: &str) -> String {
    let pad = " ".repeat(indent);
    let head = format!("{pad}{before}");
    let flat = format!("{head}{}{behind}", value.flat());
    let comment = comment.replace(char::is_control, "?");
    if !comment.is_empty() && width(&flat) + 4 + width(&comment) <= COLUMNS {
        return format!("{flat}  # {comment}\n");
    }
    let laid_out = value.laid_out(indent, width(&head), behind.len());
    let in_front = if comment.is_empty() { comment } else { format!("{pad}# {comment}\n") };
    format!("{in_front}{head}{laid_out}{behind}\n")
}

/// `NAME = {...}`, one entry a line.
pub(crate) fn dictionary(
    indent: usize,
    head: &str,
    entries: &[(String, Py)],
    tail: &str,
) -> String {
    let pad = " ".repeat(indent);
    if entries.is_empty() {
        return format!("{pad}{head}{{}}{tail}\n");
    }
    let lines: String = entries
        .iter()
        .map(|(key, value)| {
            let key = string(key);
            format!(
                "{pad}    {key}: {},\n",
                value.laid_out(indent + 4, indent + 4 + width(&key) + 2, 1)
            )
        })
        .collect();
    format!("{pad}{head}{{\n{lines}{pad}}}{tail}\n")
}

/// `head(a, b)tail`, as a definition or a statement has it.
pub(crate) fn call_line(indent: usize, head: &str, arguments: &[String], tail: &str) -> String {
    let pad = " ".repeat(indent);
    let flat = format!("{pad}{head}({}){tail}", arguments.join(", "));
    if width(&flat) <= COLUMNS {
        return format!("{flat}\n");
    }
    let one_line = format!("{pad}    {}", arguments.join(", "));
    if width(&one_line) <= COLUMNS {
        return format!("{pad}{head}(\n{one_line}\n{pad}){tail}\n");
    }
    let lines: String =
        arguments.iter().map(|argument| format!("{pad}    {argument},\n")).collect();
    format!("{pad}{head}(\n{lines}{pad}){tail}\n")
}

/// `for each in over:`.
pub(crate) fn for_loop(indent: usize, each: &str, over: &Py) -> String {
    let pad = " ".repeat(indent);
    let head = format!("{pad}for {each} in ");
    format!("{head}{}:\n", over.laid_out(indent, width(&head), 1))
}

/// `return a, b`, and a tuple in parentheses where that is too long.
pub(crate) fn returned(indent: usize, values: &[Py]) -> String {
    let pad = " ".repeat(indent);
    match values {
        [one] => format!("{pad}return {}\n", one.laid_out(indent, indent + 7, 0)),
        values => {
            let tuple = Py::Tuple(values.to_vec());
            let flat = values.iter().map(Py::flat).collect::<Vec<_>>().join(", ");
            if indent + 7 + width(&flat) <= COLUMNS && !values.is_empty() {
                format!("{pad}return {flat}\n")
            } else {
                format!("{pad}return {}\n", tuple.laid_out(indent, COLUMNS, 0))
            }
        }
    }
}

/// `a, b = value`, in parentheses where that is too long.
pub(crate) fn unpacked(indent: usize, names: &[String], value: &str) -> String {
    let pad = " ".repeat(indent);
    let flat = format!("{pad}{} = {value}", names.join(", "));
    match names {
        [] => String::new(),
        [one] => format!("{pad}({one},) = {value}\n"),
        _ if width(&flat) <= COLUMNS => format!("{flat}\n"),
        names => {
            let lines: String = names.iter().map(|name| format!("{pad}    {name},\n")).collect();
            format!("{pad}(\n{lines}{pad}) = {value}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_too_long_is_broken_as_the_formatter_does() {
        let long = |n: usize| Py::atom("a".repeat(n));
        let call = Py::call("f", [long(40), long(30)]);
        assert_eq!(call.flat().len(), 75);
        assert_eq!(assignment(4, "b", &call, "c").lines().count(), 1);
        let broken = assignment(4, "b", &Py::call("f", [long(40), long(36)]), "");
        assert_eq!(
            broken,
            format!("    b = f(\n        {}, {}\n    )\n", "a".repeat(40), "a".repeat(36))
        );
        let broken = assignment(4, "b", &Py::call("f", [long(50), long(50)]), "");
        assert_eq!(
            broken,
            format!("    b = f(\n        {0},\n        {0},\n    )\n", "a".repeat(50))
        );
    }

    #[test]
    fn a_comment_that_does_not_fit_stands_in_front() {
        let said = "c".repeat(80);
        assert_eq!(assignment(4, "b", &Py::atom("a"), &said), format!("    # {said}\n    b = a\n"));
    }
}
