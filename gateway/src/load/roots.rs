use std::io;
use std::path::{self, Path, PathBuf};

use datafusion::datasource::listing::ListingTableUrl;
use object_store::path::Path as ObjectPath;
use url::{ParseError, Url};
use volary_flight_proto::{Error, ErrorCode, Result};

use super::links::{is_link_loop, link_loop_error};
use crate::url_credentials::without_credentials;

/// The places below which COPY may read.
#[derive(Debug)]
pub(super) struct AllowedRoots(Vec<Root>);

#[derive(Debug)]
enum Root {
    Directory {
        path: PathBuf,
        /// The directory's real path, or the reason why it cannot be opened. A missing directory
        /// must not affect the other roots, so the error is kept.
        real_path: io::Result<PathBuf>,
    },
    Objects {
        store: String,
        prefix: ObjectPath,
    },
}

impl AllowedRoots {
    /// Parses the setting. A root that cannot be parsed allows nothing.
    pub(super) fn parse(roots: &[String]) -> Self {
        let roots = roots.iter().filter_map(|root| {
            let parsed = Root::parse(root);
            if parsed.is_none() {
                tracing::warn!(%root, "a root in gateway.load.allowed_roots is neither a path nor a URL without ? and #; it allows nothing");
            }
            parsed
        });
        Self(roots.collect())
    }

    /// Checks a location as it is written in the statement, before anything is read from it. COPY
    /// must read from the returned URL: a second parser might understand the location differently.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` outside the roots, `NOT_FOUND` below a root that does not exist, and
    /// `INVALID_ARGUMENT` for a text that is no location.
    pub(super) fn admit(&self, location: &str) -> Result<ListingTableUrl> {
        let shown = without_credentials(location);
        let url = ListingTableUrl::parse(location).map_err(|source| {
            Error::with_source(
                ErrorCode::InvalidArgument,
                format!("COPY may not read '{shown}': it is not a path, glob or URL"),
                source,
            )
        })?;
        if url.get_url().query().is_some() || url.get_url().fragment().is_some() {
            return Err(Error::invalid(format!(
                "COPY may not read '{shown}': in a URL, the text after ? or # is not part of the file name; write %3F or %23 for these characters, and * instead of ? as a wildcard"
            )));
        }
        let allowed = if is_local(&url) {
            let path = local_path(url.prefix());
            // A path that does not exist cannot be resolved, so its nearest existing parent
            // decides.
            let mut link_loop = None;
            let existing = path.ancestors().find_map(|path| match path.canonicalize() {
                Ok(real) => Some(real),
                Err(source) => {
                    if is_link_loop(&source) {
                        link_loop = Some(source);
                    }
                    None
                }
            });
            let allowed = existing.is_some_and(|path| self.allows_path(&path));
            // Outside of the roots, errors must not reveal what exists.
            if let (true, Some(source)) = (allowed, link_loop) {
                return Err(link_loop_error(&shown, source));
            }
            allowed
        } else {
            self.allows_object(&url, url.prefix())
        };
        if allowed {
            Ok(url)
        } else {
            Err(self.refusal(&shown, &url))
        }
    }

    /// Checks the real path of a file of the location, because a link may lead out of a root.
    /// `name` is the file's name in errors.
    ///
    /// # Errors
    /// The errors of [`AllowedRoots::admit`], and an error if the file cannot be opened.
    pub(super) fn check_file(
        &self,
        url: &ListingTableUrl,
        file: &ObjectPath,
        name: &str,
    ) -> Result<()> {
        let allowed = if is_local(url) {
            let real = local_path(file).canonicalize().map_err(|source| {
                if is_link_loop(&source) {
                    link_loop_error(name, source)
                } else {
                    Error::io(format!("cannot open {name}"), source)
                }
            })?;
            self.allows_path(&real)
        } else {
            self.allows_object(url, file)
        };
        if allowed {
            Ok(())
        } else {
            Err(self.refusal(name, url))
        }
    }

    fn allows_path(&self, path: &Path) -> bool {
        self.0.iter().any(
            |root| matches!(root, Root::Directory { real_path: Ok(real), .. } if path.starts_with(real)),
        )
    }

    fn allows_object(&self, url: &ListingTableUrl, object: &ObjectPath) -> bool {
        if !url.get_url().has_host() {
            return false;
        }
        let store_url = url.object_store();
        self.0.iter().any(|root| match root {
            Root::Objects { store, prefix } => {
                store == store_url.as_str() && object.prefix_matches(prefix)
            }
            Root::Directory { .. } => false,
        })
    }

    fn refusal(&self, location: &str, url: &ListingTableUrl) -> Error {
        if let Some((root, source)) = self.missing_root_of(url) {
            return Error::not_found(format!(
                "COPY may not read {location}: the root {} of gateway.load.allowed_roots cannot be opened ({source}); ask the operator to create or mount it",
                root.display()
            ));
        }
        let advice = if self.0.is_empty() {
            "no location is allowed; ask the operator to set gateway.load.allowed_roots (--allow-root)"
        } else {
            "it is outside gateway.load.allowed_roots; ask the operator to add it, or move the files"
        };
        Error::new(
            ErrorCode::PermissionDenied,
            format!("COPY may not read {location}: {advice}"),
        )
    }

    /// Returns the root that would allow the location if the root existed.
    fn missing_root_of(&self, url: &ListingTableUrl) -> Option<(&Path, &io::Error)> {
        let location = is_local(url).then(|| local_path(url.prefix()))?;
        self.0.iter().find_map(|root| match root {
            Root::Directory {
                path,
                real_path: Err(source),
            } if location.starts_with(path) => Some((path.as_path(), source)),
            _ => None,
        })
    }
}

