use serde::Serialize;
use serde_json::json;
use volary_flight_proto::Error;

/// The results of all checks, in the order in which they were made.
#[derive(Debug, Default)]
pub(super) struct Report {
    checks: Vec<Check>,
}

/// The result of one check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Check {
    status: Status,
    name: String,
    found: String,
    /// What to do. `None` if nothing is to be done.
    advice: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    /// The node starts, but something will go wrong, or may.
    Warning,
    /// The node does not start, or cannot work.
    Failed,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

impl Report {
    pub(super) fn ok(&mut self, name: &str, found: impl Into<String>) {
        self.add(Status::Ok, name, found.into(), None);
    }

    pub(super) fn warn(&mut self, name: &str, found: impl Into<String>, advice: &str) {
        self.add(Status::Warning, name, found.into(), Some(advice.to_owned()));
    }

    pub(super) fn fail_with(&mut self, name: &str, found: impl Into<String>, advice: &str) {
        self.add(Status::Failed, name, found.into(), Some(advice.to_owned()));
    }

    /// Adds an error of the product as a failed check.
    pub(super) fn fail(&mut self, name: &str, error: &Error) {
        self.add_error(Status::Failed, name, error);
    }

    /// Adds an error of the product that the node survives.
    pub(super) fn warn_of(&mut self, name: &str, error: &Error) {
        self.add_error(Status::Warning, name, error);
    }

    fn add_error(&mut self, status: Status, name: &str, error: &Error) {
        let text = plain(error);
        // Errors say what to do after what they found.
        match text.split_once("; ") {
            Some((found, advice)) => {
                self.add(status, name, found.to_owned(), Some(advice.to_owned()));
            }
            None => self.add(status, name, text, None),
        }
    }

    fn add(&mut self, status: Status, name: &str, found: String, advice: Option<String>) {
        self.checks.push(Check {
            status,
            name: name.to_owned(),
            found,
            advice,
        });
    }

    pub(super) fn has_failed(&self) -> bool {
        self.count(Status::Failed) > 0
    }

    fn count(&self, status: Status) -> usize {
        let checks = self.checks.iter();
        checks.filter(|check| check.status == status).count()
    }

    /// Returns one line for each check.
    pub(super) fn lines(&self) -> String {
        let lines: Vec<_> = self.checks.iter().map(Check::line).collect();
        lines.join("\n")
    }

    /// Returns one JSON object.
    pub(super) fn json(&self, node: &str) -> String {
        json!({
            "node": node,
            "failed": self.count(Status::Failed),
            "warnings": self.count(Status::Warning),
            "checks": self.checks,
        })
        .to_string()
    }
}

impl Check {
    fn line(&self) -> String {
        let advice = self.advice.as_ref();
        let advice = advice.map_or_else(String::new, |advice| format!("; {advice}"));
        let text = format!("{}: {}{advice}", self.name, self.found);
        let text: Vec<_> = text.split_whitespace().collect();
        format!("{:<8} {}", self.status.name(), text.join(" "))
    }
}

/// Returns the message of an error and of its causes, without the code.
pub(super) fn plain(error: &Error) -> String {
    let text = error.text();
    let code = format!("{}: ", error.code());
    text.strip_prefix(&code).unwrap_or(&text).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_check_is_a_line_that_says_what_to_do() {
        let mut report = Report::default();
        report.ok("settings", "they are valid");
        report.warn("disk", "it is nearly\nfull", "free space");
        assert!(!report.has_failed());
        report.fail("secret", &Error::invalid("there is none; set one"));
        report.warn_of("gateway", &Error::unavailable("nobody answers"));
        assert!(report.has_failed());
        assert_eq!(
            report.lines(),
            "ok       settings: they are valid\n\
             warning  disk: it is nearly full; free space\n\
             failed   secret: there is none; set one\n\
             warning  gateway: nobody answers"
        );
        let shown: serde_json::Value = serde_json::from_str(&report.json("worker")).unwrap();
        assert_eq!(shown["node"], "worker");
        assert_eq!(
            (&shown["failed"], &shown["warnings"]),
            (&json!(1), &json!(2))
        );
        assert_eq!(
            shown["checks"][2],
            json!({"status": "failed", "name": "secret", "found": "there is none", "advice": "set one"})
        );
    }
}
