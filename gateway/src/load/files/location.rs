use std::sync::Arc;

use datafusion::datasource::listing::ListingTableUrl;
use datafusion::error::DataFusionError;
use datafusion::execution::session_state::SessionState;
use futures::TryStreamExt;
use object_store::{ObjectMeta, ObjectStore, ObjectStoreExt};
use volary_catalog::Table;
use volary_flight_proto::{Error, Result, SqlState};

use super::store::{is_web, object_store};
use crate::load::defaults::Defaults;
use crate::load::links::{is_link_loop, link_loop_error};
use crate::load::roots::AllowedRoots;
use crate::sql::copy::CopyFrom;
use crate::url_credentials::without_credentials;

/// The location of the files of a COPY, with the table and the statement.
pub(super) struct CopyLocation<'a> {
    pub(super) state: &'a SessionState,
    pub(super) url: ListingTableUrl,
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) table: &'a Arc<Table>,
    pub(super) copy: &'a CopyFrom,
    /// The values of columns that the files do not have.
    pub(super) defaults: Defaults,
}

impl<'a> CopyLocation<'a> {
    /// Opens the location that a statement names, if it is allowed.
    ///
    /// # Errors
    /// The errors of [`AllowedRoots::admit`]. `INVALID_ARGUMENT` for a store of an unknown kind.
    /// Also the errors of planning the defaults of the table.
    pub(super) fn open(
        roots: &AllowedRoots,
        state: &'a SessionState,
        table: &'a Arc<Table>,
        copy: &'a CopyFrom,
    ) -> Result<Self> {
        let url = roots.admit(&copy.location)?;
        Ok(Self {
            store: object_store(state, &url)?,
            defaults: Defaults::new(state, table)?,
            url,
            state,
            table,
            copy,
        })
    }

    /// Returns the files, in the order of their names.
    ///
    /// # Errors
    /// `NOT_FOUND` if there is no file. Also the errors of the store.
    pub(super) async fn files(&self) -> Result<Vec<ObjectMeta>> {
        if is_web(&self.url) && !self.url.is_collection() && self.url.get_glob().is_none() {
            return self.file_on_web_server().await;
        }
        let mut files: Vec<ObjectMeta> = self
            .url
            .list_all_files(self.state, self.store.as_ref(), "")
            .await
            .map_err(|error| self.locate_error(error))?
            .try_filter(|file| {
                // Hidden files and markers such as _SUCCESS contain no data.
                let name = file.location.filename().unwrap_or_default();
                futures::future::ready(!name.starts_with(['.', '_']) && file.size > 0)
            })
            .try_collect()
            .await
            .map_err(|error| self.locate_error(error))?;
        if files.is_empty() {
            return Err(self.no_such_file());
        }
        files.sort_by(|left, right| left.location.cmp(&right.location));
        Ok(files)
    }

    /// Returns the one file of the location. Files below the location are not listed, because few
    /// web servers can do that.
    async fn file_on_web_server(&self) -> Result<Vec<ObjectMeta>> {
        match self.store.head(self.url.prefix()).await {
            Ok(file) if file.size > 0 => Ok(vec![file]),
            Ok(_) | Err(object_store::Error::NotFound { .. }) => Err(self.no_such_file()),
            Err(source) => Err(self.locate_error(source.into())),
        }
    }

    /// Adds the location to an error, because not all errors of stores name it.
    fn locate_error(&self, error: DataFusionError) -> Error {
        if is_link_loop(&error) {
            return link_loop_error(&without_credentials(&self.copy.location), error);
        }
        Error::from(error).at(without_credentials(&self.copy.location))
    }

    fn no_such_file(&self) -> Error {
        Error::not_found(format!(
            "COPY {}: there is no file at {}, or it is empty",
            self.copy.table,
            without_credentials(&self.copy.location)
        ))
        .with_sqlstate(SqlState::UndefinedFile)
    }

    /// Returns whether the files are on a disk of this machine.
    pub(super) fn is_local(&self) -> bool {
        self.url.scheme() == "file"
    }

    /// Returns the path or the URL of a file.
    pub(super) fn file_name(&self, file: &ObjectMeta) -> String {
        if self.is_local() {
            format!("/{}", file.location)
        } else {
            let store = self.url.object_store();
            format!("{}{}", without_credentials(store.as_str()), file.location)
        }
    }
}
