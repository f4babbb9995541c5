//! Nothing can stop the search of a text before it reaches the end. Most searches take a nanosecond
//! for each byte. But a search may have to look at each place of an expression for each byte:
//! `[13][0-9]{500}[a-z]` has 502 places, and may keep a thread busy for minutes over a text of 100
//! MB. A search for all matches may reach the end of the text once for each match: `.*[^A]|A` does
//! so in a text of As, which keeps a thread busy for a day over 10 MB.

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

/// The length in bytes of the longest expression that is analysed. In a longer expression, each
/// byte counts as a place.
const MAX_ANALYSED_BYTES: usize = 64 << 10;
/// Number of steps that it takes to compile one place of an expression.
const COMPILE_STEPS_PER_PLACE: u64 = 64;
/// Number of bytes that a search handles in one step if it reaches the end of the text again and
/// again. Such a search mostly looks at one place for each byte.
const BYTES_PER_STEP: u64 = 64;

/// What is known about a pattern before it is searched for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pattern {
    places: u64,
    /// Number of steps that it takes to compile the pattern before the first search.
    compile_steps: u64,
    /// Says whether a search for one match may read to the end of the text, and then find a short
    /// match.
    may_scan_to_end: bool,
}

impl Pattern {
    /// Analyses a regular expression. An invalid expression has no places, because its search fails
    /// at once.
    pub(super) fn regex(expression: &str) -> Self {
        if expression.len() > MAX_ANALYSED_BYTES {
            return Self::of_places(expression.len());
        }
        match regex_syntax::parse(expression) {
            Ok(expression) if is_plain(&expression) => Self::of_places(1),
            Ok(expression) => Self {
                places: places(&expression, &|_| 1),
                compile_steps: places(&expression, &ranges).saturating_mul(COMPILE_STEPS_PER_PLACE),
                may_scan_to_end: may_scan_to_end(&expression),
            },
            Err(_) => Self::of_places(0),
        }
    }

    /// Analyses a pattern of LIKE. `%` is no place: the search that begins after a `%` ends at the
    /// first match.
    pub(super) fn like(pattern: &str) -> Self {
        if pattern.contains('_') {
            Self::of_places(pattern.len())
        } else {
            Self::of_places(1)
        }
    }

    fn of_places(places: usize) -> Self {
        let places = places as u64;
        Self {
            places,
            compile_steps: places.saturating_mul(COMPILE_STEPS_PER_PLACE),
            may_scan_to_end: false,
        }
    }

    /// Returns whether the search takes one step for each byte, whatever the text is.
    pub(super) fn is_plain(self) -> bool {
        self.places <= 1
    }

    /// Returns the steps that it takes to compile the pattern before the first search.
    pub(super) fn compile_steps(self) -> u64 {
        self.compile_steps
    }

    /// Returns the steps of a search for one match.
    pub(super) fn steps_of_first(self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.places)
    }

    /// Returns the steps of a search for all matches.
    pub(super) fn steps_of_all(self, bytes: u64) -> u64 {
        let again = if self.may_scan_to_end {
            bytes.saturating_mul(bytes) / BYTES_PER_STEP
        } else {
            0
        };
        self.steps_of_first(bytes).saturating_add(again)
    }
}

/// Returns whether an expression is a choice of texts, without character classes and without
/// repetitions.
fn is_plain(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => true,
        HirKind::Class(_) | HirKind::Repetition(_) => false,
        HirKind::Capture(capture) => is_plain(&capture.sub),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => parts.iter().all(is_plain),
    }
}

/// Returns the number of places of an expression, with each repetition written out. A character
/// class has as many as `of_class` returns, and a text one for each byte.
fn places(hir: &Hir, of_class: &dyn Fn(&Class) -> u64) -> u64 {
    let sum = |parts: &[Hir]| {
        let parts = parts.iter().map(|part| places(part, of_class));
        parts.fold(0, u64::saturating_add)
    };
    match hir.kind() {
        HirKind::Empty => 0,
        HirKind::Look(_) => 1,
        HirKind::Literal(text) => text.0.len() as u64,
        HirKind::Class(class) => of_class(class),
        HirKind::Capture(capture) => places(&capture.sub, of_class),
        HirKind::Concat(parts) | HirKind::Alternation(parts) => sum(parts),
        HirKind::Repetition(repeated) => {
            let times = repeated.max.unwrap_or(repeated.min).max(1);
            places(&repeated.sub, of_class).saturating_mul(u64::from(times))
        }
    }
}

