use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio_util::sync::{CancellationToken, DropGuard};
use volary_flight_proto::ids::{ClusterId, StoreId, WorkerId};
use volary_flight_proto::lineage::Incarnation;
use volary_flight_proto::{Error, ErrorCode, Result};

use crate::disk::LocalDisk;
use crate::durable;
use crate::private_files;

/// Newest format of the files in a data directory. A node refuses a directory with a newer format.
const FORMAT: u32 = WITH_STORE;
/// Format of the directory of a worker whose store was created. Earlier releases must not use it:
/// they would find no segments.
const WITH_STORE: u32 = 3;
/// Format of the directories of gateways, and of workers whose store was not created yet.
const WITHOUT_STORE: u32 = durable::FIRST_CHECKSUM_FORMAT;
const IDENTITY_FILE: &str = "volary.json";
const LOCK_FILE: &str = "lock";

/// The kind of node that a directory belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum NodeRole {
    /// A gateway. The directory holds its catalog.
    Gateway,
    /// A worker. The directory holds its shards.
    Worker,
}

impl std::fmt::Display for NodeRole {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Gateway => "gateway",
            Self::Worker => "worker",
        })
    }
}

/// The node that a directory belongs to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Format of the files.
    pub format: u32,
    /// Kind of the node.
    pub role: NodeRole,
    /// Id of the cluster. It is `None` before a worker's first join.
    pub cluster_id: Option<ClusterId>,
    /// Id of the worker. It is `None` for a gateway, and before a worker's first join.
    pub worker_id: Option<WorkerId>,
    /// The incarnations of the catalog under which the worker's rows were written, the oldest
    /// first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub incarnations: Vec<Incarnation>,
    /// Id of the worker's store. It is `None` for a gateway, and before the store is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store_id: Option<StoreId>,
}

/// A data directory that was looked at and not changed. No other process can use it while this
/// value lives, unless no node has ever used the directory.
#[derive(Debug)]
pub struct Inspection {
    identity: Option<Identity>,
    /// The lock, if the directory has a lock file.
    _lock: Option<File>,
}

impl Inspection {
    /// Looks at the directory at `path` before a node of this role opens it. Changes nothing and
    /// creates nothing: the user who looks need not be the user who runs the node. Returns `None`
    /// if the directory does not exist.
    ///
    /// # Errors
    /// The errors of [`DataDir::open`], except those of writing.
    pub fn of(path: &Path, role: NodeRole) -> Result<Option<Self>> {
        let is_directory = match fs::metadata(path) {
            Ok(metadata) => metadata.is_dir(),
            Err(source) if source.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => {
                return Err(Error::io(format!("cannot read {}", path.display()), source));
            }
        };
        if !is_directory {
            return Err(Error::invalid(format!(
                "{} is not a directory",
                path.display()
            )));
        }
        let lock = match OpenOptions::new().write(true).open(path.join(LOCK_FILE)) {
            Ok(file) => Some(take_lock(path, file)?),
            Err(source) if source.kind() == ErrorKind::NotFound => None,
            Err(source) => return Err(lock_failed(path, source)),
        };
        let identity = durable::read_json::<Identity>(&path.join(IDENTITY_FILE), FORMAT)?;
        match &identity {
            Some(identity) => check_role(path, identity, role)?,
            None => refuse_foreign_files(path)?,
        }
        Ok(Some(Self {
            identity,
            _lock: lock,
        }))
    }

    /// Returns the node that the directory belongs to. Returns `None` if no node has used it yet.
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }
}

/// An open data directory. No other process can use it while this value lives.
#[derive(Debug)]
pub struct DataDir {
    path: PathBuf,
    identity: Mutex<Identity>,
    // The lock is released when the file is closed, even if the process is killed.
    _lock: File,
    released: CancellationToken,
    // Cancels `released`. Fields are dropped in their order, so the file is closed before that.
    _release: DropGuard,
}

