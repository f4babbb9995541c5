use volary_node::listener::Listener;
use volary_node::operations::{Config, check_files};

use super::addresses;
use super::report::Report;

/// Checks the listener for monitoring systems, if there is to be one. The returned listener keeps
/// its address. Call it within a runtime.
pub(super) fn check(report: &mut Report, config: &Config) -> Option<Listener> {
    let address = config.listen?;
    match check_files(config) {
        Ok(()) if config.tls.certificate.is_some() || config.token_file.is_some() => {
            report.ok("operations files", "they can be read");
        }
        Ok(()) => {}
        Err(error) => report.fail("operations files", &error),
    }
    addresses::check_listen(report, "operations address", address)
}
