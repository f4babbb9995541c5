//! ORMs and BI tools write values into the text of a statement. Each value then makes another
//! text, which would be planned anew. Such statements have one *template*: the text with parameters
//! in place of the values. The generic plan of the template serves all of them.
//!
//! Only some literals become parameters: `column = literal` within a WHERE whose conditions are
//! joined by AND. Nowhere else may a generic plan have parameters. A literal that decides more than
//! which rows pass stays in the text: in LIMIT, GROUP BY, intervals, formats, or in the list of
//! results, whose columns it may name.

use std::sync::Arc;

use arrow::array::{ArrayRef, Int64Array, StringArray};
use arrow::record_batch::RecordBatch;
use datafusion::sql::sqlparser::dialect::GenericDialect;
use datafusion::sql::sqlparser::keywords::Keyword;
use datafusion::sql::sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};

use super::text_position::TextPosition;
use super::tokens::{is_keyword, is_meant};

/// Maximum length of a statement whose template is looked for, in bytes. A longer statement takes
/// so long to run that planning does not matter.
const MAX_STATEMENT_BYTES: usize = 16 << 10;
/// Maximum number of literals that become parameters.
const MAX_LITERALS: usize = 64;

/// Keywords that end a WHERE.
const AFTER_WHERE: [Keyword; 13] = [
    Keyword::GROUP,
    Keyword::HAVING,
    Keyword::WINDOW,
    Keyword::QUALIFY,
    Keyword::ORDER,
    Keyword::LIMIT,
    Keyword::OFFSET,
    Keyword::FETCH,
    Keyword::FOR,
    Keyword::UNION,
    Keyword::INTERSECT,
    Keyword::EXCEPT,
    Keyword::MINUS,
];

/// A statement with parameters in place of some of its literals.
#[derive(Debug)]
pub(crate) struct Template {
    /// The text, with `$1`, `$2` and so on, and without comments.
    pub(crate) sql: String,
    /// The values of the parameters: one row. Whole numbers are Int64, texts are Utf8.
    pub(crate) values: RecordBatch,
}

impl Template {
    /// Returns the template of a query. Returns `None` if no literal becomes a parameter, or if the
    /// statement has parameters of its own.
    pub(crate) fn of(sql: &str) -> Option<Self> {
        if sql.len() > MAX_STATEMENT_BYTES {
            return None;
        }
        let mut tokens = Tokenizer::new(&GenericDialect {}, sql);
        let tokens = tokens.tokenize_with_location().ok()?;
        let literals = LiteralFinder::new(&tokens).find()?;
        let mut template = String::with_capacity(sql.len());
        let mut position = TextPosition::new(sql);
        let mut rest = literals.iter().enumerate().peekable();
        for (number, token) in tokens.iter().enumerate() {
            let text = position.text_between(token.span.start, token.span.end)?;
            if let Some((index, literal)) = rest.peek()
                && literal.first <= number
            {
                if literal.last == number {
                    template.push_str(&format!("${}", index + 1));
                    rest.next();
                }
            } else if is_meant(token) {
                template.push_str(text);
            } else if !template.ends_with(' ') {
                template.push(' ');
            }
        }
        let columns = literals.into_iter().enumerate();
        let columns = columns.map(|(index, literal)| (format!("${}", index + 1), literal.value));
        Some(Self {
            sql: template,
            values: RecordBatch::try_from_iter(columns).ok()?,
        })
    }
}

/// A literal that becomes a parameter.
struct Literal {
    /// The position of its first token. A negative number has two tokens.
    first: usize,
    last: usize,
    value: ArrayRef,
}

