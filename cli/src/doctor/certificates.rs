use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use chrono::{DateTime, Utc};
use volary_node::data_dir::NodeRole;
use volary_node::tls::{Config, Inspection, Validity};

use super::report::Report;

/// Time before the expiry of a certificate in which it should be replaced, in days.
const RENEWAL_DAYS: i64 = 30;
const SECONDS_PER_DAY: i64 = 24 * 60 * 60;
/// Permissions of users who are neither the owner nor in the group of a file.
const ANYBODY_MODE: u32 = 0o007;

const RENEW: &str = "replace it: `volary certificates --renew` does, for certificates that it made";

/// Checks the certificates of a node. `names` are the hosts by which others connect to it, each
/// with the setting that says so.
pub(super) fn check(
    report: &mut Report,
    role: NodeRole,
    config: &Config,
    names: &[(String, String)],
) {
    const NAME: &str = "certificates";
    let inspection = match Inspection::read(role, config) {
        Ok(inspection) => inspection,
        Err(problems) => {
            for problem in &problems {
                report.fail(NAME, problem);
            }
            return;
        }
    };
    let Some(key) = inspection.key() else {
        report.ok(
            NAME,
            format!("none: {role}.tls.certificate is not set, so there is no TLS"),
        );
        return;
    };
    match inspection.check_signature() {
        Ok(()) => report.ok(NAME, "the files can be read and fit together"),
        Err(error) => report.fail(NAME, &error),
    }
    check_key_permissions(report, key);
    match inspection.validities() {
        Ok(validities) => {
            for validity in validities {
                check_validity(report, role, &validity, Utc::now());
            }
        }
        Err(error) => report.fail(NAME, &error),
    }
    check_names(report, &inspection, names);
}

fn check_key_permissions(report: &mut Report, key: &Path) {
    const NAME: &str = "private key";
    let Ok(metadata) = std::fs::metadata(key) else {
        // Reading the file has said what is wrong with it.
        return;
    };
    let mode = metadata.permissions().mode() & 0o777;
    if mode & ANYBODY_MODE == 0 {
        report.ok(
            NAME,
            format!("only its owner and group may use {}", key.display()),
        );
    } else {
        report.warn(
            NAME,
            format!(
                "every user of this machine may use {} (mode {mode:04o})",
                key.display()
            ),
            &format!("close it to others: chmod o= {}", key.display()),
        );
    }
}

fn check_validity(report: &mut Report, role: NodeRole, validity: &Validity, now: DateTime<Utc>) {
    const NAME: &str = "expiry";
    let (Some(begin), Some(end)) = (at(validity.not_before_s), at(validity.not_after_s)) else {
        return;
    };
    let file = format!("{}, {}", validity.setting, validity.path.display());
    // Nodes do not check for how long an authority is valid. Most clients do.
    let is_own = validity.setting == format!("{role}.tls.certificate");
    if now < begin {
        let found = format!("{file}, is not valid before {begin}, and the clock says {now}");
        let advice = "set the clock of this machine, or wait";
        if is_own {
            report.fail_with(NAME, found, advice);
        } else {
            report.warn(NAME, found, advice);
        }
        return;
    }
    let days = (end - now).num_seconds().div_euclid(SECONDS_PER_DAY);
    if now > end {
        let found = format!("{file}, has expired at {end}, and the clock says {now}");
        if is_own {
            report.fail_with(NAME, found, RENEW);
        } else {
            report.warn(NAME, found, RENEW);
        }
    } else if days < RENEWAL_DAYS {
        report.warn(
            NAME,
            format!("{file}, expires at {end}, in {days} days"),
            RENEW,
        );
    } else {
        report.ok(
            NAME,
            format!("{file}, is valid until {end}, for {days} days"),
        );
    }
}

fn at(since_1970_s: u64) -> Option<DateTime<Utc>> {
    DateTime::from_timestamp(i64::try_from(since_1970_s).ok()?, 0)
}

