use std::{io, path::PathBuf};

use tokio::{fs::File, io::AsyncReadExt};

use crate::ServeError;

/// The maximum size of a file; no file needs more.
const LARGEST: u64 = 1 << 20;

/// Parses the contents, or returns what is wrong with them.
pub(crate) type Read<T> = Box<dyn Fn(&[Vec<u8>]) -> Result<T, String> + Send + Sync>;

/// Files that together make one value and may change. If they cannot be used, the old value stays, and this is logged
/// once.
pub(crate) struct Files<T> {
    flag: &'static str,
    paths: Vec<PathBuf>,
    read: Read<T>,
    seen: Vec<Vec<u8>>,
    told: Option<String>,
}

impl<T> Files<T> {
    /// Reads the files for the first time.
    ///
    /// # Errors
    /// If the files cannot be used; the message names the flag and the files.
    pub(crate) async fn open(flag: &'static str, paths: Vec<PathBuf>, read: Read<T>) -> Result<(Self, T), ServeError> {
        let mut files = Self { flag, paths, read, seen: Vec::new(), told: None };
        match files.look().await {
            Ok(Some(value)) => Ok((files, value)),
            // Only possible without any path: nothing was read before, so any content is a change.
            Ok(None) => Err(ServeError::File(flag, files.names(), "nothing to read".to_owned())),
            Err(why) => Err(ServeError::File(flag, files.names(), why)),
        }
    }

    /// Reads the files again. Returns the new value if they have changed and can be used.
    pub(crate) async fn refresh(&mut self) -> Option<T> {
        match self.look().await {
            Ok(None) => None,
            Ok(Some(value)) => {
                self.told = None;
                tracing::info!(flag = self.flag, files = %self.names(), "files have changed and were read again");
                Some(value)
            }
            Err(why) => {
                if self.told.as_ref() != Some(&why) {
                    tracing::warn!(flag = self.flag, files = %self.names(), why, "files cannot be used; what was read before stays");
                    self.told = Some(why);
                }
                None
            }
        }
    }

    async fn look(&mut self) -> Result<Option<T>, String> {
        let mut contents = Vec::with_capacity(self.paths.len());
        for path in &self.paths {
            let content = content(path).await.map_err(|err| format!("{}: {err}", path.display()))?;
            contents.push(content);
        }
        if contents == self.seen {
            return Ok(None);
        }
        let value = (self.read)(&contents)?;
        self.seen = contents;
        Ok(Some(value))
    }

    fn names(&self) -> String {
        let names: Vec<String> = self.paths.iter().map(|it| it.display().to_string()).collect();
        names.join(", ")
    }
}

async fn content(path: &PathBuf) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path).await?.take(LARGEST + 1).read_to_end(&mut content).await?;
    if content.len() as u64 > LARGEST {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "larger than 1 MiB"));
    }
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(contents: &[Vec<u8>]) -> Result<String, String> {
        match &contents[0][..] {
            b"bad" => Err("it is bad".to_owned()),
            good => Ok(String::from_utf8_lossy(good).into_owned()),
        }
    }

    #[tokio::test]
    async fn only_content_that_changed_and_can_be_used_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("file");
        std::fs::write(&path, "one").unwrap();
        let (mut files, first) = Files::open("--flag", vec![path.clone()], Box::new(text)).await.unwrap();
        assert_eq!(first, "one");
        // Written again with the same content: no change.
        std::fs::write(&path, "one").unwrap();
        assert_eq!(files.refresh().await, None);
        std::fs::write(&path, "bad").unwrap();
        assert_eq!(files.refresh().await, None);
        assert_eq!(files.told.as_deref(), Some("it is bad"));
        std::fs::write(&path, "two").unwrap();
        assert_eq!(files.refresh().await.as_deref(), Some("two"));
        assert_eq!(files.told, None);
    }

    #[tokio::test]
    async fn what_has_no_end_is_refused() {
        let err = Files::open("--flag", vec!["/dev/zero".into()], Box::new(text)).await.err().unwrap().to_string();
        assert!(err.contains("--flag") && err.contains("/dev/zero") && err.contains("1 MiB"), "{err}");
    }
}