/// What stands between two parentheses, or the whole statement.
#[derive(Default)]
struct Level {
    kind: LevelKind,
    clause: Clause,
    /// Says whether the text names a column of a result: it is within the list of results.
    names_columns: bool,
    /// Says whether the conditions of the WHERE, or of the parentheses, are not joined by AND only.
    has_alternatives: bool,
    /// The literals of the current WHERE, or of the parentheses.
    literals: Vec<Literal>,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum LevelKind {
    /// A query.
    #[default]
    Query,
    /// Conditions in parentheses, within a WHERE.
    Conditions,
    /// The arguments of a function, a list, and everything else.
    Other,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Clause {
    Results,
    Where,
    #[default]
    Other,
}

impl Level {
    fn has_conditions(&self) -> bool {
        self.kind == LevelKind::Conditions
            || self.kind == LevelKind::Query && self.clause == Clause::Where
    }

    /// Ends the WHERE of a query, and returns its literals.
    fn end_where(&mut self) -> Vec<Literal> {
        let literals = std::mem::take(&mut self.literals);
        let has_alternatives = std::mem::take(&mut self.has_alternatives);
        if has_alternatives {
            Vec::new()
        } else {
            literals
        }
    }
}

/// Finds the literals of a statement that become parameters.
struct LiteralFinder<'a> {
    tokens: &'a [TokenWithSpan],
    /// The positions of the tokens that are no spaces and no comments.
    meant: Vec<usize>,
    /// The levels around the current token, from the outside in.
    levels: Vec<Level>,
    found: Vec<Literal>,
}

impl<'a> LiteralFinder<'a> {
    fn new(tokens: &'a [TokenWithSpan]) -> Self {
        let meant = (0..tokens.len()).filter(|position| is_meant(&tokens[*position]));
        Self {
            tokens,
            meant: meant.collect(),
            levels: vec![Level::default()],
            found: Vec::new(),
        }
    }

    /// Returns the literals in the order of the text. Returns `None` if there are none.
    fn find(mut self) -> Option<Vec<Literal>> {
        if !is_query_start(self.token(0)?) {
            return None;
        }
        for number in 0..self.meant.len() {
            self.visit(number)?;
        }
        let [statement] = self.levels.as_mut_slice() else {
            return None; // a parenthesis is open
        };
        self.found.extend(statement.end_where());
        self.found.sort_unstable_by_key(|literal| literal.first);
        let is_few = (1..=MAX_LITERALS).contains(&self.found.len());
        is_few.then_some(self.found)
    }

    /// Returns the token with this number, without counting spaces and comments.
    fn token(&self, number: usize) -> Option<&'a Token> {
        let position = *self.meant.get(number)?;
        Some(&self.tokens.get(position)?.token)
    }

    fn visit(&mut self, number: usize) -> Option<()> {
        let token = self.token(number)?;
        match token {
            Token::Placeholder(_) => return None,
            Token::LParen => self.open(number)?,
            Token::RParen => self.close(number)?,
            Token::Eq => self.note_literal(number),
            Token::Word(word) if word.quote_style.is_none() => self.visit_word(word.keyword)?,
            _ => {}
        }
        Some(())
    }

    fn visit_word(&mut self, keyword: Keyword) -> Option<()> {
        let level = self.levels.last_mut()?;
        match keyword {
            Keyword::OR | Keyword::XOR | Keyword::CASE => level.has_alternatives = true,
            _ => {}
        }
        if level.kind != LevelKind::Query {
            return Some(());
        }
        level.clause = match keyword {
            Keyword::SELECT => Clause::Results,
            Keyword::FROM => Clause::Other,
            Keyword::WHERE => Clause::Where,
            keyword if AFTER_WHERE.contains(&keyword) => Clause::Other,
            _ => return Some(()),
        };
        let ended = level.end_where();
        self.found.extend(ended);
        Some(())
    }

    fn open(&mut self, number: usize) -> Option<()> {
        let parent = self.levels.last()?;
        let before = number.checked_sub(1).and_then(|before| self.token(before));
        let kind = if self.token(number + 1).is_some_and(is_query_start) {
            LevelKind::Query
        } else if parent.has_conditions() && before.is_some_and(is_before_condition) {
            LevelKind::Conditions
        } else {
            LevelKind::Other
        };
        let names_columns = parent.names_columns || parent.clause == Clause::Results;
        self.levels.push(Level {
            kind,
            names_columns,
            ..Level::default()
        });
        Some(())
    }

