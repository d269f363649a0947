//! Files, folders and standard input.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};

/// Largest input that is read, in bytes.
const BYTES_MAX: u64 = 64 * 1024 * 1024;
/// What a manifest's name ends in.
const EXTENSIONS: [&str; 3] = ["yaml", "yml", "json"];

/// A text and where it came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Input {
    /// The file, or `-`.
    pub name: String,
    /// Its content.
    pub text: String,
}

/// Something that cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// It cannot be opened or read, or is not UTF-8.
    #[error("reading {name} failed: {cause}")]
    Read {
        /// The file.
        name: String,
        /// Why.
        cause: io::Error,
    },
    /// It does not end.
    #[error("{name} has more than {} MiB: that is no manifest", BYTES_MAX >> 20)]
    TooLong {
        /// The file.
        name: String,
    },
    /// The folder holds no manifest.
    #[error("{name} holds no file that ends in .yaml, .yml or .json; folders in it are not looked into")]
    Empty {
        /// The folder.
        name: String,
    },
}

/// Reads what was named: files, folders (their manifests in order of their names), and `-` for standard input.
///
/// # Errors
/// [`InputError`] for the first that cannot be read.
pub fn read_all(paths: &[PathBuf]) -> Result<Vec<Input>, InputError> {
    let mut inputs = Vec::new();
    for path in paths {
        if path.as_os_str() == "-" {
            inputs.push(read("-".to_owned(), io::stdin().lock())?);
        } else if path.is_dir() {
            let files = manifests(path)?;
            if files.is_empty() {
                return Err(InputError::Empty { name: path.display().to_string() });
            }
            for file in files {
                inputs.push(open(&file)?);
            }
        } else {
            inputs.push(open(path)?);
        }
    }
    Ok(inputs)
}

fn manifests(folder: &Path) -> Result<Vec<PathBuf>, InputError> {
    let failed = |cause| InputError::Read { name: folder.display().to_string(), cause };
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).map_err(failed)? {
        let path = entry.map_err(failed)?.path();
        let extension = path.extension().and_then(|extension| extension.to_str());
        if path.is_file() && extension.is_some_and(|extension| EXTENSIONS.contains(&extension)) {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

fn open(path: &Path) -> Result<Input, InputError> {
    let name = path.display().to_string();
    match File::open(path) {
        Ok(file) => read(name, file),
        Err(cause) => Err(InputError::Read { name, cause }),
    }
}

fn read(name: String, from: impl Read) -> Result<Input, InputError> {
    let mut text = String::new();
    if let Err(cause) = from.take(BYTES_MAX + 1).read_to_string(&mut text) {
        return Err(InputError::Read { name, cause });
    }
    if text.len() as u64 > BYTES_MAX {
        return Err(InputError::TooLong { name });
    }
    Ok(Input { name, text })
}
