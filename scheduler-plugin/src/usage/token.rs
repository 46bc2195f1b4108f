//! The token that is shown to agents. The kubelet writes it and changes it every hour, so it is read anew for each
//! call. It is never shown in a log.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use tokio::io::AsyncReadExt as _;
use tonic::metadata::{Ascii, MetadataValue};

/// Longest token that is read, bytes; those of Kubernetes take about 1,000.
const MOST_BYTES: u64 = 16 << 10;

/// A file with a token.
#[derive(Debug)]
pub struct TokenFile {
    path: PathBuf,
    /// What is wrong with it, as it was told last.
    told: Mutex<Option<String>>,
}

impl TokenFile {
    /// At this path, whether or not it is there already.
    #[must_use]
    pub const fn new(path: PathBuf) -> Self {
        Self {
            path,
            told: Mutex::new(None),
        }
    }

    /// The header that carries the token, as it is now. `None` where there is none: that is said when it begins, when
    /// its reason changes, and when it ends.
    pub async fn bearer(&self) -> Option<MetadataValue<Ascii>> {
        let read = self.read().await;
        let problem = read.as_ref().err().cloned();
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if *told != problem {
            let path = self.path.display();
            match &problem {
                Some(problem) => tracing::warn!(%path, problem, "no load is followed without a token"),
                None => tracing::info!(%path, "the token is there, load is followed"),
            }
            *told = problem;
        }
        read.ok()
    }

    async fn read(&self) -> Result<MetadataValue<Ascii>, String> {
        let read = async {
            let file = tokio::fs::File::open(&self.path).await?;
            let mut text = String::new();
            file.take(MOST_BYTES + 1).read_to_string(&mut text).await?;
            Ok(text)
        };
        let text = read.await.map_err(|error: std::io::Error| error.to_string())?;
        let token = text.trim();
        if token.is_empty() {
            return Err("the file is empty".to_owned());
        }
        if text.len() as u64 > MOST_BYTES {
            return Err(format!("the file has more than {MOST_BYTES} bytes"));
        }
        // what cannot be read is not repeated: it may be a token all the same
        let header = format!("Bearer {token}").parse::<MetadataValue<Ascii>>();
        let mut header = header.map_err(|_| "the file holds no token".to_owned())?;
        header.set_sensitive(true);
        Ok(header)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_token_is_read_as_it_is_now() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let file = TokenFile::new(path.clone());
        assert_eq!(file.bearer().await, None);
        for token in ["first", "second"] {
            std::fs::write(&path, format!("{token}\n")).unwrap();
            let header = file.bearer().await.unwrap();
            assert_eq!(header, format!("Bearer {token}"));
            assert!(!format!("{header:?}").contains(token), "{header:?}");
        }
        std::fs::remove_file(&path).unwrap();
        assert_eq!(file.bearer().await, None);
    }

    #[tokio::test]
    async fn a_file_without_a_token_is_told_by_its_reason_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("token");
        let file = TokenFile::new(path.clone());
        let told = || file.told.lock().unwrap().clone();
        for (text, reason) in [
            ("\n".to_owned(), "the file is empty"),
            ("to\nken".to_owned(), "the file holds no token"),
            ("x".repeat(20_000), "the file has more than 16384 bytes"),
        ] {
            std::fs::write(&path, text).unwrap();
            assert_eq!(file.bearer().await, None);
            assert_eq!(told().as_deref(), Some(reason));
        }
        std::fs::write(&path, "token").unwrap();
        file.bearer().await.unwrap();
        assert_eq!(told(), None);
    }
}
