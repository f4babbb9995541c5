//! Where the files of a COPY are.

use std::sync::Arc;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::execution::session_state::SessionState;
use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore};
use url::Url;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::catalog::Table;
use crate::load::copy::CopyFrom;
use crate::load::roots::Roots;

/// Where the files of a COPY are, and what they are read for.
pub(super) struct Location<'a> {
    pub(super) state: &'a SessionState,
    pub(super) url: ListingTableUrl,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) table: &'a Arc<Table>,
    pub(super) copy: &'a CopyFrom,
}

impl<'a> Location<'a> {
    /// The location that a statement names, once it is allowed.
    ///
    /// # Errors
    /// Those of [`Roots::admit`], and `INVALID_ARGUMENT` for a store of no known kind.
    pub(super) fn open(
        roots: &Roots,
        state: &'a SessionState,
        table: &'a Arc<Table>,
        copy: &'a CopyFrom,
    ) -> Result<Self> {
        let url = roots.admit(&copy.location)?;
        Ok(Self {
            store: object_store(state, &url)?,
            url,
            state,
            table,
            copy,
        })
    }

    /// The files, in the order of their names.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is none, and those of the store.
    pub(super) async fn files(&self) -> Result<Vec<ObjectMeta>> {
        let mut files: Vec<ObjectMeta> = self
            .url
            .list_all_files(self.state, self.store.as_ref(), "")
            .await?
            .try_filter(|file| {
                // Hidden files and markers such as _SUCCESS are no data.
                let name = file.location.filename().unwrap_or_default();
                futures::future::ready(!name.starts_with(['.', '_']) && file.size > 0)
            })
            .try_collect()
            .await?;
        if files.is_empty() {
            return Err(Error::not_found(format!(
                "COPY {}: there is no file at {}, or it is empty",
                self.copy.table, self.copy.location
            )));
        }
        files.sort_by(|left, right| left.location.cmp(&right.location));
        Ok(files)
    }

    /// Whether they are on a disk of this machine.
    pub(super) fn is_local(&self) -> bool {
        self.url.scheme() == "file"
    }

    /// A file's path or URL.
    pub(super) fn name_of(&self, file: &ObjectMeta) -> String {
        if self.is_local() {
            format!("/{}", file.location)
        } else {
            format!("{}{}", self.url.object_store().as_str(), file.location)
        }
    }
}

/// The store of a URL, with credentials from the gateway's environment.
fn object_store(state: &SessionState, url: &ListingTableUrl) -> Result<Arc<dyn ObjectStore>> {
    let place = url.object_store();
    if let Ok(store) = state.runtime_env().object_store(&place) {
        return Ok(store);
    }
    let (store, _) = object_store::parse_url_opts(url.get_url(), std::env::vars())
        .map_err(datafusion::error::DataFusionError::from)?;
    let store: Arc<dyn ObjectStore> = Arc::from(store);
    let base = Url::parse(place.as_str()).map_err(|source| {
        Error::with_source(
            ErrorCode::InvalidArgument,
            format!("URL {}", url.as_str()),
            source,
        )
    })?;
    state
        .runtime_env()
        .register_object_store(&base, Arc::clone(&store));
    Ok(store)
}
