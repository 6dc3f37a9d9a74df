//! Names of the source as names of Python.

use std::collections::BTreeSet;

use shard_ir::never;

use crate::words::Words;

/// Names that Python or the linter claims, with blanks between.
const CLAIMED: [&str; 3] = [
    // Keywords, hard and soft.
    "False None True and as assert async await break case class continue def del elif else \
     except finally for from global if import in is lambda match nonlocal not or pass raise \
     return try type while with yield _",
    // Builtins.
    "abs all any ascii bin bool breakpoint bytes callable chr compile complex copyright credits \
     delattr dict dir divmod enumerate eval exec exit filter float format frozenset getattr \
     globals hasattr hash help hex id input int isinstance issubclass iter len license list \
     locals map max min next object oct open ord pow print property quit range repr reversed \
     round set setattr slice sorted str sum super tuple vars zip bytearray memoryview \
     classmethod staticmethod",
    // What a method has, and names that look like numbers.
    "self cls l O I",
];

/// Modules that a file of the same name would hide, with blanks between: an exported module imports
/// some of them, and those import others.
const MODULES: [&str; 2] = [
    // Of Python itself.
    "abc aifc antigravity argparse array ast asynchat asyncio asyncore atexit audioop base64 \
     bdb binascii bisect builtins bz2 cProfile calendar cgi cgitb chunk cmath cmd code codecs \
     codeop collections colorsys compileall concurrent configparser contextlib contextvars \
     copy copyreg crypt csv ctypes curses dataclasses datetime dbm decimal difflib dis \
     distutils doctest email encodings ensurepip enum errno faulthandler fcntl filecmp \
     fileinput fnmatch fractions ftplib functools gc genericpath getopt getpass gettext glob \
     graphlib grp gzip hashlib heapq hmac html http idlelib imaplib imghdr imp importlib \
     inspect io ipaddress itertools json keyword lib2to3 linecache locale logging lzma \
     mailbox mailcap marshal math mimetypes mmap modulefinder msilib msvcrt multiprocessing \
     netrc nis nntplib nt ntpath nturl2path numbers opcode operator optparse os ossaudiodev \
     pathlib pdb pickle pickletools pipes pkgutil platform plistlib poplib posix posixpath \
     pprint profile pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat queue quopri \
     random re readline reprlib resource rlcompleter runpy sched secrets select selectors \
     shelve shlex shutil signal site smtpd smtplib sndhdr socket socketserver spwd sqlite3 \
     sre_compile sre_constants sre_parse ssl stat statistics string stringprep struct \
     subprocess sunau symtable sys sysconfig syslog tabnanny tarfile telnetlib tempfile \
     termios textwrap this threading time timeit tkinter token tokenize tomllib trace \
     traceback tracemalloc tty turtle turtledemo types typing unicodedata unittest urllib uu \
     uuid venv warnings wave weakref webbrowser winreg winsound wsgiref xdrlib xml xmlrpc \
     zipapp zipfile zipimport zlib zoneinfo",
    // Modules of the systems that are exported to, and keywords, which no module can be called.
    "jax jaxlib ml_dtypes numpy opt_einsum scipy torch typing_extensions False None True and \
     as assert async await break class continue def del elif else except finally for from \
     global if import in is lambda nonlocal not or pass raise return try while with yield",
];

/// A name of the source as a name that Python, the linter and the modules of a system accept. A
/// letter stays where every version of Python keeps it; any other character is written by its
/// number.
pub(crate) fn identifier(words: &dyn Words, name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            c if c.is_ascii_alphanumeric() || c == '_' || is_plain_letter(c) => out.push(c),
            '.' | '-' | ' ' | '/' => out.push('_'),
            c => out.push_str(&format!("u{:04x}", c as u32)),
        }
    }
    if out.starts_with(|c: char| c.is_ascii_digit()) || out.is_empty() || out.starts_with("__") {
        out = format!("v_{}", out.trim_start_matches('_'));
    }
    let of_all = CLAIMED.into_iter().chain([words.claimed()]);
    let claimed = of_all.flat_map(|names| names.split(' ')).any(|claimed| claimed == out)
        || words.helpers().names().any(|helper| helper == out);
    if claimed { out + "_" } else { out }
}

