//! Parsing a list of hundreds of thousands of constants costs a second and hundreds of bytes for
//! each of them. So such a list is read here, from the text, and a call of a function that knows
//! its values takes its place: see [`volary_planner::value_list`].
//!
//! Only `column [NOT] IN (…)` is replaced, where the column stands alone behind a word that begins
//! a condition, in WHERE or ON. Elsewhere the text of an expression matters: it is the heading of a
//! result, and GROUP BY recognises the same expression by it. Everything that this scanner does not
//! know ends it: the parser then reads the whole text.

use std::borrow::Cow;
use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringBuilder};

/// Length from which a text is looked through, in bytes. A shorter one has no long list.
const MIN_TEXT_BYTES: usize = 4 << 10;
/// Minimum number of values of a list that is replaced.
const MIN_VALUES: usize = 1_000;
/// Prefix of the names of the functions that take the places of the lists.
const FUNCTION_PREFIX: &str = "volary_list_";

/// A statement without its long lists.
#[derive(Debug)]
pub(crate) struct WithoutLists {
    /// The text, with a call of a function in place of each list.
    pub(crate) sql: String,
    /// The names of the functions, and the values of their lists: Int64 or Utf8, without NULLs.
    pub(crate) lists: Vec<(String, ArrayRef)>,
}

impl WithoutLists {
    /// Takes the long lists out of a query. Returns `None` if it has none.
    pub(crate) fn of(sql: &str) -> Option<Self> {
        if sql.len() < MIN_TEXT_BYTES {
            return None;
        }
        let mut scanner = Scanner::new(sql);
        let is_query = |word: &str| {
            ["SELECT", "WITH", "EXPLAIN"]
                .iter()
                .any(|first| word.eq_ignore_ascii_case(first))
        };
        let first = scanner.next_part()?;
        if !matches!(first, Part::Word(word) if is_query(word)) {
            return None;
        }
        let mut behind = Behind::default();
        behind.add(first, 0, 0);
        let (mut shortened, mut copied) = (String::new(), 0);
        let mut lists = Vec::new();
        while !scanner.is_at_end() {
            scanner.skip_spaces()?;
            let start = scanner.position;
            let part = scanner.next_part()?;
            let is_in = matches!(part, Part::Word(word) if word.eq_ignore_ascii_case("IN"));
            if is_in
                && let Some((column, is_negated)) = behind.column()
                && let Some((values, end)) = read_list(sql, scanner.position)
            {
                let name = format!("{FUNCTION_PREFIX}{}", lists.len() + 1);
                let column_text = sql.get(column.start..column.end)?;
                shortened.push_str(sql.get(copied..column.start)?);
                shortened.push_str(&values.condition(&name, column_text, is_negated));
                lists.push((name, values.into_array()));
                (copied, scanner.position) = (end, end);
                behind.step = Step::Other;
            } else {
                behind.add(part, start, scanner.position);
            }
        }
        shortened.push_str(sql.get(copied..)?);
        (!lists.is_empty()).then_some(Self {
            sql: shortened,
            lists,
        })
    }
}

/// A part of a text. Spaces and comments are no parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part<'a> {
    /// A word without quotes.
    Word(&'a str),
    /// A name in quotes.
    QuotedName,
    Point,
    OpenParenthesis,
    CloseParenthesis,
    /// The end of the text.
    End,
    Other,
}

struct Scanner<'a> {
    text: &'a str,
    position: usize,
}

impl<'a> Scanner<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, position: 0 }
    }

    fn is_at_end(&self) -> bool {
        self.position >= self.text.len()
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.position + ahead).copied()
    }

    /// Returns the next part, and moves behind it. Returns `None` for a text that only the parser
    /// understands.
    fn next_part(&mut self) -> Option<Part<'a>> {
        self.skip_spaces()?;
        let Some(first) = self.byte(0) else {
            return Some(Part::End);
        };
        if is_word_byte(first) {
            let start = self.position;
            while self.byte(0).is_some_and(is_word_byte) {
                self.position += 1;
            }
            // A text with a prefix, such as E'…', has escapes of its own.
            if matches!(self.byte(0), Some(b'\'' | b'"' | b'&')) {
                return None;
            }
            return Some(Part::Word(self.text.get(start..self.position)?));
        }
        let part = match first {
            b'\'' => {
                self.position = end_of_quoted(self.text, self.position)?;
                return Some(Part::Other);
            }
            b'"' => {
                self.position = end_of_quoted(self.text, self.position)?;
                return Some(Part::QuotedName);
            }
            // Names and texts in the quotes of other databases, and parameters.
            b'`' | b'$' | b'{' | b'\\' | b'#' | b'?' => return None,
            b'.' => Part::Point,
            b'(' => Part::OpenParenthesis,
            b')' => Part::CloseParenthesis,
            _ => Part::Other,
        };
        self.position += 1;
        Some(part)
    }

    fn skip_spaces(&mut self) -> Option<()> {
        loop {
            match (self.byte(0), self.byte(1)) {
                (Some(byte), _) if byte.is_ascii_whitespace() => self.position += 1,
                (Some(b'-'), Some(b'-')) => {
                    let rest = self.text.get(self.position..)?;
                    self.position += rest.find('\n').unwrap_or(rest.len());
                }
                (Some(b'/'), Some(b'*')) => {
                    let rest = self.text.get(self.position + 2..)?;
                    let length = rest.find("*/")?;
                    // Comments may be nested.
                    if rest.get(..length)?.contains("/*") {
                        return None;
                    }
                    self.position += length + 4;
                }
                _ => return Some(()),
            }
        }
    }
}

fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte >= 0x80
}

/// Returns the position behind a text or a name in quotes that begins at `start`. A doubled quote
/// stands for itself.
fn end_of_quoted(text: &str, start: usize) -> Option<usize> {
    let bytes = text.as_bytes();
    let quote = *bytes.get(start)?;
    let mut position = start + 1;
    loop {
        let length = bytes
            .get(position..)?
            .iter()
            .position(|byte| *byte == quote)?;
        position += length + 1;
        if bytes.get(position) != Some(&quote) {
            return Some(position);
        }
        position += 1;
    }
}

/// What stands before the current part, as far as it may be a condition.
#[derive(Debug, Default)]
struct Behind {
    level: Level,
    /// The levels around `level`, the outermost first.
    outer: Vec<Level>,
    step: Step,
    /// Says whether a BETWEEN still waits for its AND.
    has_open_between: bool,
}

/// The innermost parentheses that are open, or the whole text if none are open.
#[derive(Debug, Default, Clone, Copy)]
struct Level {
    /// Says whether a query stands directly in these parentheses.
    is_query: bool,
    /// Says whether the current part belongs to WHERE or ON.
    is_condition: bool,
}

#[derive(Debug, Default, Clone, Copy)]
enum Step {
    /// Something that begins no condition.
    #[default]
    Other,
    /// A point that is not part of a column of a condition.
    Point,
    /// A condition may begin here.
    ConditionStart,
    /// A column, with a point behind it or without.
    Column { place: Place, ends_with_point: bool },
    /// A column and NOT.
    ColumnNot(Place),
}

#[derive(Debug, Clone, Copy)]
struct Place {
    start: usize,
    end: usize,
}

impl Behind {
    /// Returns the place of the column that stands before the IN, and whether there is a NOT
    /// between them.
    fn column(&self) -> Option<(Place, bool)> {
        match self.step {
            Step::Column {
                place,
                ends_with_point: false,
            } => Some((place, false)),
            Step::ColumnNot(place) => Some((place, true)),
            _ => None,
        }
    }

    fn add(&mut self, part: Part<'_>, start: usize, end: usize) {
        let is = |word: &str| matches!(part, Part::Word(given) if given.eq_ignore_ascii_case(word));
        self.enter_or_leave(part);
        let begins_condition = self.level.is_condition
            && (part == Part::OpenParenthesis
                || ["WHERE", "AND", "OR", "NOT", "ON"]
                    .iter()
                    .any(|word| is(word)));
        self.step = match (self.step, part) {
            (
                Step::Column {
                    place,
                    ends_with_point: false,
                },
                _,
            ) if is("NOT") => Step::ColumnNot(place),
            _ if is("AND") && self.has_open_between => {
                self.has_open_between = false;
                Step::Other
            }
            _ if begins_condition => Step::ConditionStart,
            (Step::ConditionStart, Part::Word(_) | Part::QuotedName) => Step::Column {
                place: Place { start, end },
                ends_with_point: false,
            },
            (
                Step::Column {
                    place,
                    ends_with_point: false,
                },
                Part::Point,
            ) => Step::Column {
                place,
                ends_with_point: true,
            },
            (
                Step::Column {
                    place,
                    ends_with_point: true,
                },
                Part::Word(_) | Part::QuotedName,
            ) => Step::Column {
                place: Place { end, ..place },
                ends_with_point: false,
            },
            (_, Part::Point) => Step::Point,
            _ => Step::Other,
        };
        self.has_open_between |= is("BETWEEN");
    }

