//! The templates of PostgreSQL's `to_char` and `to_number` for numbers, such as `FM999,990.00`. The
//! behaviour is that of PostgreSQL's formatting.c, in the locale C.

/// Writes a number as a template says.
mod format;
/// Reads a number as a template says.
mod read;

use datafusion::common::Result;
use volary_flight_proto::Error;

use super::template::{quoted, starts_with};
pub(super) use format::round_decimal;

/// Most digits of a template.
pub(super) const MAX_DIGITS: usize = 1_000;

/// A template for numbers.
#[derive(Debug, PartialEq)]
pub(super) struct NumberTemplate {
    parts: Vec<Part>,
    /// Number of digits before the point.
    whole_digits: usize,
    /// Number of digits after the point.
    fraction_digits: usize,
    /// Number of digits after the V. For each of them, the number is multiplied by ten.
    shifted_digits: usize,
    has_point: bool,
    /// Position of the first 0, counted in digits.
    first_zero: Option<usize>,
    /// Number of digits up to the last 0.
    last_zero: usize,
    /// Says whether the number is written without padding (`FM`, the fill mode).
    is_filled: bool,
    sign: Sign,
    roman: Option<Letters>,
    is_scientific: bool,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Part {
    /// A digit: `0` or `9`.
    Digit {
        is_zero: bool,
    },
    /// The decimal point: `.` or `D`.
    Point,
    /// The separator of groups: `,` or `G`.
    Group,
    /// Writes a space for `L`, as in the locale C.
    Currency,
    /// Writes a minus for `MI`.
    Minus,
    /// Writes a plus for `PL`.
    Plus,
    /// Writes either sign for `SG`.
    Sign,
    /// Writes the ending of an ordinal number for `TH` or `th`.
    Ordinal(Letters),
    Text(char),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Letters {
    Upper,
    Lower,
}

/// The place of the sign.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Sign {
    /// Before the first digit, if the number is negative.
    Default,
    /// Before the number (`S`), after this number of digits in the template.
    Before(usize),
    /// After the number (`S`).
    After,
    /// Brackets around a negative number (`PR`).
    Brackets,
    /// At the place of `MI` or `SG`.
    Own,
    /// A plus at the place of `PL`, and a minus before the first digit.
    OwnPlus,
}

impl NumberTemplate {
    /// Parses a template.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for parts that do not fit together.
    pub(super) fn parse(template: &str) -> Result<Self> {
        let mut parsed = Self {
            parts: Vec::new(),
            whole_digits: 0,
            fraction_digits: 0,
            shifted_digits: 0,
            has_point: false,
            first_zero: None,
            last_zero: 0,
            is_filled: false,
            sign: Sign::Default,
            roman: None,
            is_scientific: false,
        };
        let refuse = |what: &str| {
            let error = Error::invalid(format!("the template '{template}' is wrong: {what}"));
            Err(error.into())
        };
        let mut has_shift = false;
        let mut rest = template;
        while let Some(next) = rest.chars().next() {
            let two = rest.get(..2).map(str::to_ascii_uppercase);
            let two = two.as_deref().unwrap_or_default();
            let mut length = next.len_utf8();
            match (two, next) {
                (_, '"') => {
                    let (text, after) = quoted(&rest[1..]);
                    parsed.parts.extend(text.chars().map(Part::Text));
                    rest = after;
                    continue;
                }
                _ if rest.starts_with("\\\"") => {
                    parsed.parts.push(Part::Text('"'));
                    length = 2;
                }
                ("FM", _) => {
                    parsed.is_filled = true;
                    length = 2;
                }
                ("EE", _) if starts_with(rest, "EEEE") => {
                    parsed.is_scientific = true;
                    length = 4;
                }
                ("MI", _) => {
                    parsed.sign = Sign::Own;
                    parsed.parts.push(Part::Minus);
                    length = 2;
                }
                ("PL", _) => {
                    if parsed.sign == Sign::Default {
                        parsed.sign = Sign::OwnPlus;
                    }
                    parsed.parts.push(Part::Plus);
                    length = 2;
                }
                ("SG", _) => {
                    parsed.sign = Sign::Own;
                    parsed.parts.push(Part::Sign);
                    length = 2;
                }
                ("PR", _) => {
                    if parsed.sign != Sign::Default {
                        return refuse("PR and another sign");
                    }
                    parsed.sign = Sign::Brackets;
                    length = 2;
                }
                ("RN", first) => {
                    parsed.roman = Some(letters(first));
                    length = 2;
                }
                ("TH", first) => {
                    parsed.parts.push(Part::Ordinal(letters(first)));
                    length = 2;
                }
                (_, '0' | '9') => {
                    if parsed.sign == Sign::Brackets {
                        return refuse("a digit after PR");
                    }
                    parsed.push_digit(next == '0', has_shift);
                }
                (_, '.' | 'D' | 'd') => {
                    if parsed.has_point || has_shift {
                        return refuse("two points, or a point and a V");
                    }
                    parsed.has_point = true;
                    parsed.parts.push(Part::Point);
                }
                (_, 'S' | 's') => {
                    parsed.sign = match parsed.sign {
                        Sign::Default if parsed.has_point => Sign::After,
                        Sign::Default => Sign::Before(parsed.whole_digits),
                        _ => return refuse("S and another sign"),
                    };
                }
                (_, 'V' | 'v') => {
                    if parsed.has_point {
                        return refuse("a point and a V");
                    }
                    has_shift = true;
                }
                (_, ',' | 'G' | 'g') => parsed.parts.push(Part::Group),
                (_, 'L' | 'l') => parsed.parts.push(Part::Currency),
                (_, other) => parsed.parts.push(Part::Text(other)),
            }
            rest = &rest[length..];
        }
        let digits = parsed.whole_digits + parsed.fraction_digits + parsed.shifted_digits;
        if digits > MAX_DIGITS {
            return refuse("it has too many digits");
        }
        if parsed.sign == Sign::Before(parsed.whole_digits) && parsed.whole_digits > 0 {
            parsed.sign = Sign::After;
        }
        if parsed.is_scientific && (has_shift || parsed.roman.is_some()) {
            return refuse("EEEE goes with digits and a point only");
        }
        Ok(parsed)
    }

    fn push_digit(&mut self, is_zero: bool, has_shift: bool) {
        self.parts.push(Part::Digit { is_zero });
        if has_shift {
            self.shifted_digits += 1;
            return;
        }
        if is_zero && !self.has_point && self.first_zero.is_none() {
            self.first_zero = Some(self.whole_digits);
        }
        if self.has_point {
            self.fraction_digits += 1;
        } else {
            self.whole_digits += 1;
        }
        if is_zero {
            self.last_zero = self.whole_digits + self.fraction_digits;
        }
    }

    /// Returns the number of digits after the point of the numbers that the template reads.
    pub(super) fn scale(&self) -> usize {
        self.fraction_digits + self.shifted_digits
    }
}

fn letters(first: char) -> Letters {
    if first.is_ascii_uppercase() {
        Letters::Upper
    } else {
        Letters::Lower
    }
}
