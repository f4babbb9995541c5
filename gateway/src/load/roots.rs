//! Where COPY may read: gateway.load.allowed_roots.

use std::path::{Path, PathBuf};

use url::Url;
use volary_flight_proto::{Error, ErrorCode, Result};

/// Where COPY may read.
#[derive(Debug)]
pub(super) struct Roots(Vec<Root>);

#[derive(Debug)]
enum Root {
    Directory(PathBuf),
    Url(String),
}

impl Roots {
    /// Of the setting.
    ///
    /// # Errors
    /// If a directory of it does not exist.
    pub(super) fn parse(roots: &[String]) -> Result<Self> {
        let parse = |root: &String| match scheme(root) {
            None | Some("file") => {
                let path = root.strip_prefix("file://").unwrap_or(root);
                let path = Path::new(path).canonicalize().map_err(|source| {
                    Error::io(format!("gateway.load.allowed_roots: {root}"), source)
                })?;
                Ok(Root::Directory(path))
            }
            Some(_) => Ok(Root::Url(root.trim_end_matches('/').to_owned())),
        };
        roots
            .iter()
            .map(parse)
            .collect::<Result<Vec<_>>>()
            .map(Self)
    }

    /// Looks at the location as it is written, before anything of it is touched.
    pub(super) fn check(&self, location: &str) -> Result<()> {
        let allowed = match scheme(location) {
            None | Some("file") => {
                let path = location.strip_prefix("file://").unwrap_or(location);
                let fixed = fixed_part(path);
                // What does not exist cannot be resolved: its nearest existing parent decides.
                let existing = fixed.ancestors().find_map(|path| path.canonicalize().ok());
                existing.is_some_and(|path| self.holds_path(&path))
            }
            Some(_) => self.holds_url(location),
        };
        if allowed {
            Ok(())
        } else {
            Err(self.refuse(location))
        }
    }

    /// Looks at a file where it really is: a link may lead out of a root.
    pub(super) fn check_file(&self, name: &str) -> Result<()> {
        if scheme(name).is_some() {
            return Ok(());
        }
        let path = Path::new(name)
            .canonicalize()
            .map_err(|source| Error::io(format!("cannot open {name}"), source))?;
        if self.holds_path(&path) {
            Ok(())
        } else {
            Err(self.refuse(name))
        }
    }

    fn holds_path(&self, path: &Path) -> bool {
        self.0
            .iter()
            .any(|root| matches!(root, Root::Directory(root) if path.starts_with(root)))
    }

    fn holds_url(&self, location: &str) -> bool {
        let Ok(location) = Url::parse(location) else {
            return false;
        };
        // A parsed URL has its dots resolved.
        self.0.iter().any(|root| match root {
            Root::Url(root) => location
                .as_str()
                .strip_prefix(root.as_str())
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
            Root::Directory(_) => false,
        })
    }

    fn refuse(&self, location: &str) -> Error {
        let advice = if self.0.is_empty() {
            "COPY may read nowhere: the operator sets gateway.load.allowed_roots (--allow-root)"
        } else {
            "it is outside gateway.load.allowed_roots; ask the operator to add it, or move the files"
        };
        Error::new(
            ErrorCode::PermissionDenied,
            format!("COPY may not read {location}: {advice}"),
        )
    }
}

fn scheme(location: &str) -> Option<&str> {
    location.split_once("://").map(|(scheme, _)| scheme)
}

/// The part of a path before the first wildcard.
fn fixed_part(path: &str) -> PathBuf {
    let path = Path::new(path);
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    absolute
        .components()
        .take_while(|part| !part.as_os_str().to_string_lossy().contains(['*', '?', '[']))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(roots: &[&str]) -> Roots {
        let roots: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
        Roots::parse(&roots).unwrap()
    }

    #[test]
    fn only_what_is_below_a_root_is_read() {
        let here = std::env::current_dir().unwrap();
        let here = here.to_str().unwrap();
        let roots = roots(&[here, "s3://bucket/data/"]);
        for allowed in [
            &format!("{here}/src/*.rs"),
            &format!("file://{here}/src"),
            "src/lib.rs",
            "s3://bucket/data/x.parquet",
        ] {
            roots.check(allowed).unwrap();
        }
        for refused in [
            "/etc/passwd",
            &format!("{here}/../x"),
            &format!("{here}-beside/x"),
            "s3://bucket/database/x",
            "s3://bucket/data/../x",
            "http://127.0.0.1/x",
        ] {
            assert_eq!(
                roots.check(refused).unwrap_err().code(),
                ErrorCode::PermissionDenied,
                "{refused}"
            );
        }
    }

    #[test]
    fn without_roots_nothing_is_read() {
        let error = roots(&[]).check("/data/x.parquet").unwrap_err();
        assert!(error.message().contains("allowed_roots"), "{error}");
    }
}