impl Root {
    /// Parses a root. A root may have the same schemes as a location, but no wildcards: `*` is an
    /// ordinary character.
    fn parse(root: &str) -> Option<Self> {
        if Path::new(root).is_absolute() {
            return Self::directory(Path::new(root));
        }
        match Url::parse(root) {
            Err(ParseError::RelativeUrlWithoutBase) => Self::directory(Path::new(root)),
            Err(_) => None,
            Ok(url) if url.scheme() == "file" => Self::directory(&url.to_file_path().ok()?),
            // Such a root would allow more than it says, because only the path counts.
            Ok(url) if url.query().is_some() || url.fragment().is_some() => None,
            Ok(url) => {
                let url = ListingTableUrl::try_new(url, None).ok()?;
                Some(Self::Objects {
                    store: url.object_store().as_str().to_owned(),
                    prefix: url.prefix().clone(),
                })
            }
        }
    }

    fn directory(path: &Path) -> Option<Self> {
        Some(Self::Directory {
            path: path::absolute(path).ok()?,
            real_path: path.canonicalize(),
        })
    }
}

fn is_local(url: &ListingTableUrl) -> bool {
    url.scheme() == "file"
}

fn local_path(path: &ObjectPath) -> PathBuf {
    Path::new("/").join(path.as_ref())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn roots(roots: &[&str]) -> AllowedRoots {
        let roots: Vec<String> = roots.iter().map(|root| (*root).to_owned()).collect();
        AllowedRoots::parse(&roots)
    }

    fn here() -> String {
        std::env::current_dir().unwrap().display().to_string()
    }

    fn assert_refused(roots: &AllowedRoots, location: &str) {
        let code = roots.admit(location).map_err(|error| error.code());
        assert_eq!(code.err(), Some(ErrorCode::PermissionDenied), "{location}");
    }

    #[test]
    fn only_what_is_below_a_root_is_read() {
        let here = here();
        let roots = roots(&[&here, "s3://bucket/data/"]);
        for allowed in [
            &format!("{here}/src/*.rs"),
            &format!("{here}/no_such_folder/x.csv"),
            &format!("file://{here}/src"),
            &format!("FILE:{here}/src"),
            "src/lib.rs",
            "s3://bucket/data/x.parquet",
            "S3://bucket/data",
        ] {
            roots.admit(allowed).unwrap();
        }
        for refused in [
            "/etc/passwd",
            "file:/etc/passwd",
            "file:etc/passwd",
            &format!("{here}/../x"),
            &format!("{here}-beside/x"),
            &format!("file://{here}/../../etc/passwd"),
            &format!("file://{here}/%2e%2E/x"),
            "s3://bucket/database/x",
            "s3://bucket/data/../x",
            "s3://bucket/data/%2e%2e/x",
            "s3://other/data/x",
            "s3://bucket@other/data/x",
            "http://127.0.0.1/x",
        ] {
            assert_refused(&roots, refused);
        }
    }

    #[test]
    fn a_url_is_no_path_below_the_working_directory_however_it_is_written() {
        let roots = roots(&[&here()]);
        for location in [
            "https:/host/x.parquet",
            "https:host/x.parquet",
            "HTTPS://host/x.parquet",
            "https:\\\\host\\x.parquet",
            "s3:/bucket/x.parquet",
            "s3:bucket",
            "\thttps:/host/x",
        ] {
            assert_refused(&roots, location);
        }
    }

    #[test]
    fn a_root_with_a_query_allows_nothing() {
        let roots = roots(&["s3://bucket/data?version=7", "s3://other/data#part"]);
        assert_refused(&roots, "s3://bucket/data/x");
        assert_refused(&roots, "s3://other/data/x");
    }

    #[test]
    fn encoded_separators_lead_nowhere() {
        let roots = roots(&[&here(), "s3://bucket/data"]);
        for location in [
            &format!("file://{}/..%2F..%2Fetc/passwd", here()),
            "s3://bucket/data/..%2Fx",
        ] {
            let code = roots.admit(location).map_err(|error| error.code());
            assert_eq!(code.err(), Some(ErrorCode::InvalidArgument), "{location}");
        }
    }

    #[test]
    fn listed_objects_are_checked_too() {
        let roots = roots(&["s3://bucket/data"]);
        let url = roots.admit("s3://bucket/data/").unwrap();
        roots
            .check_file(&url, &ObjectPath::from("data/x.csv"), "x")
            .unwrap();
        let outside = roots.check_file(&url, &ObjectPath::from("database/x.csv"), "x");
        assert_eq!(outside.unwrap_err().code(), ErrorCode::PermissionDenied);
    }

    #[test]
    fn a_root_that_does_not_exist_fails_only_what_is_below_it() {
        let missing = format!("{}/no_such_root", here());
        let roots = roots(&[&missing, "://", "s3://bucket"]);
        roots.admit("s3://bucket/x.parquet").unwrap();
        assert_refused(&roots, "/etc/passwd");
        let error = roots.admit(&format!("{missing}/x.csv")).unwrap_err();
        assert_eq!(error.code(), ErrorCode::NotFound);
        assert!(
            error.message().contains("no_such_root of gateway"),
            "{error}"
        );
    }

    #[test]
    fn without_roots_nothing_is_read() {
        let error = roots(&[]).admit("/data/x.parquet").unwrap_err();
        assert!(error.message().contains("allowed_roots"), "{error}");
    }
}
