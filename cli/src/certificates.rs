use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use chrono::{Datelike, Days, Utc};
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::args::CertificatesArgs;
use crate::terminal;

/// File name of the authority, without its extension. Later runs rebuild the authority from its key
/// and [`AUTHORITY_NAME`].
const AUTHORITY: &str = "authority";
const AUTHORITY_NAME: &str = "Volary cluster authority";
const NODE: &str = "node";
const AUTHORITY_DAYS: u64 = 3650;
/// The names and addresses by which nodes on the same machine are reached.
const LOCAL_HOSTS: [&str; 3] = ["localhost", "127.0.0.1", "::1"];

/// Creates the authority if the directory has none, and the requested certificates.
///
/// # Errors
/// Returns `ALREADY_EXISTS` if a certificate exists and `--renew` is not given, and the errors of
/// reading and writing the files.
pub fn run(args: &CertificatesArgs) -> Result<()> {
    let dir = CertificateDirectory(&args.dir);
    std::fs::create_dir_all(dir.0)
        .map_err(|source| Error::io(format!("cannot create {}", dir.0.display()), source))?;
    let mut wanted = Vec::new();
    if args.client.is_empty() || !args.host.is_empty() {
        let hosts = if args.host.is_empty() {
            LOCAL_HOSTS.map(str::to_owned).to_vec()
        } else {
            args.host.clone()
        };
        wanted.push((NODE, hosts));
    }
    for client in &args.client {
        check_file_name(client)?;
        wanted.push((client.as_str(), Vec::new()));
    }
    if !args.renew {
        for (name, _) in &wanted {
            dir.refuse_existing(name)?;
        }
    }
    let authority = authority(&dir)?;
    for (name, hosts) in wanted {
        let is_node = !hosts.is_empty();
        let mut params = CertificateParams::new(hosts).map_err(certificate_error)?;
        params.distinguished_name.push(DnType::CommonName, name);
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
        if is_node {
            params
                .extended_key_usages
                .push(ExtendedKeyUsagePurpose::ServerAuth);
        }
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, args.days)?;
        let key = KeyPair::generate().map_err(certificate_error)?;
        let certificate = params
            .signed_by(&key, &authority)
            .map_err(certificate_error)?;
        dir.write(name, &certificate.pem(), &key.serialize_pem())?;
    }
    terminal::print_line(&format!(
        "The certificates are in {0}. Keep {0}/authority.key in a safe place: it can sign further certificates.\n\
         Nodes: certificate = {0}/node.pem, key = {0}/node.key, authorities = {0}/authority.pem, in [gateway.tls] and [worker.tls].\n\
         Clients: grpc+tls://, and {0}/authority.pem as the authority to trust.",
        args.dir.display()
    ))
}

/// Returns the authority of the directory. Creates one if there is none.
fn authority(dir: &CertificateDirectory<'_>) -> Result<Issuer<'static, KeyPair>> {
    let mut params = CertificateParams::default();
    params
        .distinguished_name
        .push(DnType::CommonName, AUTHORITY_NAME);
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    let key_file = dir.key(AUTHORITY);
    if key_file.exists() {
        let pem = std::fs::read_to_string(&key_file)
            .map_err(|source| Error::io(format!("cannot read {}", key_file.display()), source))?;
        let key = KeyPair::from_pem(&pem).map_err(|source| {
            Error::invalid(format!(
                "{} contains no private key that can sign: {source}",
                key_file.display()
            ))
        })?;
        return Ok(Issuer::new(params, key));
    }
    dir.refuse_existing(AUTHORITY)?;
    let key = KeyPair::generate().map_err(certificate_error)?;
    set_validity(&mut params, AUTHORITY_DAYS)?;
    let certificate = params.self_signed(&key).map_err(certificate_error)?;
    dir.write(AUTHORITY, &certificate.pem(), &key.serialize_pem())?;
    Ok(Issuer::new(params, key))
}

/// Sets the time for which a certificate is valid. It begins yesterday, because clocks differ.
fn set_validity(params: &mut CertificateParams, days: u64) -> Result<()> {
    let now = Utc::now();
    let end = now
        .checked_add_days(Days::new(days))
        .filter(|end| end.year() < 10_000)
        .ok_or_else(|| {
            Error::invalid("--days is too large; a certificate must expire before the year 10000")
        })?;
    for (day, end) in [
        (now - Days::new(1), &mut params.not_before),
        (end, &mut params.not_after),
    ] {
        // A month and a day are always below 256.
        let [month, date] = [day.month(), day.day()].map(|part| u8::try_from(part).unwrap_or(1));
        *end = date_time_ymd(day.year(), month, date);
    }
    Ok(())
}

/// Checks the name of a client. The name becomes part of file names.
fn check_file_name(name: &str) -> Result<()> {
    let is_valid = name
        .chars()
        .all(|char| char.is_alphanumeric() || "-_.@".contains(char))
        && !name.starts_with('.')
        && !name.is_empty()
        && ![AUTHORITY, NODE].contains(&name);
    if is_valid {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "--client {name:?}: the name of a client consists of letters, digits and -_.@, does not begin with a dot, and is neither \"{AUTHORITY}\" nor \"{NODE}\""
    )))
}