    /// Follows parentheses and the clauses of queries.
    fn enter_or_leave(&mut self, part: Part<'_>) {
        let is_one_of = |words: &[&str]| {
            // What follows a point is a name.
            let is_name = matches!(
                self.step,
                Step::Point
                    | Step::Column {
                        ends_with_point: true,
                        ..
                    }
            );
            matches!(part, Part::Word(given) if !is_name
                && words.iter().any(|word| given.eq_ignore_ascii_case(word)))
        };
        match part {
            Part::OpenParenthesis => {
                self.outer.push(self.level);
                self.level.is_query = false;
            }
            Part::CloseParenthesis => self.level = self.outer.pop().unwrap_or_default(),
            _ if is_one_of(&["SELECT"]) => {
                self.level = Level {
                    is_query: true,
                    is_condition: false,
                };
            }
            _ if is_one_of(&["WHERE", "ON"]) => self.level.is_condition |= self.level.is_query,
            _ if is_one_of(&["GROUP", "HAVING", "WINDOW", "QUALIFY", "ORDER"]) => {
                self.level.is_condition = false;
            }
            _ => {}
        }
    }
}

/// The values of a list.
enum Values {
    Longs(Vec<i64>),
    Texts {
        values: StringBuilder,
        bounds: (String, String),
    },
}

impl Values {
    /// Returns the condition that takes the place of the comparison of `column` with the list. It
    /// has the bounds of the values, by which parts of a table are left out.
    fn condition(&self, function: &str, column: &str, is_negated: bool) -> String {
        if is_negated {
            return format!("(NOT {function}({column}))");
        }
        let quoted = |text: &str| format!("'{}'", text.replace('\'', "''"));
        let (least, most) = match self {
            Self::Longs(values) => {
                let least = values.iter().min().copied().unwrap_or_default();
                let most = values.iter().max().copied().unwrap_or_default();
                (least.to_string(), most.to_string())
            }
            Self::Texts { bounds, .. } => (quoted(&bounds.0), quoted(&bounds.1)),
        };
        format!("({column} BETWEEN {least} AND {most} AND {function}({column}))")
    }

    fn into_array(self) -> ArrayRef {
        match self {
            Self::Longs(values) => Arc::new(Int64Array::from(values)),
            Self::Texts { mut values, .. } => Arc::new(values.finish()),
        }
    }
}

/// Reads the list that follows at `start`, and returns the position behind it. Returns `None` for a
/// short list, and for one that has other values than whole numbers, or other values than texts.
fn read_list(sql: &str, start: usize) -> Option<(Values, usize)> {
    let mut scanner = Scanner {
        text: sql,
        position: start,
    };
    if scanner.next_part()? != Part::OpenParenthesis {
        return None;
    }
    scanner.skip_spaces()?;
    match scanner.byte(0)? {
        b'\'' => read_texts(scanner),
        _ => read_longs(scanner),
    }
}

fn read_longs(mut scanner: Scanner<'_>) -> Option<(Values, usize)> {
    let mut values = Vec::new();
    loop {
        scanner.skip_spaces()?;
        let start = scanner.position;
        if scanner.byte(0)? == b'-' {
            scanner.position += 1;
        }
        while scanner.byte(0)?.is_ascii_digit() {
            scanner.position += 1;
        }
        let value = scanner
            .text
            .get(start..scanner.position)?
            .parse::<i64>()
            .ok()?;
        // sqlparser reads the digits of this number without their sign, which is more than fits.
        if value == i64::MIN {
            return None;
        }
        values.push(value);
        scanner.skip_spaces()?;
        match scanner.byte(0)? {
            b',' => scanner.position += 1,
            b')' if values.len() >= MIN_VALUES => {
                return Some((Values::Longs(values), scanner.position + 1));
            }
            _ => return None,
        }
    }
}

