//! The injector's file of settings.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use ackbeat_injection::{BadSetting, Settings};

use crate::config::reference::SETTINGS;
use crate::config::says_nothing;

/// A file of settings that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// It cannot be read.
    #[error("reading the injector's settings {} failed: {cause}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// It is no YAML, or a key is unknown, or a value of the wrong kind.
    #[error("the injector's settings {}: {cause}", path.display())]
    Parse {
        /// The file.
        path: PathBuf,
        /// What is wrong and where.
        cause: String,
    },
    /// A value cannot be used.
    #[error("the injector's settings: {0}")]
    Value(BadSetting),
}

/// Reads and checks a file of settings; the built-in ones without a file. `image` is stronger than the file's.
///
/// # Errors
/// [`SettingsError`] names the key.
pub fn read(path: Option<&Path>, image: Option<&str>) -> Result<Settings, SettingsError> {
    let mut settings = match path {
        None => Settings::default(),
        Some(path) => {
            let text = fs::read_to_string(path)
                .map_err(|cause| SettingsError::Read { path: path.to_path_buf(), cause })?;
            parse(&text, path)?
        }
    };
    if let Some(image) = image {
        image.clone_into(&mut settings.image);
    }
    settings.check().map_err(SettingsError::Value)?;
    for key in settings.settings.keys() {
        // A sidecar does not start with a setting that it does not know, and its pod would not be ready.
        if !SETTINGS.iter().any(|setting| setting.key == key) {
            return Err(SettingsError::Value(BadSetting {
                key: format!("settings.{key}"),
                problem: "the sidecar has no such setting; sidecar/CONFIGURATION.md lists all of them"
                    .to_owned(),
            }));
        }
    }
    Ok(settings)
}

fn parse(text: &str, path: &Path) -> Result<Settings, SettingsError> {
    if says_nothing(text) {
        return Ok(Settings::default());
    }
    serde_saphyr::from_str(text)
        .map_err(|error| SettingsError::Parse { path: path.to_path_buf(), cause: error.to_string() })
}
