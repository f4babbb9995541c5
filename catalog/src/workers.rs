use std::sync::Arc;

use volary_flight_proto::Result;
use volary_flight_proto::ids::WorkerId;

use super::records::WorkerRecord;
use super::{Catalog, now_ms};

impl Catalog {
    /// Stores the address (`host:port`), the release and the zone of a worker. A worker without an
    /// id gets a new one.
    ///
    /// # Errors
    /// `NOT_FOUND` for an id that was never given out, and the errors of the store.
    pub async fn register_worker(
        &self,
        existing: Option<WorkerId>,
        address: &str,
        version: &str,
        zone: Option<&str>,
    ) -> Result<Arc<WorkerRecord>> {
        let (address, version) = (address.to_owned(), version.to_owned());
        let zone = zone.map(str::to_owned);
        self.change_with_ballast(move |draft| {
            let (id, joined_at_ms) = match existing {
                None => (draft.next_worker(), now_ms()),
                Some(id) => {
                    let record = draft.state().known_worker(id, &address)?;
                    if record.address == address && record.version == version && record.zone == zone
                    {
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
                zone: zone.clone(),
            });
            draft.put_worker(&worker)?;
            Ok(worker)
        })
        .await
    }
}
