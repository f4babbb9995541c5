use std::fs;
use std::time::Duration;

use config::ValueKind;

use super::*;

fn load(
    file: &str,
    environment: &[(&str, &str)],
    flags: &[(&'static str, &str)],
) -> Result<Settings> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volary.toml");
    fs::write(&path, file).unwrap();
    Settings::load(&Layers {
        file: Some(path),
        environment: environment
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        flags: flags
            .iter()
            .map(|(key, value)| Flag {
                name: "--flag",
                key,
                value: ValueKind::from(*value),
            })
            .collect(),
    })
}

fn refusal(file: &str, environment: &[(&str, &str)]) -> String {
    let error = load(file, environment, &[]).unwrap_err();
    assert_eq!(error.code(), ErrorCode::InvalidArgument, "{error}");
    error.message().to_owned()
}

#[test]
fn an_empty_file_gives_the_defaults() {
    assert_eq!(load("", &[], &[]).unwrap(), Settings::default());
}

#[test]
fn flags_win_over_the_environment_and_the_environment_over_the_file() {
    let file = "
        [gateway]
        listen = \"127.0.0.1:1\"
        data_dir = \"file\"
        [gateway.query]
        batch_rows = 1
        timeout = \"5s\"
        [gateway.memory]
        limit = \"1GiB\"
    ";
    let environment = [
        ("VOLARY_GATEWAY__LISTEN", "127.0.0.1:2"),
        ("VOLARY_GATEWAY__QUERY__BATCH_ROWS", "2"),
        ("VOLARY_GATEWAY__LOAD__ALLOWED_ROOTS", "/data, s3://bucket"),
    ];
    let settings = load(file, &environment, &[("gateway.listen", "127.0.0.1:3")]).unwrap();
    let gateway = settings.gateway;
    assert_eq!(gateway.listen.port(), 3);
    assert_eq!(gateway.data_dir, PathBuf::from("file"));
    assert_eq!(gateway.query.batch_rows, 2);
    assert_eq!(gateway.query.timeout, Duration::from_secs(5));
    assert_eq!(gateway.memory.limit, MemorySize::Bytes(1 << 30));
    assert_eq!(gateway.load.allowed_roots, ["/data", "s3://bucket"]);
}

#[test]
fn an_unknown_key_is_refused_with_the_place_and_the_keys_that_there_are() {
    let message = refusal("[local]\nworker = 3", &[]);
    assert!(
        message.contains("volary.toml: there is no setting local.worker"),
        "{message}"
    );
    assert!(
        message.contains("[local] has data_dir, in_process_calls, listen, memory, workers"),
        "{message}"
    );
    let message = refusal("[gatevay]\nlisten = 1", &[]);
    assert!(
        message.contains("the sections are gateway, local, log, operations, traces, worker"),
        "{message}"
    );
    let message = refusal("", &[("VOLARY_LOCAL__PORT", "1")]);
    assert!(
        message.contains("variable VOLARY_LOCAL__PORT: there is no setting local.port"),
        "{message}"
    );
    let message = refusal("gateway = 3", &[]);
    assert!(message.contains("gateway is a section"), "{message}");
}

#[test]
fn a_value_of_the_wrong_kind_is_refused_with_its_place() {
    let message = refusal("[local]\nworkers = \"many\"", &[]);
    assert!(
        message.contains("volary.toml: local.workers: "),
        "{message}"
    );
    let message = refusal("", &[("VOLARY_LOCAL__MEMORY", "much")]);
    assert!(
        message.contains("variable VOLARY_LOCAL__MEMORY: local.memory: "),
        "{message}"
    );
    assert!(message.contains("write for example 512MiB"), "{message}");
    let message = refusal("[gateway.load]\nidle_timeout = \"10ms\"", &[]);
    assert!(
        message.contains("gateway.load.idle_timeout must be at least 1s"),
        "{message}"
    );
    let message = refusal("[local]\nworkers = 0", &[]);
    assert!(
        message.contains("local.workers is 0; it must be from 1 to"),
        "{message}"
    );
}

#[test]
fn everything_that_is_wrong_is_found_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("volary.toml");
    let text = "
        [gateway]
        listen = 7100
        [gateway.query]
        batch_rowz = 1
        max_running = 0
        [local]
        memory = \"much\"
        workers = 2
        [worker.memory]
        limit = [1]
    ";
    fs::write(&path, text).unwrap();
    let layers = Layers {
        file: Some(path),
        environment: vec![("VOLARY_LOG__FORM".to_owned(), "text".to_owned())],
        flags: Vec::new(),
    };
    let (settings, problems) = Settings::examine(&layers);
    let said: Vec<_> = problems.iter().map(Error::message).collect();
    for part in [
        "there is no setting gateway.query.batch_rowz",
        "variable VOLARY_LOG__FORM: there is no setting log.form",
        "volary.toml: gateway.listen: ",
        "volary.toml: local.memory: ",
        "volary.toml: worker.memory.limit: ",
        "gateway.query.max_running must be at least 1",
    ] {
        let found = said.iter().filter(|text| text.contains(part)).count();
        assert_eq!(found, 1, "{part} in {said:#?}");
    }
    assert_eq!(said.len(), 6, "{said:#?}");
    assert_eq!(settings.unwrap().local.workers, 2, "the rest is kept");
}

#[test]
fn a_file_that_is_no_toml_is_refused_without_showing_its_text() {
    let message = refusal("[gateway]\nsecret = \"hunter2", &[]);
    assert!(message.contains("line 2"), "{message}");
    assert!(!message.contains("hunter2"), "{message}");
}

#[test]
fn a_file_that_is_not_there_is_an_error_only_if_it_was_named() {
    let layers = Layers {
        file: Some(PathBuf::from("/nowhere/volary.toml")),
        ..Layers::default()
    };
    assert_eq!(
        Settings::load(&layers).unwrap_err().code(),
        ErrorCode::NotFound
    );
    Settings::load(&Layers::default()).unwrap();
}

/// A secret that is text, although it could be parsed as a number.
const SECRET_OF_DIGITS: &str = "00712345670071234567007123456700";

#[test]
fn one_variable_is_the_secret_of_both_kinds_of_node_and_is_never_shown() {
    // A value that looks like a number must stay text.
    let settings = load("", &[("VOLARY_SECRET", SECRET_OF_DIGITS)], &[]).unwrap();
    assert_eq!(settings.gateway.secret.as_deref(), Some(SECRET_OF_DIGITS));
    assert_eq!(settings.worker.secret.as_deref(), Some(SECRET_OF_DIGITS));
    let shown = settings.without_secrets().unwrap().to_string();
    assert!(!shown.contains(SECRET_OF_DIGITS), "{shown}");
}

#[test]
fn variables_without_a_section_are_none_of_ours() {
    load(
        "",
        &[
            ("VOLARY_PORT", "tcp://10.0.0.1:7100"),
            ("VOLARY_URI", "grpc://x"),
        ],
        &[],
    )
    .unwrap();
}
