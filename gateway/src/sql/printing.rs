//! The parser sqlparser prints the text `\'` without a second quote, and the text `''` as if it
//! were one quote: it cannot know which quotes were escaped already. The catalog keeps views,
//! defaults and checks as text. There, such a literal would end early, and what is behind it would
//! become a part of the statement. Volary's parser removes all escapes, so here each quote must be
//! doubled.

use std::fmt::Display;
use std::ops::ControlFlow;

use datafusion::sql::sqlparser::ast::{Value, ValueWithSpan, VisitMut, VisitorMut};

/// Returns the text of a part of a statement, from which the parser reads the same part again.
pub(crate) fn printed(part: &(impl VisitMut + Clone + Display)) -> String {
    let mut part = part.clone();
    let _: ControlFlow<()> = VisitMut::visit(&mut part, &mut QuoteDoubler);
    part.to_string()
}

struct QuoteDoubler;

impl VisitorMut for QuoteDoubler {
    type Break = ();

    /// Doubles the quotes in a text. sqlparser prints doubled quotes as they are.
    fn pre_visit_value(&mut self, value: &mut ValueWithSpan) -> ControlFlow<()> {
        if let Value::SingleQuotedString(text) | Value::NationalStringLiteral(text) =
            &mut value.value
        {
            *text = text.replace('\'', "''");
        }
        ControlFlow::Continue(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sql::syntax::parse_expression;

    #[test]
    fn a_printed_text_is_read_as_the_same_text() {
        for sql in [
            "'it''s'",
            "''''''",
            r"'\'''",
            r"'\'' OR 1 = 1 --'",
            r"a LIKE '''\' ESCAPE '\'",
            "N'it''s'",
            r"E'it\'s'",
        ] {
            let expression = parse_expression(sql).unwrap();
            let text = printed(&expression);
            assert_eq!(parse_expression(&text).unwrap(), expression, "{text}");
        }
    }
}