/// The stem of a file as the name of a module that Python can import. A letter is written as in an
/// identifier, any other character as `_`; a name that would hide another module gets a `_` at its
/// end.
pub fn module_name(stem: &str) -> String {
    let mut out = String::new();
    for c in stem.chars() {
        match c {
            c if c.is_ascii_alphanumeric() || is_plain_letter(c) => out.push(c),
            c if c.is_alphanumeric() => out.push_str(&format!("u{:04x}", c as u32)),
            _ => out.push('_'),
        }
    }
    if MODULES.into_iter().flat_map(|names| names.split(' ')).any(|module| module == out) {
        return out + "_";
    }
    if out.starts_with(|c: char| c.is_ascii_digit()) { format!("layer_{out}") } else { out }
}

/// Whether Python's normal form (NFKC) leaves a letter as it is, alone and beside other letters.
fn is_plain_letter(c: char) -> bool {
    match c {
        '×' | '÷' | '\u{132}' | '\u{133}' | '\u{13f}' | '\u{140}' | '\u{149}' | '\u{17f}'
        | '\u{3a2}' => false,
        'À'..='\u{17f}'
        | 'Α'..='ω'
        | 'А'..='я'
        | 'Ё'
        | 'ё'
        | 'א'..='ת'
        | 'ぁ'..='ゖ'
        | 'ァ'..='ヺ' => true,
        '\u{4e00}'..='\u{9fa5}' | '가'..='힣' => true,
        _ => false,
    }
}

/// The names of one scope that are taken.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taken(BTreeSet<String>);

impl Taken {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    pub(crate) fn take(&mut self, name: &str) {
        self.0.insert(name.to_string());
    }

    /// Takes a name that is free and gives it: this name, or the name with a number.
    pub(crate) fn fresh(&mut self, name: &str) -> String {
        let found = self.free(name, |_| false);
        self.take(&found);
        found
    }

    /// A name that is neither taken nor `used`: this name, or the name with a number.
    pub(crate) fn free(&self, name: &str, used: impl Fn(&str) -> bool) -> String {
        let numbered = (2..).map(|n| format!("{name}_{n}"));
        std::iter::once(name.to_string())
            .chain(numbered)
            .find(|name| !self.has(name) && !used(name))
            .unwrap_or_else(|| never!("no name with a number is free", name.to_string()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_python_claims_are_mangled_and_letters_of_other_languages_stay() {
        for (name, expected) in [
            ("h", "h"),
            ("lambda", "lambda_"),
            ("l", "l_"),
            ("block.wq", "block_wq"),
            ("größe", "größe"),
            ("ширина", "ширина"),
            ("2x", "v_2x"),
            ("", "v_"),
            ("ﬁ", "ufb01"),
            ("µ", "u00b5"),
            ("rmsnorm", "rmsnorm_"),
            ("a\u{308}", "au0308"),
        ] {
            assert_eq!(identifier(&crate::to_jax::Jax, name), expected);
        }
    }

    #[test]
    fn a_module_has_a_name_that_python_imports() {
        for (stem, expected) in [
            ("mlp", "mlp"),
            ("2d_weight-stationary", "layer_2d_weight_stationary"),
            ("größe 🚀", "größe__"),
            ("x²", "xu00b2"),
            ("jax", "jax_"),
            ("argparse", "argparse_"),
            ("types", "types_"),
            ("lambda", "lambda_"),
            ("numpy_torch", "numpy_torch"),
        ] {
            assert_eq!(module_name(stem), expected);
        }
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let mut taken = Taken::default();
        assert_eq!([taken.fresh("a"), taken.fresh("a"), taken.fresh("a")], ["a", "a_2", "a_3"]);
    }
}
