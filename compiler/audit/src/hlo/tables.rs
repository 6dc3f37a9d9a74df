//! Reads the tables behind the header, which say where instructions come from: file names, function
//! names, places, and stack frames.

use rustc_hash::FxHashMap;

use super::attributes::Metadata;
use super::scan::{Cursor, ReadError};

/// The most frames of a stack that are read.
const MOST_FRAMES: usize = 256;

/// A place in the user's program.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The file, as the dump names it.
    pub file: String,
    /// The line, from 1.
    pub line: u64,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The tables of a dump; empty where it has none.
#[derive(Clone, Debug, Default)]
pub struct Tables<'a> {
    files: FxHashMap<u64, &'a str>,
    functions: FxHashMap<u64, &'a str>,
    /// For each place the number of its file, and its line.
    locations: FxHashMap<u64, (u64, u64)>,
    /// For each frame the number of its place, and the number of its parent as it is printed.
    frames: FxHashMap<u64, (u64, u64)>,
    /// Whether some frame has the parent 0. Then parents are printed as they are; else they are
    /// printed one too high, and 1 means none.
    parents_are_exact: bool,
}

/// The words that begin a table.
const TABLES: [&str; 4] = ["FileNames", "FunctionNames", "FileLocations", "StackFrames"];

impl<'a> Tables<'a> {
    /// Reads a table if one is next.
    pub(crate) fn read(&mut self, cursor: &mut Cursor<'a>) -> Result<bool, ReadError> {
        let Some(table) = TABLES.iter().position(|word| {
            let rest = cursor.rest();
            rest.starts_with(word) && rest[word.len()..].starts_with(['\n', '\r', ' '])
        }) else {
            return Ok(false);
        };
        cursor.expect(TABLES[table])?;
        cursor.skip_space();
        while cursor.peek().is_some_and(|b| b.is_ascii_digit()) {
            let id = cursor.number("the number of a row")?;
            cursor.skip_blanks();
            let row = if table < 2 {
                cursor.expect("\"")?;
                let text = cursor.take_while(|b| b != b'"' && b != b'\n');
                cursor.expect("\"")?;
                text
            } else {
                cursor.balanced(|_| false)?
            };
            let field = |name: &str| {
                let from = row.find(&format!("{name}="))? + name.len() + 1;
                let long = row[from..].bytes().take_while(u8::is_ascii_digit).count();
                row[from..from + long].parse::<u64>().ok()
            };
            match table {
                0 => drop(self.files.insert(id, row)),
                1 => drop(self.functions.insert(id, row)),
                2 => {
                    let place = field("file_name_id").zip(field("line"));
                    let place =
                        place.ok_or_else(|| cursor.expected("`file_name_id=` and `line=`"))?;
                    self.locations.insert(id, place);
                }
                _ => {
                    let place = field("file_location_id")
                        .ok_or_else(|| cursor.expected("`file_location_id=`"))?;
                    let parent = field("parent_frame_id").unwrap_or(0);
                    self.parents_are_exact |= parent == 0;
                    self.frames.insert(id, (place, parent));
                }
            }
            cursor.skip_space();
        }
        Ok(true)
    }

    /// The places of a frame and of its callers, innermost first. A place that comes again, as
    /// under a gradient, is left out.
    pub fn stack(&self, metadata: &Metadata<'_>) -> Vec<Place> {
        let mut places: Vec<Place> = Vec::new();
        let mut add = |file: &str, line: u64| {
            let place = Place { file: file.to_string(), line };
            if !places.contains(&place) {
                places.push(place);
            }
        };
        if let Some((file, line)) = metadata.inline {
            add(file, line);
        }
        let mut next = metadata.frame;
        for _ in 0..MOST_FRAMES {
            let Some((location, parent)) = next.and_then(|id| self.frames.get(&id)) else { break };
            if let Some((file, line)) = self.locations.get(location)
                && let Some(file) = self.files.get(file)
            {
                add(file, *line);
            }
            next = if self.parents_are_exact { Some(*parent) } else { parent.checked_sub(1) };
        }
        places
    }
}
