//! Tests how errors cross the network, and how the errors of libraries are converted.

use std::sync::Arc;

use arrow::error::ArrowError;
use datafusion::error::DataFusionError;
use datafusion::object_store;
use datafusion::parquet::errors::ParquetError;

use super::*;

#[test]
fn every_code_survives_the_way_over_grpc() {
    for code in ErrorCode::ALL {
        let status = Status::from(Error::new(code, "what, where, what to do"));
        let back = Error::from(status);
        assert_eq!(back.code(), code);
        assert_eq!(back.message(), "what, where, what to do");
    }
}

#[test]
fn what_went_wrong_survives_the_way_over_grpc_and_through_plans() {
    for sqlstate in SqlState::ALL {
        let error = Error::invalid("it failed").with_sqlstate(sqlstate);
        let status = Status::from(error.at("worker w3"));
        let sent = status.metadata().get("volary-sqlstate").unwrap();
        assert_eq!(sent, sqlstate.code());
        let wrapped = DataFusionError::from(Error::from(status)).context("while gathering");
        let shared = DataFusionError::Shared(Arc::new(wrapped));
        assert_eq!(Error::from(shared).sqlstate(), sqlstate);
    }
}

#[test]
fn what_went_wrong_follows_from_the_code_if_nobody_says_more() {
    for code in ErrorCode::ALL {
        let status = Status::from(Error::new(code, "x"));
        let sent = status.metadata().get(SQLSTATE).unwrap();
        assert_eq!(sent, SqlState::from(code).code());
    }
    // A node of another release may send no SQLSTATE code, or a new one.
    let mut status = Status::not_found("x");
    assert_eq!(
        Error::from(status.clone()).sqlstate(),
        SqlState::UndefinedObject
    );
    let new = "99999".parse().unwrap();
    status.metadata_mut().insert(SQLSTATE, new);
    assert_eq!(Error::from(status).sqlstate(), SqlState::UndefinedObject);
}

#[test]
fn errors_of_libraries_say_what_went_wrong() {
    let cast = |text: &str| ArrowError::CastError(text.to_owned());
    for (error, sqlstate) in [
        (ArrowError::DivideByZero, SqlState::DivisionByZero),
        (
            cast("Cannot cast string 'one' to value of Int32 type"),
            SqlState::InvalidTextRepresentation,
        ),
        (
            cast("Can't cast value 70000 to type Int16"),
            SqlState::NumericValueOutOfRange,
        ),
        (
            ArrowError::CsvError("x".to_owned()),
            SqlState::BadCopyFileFormat,
        ),
        (
            ArrowError::ComputeError("in a filter: ArrowError(DivideByZero, None)".to_owned()),
            SqlState::DivisionByZero,
        ),
    ] {
        let error = DataFusionError::from(error).context("while gathering");
        assert_eq!(Error::from(error).sqlstate(), sqlstate);
    }
    let plan = |text: &str| Error::from(DataFusionError::Plan(text.to_owned())).sqlstate();
    assert_eq!(
        plan("Invalid function 'smu'.\nDid you mean 'sum'?"),
        SqlState::UndefinedFunction
    );
    assert_eq!(plan("table 'a.b.c' not found"), SqlState::UndefinedTable);
    assert_eq!(plan("x"), SqlState::SyntaxErrorOrAccessRuleViolation);
}

#[test]
fn when_to_retry_survives_the_way_over_grpc_and_is_said_once() {
    let error = Error::new(ErrorCode::ResourceExhausted, "256 statements run")
        .with_retry_after(Duration::from_millis(2400))
        .at("worker w3");
    let status = Status::from(error);
    assert_eq!(status.metadata().get(RETRY_PUSHBACK).unwrap(), "2400");
    let wrapped = DataFusionError::from(Error::from(status)).context("while gathering");
    let shared = DataFusionError::Shared(Arc::new(wrapped));
    let back = Error::from(shared);
    assert_eq!(back.retry_after, Some(Duration::from_millis(2400)));
    assert_eq!(
        back.message(),
        "worker w3: 256 statements run; retry in about 3 s"
    );
    let mut never = Status::unavailable("x");
    never
        .metadata_mut()
        .insert(RETRY_PUSHBACK, "-1".parse().unwrap());
    assert_eq!(Error::from(never).retry_after, None);
}

#[test]
fn a_long_message_is_cut_to_what_every_client_reads() {
    for part in ["ä", "abc ", "%", "x", "🦜"] {
        let text = Error::invalid(part.repeat(20 << 10)).text();
        assert!(text.ends_with("(cut)"), "{text}");
        let status = Status::from(Error::invalid(part.repeat(20 << 10)));
        let response: tonic::codegen::http::Response<()> = status.into_http();
        let sent = response.headers()["grpc-message"].len();
        assert!(sent <= MAX_ENCODED_BYTES, "{part}: {sent}");
        assert!(sent > MAX_ENCODED_BYTES - 20, "{part}: {sent}");
    }
    let short = "x".repeat(MAX_ENCODED_BYTES / 2);
    assert!(Error::invalid(&short).text().ends_with(&short));
}