fn check_names(report: &mut Report, inspection: &Inspection, names: &[(String, String)]) {
    const NAME: &str = "names";
    let mut fit = Vec::new();
    for (host, why) in names {
        match inspection.check_name(host) {
            Ok(()) => fit.push(host.as_str()),
            Err(error) => report.fail_with(
                NAME,
                format!("{}: {why}", super::report::plain(&error)),
                "use a certificate with this name (`volary certificates --host` makes one), or set tls.node_name on all nodes to a name that all certificates have",
            ),
        }
    }
    if !fit.is_empty() {
        report.ok(NAME, format!("the certificate is for {}", fit.join(", ")));
    }
    if names.is_empty() {
        match inspection.names() {
            Ok(names) if names.is_empty() => report.fail_with(
                NAME,
                "the certificate has no name",
                "use a certificate with the names by which others connect (`volary certificates --host` makes one)",
            ),
            Ok(names) => report.ok(
                NAME,
                format!(
                    "the certificate is for {}: others must connect by one of these names",
                    names.join(", ")
                ),
            ),
            Err(error) => report.fail(NAME, &error),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::args::CertificatesArgs;
    use crate::certificates;

    const DAY: u64 = 24 * 60 * 60;

    fn made(dir: &Path) -> Config {
        certificates::run(&CertificatesArgs {
            dir: dir.to_owned(),
            host: vec!["a.example".to_owned(), "127.0.0.1".to_owned()],
            client: vec!["kea".to_owned()],
            days: 90,
            renew: false,
        })
        .unwrap();
        config(dir, "node")
    }

    fn config(dir: &Path, name: &str) -> Config {
        Config {
            certificate: Some(dir.join(format!("{name}.pem"))),
            key: Some(dir.join(format!("{name}.key"))),
            authorities: Some(dir.join("authority.pem")),
            ..Config::default()
        }
    }

    fn lines(config: &Config, hosts: &[&str]) -> String {
        let names: Vec<_> = hosts
            .iter()
            .map(|host| ((*host).to_owned(), "it is reached so".to_owned()))
            .collect();
        let mut report = Report::default();
        check(&mut report, NodeRole::Worker, config, &names);
        report.lines()
    }

    #[test]
    fn certificates_that_fit_pass_with_their_names_and_their_expiry() {
        let dir = tempfile::tempdir().unwrap();
        let config = made(dir.path());
        let said = lines(&config, &["a.example", "127.0.0.1"]);
        assert!(
            said.contains("names: the certificate is for a.example, 127.0.0.1"),
            "{said}"
        );
        assert!(said.contains("worker.tls.certificate, "), "{said}");
        assert!(
            said.contains("for 89 days") || said.contains("for 90 days"),
            "{said}"
        );
        assert!(said.contains("worker.tls.authorities, "), "{said}");
        for line in said.lines() {
            assert!(line.starts_with("ok "), "{said}");
        }
        let said = lines(&config, &[]);
        assert!(said.contains("a.example, 127.0.0.1: others must"), "{said}");
    }

    #[test]
    fn certificates_that_do_not_fit_fail_with_what_to_do() {
        let dir = tempfile::tempdir().unwrap();
        let node = made(dir.path());
        let said = lines(&node, &["b.example"]);
        assert!(
            said.contains("it is for a.example, 127.0.0.1, and not for b.example"),
            "{said}"
        );
        assert!(said.contains("volary certificates --host"), "{said}");
        let said = lines(&config(dir.path(), "kea"), &[]);
        assert!(
            said.contains("it is not the certificate of a node"),
            "{said}"
        );

        let strangers = tempfile::tempdir().unwrap();
        let foreign = made(strangers.path());
        let mixed = Config {
            authorities: foreign.authorities.clone(),
            ..node.clone()
        };
        let said = lines(&mixed, &[]);
        assert!(said.contains("none of the authorities in"), "{said}");
        let other_key = Config {
            key: foreign.key,
            ..node.clone()
        };
        let said = lines(&other_key, &[]);
        assert!(said.contains("it does not match the certificate"), "{said}");

        let key = node.key.as_ref().unwrap();
        std::fs::set_permissions(key, std::fs::Permissions::from_mode(0o644)).unwrap();
        let said = lines(&node, &[]);
        assert!(said.contains("warning  private key: every user"), "{said}");
    }

    #[test]
    fn the_time_of_a_certificate_is_compared_with_the_clock() {
        let now_s = 1_800_000_000;
        let said = |setting: &str, not_before_s: u64, not_after_s: u64| {
            let validity = Validity {
                setting: setting.to_owned(),
                path: PathBuf::from("node.pem"),
                not_before_s,
                not_after_s,
            };
            let mut report = Report::default();
            check_validity(&mut report, NodeRole::Worker, &validity, at(now_s).unwrap());
            report.lines()
        };
        let own = "worker.tls.certificate";
        let valid = said(own, now_s - 1, now_s + 31 * DAY);
        assert!(valid.starts_with("ok "), "{valid}");
        let late = said(own, now_s - 1, now_s + 29 * DAY);
        assert!(
            late.starts_with("warning ") && late.contains("in 29 days"),
            "{late}"
        );
        let expired = said(own, now_s - 9, now_s - 1);
        assert!(
            expired.starts_with("failed ") && expired.contains("has expired"),
            "{expired}"
        );
        let early = said(own, now_s + 5, now_s + 9);
        assert!(
            early.starts_with("failed ") && early.contains("set the clock"),
            "{early}"
        );
        let authority = said("worker.tls.authorities", now_s - 9, now_s - 1);
        assert!(authority.starts_with("warning "), "{authority}");
    }
}