fn ranges(class: &Class) -> u64 {
    let ranges = match class {
        Class::Unicode(class) => class.ranges().len(),
        Class::Bytes(class) => class.ranges().len(),
    };
    ranges as u64
}

/// Returns whether an expression has a choice between something short and something that may be
/// searched for up to the end of the text, as in `a|.*b` and `(\w+,)?`.
fn may_scan_to_end(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => false,
        HirKind::Capture(capture) => may_scan_to_end(&capture.sub),
        HirKind::Concat(parts) => parts.iter().any(may_scan_to_end),
        HirKind::Alternation(parts) => parts.iter().any(has_endless_prefix),
        HirKind::Repetition(repeated) => {
            let is_choice = repeated.max != Some(repeated.min);
            may_scan_to_end(&repeated.sub) || is_choice && has_endless_prefix(&repeated.sub)
        }
    }
}

/// Returns whether a required part follows a part that may repeat any number of times, as in `.*b`.
fn has_endless_prefix(hir: &Hir) -> bool {
    match hir.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Class(_) | HirKind::Look(_) => false,
        HirKind::Capture(capture) => has_endless_prefix(&capture.sub),
        HirKind::Alternation(parts) => parts.iter().any(has_endless_prefix),
        HirKind::Concat(parts) => {
            let first = parts.iter().position(is_endless);
            let behind = first.map(|first| &parts[first + 1..]).unwrap_or_default();
            behind.iter().any(is_required) || parts.iter().any(has_endless_prefix)
        }
        HirKind::Repetition(Repetition { max, sub, .. }) => {
            let comes_again = *max != Some(1) && is_endless(sub) && is_required(sub);
            comes_again || has_endless_prefix(sub)
        }
    }
}

fn is_endless(hir: &Hir) -> bool {
    hir.properties().maximum_len().is_none()
}

/// Returns whether there are texts in which the expression is not found.
fn is_required(hir: &Hir) -> bool {
    hir.properties().minimum_len() != Some(0) || !hir.properties().look_set().is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_choice_of_texts_is_plain() {
        for expression in ["", "abc", "^abc$", "(foo|bar)", r"\bfoo", "é"] {
            assert!(Pattern::regex(expression).is_plain(), "{expression}");
        }
        for expression in ["[ab]c", "a.c", "x{3}", "(ab)?c"] {
            assert!(!Pattern::regex(expression).is_plain(), "{expression}");
        }
        assert!(Pattern::like("%foo%bar%").is_plain());
        assert!(!Pattern::like("%f__").is_plain());
    }

    #[test]
    fn places_are_counted_with_each_repetition_written_out() {
        for (expression, places) in [
            ("[ab]c", 2),
            (r"\w+@\w+\.com", 7),
            ("[13][0-9]{500}[a-z]", 502),
            ("((a|[bc]){10}x){20}", 20 * (10 * 2 + 1)),
            ("(([ab]{1000}){1000}){1000}", 1_000_000_000),
            ("a*", 1),
            ("(", 0),
        ] {
            assert_eq!(Pattern::regex(expression).places, places, "{expression}");
        }
        assert_eq!(
            Pattern::regex(&"x".repeat(MAX_ANALYSED_BYTES + 1)).places,
            65_537
        );
        assert!(
            Pattern::regex(r"\w").compile_steps() > 100 * Pattern::regex("[a]").compile_steps()
        );
    }

    #[test]
    fn a_search_for_all_matches_may_come_to_the_end_again_and_again() {
        for expression in [
            ".*[^A-Z]|[A-Z]",
            "a(.*b)?",
            r"(\w+,)*",
            r"(?:x|(\w+ )+y)",
            r"((a+b)+)?c",
            "(?m)(.*$)?",
        ] {
            assert!(Pattern::regex(expression).may_scan_to_end, "{expression}");
        }
        for expression in [
            r"\s+",
            "<[^>]*>",
            r"\s+|,+",
            "a.*b",
            r"(\w+)@(\w+)\.com",
            "^(https?://)?(www\\.)?([^/]+)",
            "(ab?c)*",
            r"\d{3}-\d{4}",
        ] {
            assert!(!Pattern::regex(expression).may_scan_to_end, "{expression}");
        }
        let far = Pattern::regex("x|.*[yz]");
        assert!(far.steps_of_all(1 << 20) > 1 << 32);
        assert!(far.steps_of_first(1 << 20) < 1 << 23);
    }
}
