/// Turns flags into settings.
mod flags;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Parser, Subcommand};
use volary_flight_proto::Result;

use crate::logging;
use crate::login::{Login, Target, TlsFiles};
use crate::sql::output::OutputFormat;

/// SQL over sharded tables: a gateway plans, workers serve their shards over Arrow Flight.
#[derive(Debug, Parser)]
#[command(
    name = "volary",
    version,
    propagate_version = true,
    arg_required_else_help = true
)]
pub struct Args {
    /// The flags that all commands have.
    #[command(flatten)]
    pub settings: SettingsArgs,
    /// The command to run.
    #[command(subcommand)]
    pub command: Command,
}

/// The flags that all commands have.
#[derive(Debug, clap::Args)]
pub struct SettingsArgs {
    /// Settings file [default: volary.toml, if it exists]
    #[arg(long, global = true, env = "VOLARY_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Filter of the log: info, debug, warn,volary_gateway=debug
    #[arg(long, global = true, value_name = "FILTER")]
    pub log_filter: Option<String>,
    /// Format of the log
    #[arg(long, global = true, value_name = "FORMAT")]
    pub log_format: Option<logging::LogFormat>,
}

/// The commands of `volary`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a gateway, to which clients and workers connect
    Gateway(GatewayArgs),
    /// Run a worker, which joins a gateway and keeps shards
    Worker(WorkerArgs),
    /// Run a gateway and workers in one process
    Local(LocalArgs),
    /// Show nodes, tables and shards
    Status(StatusArgs),
    /// Run SQL: from an argument, a file, standard input or the keyboard
    Sql(SqlArgs),
    /// Load TPC-H data into a local cluster and run a few queries that show how it works
    Demo(DemoArgs),
    /// Write TPC-H data as Parquet files
    Tpch(TpchArgs),
    /// Create certificates for TLS, and the authority that signs them
    Certificates(CertificatesArgs),
    /// Create the secret that the nodes of a cluster share
    Secret(SecretArgs),
    /// Print the settings that are in effect, without the secrets, or check them
    Config(ConfigArgs),
    /// Check the settings, files and machine of a node before it starts, and say what to do
    Doctor(DoctorArgs),
    /// Print completions for a shell
    Completions(CompletionsArgs),
    /// Write the manual: one page for each command
    Man(ManArgs),
}

/// Arguments of `volary gateway`.
#[derive(Debug, clap::Args)]
pub struct GatewayArgs {
    /// The command to run instead of a gateway
    #[command(subcommand)]
    pub command: Option<GatewayCommand>,
    /// The flags of the gateway.
    #[command(flatten)]
    pub gateway: GatewayFlags,
}

/// The flags of a gateway.
#[derive(Debug, clap::Args)]
pub struct GatewayFlags {
    /// Address that clients and workers connect to [default: 127.0.0.1:7100]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Directory of the catalog [default: volary-data/gateway]
    #[arg(long, global = true, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// File with the secret of the cluster; VOLARY_SECRET can hold the secret instead
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Directory or URL below which COPY may read; can be given several times
    #[arg(long, value_name = "ROOT")]
    pub allow_root: Vec<String>,
    /// Memory for all queries: 2GiB, 50%
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
}

/// The commands that `volary gateway` runs instead of a gateway.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum GatewayCommand {
    /// Allow a gateway to start after its catalog was restored from a backup: workers set aside
    /// rows that the catalog does not know
    Recover,
}

/// Arguments of `volary worker`.
#[derive(Debug, clap::Args)]
pub struct WorkerArgs {
    /// Address that gateways connect to [default: 127.0.0.1:7200]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Address that the worker announces to gateways, if it differs from --listen
    #[arg(long, value_name = "HOST:PORT")]
    pub advertise: Option<String>,
    /// Address of the gateway to join [default: 127.0.0.1:7100]
    #[arg(long, value_name = "HOST:PORT")]
    pub gateway: Option<String>,
    /// Directory of the shards [default: volary-data/worker]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// File with the secret of the cluster; VOLARY_SECRET can hold the secret instead
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Memory for all fragments: 2GiB, 50%
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// Name of the place where the worker runs, such as an availability zone
    #[arg(long, value_name = "NAME")]
    pub zone: Option<String>,
}

/// Arguments of `volary local`.
#[derive(Debug, clap::Args)]
pub struct LocalArgs {
    /// The flags of the cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// Directory or URL below which COPY may read; can be given several times
    #[arg(long, value_name = "ROOT")]
    pub allow_root: Vec<String>,
    /// File with the secret of the cluster; VOLARY_SECRET can hold the secret instead
    #[arg(long, value_name = "FILE")]
    pub secret_file: Option<PathBuf>,
    /// Keep the data in a new temporary directory, and remove it at the end
    #[arg(long, conflicts_with = "data_dir")]
    pub temporary: bool,
    /// Stop when standard input is closed: the cluster then ends with the program that started it
    #[arg(long)]
    pub stop_with_stdin: bool,
}