fn certificate_error(source: rcgen::Error) -> Error {
    Error::with_source(
        ErrorCode::InvalidArgument,
        "cannot create a certificate; check the names that --host gives",
        source,
    )
}

struct CertificateDirectory<'a>(&'a Path);

impl CertificateDirectory<'_> {
    fn certificate(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.pem"))
    }

    fn key(&self, name: &str) -> PathBuf {
        self.0.join(format!("{name}.key"))
    }

    fn refuse_existing(&self, name: &str) -> Result<()> {
        for file in [self.certificate(name), self.key(name)] {
            if file.exists() {
                return Err(Error::new(
                    ErrorCode::AlreadyExists,
                    format!(
                        "{} already exists; --renew replaces the certificates of nodes and clients",
                        file.display()
                    ),
                ));
            }
        }
        Ok(())
    }

    /// Writes a certificate and its key. Nodes may read the files at the same time, so each file
    /// appears as a whole, the key first.
    fn write(&self, name: &str, certificate: &str, key: &str) -> Result<()> {
        for (file, text, is_secret) in [
            (self.key(name), key, true),
            (self.certificate(name), certificate, false),
        ] {
            let new = file.with_extension(if is_secret { "key.new" } else { "pem.new" });
            // A file that an earlier run left over might be readable by every user.
            let _ = std::fs::remove_file(&new);
            let written =
                write_new(&new, text, is_secret).and_then(|()| std::fs::rename(&new, &file));
            written
                .map_err(|source| Error::io(format!("cannot write {}", file.display()), source))?;
        }
        Ok(())
    }
}

fn write_new(file: &Path, text: &str, is_secret: bool) -> std::io::Result<()> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, if is_secret { 0o600 } else { 0o644 });
    #[cfg(not(unix))]
    let _ = is_secret;
    options.open(file)?.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(dir: &Path) -> CertificatesArgs {
        CertificatesArgs {
            dir: dir.to_owned(),
            host: Vec::new(),
            client: Vec::new(),
            days: 30,
            renew: false,
        }
    }

    #[test]
    fn the_authority_stays_and_certificates_are_replaced_only_if_that_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        run(&args(dir.path())).unwrap();
        let (authority, node) = (read("authority.pem"), read("node.pem"));
        let error = run(&args(dir.path())).unwrap_err();
        assert_eq!(error.code(), ErrorCode::AlreadyExists);
        assert!(error.message().contains("--renew"), "{error}");
        assert_eq!(read("node.pem"), node);
        let renewed = CertificatesArgs {
            renew: true,
            client: vec!["kea".to_owned()],
            host: vec!["gateway.example".to_owned(), "10.0.0.1".to_owned()],
            ..args(dir.path())
        };
        run(&renewed).unwrap();
        assert_eq!(read("authority.pem"), authority);
        assert_ne!(read("node.pem"), node);
        assert!(read("kea.key").contains("PRIVATE KEY"));
        for name in ["", "../kea", "node", ".kea", "a b"] {
            let refused = CertificatesArgs {
                client: vec![name.to_owned()],
                ..args(dir.path())
            };
            assert_eq!(
                run(&refused).unwrap_err().code(),
                ErrorCode::InvalidArgument,
                "{name}"
            );
        }
    }
}