impl DataDir {
    /// Opens the directory at `path`, and creates it if it does not exist. From then on, other
    /// users cannot read it.
    ///
    /// # Errors
    /// `ALREADY_EXISTS` if another process uses the directory. `INVALID_ARGUMENT` if it belongs to
    /// another kind of node, cannot be closed to other users, has a newer format, or holds files
    /// that are not Volary's. `DATA_LOSS` if its identity cannot be read. Also the errors of the
    /// file system.
    pub fn open(path: &Path, role: NodeRole) -> Result<Self> {
        durable::create_directory(&LocalDisk, path)?;
        let lock = lock(path)?;
        let identity_path = path.join(IDENTITY_FILE);
        let identity = match durable::read_json::<Identity>(&identity_path, FORMAT)? {
            Some(identity) => {
                check_role(path, &identity, role)?;
                identity
            }
            None => {
                refuse_foreign_files(path)?;
                let identity = Identity {
                    format: WITHOUT_STORE,
                    role,
                    cluster_id: None,
                    worker_id: None,
                    incarnations: Vec::new(),
                    store_id: None,
                };
                write_identity(&identity_path, &identity)?;
                identity
            }
        };
        // This happens only after the directory is known to be a node's: somebody may have named
        // the directory of something else by mistake.
        private_files::restrict_directory(path)?;
        let released = CancellationToken::new();
        Ok(Self {
            path: path.to_owned(),
            identity: Mutex::new(identity),
            _lock: lock,
            _release: released.clone().drop_guard(),
            released,
        })
    }

    /// Opens the directory at `path`, which a node has used before.
    ///
    /// # Errors
    /// The errors of [`Self::open`], and `NOT_FOUND` if no node has used the directory.
    pub fn open_existing(path: &Path, role: NodeRole) -> Result<Self> {
        if !path.join(IDENTITY_FILE).exists() {
            return Err(Error::not_found(format!(
                "{} is not the data directory of a {role}",
                path.display()
            )));
        }
        Self::open(path, role)
    }

    /// Completes when this value was dropped and others can open the directory. The future keeps
    /// nothing open.
    pub fn released(&self) -> impl Future<Output = ()> + Send + use<> {
        self.released.clone().cancelled_owned()
    }

    /// Returns the path of the directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the node that the directory belongs to.
    pub fn identity(&self) -> Identity {
        self.identity.lock().clone()
    }

    /// Records durably which node of which cluster owns the directory from now on. May block.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the directory already belongs to another node or cluster, and the
    /// errors of the file system.
    pub fn claim(&self, cluster_id: ClusterId, worker_id: Option<WorkerId>) -> Result<()> {
        let mut identity = self.identity.lock();
        let other_cluster = identity.cluster_id.is_some_and(|id| id != cluster_id);
        let other_worker = identity.worker_id.is_some() && identity.worker_id != worker_id;
        if other_cluster || other_worker {
            return Err(Error::invalid(format!(
                "data directory {} belongs to {} of cluster {}, not to {} of cluster {cluster_id}; start the node with its own directory",
                self.path.display(),
                describe(identity.role, identity.worker_id),
                identity
                    .cluster_id
                    .map_or_else(|| "none".to_owned(), |id| id.to_string()),
                describe(identity.role, worker_id),
            )));
        }
        if identity.cluster_id == Some(cluster_id) && identity.worker_id == worker_id {
            return Ok(());
        }
        let claimed = Identity {
            cluster_id: Some(cluster_id),
            worker_id,
            ..identity.clone()
        };
        self.replace(&mut identity, claimed)
    }