/// The flags of a cluster that runs in one process.
#[derive(Debug, clap::Args)]
pub struct ClusterArgs {
    /// Address that clients connect to [default: 127.0.0.1:7100]
    #[arg(long, value_name = "HOST:PORT")]
    pub listen: Option<String>,
    /// Directory that holds the directories of all nodes [default: volary-data]
    #[arg(long, value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
    /// Number of workers [default: 4]
    #[arg(long, value_name = "N")]
    pub workers: Option<u64>,
    /// Memory for all queries on all nodes: 2GiB, 50%
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
}

/// The gateway that a client connects to, and the credentials that the client shows.
#[derive(Debug, clap::Args)]
pub struct ConnectionArgs {
    /// URI of the gateway
    #[arg(
        long,
        env = "VOLARY_URI",
        value_name = "URI",
        default_value = "grpc://127.0.0.1:7100"
    )]
    pub gateway: String,
    /// User to log in as; the password comes from VOLARY_PASSWORD or a prompt
    #[arg(short, long, env = "VOLARY_USER", value_name = "NAME")]
    pub user: Option<String>,
    /// File with a token to log in with; VOLARY_TOKEN can hold the token instead
    #[arg(long, value_name = "FILE", conflicts_with = "user")]
    pub token_file: Option<PathBuf>,
    /// PEM file of the authorities to trust with grpc+tls:// [default: the system's]
    #[arg(long, env = "VOLARY_TLS_CA", value_name = "FILE")]
    pub tls_ca: Option<PathBuf>,
    /// PEM file of the certificate to show to the gateway
    #[arg(
        long,
        env = "VOLARY_TLS_CERTIFICATE",
        value_name = "FILE",
        requires = "tls_key"
    )]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file of the private key of --tls-certificate
    #[arg(
        long,
        env = "VOLARY_TLS_KEY",
        value_name = "FILE",
        requires = "tls_certificate"
    )]
    pub tls_key: Option<PathBuf>,
}

impl ConnectionArgs {
    /// Returns the gateway to connect to, and the credentials for it.
    ///
    /// # Errors
    /// Returns the errors of [`Target::of`].
    pub fn target(self) -> Result<Target> {
        let login = Login {
            user: self.user,
            token_file: self.token_file,
        };
        let tls = TlsFiles {
            authorities: self.tls_ca,
            certificate: self.tls_certificate.zip(self.tls_key),
        };
        Target::of(&self.gateway, &login, tls)
    }
}

/// Arguments of `volary status`.
#[derive(Debug, clap::Args)]
pub struct StatusArgs {
    /// The flags of the connection to the gateway.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub json: bool,
    /// Show the status again and again, until Ctrl-C [default pause: 2 seconds]
    #[arg(
        long,
        value_name = "SECONDS",
        num_args = 0..=1,
        default_missing_value = "2",
        value_parser = parse_pause
    )]
    pub watch: Option<Duration>,
}

/// Shortest and longest pause of `--watch`, in seconds.
const PAUSES: std::ops::RangeInclusive<f64> = 0.1..=86_400.0;

fn parse_pause(text: &str) -> std::result::Result<Duration, String> {
    match text.parse::<f64>() {
        Ok(seconds) if PAUSES.contains(&seconds) => Ok(Duration::from_secs_f64(seconds)),
        _ => Err(format!(
            "write a number of seconds from {} to {}",
            PAUSES.start(),
            PAUSES.end()
        )),
    }
}

/// Arguments of `volary sql`.
#[derive(Debug, clap::Args)]
pub struct SqlArgs {
    /// The flags of the connection to the gateway.
    #[command(flatten)]
    pub connection: ConnectionArgs,
    /// Statements, separated by semicolons [default: read from standard input]
    pub statement: Option<String>,
    /// File that holds the statements
    #[arg(short, long, value_name = "FILE", conflicts_with = "statement")]
    pub file: Option<PathBuf>,
    /// Format of the rows [default: by the file name of --to, or table]
    #[arg(short, long, value_enum, value_name = "FORMAT")]
    pub output: Option<OutputFormat>,
    /// File to write the rows to, instead of standard output
    #[arg(long, value_name = "FILE")]
    pub to: Option<PathBuf>,
    /// Maximum number of rows that a table shows; 0 shows all
    #[arg(long, value_name = "N", default_value_t = 1000)]
    pub max_rows: u64,
    /// Print the time of each statement to standard error
    #[arg(long)]
    pub timing: bool,
}