#[test]
fn an_error_of_ours_comes_back_out_of_datafusion() {
    let ours = Error::unavailable("worker w3 at 127.0.0.1:1 is gone");
    let wrapped = DataFusionError::from(ours).context("while gathering");
    let shared = DataFusionError::Shared(Arc::new(wrapped));
    let back = Error::from(shared);
    assert_eq!(back.code(), ErrorCode::Unavailable);
    assert_eq!(back.message(), "worker w3 at 127.0.0.1:1 is gone");
}

/// Returns the texts of all causes.
fn causes(error: &Error) -> Vec<String> {
    let causes = std::iter::successors(error.source(), |cause| next_cause(*cause));
    causes.map(ToString::to_string).collect()
}

#[test]
fn the_cause_of_a_librarys_error_is_kept_and_clients_are_not_sent_it() {
    let arrow = || ArrowError::ParseError("no date".to_owned());
    let parquet = || ParquetError::External("of the reader".into());
    let store = || object_store::Error::NotFound {
        path: "a.csv".to_owned(),
        source: "of the store".into(),
    };
    let pattern = String::from("(");
    let regex = || regex::Regex::new(&pattern).unwrap_err();
    let shared = DataFusionError::Shared(Arc::new(arrow().into()));
    for (error, cause) in [
        (arrow().into(), arrow().to_string()),
        (parquet().into(), parquet().to_string()),
        (store().into(), store().to_string()),
        (shared, DataFusionError::from(arrow()).to_string()),
        (
            DataFusionError::External(regex().into()),
            regex().to_string(),
        ),
        (
            DataFusionError::Execution("it failed".to_owned()),
            "Execution error: it failed".to_owned(),
        ),
    ] {
        let error = Error::from(error);
        assert_eq!(causes(&error)[0], cause, "{error:?}");
        // Neither the message nor a log repeats the cause.
        assert_eq!(
            error.text(),
            format!("{}: {}", error.code(), error.message())
        );
        assert_eq!(format!("{error:#}"), error.text());
    }
}

#[test]
fn only_logs_show_hidden_causes_also_below_other_errors() {
    let hidden = std::io::Error::other(ArrowError::SchemaError("of a reader".to_owned()));
    let error = Error::invalid("the file cannot be read").with_hidden_source(hidden);
    let said = "INVALID_ARGUMENT: the file cannot be read";
    assert_eq!(error.to_string(), said);
    assert_eq!(
        format!("{error:#}"),
        format!("{said}: Schema error: of a reader")
    );
    assert_eq!(Status::from(error).message(), said);

    let error = || Error::invalid("no file").with_hidden_source("the cause");
    let around = Error::with_source(ErrorCode::Unavailable, "no answer", error());
    let said = "UNAVAILABLE: no answer: INVALID_ARGUMENT: no file";
    assert_eq!(around.text(), said);
    assert_eq!(format!("{around:#}"), format!("{said}: the cause"));
    let within = std::io::Error::other(error());
    let around = Error::with_source(ErrorCode::Unavailable, "no answer", within);
    assert_eq!(around.text(), said);
    let copied = Error::from(DataFusionError::from(ArrowError::from_external_error(
        error().into(),
    )));
    assert_eq!(copied.text(), "INVALID_ARGUMENT: no file");
    assert_eq!(causes(&copied).last().unwrap(), "the cause");
}

#[test]
fn why_a_call_broke_is_kept_without_what_the_answer_holds() {
    let mut broken = Status::unknown("the connection broke");
    broken.set_source(Arc::new(std::io::Error::from_raw_os_error(104)));
    let token = "Bearer a-secret".parse().unwrap();
    broken.metadata_mut().insert("authorization", token);
    let error = Error::from(broken);
    assert_eq!(error.text(), "UNAVAILABLE: the connection broke");
    let logged = format!("{error:#} {error:?}");
    assert!(logged.contains("Connection reset by peer"), "{logged}");
    assert!(!logged.contains("a-secret"), "{logged}");
    assert!(Error::from(Status::unknown("x")).source().is_none());
}

#[test]
fn the_causes_in_a_log_are_cut_like_a_message() {
    let cause = "x".repeat(20 << 10);
    let error = Error::invalid("it failed").with_hidden_source(cause);
    let logged = format!("{error:#}");
    assert!(logged.len() < 2 * MAX_ENCODED_BYTES, "{}", logged.len());
    assert!(logged.starts_with("INVALID_ARGUMENT: it failed: x"));
}

#[test]
fn a_full_disk_is_found_below_a_librarys_error_and_in_its_text() {
    let full = std::io::Error::from_raw_os_error(28);
    let text = ParquetError::General(format!("Could not write bloom filter bit set: {full}"));
    for error in [text, ParquetError::from(full)] {
        let error = Error::io_within("cannot write a.parquet", error);
        assert_eq!(error.code(), ErrorCode::ResourceExhausted);
        assert_eq!(error.sqlstate(), SqlState::DiskFull);
    }
    // The writer of Arrow IPC, which also writes spill files, wraps the error like this.
    let full = std::io::Error::from_raw_os_error(28);
    let wrapped = ArrowError::IoError(full.to_string(), std::io::Error::other(full));
    let error = Error::from(DataFusionError::from(wrapped));
    assert_eq!(error.code(), ErrorCode::ResourceExhausted);
    assert!(error.message().contains("free space"), "{error}");
    let other = Error::io_within("x", ParquetError::General("y".to_owned()));
    assert_eq!(other.code(), ErrorCode::Internal);
}