    /// Records durably that the worker has created the store with this id in the directory. May
    /// block.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn record_store(&self, id: StoreId) -> Result<()> {
        let mut identity = self.identity.lock();
        let changed = Identity {
            format: WITH_STORE,
            store_id: Some(id),
            ..identity.clone()
        };
        self.replace(&mut identity, changed)
    }

    /// Records durably which incarnations of the catalog the worker has adopted. May block.
    ///
    /// # Errors
    /// The errors of the file system.
    pub fn record_incarnations(&self, incarnations: Vec<Incarnation>) -> Result<()> {
        let mut identity = self.identity.lock();
        let changed = Identity {
            incarnations,
            ..identity.clone()
        };
        self.replace(&mut identity, changed)
    }

    fn replace(&self, identity: &mut Identity, mut new: Identity) -> Result<()> {
        new.format = FORMAT;
        write_identity(&self.path.join(IDENTITY_FILE), &new)?;
        *identity = new;
        Ok(())
    }
}

fn describe(role: NodeRole, worker_id: Option<WorkerId>) -> String {
    worker_id.map_or_else(|| format!("a {role}"), |id| format!("worker {id}"))
}

fn lock(path: &Path) -> Result<File> {
    let file = private_files::file_options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(path.join(LOCK_FILE))
        .map_err(|source| lock_failed(path, source))?;
    take_lock(path, file)
}

fn lock_failed(path: &Path, source: io::Error) -> Error {
    let file = path.join(LOCK_FILE);
    Error::io(format!("cannot lock {}", file.display()), source)
}

fn take_lock(path: &Path, file: File) -> Result<File> {
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(Error::new(
            ErrorCode::AlreadyExists,
            format!(
                "data directory {} is in use by another process; stop that process, or give this node a directory of its own",
                path.display()
            ),
        )),
        Err(TryLockError::Error(source)) => Err(lock_failed(path, source)),
    }
}

fn check_role(path: &Path, identity: &Identity, role: NodeRole) -> Result<()> {
    if identity.role == role {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "{} is the data directory of a {}, not of a {role}; give each node a directory of its own",
        path.display(),
        identity.role
    )))
}

fn write_identity(path: &Path, identity: &Identity) -> Result<()> {
    durable::replace_file(&LocalDisk, path, &durable::to_json(identity)?)
}