    fn close(&mut self, number: usize) -> Option<()> {
        let mut level = self.levels.pop()?;
        let literals = level.end_where();
        let is_condition = self.is_condition_end(number + 1);
        let parent = self.levels.last_mut()?;
        match level.kind {
            LevelKind::Query => self.found.extend(literals),
            LevelKind::Conditions if is_condition => parent.literals.extend(literals),
            LevelKind::Conditions | LevelKind::Other => {}
        }
        Some(())
    }

    /// Notes the literal behind the `=` with this number.
    fn note_literal(&mut self, equals: usize) {
        let Some(level) = self.levels.last() else {
            return;
        };
        if level.names_columns || !level.has_conditions() || !self.has_column_before(equals) {
            return;
        }
        let is_negative = self.token(equals + 1) == Some(&Token::Minus);
        let last = equals + 1 + usize::from(is_negative);
        let value: ArrayRef = match self.token(last) {
            Some(Token::Number(digits, false)) => {
                let sign = if is_negative { "-" } else { "" };
                let Ok(value) = format!("{sign}{digits}").parse::<i64>() else {
                    return;
                };
                Arc::new(Int64Array::from(vec![value]))
            }
            Some(Token::SingleQuotedString(text)) if !is_negative => {
                Arc::new(StringArray::from(vec![text.as_str()]))
            }
            _ => return,
        };
        if !self.is_condition_end(last + 1) {
            return;
        }
        let (first, last) = (self.meant[equals + 1], self.meant[last]);
        if let Some(level) = self.levels.last_mut() {
            level.literals.push(Literal { first, last, value });
        }
    }

    /// Returns whether a column, which may have a qualifier, stands alone in front of the `=` with
    /// this number.
    fn has_column_before(&self, equals: usize) -> bool {
        let mut number = equals;
        loop {
            let Some(name) = number.checked_sub(1) else {
                return false;
            };
            if !matches!(self.token(name), Some(Token::Word(_))) {
                return false;
            }
            let Some(before) = name.checked_sub(1) else {
                return false;
            };
            match self.token(before) {
                Some(Token::Period) => number = before,
                Some(token) => return is_before_condition(token),
                None => return false,
            }
        }
    }

    /// Returns whether a condition has ended before the token with this number.
    fn is_condition_end(&self, number: usize) -> bool {
        match self.token(number) {
            None | Some(Token::RParen | Token::SemiColon) => true,
            Some(Token::Word(word)) if word.quote_style.is_none() => {
                word.keyword == Keyword::AND || AFTER_WHERE.contains(&word.keyword)
            }
            Some(_) => false,
        }
    }
}

/// Returns whether a condition may begin behind this token.
fn is_before_condition(token: &Token) -> bool {
    *token == Token::LParen || is_keyword(token, Keyword::WHERE) || is_keyword(token, Keyword::AND)
}

fn is_query_start(token: &Token) -> bool {
    is_keyword(token, Keyword::SELECT) || is_keyword(token, Keyword::WITH)
}

#[cfg(test)]
mod tests {
    use arrow::array::{Array, AsArray};
    use arrow::datatypes::{DataType, Int64Type};

    use super::*;

    /// Returns the text of the template, and the values as texts.
    fn template(sql: &str) -> Option<(String, Vec<String>)> {
        let template = Template::of(sql)?;
        let values = template.values.columns().iter().map(|value| {
            assert_eq!(value.len(), 1);
            match value.data_type() {
                DataType::Int64 => value.as_primitive::<Int64Type>().value(0).to_string(),
                _ => format!("'{}'", value.as_string::<i32>().value(0)),
            }
        });
        Some((template.sql, values.collect()))
    }

    #[track_caller]
    fn check(sql: &str, text: &str, values: &[&str]) {
        let (given, found) = template(sql).unwrap_or_else(|| panic!("{sql} has no template"));
        assert_eq!(given, text);
        assert_eq!(found, values, "{sql}");
    }

