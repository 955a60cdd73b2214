use std::{io, path::PathBuf};

use tokio::{fs::File, io::AsyncReadExt};

use crate::ServeError;

/// The maximum size of a file; no file needs more.
const MAX_SIZE: u64 = 1 << 20;

/// Parses the contents, or returns what is wrong with them.
pub(crate) type Parse<T> = Box<dyn Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync>;

/// Files that together make one value and may change. If they cannot be used, the old value stays, and this is logged
/// once.
pub(crate) struct ReloadedFiles<T> {
    flag: &'static str,
    paths: Vec<PathBuf>,
    parse: Parse<T>,
    contents: Vec<Vec<u8>>,
    last_error: Option<String>,
}

impl<T> ReloadedFiles<T> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// If the files cannot be used; the message names the flag and the files.
    pub(crate) async fn open(
        flag: &'static str,
        paths: Vec<PathBuf>,
        parse: Parse<T>,
    ) -> Result<(Self, T), ServeError> {
        let mut files = Self { flag, paths, parse, contents: Vec::new(), last_error: None };
        match files.read_changed().await {
            Ok(Some(value)) => Ok((files, value)),
            // Only possible without any path: nothing was read before, so any content is a change.
            Ok(None) => Err(ServeError::File(flag, files.joined_paths(), "nothing to read".to_owned())),
            Err(why) => Err(ServeError::File(flag, files.joined_paths(), why)),
        }
    }

    /// Reads the files again. Returns the new value if they have changed and can be used.
    pub(crate) async fn refresh(&mut self) -> Option<T> {
        match self.read_changed().await {
            Ok(None) => None,
            Ok(Some(value)) => {
                self.last_error = None;
                tracing::info!(flag = self.flag, files = %self.joined_paths(), "files have changed and were read again");
                Some(value)
            }
            Err(why) => {
                if self.last_error.as_ref() != Some(&why) {
                    tracing::warn!(flag = self.flag, files = %self.joined_paths(), why, "files cannot be used; the previous content stays in use");
                    self.last_error = Some(why);
                }
                None
            }
        }
    }

    async fn read_changed(&mut self) -> Result<Option<T>, String> {
        let mut contents = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            let content = content(path).await.map_err(|err| format!("{}: {err}", path.display()))?;
            contents.push(content);
        }
        if contents == self.contents {
            return Ok(None);
        }
        let value = (self.parse)(&contents)?;
        self.contents = contents;
        Ok(Some(value))
    }

    fn joined_paths(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|it| it.display().to_string()).collect();
        names.join(", ")
    }
}

async fn content(path: &PathBuf) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path).await?.take(MAX_SIZE + 1).read_to_end(&mut content).await?;
    if content.len() as u64 > MAX_SIZE {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 1 MiB"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(contents: &[Vec<u8>]) -> Result<String, String> {
        match &contents[0][..] {
            b"bad" => Err("invalid content".to_owned()),
            good => Ok(String::from_utf8_lossy(good).into_owned()),
        }
    }

    #[tokio::test]
    async fn changed_and_valid_content_is_returned_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let (mut files, first) = ReloadedFiles::open("--flag", vec![path.clone()], Box::new(text)).await.unwrap();
        assert_eq!(first, "one");
        // Written again with the same content: no change.
        std::fs::write(&path, "one").unwrap();
        assert_eq!(files.refresh().await, None);
        std::fs::write(&path, "bad").unwrap();
        assert_eq!(files.refresh().await, None);
        assert_eq!(files.last_error.as_deref(), Some("invalid content"));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(files.refresh().await.as_deref(), Some("two"));
        assert_eq!(files.last_error, None);
    }

    #[tokio::test]
    async fn file_above_the_size_limit_is_an_error() {
        let err =
            ReloadedFiles::open("--flag", vec!["/dev/zero".into()], Box::new(text)).await.err().unwrap().to_string();
        assert!(err.contains("--flag") && err.contains("/dev/zero") && err.contains("1 MiB"), "{err}");
    }
}