/// Refuses a directory with other files in it. Such a directory is most likely a mistake, and
/// garbage collection would look into it.
fn refuse_foreign_files(path: &Path) -> Result<()> {
    let entries = fs::read_dir(path)
        .map_err(|source| Error::io(format!("cannot list {}", path.display()), source))?;
    for entry in entries {
        let entry =
            entry.map_err(|source| Error::io(format!("cannot list {}", path.display()), source))?;
        let name = entry.file_name();
        // A fresh file system contains lost+found, and a crash may leave the temporary identity
        // file behind.
        if name != LOCK_FILE && name != "lost+found" && name != "volary.tmp" {
            return Err(Error::invalid(format!(
                "{} is not empty (it contains {}) and has no volary.json, so it is not a data directory of Volary; choose an empty or new directory, or restore the file",
                path.display(),
                name.to_string_lossy()
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_used_by_one_process_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let first = DataDir::open(dir.path(), NodeRole::Worker).unwrap();
        let error = DataDir::open(dir.path(), NodeRole::Worker).unwrap_err();
        assert_eq!(error.code(), ErrorCode::AlreadyExists);
        drop(first);
        DataDir::open(dir.path(), NodeRole::Worker).unwrap();
    }

    #[tokio::test]
    async fn a_released_directory_can_be_opened_at_once() {
        let dir = tempfile::tempdir().unwrap();
        let open = DataDir::open(dir.path(), NodeRole::Worker).unwrap();
        let released = open.released();
        let dropping = std::thread::spawn(move || drop(open));
        released.await;
        DataDir::open(dir.path(), NodeRole::Worker).unwrap();
        dropping.join().unwrap();
    }

    #[test]
    fn a_directory_that_is_looked_at_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node");
        let inspect = |role| Inspection::of(&path, role);
        assert!(inspect(NodeRole::Worker).unwrap().is_none());
        assert!(!path.exists());
        fs::create_dir(&path).unwrap();
        let inspection = inspect(NodeRole::Worker).unwrap().unwrap();
        assert_eq!(inspection.identity(), None);
        assert_eq!(fs::read_dir(&path).unwrap().count(), 0);
        drop(inspection);

        let open = DataDir::open(&path, NodeRole::Worker).unwrap();
        let error = inspect(NodeRole::Worker).unwrap_err();
        assert_eq!(error.code(), ErrorCode::AlreadyExists);
        open.claim(ClusterId::new(), Some(WorkerId(7))).unwrap();
        drop(open);
        let inspection = inspect(NodeRole::Worker).unwrap().unwrap();
        assert_eq!(inspection.identity().unwrap().worker_id, Some(WorkerId(7)));
        let error = DataDir::open(&path, NodeRole::Worker).unwrap_err();
        assert_eq!(error.code(), ErrorCode::AlreadyExists, "it is locked");
        drop(inspection);
        let error = inspect(NodeRole::Gateway).unwrap_err();
        assert!(error.message().contains("of a worker"), "{error}");
        let error = Inspection::of(&path.join(LOCK_FILE), NodeRole::Worker).unwrap_err();
        assert!(error.message().contains("not a directory"), "{error}");
    }

    #[test]
    fn a_directory_of_another_role_worker_cluster_or_format_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cluster = ClusterId::new();
        let open = DataDir::open(dir.path(), NodeRole::Worker).unwrap();
        open.claim(cluster, Some(WorkerId(1))).unwrap();
        assert!(open.claim(cluster, Some(WorkerId(2))).is_err());
        assert!(open.claim(ClusterId::new(), Some(WorkerId(1))).is_err());
        drop(open);
        let error = DataDir::open(dir.path(), NodeRole::Gateway).unwrap_err();
        assert!(
            error.message().contains("of a worker, not of a gateway"),
            "{error}"
        );
        fs::write(
            dir.path().join(IDENTITY_FILE),
            r#"{"format": 99, "role": "moon"}"#,
        )
        .unwrap();
        let error = DataDir::open(dir.path(), NodeRole::Worker).unwrap_err();
        assert!(error.message().contains("format 99"), "{error}");
    }

    #[test]
    fn an_identity_has_its_text() {
        let text = r#"{
  "format": 3,
  "role": "worker",
  "cluster_id": "0198c0de-0000-7000-8000-000000000001",
  "worker_id": 3,
  "checksum": "b70369d8f0254f678340cb8cde3b963401a84c0fe6f21770d1925bb8824afea0"
}"#;
        let first_format = r#"{
  "format": 1,
  "role": "worker",
  "cluster_id": "0198c0de-0000-7000-8000-000000000001",
  "worker_id": 3
}"#;
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(IDENTITY_FILE);
        fs::write(&file, first_format).unwrap();
        let open = DataDir::open(dir.path(), NodeRole::Worker).unwrap();
        let mut identity = open.identity();
        assert_eq!(identity.worker_id, Some(WorkerId(3)));
        identity.format = FORMAT;
        write_identity(&file, &identity).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), text);
        drop(open);
        let open = DataDir::open(dir.path(), NodeRole::Worker).unwrap();
        assert_eq!(open.identity(), identity);
    }

    #[test]
    fn other_users_do_not_read_a_data_directory() {
        use std::os::unix::fs::PermissionsExt;

        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("node");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        DataDir::open(&path, NodeRole::Gateway).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(mode(&path.join(IDENTITY_FILE)), 0o600);
        // A directory that belongs to something else is not changed.
        let foreign = dir.path().join("foreign");
        fs::create_dir(&foreign).unwrap();
        fs::set_permissions(&foreign, fs::Permissions::from_mode(0o755)).unwrap();
        fs::write(foreign.join("thesis.docx"), "").unwrap();
        DataDir::open(&foreign, NodeRole::Gateway).unwrap_err();
        assert_eq!(mode(&foreign), 0o755);
    }

    #[test]
    fn a_directory_with_foreign_files_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("thesis.docx"), "").unwrap();
        let error = DataDir::open(dir.path(), NodeRole::Worker).unwrap_err();
        assert!(error.message().contains("thesis.docx"), "{error}");
    }
}
