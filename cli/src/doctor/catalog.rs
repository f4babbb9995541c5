use std::path::Path;

use volary_gateway::server::{CatalogSummary, read_catalog};
use volary_node::data_dir::Inspection;
use volary_node::secret;

use super::report::Report;
use crate::terminal;

/// Checks the catalog in the data directory of a gateway, and whether the gateway has the secret
/// that the catalog's users need. Returns what the catalog says.
pub(super) async fn check(
    report: &mut Report,
    directory: &Path,
    inspection: Option<&Inspection>,
    has_secret: bool,
) -> CatalogSummary {
    const NAME: &str = "catalog";
    let Some(identity) = inspection.and_then(Inspection::identity) else {
        return CatalogSummary::default();
    };
    let summary = match read_catalog(directory, identity).await {
        Ok(summary) => summary,
        Err(error) => {
            report.fail(NAME, &error);
            return CatalogSummary::default();
        }
    };
    let workers = terminal::plural(summary.workers.len() as u64, "worker");
    report.ok(NAME, format!("it can be read, and knows {workers}"));
    if summary.has_users
        && let Err(error) = secret::check_for_users(has_secret)
    {
        report.fail("secret", &error);
    }
    summary
}
