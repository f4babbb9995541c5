use std::sync::Arc;

use volary_flight_proto::ids::WorkerId;
use volary_flight_proto::{Error, Result};

use super::records::WorkerRecord;
use super::{Catalog, now_ms};

impl Catalog {
    /// Stores the address (`host:port`) and the release of a worker. A worker without an id gets a
    /// new one.
    ///
    /// # Errors
    /// `NOT_FOUND` for an id that was never given out, and the errors of the store.
    pub async fn register_worker(
        &self,
        existing: Option<WorkerId>,
        address: &str,
        version: &str,
    ) -> Result<Arc<WorkerRecord>> {
        let (address, version) = (address.to_owned(), version.to_owned());
        self.change(move |draft| {
            let (id, joined_at_ms) = match existing {
                None => (draft.next_worker(), now_ms()),
                Some(id) => {
                    let Some(record) = draft.state().worker(id) else {
                        return Err(Error::not_found(format!(
                            "worker {id} at {address} is unknown to this cluster's catalog; start it with its own data directory, or with an empty one to join as a new worker; if the catalog was restored from a backup, restore a later one"
                        )));
                    };
                    if record.address == address && record.version == version {
                        return Ok(Arc::clone(record));
                    }
                    (id, record.joined_at_ms)
                }
            };
            let worker = Arc::new(WorkerRecord {
                id,
                address: address.clone(),
                version: version.clone(),
                joined_at_ms,
            });
            draft.put_worker(&worker)?;
            Ok(worker)
        })
        .await
    }
}
