//! PostgreSQL's functions `like_escape` and `similar_to_escape` turn a pattern with any escape
//! character into a pattern that LIKE and `~` take. Constant patterns are turned when a statement
//! is parsed. These functions turn patterns of columns and parameters.

use std::sync::Arc;

use arrow::datatypes::DataType;
use datafusion::common::{DataFusionError, Result};
use datafusion::logical_expr::{
    ColumnarValue, ScalarFunctionArgs, ScalarUDF, ScalarUDFImpl, Signature, Volatility,
};
use volary_flight_proto::{Error, SqlState};

use crate::columnar::map_texts;

/// Name of the function that turns a pattern of LIKE.
pub const LIKE_ESCAPE: &str = "like_escape";
/// Name of the function that turns a pattern of SIMILAR TO.
pub const SIMILAR_TO_ESCAPE: &str = "similar_to_escape";

/// Returns the functions that turn patterns.
pub(super) fn functions() -> [Arc<ScalarUDF>; 2] {
    let function = |name, turn| {
        Arc::new(ScalarUDF::from(PatternEscape {
            name,
            signature: Signature::string(2, Volatility::Immutable),
            turn,
        }))
    };
    [
        function(LIKE_ESCAPE, Turn::Like),
        function(SIMILAR_TO_ESCAPE, Turn::SimilarTo),
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Turn {
    Like,
    SimilarTo,
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct PatternEscape {
    name: &'static str,
    signature: Signature,
    turn: Turn,
}

impl ScalarUDFImpl for PatternEscape {
    fn name(&self) -> &str {
        self.name
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(DataType::Utf8View)
    }

    fn invoke_with_args(&self, args: ScalarFunctionArgs) -> Result<ColumnarValue> {
        map_texts(&args, |texts| {
            let [Some(pattern), Some(escape)] = *texts else {
                return Ok(None);
            };
            let turned = escape_char(escape).and_then(|escape| match self.turn {
                Turn::Like => like_pattern(pattern, escape),
                Turn::SimilarTo => similar_to_regex(pattern, escape),
            });
            turned.map(Some).map_err(DataFusionError::from)
        })
    }
}

/// Returns the escape character of an ESCAPE, or `None` for the empty text, which means that there
/// is no escape character.
///
/// # Errors
/// `INVALID_ARGUMENT` for several characters.
pub fn escape_char(escape: &str) -> Result<Option<char>, Error> {
    let mut chars = escape.chars();
    match (chars.next(), chars.next()) {
        (escape, None) => Ok(escape),
        _ => Err(Error::invalid(format!(
            "ESCAPE takes one character, or '' for none, not '{escape}'"
        ))
        .with_sqlstate(SqlState::DataException)),
    }
}

/// Returns the pattern of a LIKE with the backslash as its escape character.
///
/// # Errors
/// `INVALID_ARGUMENT` for a pattern that ends with its escape character.
pub fn like_pattern(pattern: &str, escape: Option<char>) -> Result<String, Error> {
    let mut turned = String::with_capacity(pattern.len());
    let mut chars = pattern.chars();
    while let Some(char) = chars.next() {
        let is_escaped = Some(char) == escape;
        let char = if is_escaped {
            chars.next().ok_or_else(|| ends_with_escape("LIKE"))?
        } else {
            char
        };
        if char == '\\' || is_escaped && matches!(char, '%' | '_') {
            turned.push('\\');
        }
        turned.push(char);
    }
    Ok(turned)
}

/// Returns a regular expression that matches what a pattern of SIMILAR TO matches.
///
/// # Errors
/// `INVALID_ARGUMENT` for a pattern that ends with its escape character.
pub fn similar_to_regex(pattern: &str, escape: Option<char>) -> Result<String, Error> {
    let mut regex = "(?s)^(?:".to_owned();
    let mut within_brackets = false;
    let mut chars = pattern.chars().peekable();
    while let Some(char) = chars.next() {
        if Some(char) == escape {
            let escaped = chars.next().ok_or_else(|| ends_with_escape("SIMILAR TO"))?;
            push_literal(&mut regex, escaped);
            continue;
        }
        match char {
            // The brackets of a class such as [:alpha:] are within those of the set.
            '[' if within_brackets && chars.peek() == Some(&':') => {
                regex.push('[');
                for char in chars.by_ref() {
                    regex.push(char);
                    if char == ']' {
                        break;
                    }
                }
            }
            '[' if !within_brackets => {
                within_brackets = true;
                regex.push('[');
                if let Some(not) = chars.next_if_eq(&'^') {
                    regex.push(not);
                }
            }
            ']' if within_brackets => {
                within_brackets = false;
                regex.push(']');
            }
            '-' if within_brackets => regex.push('-'),
            char if within_brackets => push_literal(&mut regex, char),
            '%' => regex.push_str(".*"),
            '_' => regex.push('.'),
            '(' => regex.push_str("(?:"),
            '|' | '*' | '+' | '?' | '{' | '}' | ')' => regex.push(char),
            char => push_literal(&mut regex, char),
        }
    }
    regex.push_str(")$");
    Ok(regex)
}

fn push_literal(regex: &mut String, char: char) {
    // A backslash before `<` or `>` would make it a word boundary. The comma, as in `{2,3}`, and
    // `_` need none.
    if char.is_ascii_punctuation() && !matches!(char, ',' | '_' | '<' | '>') {
        regex.push('\\');
    }
    regex.push(char);
}

fn ends_with_escape(operator: &str) -> Error {
    Error::invalid(format!(
        "the pattern of {operator} ends with its escape character; write that twice to search for it"
    ))
    .with_sqlstate(SqlState::DataException)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_escape_character_of_like_becomes_a_backslash() {
        for (pattern, escape, expected) in [
            ("x!%y!!", "!", r"x\%y!"),
            (r"\x|_", "|", r"\\x\_"),
            ("!x", "!", "x"),
            (r"\%", "", r"\\%"),
            ("éé_é_", "é", r"é_\_"),
            (r"a\\b", r"\", r"a\\b"),
        ] {
            let turned = escape_char(escape).and_then(|escape| like_pattern(pattern, escape));
            assert_eq!(turned.unwrap(), expected, "{pattern}");
        }
        assert!(like_pattern("x!", Some('!')).is_err());
        assert!(escape_char("ab").is_err());
    }

    #[test]
    fn a_pattern_of_similar_to_matches_the_whole_text() {
        for (pattern, expected) in [
            ("(a|b)%_", "(?s)^(?:(?:a|b).*.)$"),
            ("a.c^$", r"(?s)^(?:a\.c\^\$)$"),
            (r"a\%\_", r"(?s)^(?:a\%_)$"),
            ("[^a-c&&x_%]{2,3}", r"(?s)^(?:[^a-c\&\&x_\%]{2,3})$"),
            ("[[:alpha:]_]+", "(?s)^(?:[[:alpha:]_]+)$"),
        ] {
            assert_eq!(similar_to_regex(pattern, Some('\\')).unwrap(), expected);
        }
        assert!(similar_to_regex("a!", Some('!')).is_err());
    }
}