fn read_texts(mut scanner: Scanner<'_>) -> Option<(Values, usize)> {
    let mut values = StringBuilder::new();
    let mut bounds: Option<(String, String)> = None;
    let mut count = 0;
    loop {
        scanner.skip_spaces()?;
        if scanner.byte(0)? != b'\'' {
            return None;
        }
        let start = scanner.position + 1;
        scanner.position = end_of_quoted(scanner.text, scanner.position)?;
        let inner = scanner.text.get(start..scanner.position - 1)?;
        let value = match inner.contains('\'') {
            true => Cow::Owned(inner.replace("''", "'")),
            false => Cow::Borrowed(inner),
        };
        values.append_value(&value);
        count += 1;
        let (least, most) = bounds.get_or_insert_with(|| (value.to_string(), value.to_string()));
        if *value < **least {
            *least = value.to_string();
        }
        if *value > **most {
            *most = value.to_string();
        }
        scanner.skip_spaces()?;
        match scanner.byte(0)? {
            b',' => scanner.position += 1,
            b')' if count >= MIN_VALUES => {
                return Some((
                    Values::Texts {
                        values,
                        bounds: bounds?,
                    },
                    scanner.position + 1,
                ));
            }
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::Int64Type;

    use super::*;

    fn longs() -> String {
        let values: Vec<_> = (0..2_000).map(|value| format!("{}", value - 7)).collect();
        values.join(", ")
    }

    fn texts() -> String {
        let values: Vec<_> = (0..1_500)
            .map(|value| format!("'it''s {value:04}'"))
            .collect();
        values.join(",\n")
    }

    #[test]
    fn long_lists_are_taken_out() {
        let sql = format!(
            "SELECT a FROM t -- IN (1)\n WHERE \"T\".k IN ({}) AND NOT b BETWEEN 1 AND c AND (s NOT in\n( {} )) OR x IN (1, 2)",
            longs(),
            texts()
        );
        let shortened = WithoutLists::of(&sql).unwrap();
        assert_eq!(
            shortened.sql,
            "SELECT a FROM t -- IN (1)\n WHERE (\"T\".k BETWEEN -7 AND 1992 AND volary_list_1(\"T\".k)) AND NOT b BETWEEN 1 AND c AND ((NOT volary_list_2(s))) OR x IN (1, 2)"
        );
        let [(_, longs), (_, texts)] = shortened.lists.as_slice() else {
            panic!("{:?}", shortened.lists);
        };
        let longs = longs.as_primitive::<Int64Type>();
        assert_eq!(
            (longs.len(), longs.value(0), longs.value(1_999)),
            (2_000, -7, 1_992)
        );
        let texts = texts.as_string::<i32>();
        assert_eq!((texts.len(), texts.value(1)), (1_500, "it's 0001"));
    }

    #[test]
    fn lists_are_taken_out_of_conditions_of_any_query() {
        let list = longs();
        for sql in [
            format!("SELECT (SELECT max(a) FROM u WHERE (u.k IN ({list}))) FROM t"),
            format!("SELECT a FROM t JOIN u ON t.k = u.k AND u.k IN ({list}) GROUP BY a"),
            format!("SELECT a FROM (SELECT a FROM t ORDER BY a) WHERE (a > 1 OR k IN ({list}))"),
            format!("WITH w AS (SELECT a FROM t WHERE k IN ({list})) SELECT a FROM w GROUP BY a"),
            format!("SELECT a FROM t GROUP BY a UNION SELECT a FROM t WHERE k IN ({list})"),
            format!("SELECT a FROM t WHERE a IS DISTINCT FROM 1 AND k IN ({list})"),
        ] {
            assert!(WithoutLists::of(&sql).is_some(), "{}", &sql[..60]);
        }
    }

    #[test]
    fn what_only_the_parser_understands_is_left_to_it() {
        let list = longs();
        for sql in [
            format!("SELECT a FROM t WHERE k + j IN ({list})"),
            format!("SELECT a FROM t WHERE f(k) IN ({list})"),
            format!("SELECT a FROM t WHERE a BETWEEN 1 AND k IN ({list})"),
            format!("SELECT a, k IN ({list}) FROM t"),
            format!("SELECT (k IN ({list})) FROM t"),
            format!("SELECT t.on AND k IN ({list}) FROM t"),
            format!("SELECT count(*) FILTER (WHERE k IN ({list})) FROM t"),
            format!("SELECT a FROM t WHERE a = 1 GROUP BY (k IN ({list}))"),
            format!("SELECT a FROM t WHERE a = 1 GROUP BY a HAVING (NOT k IN ({list}))"),
            format!("SELECT a FROM t WHERE a = 1 ORDER BY (k IN ({list}))"),
            format!("SELECT a FROM t WHERE (a = 1)) AND k IN ({list})"),
            format!("SELECT a FROM t WHERE k IN ({list}, NULL)"),
            format!("SELECT a FROM t WHERE k IN ({list}, 1.5)"),
            format!("SELECT a FROM t WHERE k IN ({list}, -9223372036854775808)"),
            format!("SELECT a FROM t WHERE k IN ({list}, 'a')"),
            format!("SELECT a FROM t WHERE k IN ({list}"),
            format!("SELECT a FROM t WHERE s = E'\\'' AND k IN ({list})"),
            format!("SELECT a FROM t WHERE s = $$'$$ AND k IN ({list})"),
            format!("SELECT a FROM t WHERE s = ? AND k IN ({list})"),
            format!("SELECT /* /* */ */ a FROM t WHERE k IN ({list})"),
            format!("CREATE VIEW v AS SELECT a FROM t WHERE k IN ({list})"),
            format!("SELECT a FROM t WHERE s = 'k IN ({list})'"),
            format!(
                "SELECT a FROM t WHERE k IN (1, 2) {}",
                " ".repeat(MIN_TEXT_BYTES)
            ),
        ] {
            let shortened = WithoutLists::of(&sql);
            assert!(
                shortened.is_none(),
                "{:?}",
                shortened.map(|without| without.sql)
            );
        }
    }
}