/// Arguments of `volary demo`.
#[derive(Debug, clap::Args)]
pub struct DemoArgs {
    /// The flags of the cluster.
    #[command(flatten)]
    pub cluster: ClusterArgs,
    /// TPC-H scale factor: 1 is about 8.7 million rows
    #[arg(long, value_name = "FACTOR", default_value_t = 0.1)]
    pub scale: f64,
    /// Exit after the queries instead of continuing to serve
    #[arg(long)]
    pub exit: bool,
}

/// Arguments of `volary tpch`.
#[derive(Debug, clap::Args)]
pub struct TpchArgs {
    /// TPC-H scale factor: 1 is about 8.7 million rows
    #[arg(long, value_name = "FACTOR", default_value_t = 1.0)]
    pub scale: f64,
    /// Directory for the files, one per table
    #[arg(long, value_name = "DIR")]
    pub out: PathBuf,
}

/// Arguments of `volary certificates`.
#[derive(Debug, clap::Args)]
pub struct CertificatesArgs {
    /// Directory for the authority and the certificates that it signs
    #[arg(long, value_name = "DIR", default_value = "certificates")]
    pub dir: PathBuf,
    /// Host name or IP address at which nodes are reached; can be given several times [default:
    /// localhost, 127.0.0.1 and ::1]
    #[arg(long, value_name = "HOST")]
    pub host: Vec<String>,
    /// Name of a client that needs a certificate; can be given several times
    #[arg(long, value_name = "NAME")]
    pub client: Vec<String>,
    /// Number of days for which the certificates of nodes and clients are valid
    #[arg(long, value_name = "DAYS", default_value_t = 365)]
    pub days: u64,
    /// Replace existing certificates; the authority stays
    #[arg(long)]
    pub renew: bool,
}

/// Arguments of `volary secret`.
#[derive(Debug, clap::Args)]
pub struct SecretArgs {
    /// The command to run
    #[command(subcommand)]
    pub command: SecretCommand,
}

/// The commands of `volary secret`.
#[derive(Debug, Clone, Copy, Subcommand)]
pub enum SecretCommand {
    /// Print a new secret
    New,
}

/// Arguments of `volary config`.
#[derive(Debug, clap::Args)]
pub struct ConfigArgs {
    /// Print the reference of all settings as Markdown, instead of the settings in effect
    #[arg(long)]
    pub reference: bool,
    /// Print all limits with their defaults as Markdown, instead of the settings in effect
    #[arg(long, conflicts_with = "reference")]
    pub limits: bool,
    /// Print all metrics as Markdown, instead of the settings in effect
    #[arg(long, conflicts_with_all = ["reference", "limits"])]
    pub metrics: bool,
    /// Check the settings instead of printing them, and list everything that is wrong
    #[arg(long, conflicts_with_all = ["reference", "limits", "metrics"])]
    pub check: bool,
}

/// Arguments of `volary doctor`.
#[derive(Debug, clap::Args)]
pub struct DoctorArgs {
    /// The node to check, with the flags that its command takes
    #[command(subcommand)]
    pub node: DoctorCommand,
    /// Print one JSON object instead of lines
    #[arg(long, global = true)]
    pub json: bool,
    /// Leave out what needs other machines: the network, names and other nodes
    #[arg(long, global = true)]
    pub offline: bool,
}

/// The nodes that `volary doctor` checks.
#[derive(Debug, Subcommand)]
pub enum DoctorCommand {
    /// Check a gateway
    Gateway(GatewayFlags),
    /// Check a worker
    Worker(WorkerArgs),
    /// Check a gateway and workers in one process
    Local(LocalArgs),
}

/// Arguments of `volary completions`.
#[derive(Debug, clap::Args)]
pub struct CompletionsArgs {
    /// The shell
    #[arg(value_name = "SHELL")]
    pub shell: clap_complete::Shell,
}

/// Arguments of `volary man`.
#[derive(Debug, clap::Args)]
pub struct ManArgs {
    /// Directory for the pages, which is created if it does not exist
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        Args::command().debug_assert();
    }

    #[test]
    fn a_pause_is_a_number_of_seconds() {
        let pause = |line: &str| match Args::try_parse_from(line.split(' ')).unwrap().command {
            Command::Status(args) => args.watch,
            other => panic!("{other:?}"),
        };
        assert_eq!(pause("volary status"), None);
        assert_eq!(
            pause("volary status --watch --json"),
            Some(Duration::from_secs(2))
        );
        assert_eq!(
            pause("volary status --watch 0.5"),
            Some(Duration::from_millis(500))
        );
        for wrong in ["0", "-1", "NaN", "inf", "soon"] {
            assert!(parse_pause(wrong).is_err(), "{wrong}");
        }
    }
}
