use datafusion::common::Result;
use volary_flight_proto::{Error, SqlState};

use super::{NumberTemplate, Part};

impl NumberTemplate {
    /// Reads a number. Returns its digits with a sign and a point.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a text without digits, and for a template with EEEE or RN.
    pub(in super::super) fn read(&self, text: &str) -> Result<String> {
        if self.is_scientific || self.roman.is_some() {
            return Err(Error::unsupported("to_number reads neither EEEE nor RN").into());
        }
        let mut reader = Reader {
            rest: text,
            is_negative: false,
            whole: String::new(),
            fraction: String::new(),
            is_behind_point: false,
        };
        for part in &self.parts {
            if reader.rest.is_empty() {
                break;
            }
            match part {
                Part::Digit { .. } => reader.digit(self),
                Part::Point => reader.point(),
                Part::Group => {
                    reader.skip_if(|next| next == ',');
                }
                Part::Minus | Part::Plus | Part::Sign => reader.sign(),
                Part::Currency | Part::Text(_) => {
                    reader.skip_if(|next| !next.is_ascii_digit() && !is_of_number(next));
                }
                Part::Ordinal(_) => {
                    for _ in 0..2 {
                        reader.skip_if(|next| next.is_ascii_alphabetic());
                    }
                }
            }
        }
        // A sign may stand behind the number.
        if reader.rest.trim() == "-" {
            reader.is_negative = true;
        }
        reader.finish(text, self.shifted_digits)
    }
}

fn is_of_number(char: char) -> bool {
    matches!(char, '.' | ',' | '-' | '+' | '<' | '>')
}

struct Reader<'a> {
    rest: &'a str,
    is_negative: bool,
    whole: String,
    fraction: String,
    is_behind_point: bool,
}

impl Reader<'_> {
    fn skip_if(&mut self, is_skipped: impl Fn(char) -> bool) -> bool {
        let mut chars = self.rest.chars();
        let skips = chars.next().is_some_and(is_skipped);
        if skips {
            self.rest = chars.as_str();
        }
        skips
    }

    fn sign(&mut self) {
        if self.rest.starts_with(['-', '<']) {
            self.is_negative = true;
        }
        self.skip_if(|next| matches!(next, '-' | '+' | '<' | ' '));
    }

    fn point(&mut self) {
        if self.skip_if(|next| next == '.') {
            self.is_behind_point = true;
        }
    }

    fn digit(&mut self, template: &NumberTemplate) {
        while self.skip_if(|next| next == ' ') {}
        if self.whole.is_empty() && self.fraction.is_empty() {
            self.sign();
            while self.skip_if(|next| next == ' ') {}
        }
        let next = self.rest.chars().next();
        match next {
            Some(digit @ '0'..='9') => {
                if self.is_behind_point {
                    self.fraction.push(digit);
                } else {
                    self.whole.push(digit);
                }
                self.rest = &self.rest[1..];
            }
            // The text has fewer digits than the template.
            Some('.') if template.has_point && !self.is_behind_point => {
                self.point();
                self.digit(template);
            }
            _ => {}
        }
    }

    fn finish(mut self, text: &str, shifted: usize) -> Result<String> {
        if self.whole.is_empty() && self.fraction.is_empty() {
            let error = Error::invalid(format!("there is no number in '{text}'"));
            let error = error.with_sqlstate(SqlState::InvalidTextRepresentation);
            return Err(error.into());
        }
        for _ in 0..shifted {
            let digit = self.whole.pop().unwrap_or('0');
            self.fraction.insert(0, digit);
        }
        if self.whole.is_empty() {
            self.whole.push('0');
        }
        let sign = if self.is_negative { "-" } else { "" };
        Ok(if self.fraction.is_empty() {
            format!("{sign}{}", self.whole)
        } else {
            format!("{sign}{}.{}", self.whole, self.fraction)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_read_as_by_postgresql() {
        for (text, template, expected) in [
            ("-34,338,492", "99G999G999", "-34338492"),
            (
                "-34,338,492.654,878",
                "99G999G999D999G999",
                "-34338492.654878",
            ),
            ("<564646.654564>", "999999.999999PR", "-564646.654564"),
            ("0.00001-", "9.999999S", "-0.00001"),
            ("5.01-", "FM9.999999S", "-5.01"),
            ("5 4 4 4 4 8 . 7 8", "9 9 9 9 9 9 . 9 9", "544448.78"),
            (".01", "FM9.99", "0.01"),
            ("34,50", "999,99", "3450"),
            ("123,000", "999G", "123"),
            ("$1,234.56", "L9,999.99", "1234.56"),
            ("12.34-", "99.99MI", "-12.34"),
            ("1234", "99V99", "12.34"),
            ("12th", "99th", "12"),
            ("1,234.5", "9,999.9", "1234.5"),
        ] {
            let template = NumberTemplate::parse(template).unwrap();
            assert_eq!(template.read(text).unwrap(), expected, "{text}");
        }
        let template = NumberTemplate::parse("999").unwrap();
        assert!(template.read("kea").is_err());
    }
}