    #[test]
    fn a_column_that_equals_a_literal_equals_a_parameter() {
        check(
            "SELECT v FROM t WHERE k = 5",
            "SELECT v FROM t WHERE k = $1",
            &["5"],
        );
        check(
            "select /* a */ v\nfrom t -- b\n where t.k=-  5 and \"S\" = 'it''s ö' AND n IS NOT NULL\tLIMIT 5;",
            "select v from t where t.k=$1 and \"S\" = $2 AND n IS NOT NULL LIMIT 5;",
            &["-5", "'it's ö'"],
        );
        check(
            "WITH w AS (SELECT * FROM t WHERE (a = 1) AND (b = 2 AND (c = '3'))) SELECT 4 FROM w WHERE d = 5 GROUP BY 1",
            "WITH w AS (SELECT * FROM t WHERE (a = $1) AND (b = $2 AND (c = $3))) SELECT 4 FROM w WHERE d = $4 GROUP BY 1",
            &["1", "2", "'3'", "5"],
        );
        check(
            "SELECT v FROM t WHERE k = 5 UNION ALL SELECT v FROM u WHERE k = 6",
            "SELECT v FROM t WHERE k = $1 UNION ALL SELECT v FROM u WHERE k = $2",
            &["5", "6"],
        );
        check(
            "SELECT v FROM t WHERE k IN (SELECT k FROM u WHERE v = 5) AND w = 7",
            "SELECT v FROM t WHERE k IN (SELECT k FROM u WHERE v = $1) AND w = $2",
            &["5", "7"],
        );
    }

    #[test]
    fn beside_alternatives_only_what_is_outside_of_them_becomes_a_parameter() {
        check(
            "SELECT v FROM t WHERE k = 5 AND (a = 1 OR b = 2)",
            "SELECT v FROM t WHERE k = $1 AND (a = 1 OR b = 2)",
            &["5"],
        );
        check(
            "SELECT v FROM t WHERE k = 5 AND NOT (a = 1) AND f(b = 1) AND (c = 1) IS NULL",
            "SELECT v FROM t WHERE k = $1 AND NOT (a = 1) AND f(b = 1) AND (c = 1) IS NULL",
            &["5"],
        );
    }

    #[test]
    fn a_literal_that_decides_more_than_which_rows_pass_stays() {
        for sql in [
            "SELECT v FROM t WHERE k > 5 LIMIT 5",
            "SELECT v FROM t WHERE k = 5 OR k = 6",
            "SELECT v FROM t WHERE k = 5 + 1 AND v = 5::INT AND w = 5.5 AND x = 1e3 AND 7 = y",
            "SELECT v FROM t WHERE k = 9223372036854775808 AND v = DATE '2024-01-01' AND w = NULL",
            "SELECT v FROM t WHERE k + 1 = 5 AND f(k) = 5 AND NOT a = 5 AND c = E'5'",
            "SELECT k = 5, (SELECT max(v) FROM u WHERE k = 5), count(*) FILTER (WHERE k = 5) FROM t",
            "SELECT CASE WHEN a AND k = 5 AND b THEN 1 END FROM t",
            "SELECT v FROM t WHERE CASE WHEN a AND k = 5 AND b THEN c END",
            "SELECT v FROM t JOIN u ON t.k = 5 GROUP BY v HAVING v = 5 ORDER BY v = 5",
            "SELECT v FROM t WHERE k = 5 AND v = ?",
            "SELECT v FROM t WHERE k = 5 AND v = $1",
            "SELECT v FROM t WHERE k = (5)",
            "SELECT v FROM t WHERE (k = 5",
            "SELECT v FROM t WHERE k = 5)",
            "INSERT INTO t SELECT v FROM t WHERE k = 5",
            "UPDATE t SET v = 1 WHERE k = 5",
            "EXPLAIN SELECT v FROM t WHERE k = 5",
            "SELECT 'unfinished",
            "",
        ] {
            assert_eq!(template(sql), None, "{sql}");
        }
        let many = "k = 1 AND ".repeat(MAX_LITERALS);
        assert_eq!(
            template(&format!("SELECT v FROM t WHERE {many} k = 1")),
            None
        );
    }
}
