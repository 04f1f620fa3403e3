//! Files that commands write.

use std::fs::{File, OpenOptions};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// A file that will be written, when there is something to write: nothing is made before, and what is there stays.
#[derive(Debug)]
pub(super) struct Target {
    path: PathBuf,
    place: Place,
}

/// What is at the path of a target.
#[derive(Debug)]
enum Place {
    /// Nothing, and a file can be made.
    Free,
    /// A file that may be replaced, or a device.
    Taken(File),
}

impl Target {
    /// Finds out whether a file can be made, or written over with `replace`.
    ///
    /// # Errors
    ///
    /// If it is there and may not be replaced, or cannot be written.
    pub(super) fn open(path: &Path, replace: bool) -> anyhow::Result<Self> {
        let is_device = path.metadata().is_ok_and(|metadata| !metadata.is_file());
        let opened = if path.symlink_metadata().is_err() {
            make(path)
                .and_then(|_| std::fs::remove_file(path))
                .map(|()| Place::Free)
        } else if replace || is_device {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(false);
            options.open(path).map(Place::Taken)
        } else {
            bail!(
                "{} is there already; give `--force` to write over it, or another name",
                path.display()
            );
        };
        Ok(Self {
            place: opened.with_context(|| format!("{} cannot be written", path.display()))?,
            path: path.to_owned(),
        })
    }

    /// Writes a text, and nothing else, into the file.
    pub(super) fn write(self, text: &str) -> anyhow::Result<()> {
        self.write_with(|file| file.write_all(text.as_bytes()))
    }

    /// Lets `write` fill the file, which is empty then.
    pub(super) fn write_with(self, write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>) -> anyhow::Result<()> {
        let Self { path, place } = self;
        let written = place.empty(&path).and_then(|file| {
            let mut file = BufWriter::new(file);
            write(&mut file)?;
            file.flush()
        });
        written.with_context(|| format!("{} cannot be written", path.display()))
    }

    /// The file, without what it had.
    pub(super) fn into_file(self) -> anyhow::Result<File> {
        let Self { path, place } = self;
        let file = place.empty(&path);
        file.with_context(|| format!("{} cannot be written", path.display()))
    }
}

impl Place {
    /// A file without contents.
    fn empty(self, path: &Path) -> io::Result<File> {
        match self {
            Self::Free => make(path),
            Self::Taken(file) => {
                if file.metadata()?.is_file() {
                    file.set_len(0)?;
                }
                Ok(file)
            }
        }
    }
}

/// Makes a file that is not there.
fn make(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_file_is_made_when_there_is_something_to_write() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("new");

        let target = Target::open(&path, false).unwrap();
        let made_at_once = path.exists();
        target.write("text").unwrap();

        assert!(!made_at_once, "a run that is cut short leaves an empty file");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "text");
    }

    #[test]
    fn what_is_there_stays_until_something_is_written_over_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("old");
        std::fs::write(&path, "precious").unwrap();

        let refused = Target::open(&path, false).unwrap_err().to_string();
        let target = Target::open(&path, true).unwrap();
        let before = std::fs::read_to_string(&path).unwrap();
        target.write("new").unwrap();

        assert!(refused.contains("is there already; give `--force`"), "{refused}");
        assert_eq!(before, "precious");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "new");
    }

    #[test]
    fn a_file_that_came_meanwhile_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("late");

        let target = Target::open(&path, false).unwrap();
        std::fs::write(&path, "of another run").unwrap();

        assert!(target.write("text").is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "of another run");
    }

    #[test]
    fn a_text_that_finds_no_space_is_an_error() {
        let full = Target::open(Path::new("/dev/full"), false).unwrap();

        let error = full.write("text").unwrap_err().to_string();

        assert_eq!(error, "/dev/full cannot be written");
    }

    #[test]
    fn a_device_is_written_to_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("null");
        symlink("/dev/null", &path).unwrap();

        Target::open(&path, false).unwrap().write("text").unwrap();

        assert!(path.symlink_metadata().unwrap().is_symlink());
    }
}
