//! Writing files: whole, or not at all.
//!
//! A file that exists is replaced by a new one that was written beside it, so that neither a full
//! disk nor an interruption costs what it held. Its mode, its owner and the symbolic links to it
//! stay. What is no regular file (a pipe, a terminal, `/dev/stdout`) has nothing to lose and is
//! written directly.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufWriter, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// A function that writes the content; it may be called more than once.
pub(crate) type Content<'a> = &'a dyn Fn(&mut dyn Write) -> io::Result<()>;

/// Symbolic links that are followed one after another, as many as the kernel follows.
const MOST_LINKS: usize = 40;

/// Writes a text to a file, in place of what it held.
pub(crate) fn replace_text(path: &Path, text: &str) -> io::Result<()> {
    replace(path, &|out| out.write_all(text.as_bytes()))
}

/// Writes a file, in place of what it held.
pub(crate) fn replace(path: &Path, content: Content<'_>) -> io::Result<()> {
    let Target::File(target) = target(path)? else { return directly(path, content) };
    let old = match fs::metadata(&target) {
        Ok(old) => Some(old),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    // A file without write permission is not replaced, though a new file could take its place.
    if old.is_some() {
        OpenOptions::new().write(true).open(&target)?;
    }
    let beside = match Beside::create(&target) {
        Ok(beside) => beside,
        Err(error) => return in_place_or(error, &target, old.is_some(), content),
    };
    beside.fill(content, old.as_ref())?;
    match fs::rename(&beside.path, &target) {
        Ok(()) => {
            beside.keep();
            Ok(())
        }
        Err(error) => in_place_or(error, &target, old.is_some(), content),
    }
}

/// Writes a file that does not exist yet; if it cannot be written in full, it is removed.
pub(crate) fn create(path: &Path, text: &str) -> io::Result<()> {
    if matches!(target(path)?, Target::Stream) {
        return directly(path, &|out| out.write_all(text.as_bytes()));
    }
    let mut file = OpenOptions::new().write(true).create_new(true).open(path)?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).inspect_err(|_| {
        let _ = fs::remove_file(path);
    })
}

/// What a path names.
enum Target {
    /// A regular file, or none yet, behind all symbolic links.
    File(PathBuf),
    /// Something that is written to directly.
    Stream,
}

fn target(path: &Path) -> io::Result<Target> {
    let mut path = path.to_path_buf();
    for _ in 0..MOST_LINKS {
        // These names stand for files that are open already: replacing them would lose what the
        // shell has opened.
        if path.starts_with("/dev") || path.starts_with("/proc") {
            return Ok(Target::Stream);
        }
        match fs::symlink_metadata(&path) {
            Ok(found) if found.is_symlink() => {
                let to = fs::read_link(&path)?;
                path = path.parent().unwrap_or(Path::new("")).join(to);
            }
            Ok(found) if found.is_file() => return Ok(Target::File(path)),
            Ok(found) if found.is_dir() => return Err(io::Error::from(ErrorKind::IsADirectory)),
            Ok(_) => return Ok(Target::Stream),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Target::File(path)),
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::other("too many symbolic links"))
}

fn directly(path: &Path, content: Content<'_>) -> io::Result<()> {
    let names = |number: u32| [format!("/dev/fd/{number}"), format!("/proc/self/fd/{number}")];
    let is = |name: &str, number: u32| {
        path == Path::new(name) || names(number).iter().any(|n| path == Path::new(n))
    };
    // The open handle is used: a file that is opened anew is written from its start on, over what
    // was printed.
    let to: Box<dyn Write> = if is("/dev/stdout", 1) {
        Box::new(io::stdout())
    } else if is("/dev/stderr", 2) {
        Box::new(io::stderr())
    } else {
        Box::new(OpenOptions::new().append(true).open(path)?)
    };
    let mut out = BufWriter::new(to);
    content(&mut out)?;
    out.flush()
}

/// A file that is being written beside the one whose place it takes. It is removed when this is
/// dropped, unless it is kept.
struct Beside {
    path: PathBuf,
    file: File,
    kept: bool,
}

impl Beside {
    fn create(target: &Path) -> io::Result<Beside> {
        let folder = target.parent().unwrap_or(Path::new(""));
        for n in 0u32.. {
            let path = folder.join(format!(".shardc-{}-{n}.tmp", std::process::id()));
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => return Ok(Beside { path, file, kept: false }),
                Err(error) if error.kind() == ErrorKind::AlreadyExists && n < 1000 => {}
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::from(ErrorKind::AlreadyExists))
    }

    /// Writes the content through to the disk: some file systems report only then that they are
    /// full.
    fn fill(&self, content: Content<'_>, like: Option<&fs::Metadata>) -> io::Result<()> {
        let mut out = BufWriter::new(&self.file);
        content(&mut out)?;
        out.flush()?;
        drop(out);
        if let Some(like) = like {
            resemble(&self.path, like)?;
        }
        self.file.sync_all()
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Gives a file the owner, where one may, and the mode of another.
fn resemble(path: &Path, like: &fs::Metadata) -> io::Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::{MetadataExt, chown};
        let own = fs::metadata(path)?;
        if (own.uid(), own.gid()) != (like.uid(), like.gid()) {
            let _ = chown(path, Some(like.uid()), Some(like.gid()));
        }
    }
    let mode: Permissions = like.permissions();
    fs::set_permissions(path, mode)
}

/// Overwrites a file in place, where no file may be made beside it or take its place (a file that
/// is mounted by itself); where that fails, its old content is written back.
fn in_place_or(
    error: io::Error,
    target: &Path,
    is_there: bool,
    content: Content<'_>,
) -> io::Result<()> {
    let by_other_means = matches!(
        error.kind(),
        ErrorKind::PermissionDenied | ErrorKind::ResourceBusy | ErrorKind::CrossesDevices
    );
    if !is_there || !by_other_means {
        return Err(error);
    }
    let old = fs::read(target)?;
    let mut file = OpenOptions::new().write(true).open(target)?;
    let write = |file: &mut File, content: Content<'_>| {
        file.seek(SeekFrom::Start(0))?;
        let mut out = BufWriter::new(&mut *file);
        content(&mut out)?;
        out.flush()?;
        drop(out);
        let length = file.stream_position()?;
        file.set_len(length)?;
        file.sync_all()
    };
    // The file is not truncated first: the space that it has is enough for its old content.
    write(&mut file, content).inspect_err(|_| {
        let _ = write(&mut file, &|out| out.write_all(&old));
    })
}

/// The file name for a name that may be any text, which leads out of no folder: every byte but
/// ASCII letters, digits, `_`, `-` and `.` is written as `%2F`, and so is a `.` that comes first.
pub(crate) fn file_name(name: &str) -> String {
    let mut out = String::with_capacity(name.len());
    for (at, byte) in name.bytes().enumerate() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-' => out.push(char::from(byte)),
            b'.' if at > 0 => out.push('.'),
            byte => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> PathBuf {
        let folder =
            std::env::temp_dir().join(format!("shardc-output-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).expect("a scratch folder");
        folder
    }

    fn names(folder: &Path) -> Vec<String> {
        let all = fs::read_dir(folder).expect("a folder").flatten();
        let mut names: Vec<String> =
            all.map(|e| e.file_name().to_string_lossy().into_owned()).collect();
        names.sort();
        names
    }

    #[test]
    fn what_cannot_be_written_whole_leaves_what_was_there() {
        let folder = scratch("fails");
        let file = folder.join("a");
        fs::write(&file, "old").expect("written");
        let fails = |out: &mut dyn Write| {
            out.write_all(b"ne").and(Err(io::Error::from(ErrorKind::StorageFull)))
        };
        assert_eq!(replace(&file, &fails).map_err(|e| e.kind()), Err(ErrorKind::StorageFull));
        assert_eq!(
            (fs::read_to_string(&file).expect("text"), names(&folder)),
            ("old".into(), vec!["a".into()])
        );
        let denied = io::Error::from(ErrorKind::PermissionDenied);
        let longer = |out: &mut dyn Write| {
            out.write_all(b"longer").and(Err(io::Error::from(ErrorKind::StorageFull)))
        };
        assert!(in_place_or(denied, &file, true, &longer).is_err());
        assert_eq!(fs::read_to_string(&file).expect("text"), "old");
        let denied = io::Error::from(ErrorKind::PermissionDenied);
        in_place_or(denied, &file, true, &|out| out.write_all(b"n")).expect("written");
        assert_eq!(fs::read_to_string(&file).expect("text"), "n");
        fs::remove_dir_all(folder).expect("removed");
    }

    #[cfg(unix)]
    #[test]
    fn mode_and_symbolic_links_stay() {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = scratch("links");
        fs::create_dir(folder.join("far")).expect("a folder");
        let file = folder.join("far/a");
        fs::write(&file, "old").expect("written");
        fs::set_permissions(&file, Permissions::from_mode(0o751)).expect("a mode");
        symlink("far/b", folder.join("one")).expect("a link");
        symlink("a", folder.join("far/b")).expect("a link");
        replace_text(&folder.join("one"), "new").expect("written");
        assert_eq!(fs::read_to_string(&file).expect("text"), "new");
        assert_eq!(fs::metadata(&file).expect("there").permissions().mode() & 0o7777, 0o751);
        assert!(fs::symlink_metadata(folder.join("one")).expect("there").is_symlink());
        assert!(fs::symlink_metadata(folder.join("far/b")).expect("there").is_symlink());
        symlink("far/c", folder.join("two")).expect("a link to what is not there yet");
        replace_text(&folder.join("two"), "made").expect("written");
        assert_eq!(names(&folder.join("far")), ["a", "b", "c"]);
        symlink("ring", folder.join("ring")).expect("a link to itself");
        assert!(replace_text(&folder.join("ring"), "").is_err());
        fs::remove_dir_all(folder).expect("removed");
    }

    #[test]
    fn no_name_leads_out_of_a_folder() {
        assert_eq!(file_name("y_1-a.b"), "y_1-a.b");
        assert_eq!(file_name("../x"), "%2E.%2Fx");
        assert_eq!(
            [file_name(".."), file_name("/etc"), file_name("é")],
            ["%2E.", "%2Fetc", "%C3%A9"]
        );
    }
}
