use super::{Letters, NumberTemplate, Part, Sign};
use crate::postgres::template::ordinal_ending;

/// Width of a Roman numeral with padding.
const ROMAN_WIDTH: usize = 15;

impl NumberTemplate {
    /// Appends a number to a text. `number` has the digits of the number, with a sign and a point,
    /// and `round` returns it with a number of digits after the point.
    pub(in super::super) fn format(
        &self,
        number: &str,
        round: impl Fn(usize) -> String,
        text: &mut String,
    ) {
        if let Some(letters) = self.roman {
            self.push_roman(number, letters, text);
        } else if self.is_scientific {
            self.push_scientific(number, text);
        } else {
            let digits = self.fraction_digits + self.shifted_digits;
            let rounded = round(digits);
            let (is_negative, digits) = match rounded.strip_prefix('-') {
                Some(digits) => (
                    digits.bytes().any(|digit| (b'1'..=b'9').contains(&digit)),
                    digits,
                ),
                None => (false, rounded.as_str()),
            };
            let digits = if self.shifted_digits > 0 {
                shifted(digits)
            } else {
                digits.to_owned()
            };
            Writer::new(self, is_negative, &digits).write(text);
        }
    }

    fn push_roman(&self, number: &str, letters: Letters, text: &mut String) {
        let rounded = round_decimal(number, 0);
        let roman = rounded.parse::<u32>().ok().and_then(roman);
        let roman = roman.unwrap_or_else(|| "#".repeat(ROMAN_WIDTH));
        let roman = match letters {
            Letters::Upper => roman,
            Letters::Lower => roman.to_lowercase(),
        };
        let width = if self.is_filled { 0 } else { ROMAN_WIDTH };
        text.push_str(&format!("{roman:>width$}"));
    }

    fn push_scientific(&self, number: &str, text: &mut String) {
        let (sign, digits) = match number.strip_prefix('-') {
            Some(digits) => ("-", digits),
            None => (" ", number),
        };
        if !digits.starts_with(|digit: char| digit.is_ascii_digit()) {
            let places = "#".repeat(self.fraction_digits);
            text.push_str(&format!(" #.{places}####"));
            return;
        }
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        let all = format!("{whole}{fraction}");
        let zeros = all.bytes().take_while(|digit| *digit == b'0').count();
        let significant = &all[zeros..];
        let mut exponent = whole.len() as i64 - zeros as i64 - 1;
        let mantissa = if significant.is_empty() {
            exponent = 0;
            round_decimal("0", self.fraction_digits)
        } else {
            let (first, rest) = significant.split_at(1);
            let rounded = round_decimal(&format!("{first}.{rest}"), self.fraction_digits);
            match rounded.strip_prefix("10") {
                Some(rest) => {
                    exponent += 1;
                    format!("1{rest}")
                }
                None => rounded,
            }
        };
        let exponent_sign = if exponent < 0 { '-' } else { '+' };
        let exponent = exponent.unsigned_abs();
        text.push_str(&format!("{sign}{mantissa}e{exponent_sign}{exponent:02}"));
    }
}

/// Writes the digits of a number into the places of a template. The names and the steps are those
/// of PostgreSQL's `NUM_numpart_to_char`.
struct Writer<'a> {
    template: &'a NumberTemplate,
    is_negative: bool,
    /// The digits and the point.
    number: Vec<u8>,
    /// Position of the next digit.
    at: usize,
    /// Number of places before the first digit.
    spaces: usize,
    /// Number of places that are done.
    done: usize,
    /// Number of places.
    places: usize,
    sign_is_written: bool,
    /// The last digit that is written of a number without padding.
    last_relevant: Option<usize>,
    has_digits: bool,
}

impl<'a> Writer<'a> {
    fn new(template: &'a NumberTemplate, is_negative: bool, digits: &str) -> Self {
        let whole = digits.find('.').unwrap_or(digits.len());
        let wanted = template.whole_digits + template.shifted_digits;
        let fraction = template.fraction_digits;
        let (number, spaces) = if whole > wanted {
            // The number does not fit.
            let mut number = vec![b'#'; wanted + fraction + 1];
            number[wanted] = b'.';
            (number, 0)
        } else {
            (digits.as_bytes().to_vec(), wanted - whole)
        };
        let sign_is_written = match template.sign {
            Sign::Own => true,
            Sign::OwnPlus | Sign::Before(_) | Sign::After => false,
            Sign::Default | Sign::Brackets => !is_negative && template.is_filled,
        };
        let mut last_relevant = None;
        if template.is_filled && template.has_point {
            let point = number.iter().position(|digit| *digit == b'.');
            last_relevant = point.map(|point| {
                let nonzero = number.iter().rposition(|digit| *digit != b'0');
                nonzero.unwrap_or(point).max(point)
            });
            if let Some(last) = &mut last_relevant
                && template.last_zero > spaces
            {
                let zero = (number.len() - 1).min(template.last_zero - spaces);
                *last = (*last).max(zero);
            }
        }
        let places = (wanted + fraction).saturating_sub(1);
        Self {
            template,
            is_negative,
            number,
            at: 0,
            spaces,
            done: 0,
            places: places + usize::from(!sign_is_written && spaces == 0),
            sign_is_written,
            last_relevant,
            has_digits: false,
        }
    }

    fn write(mut self, text: &mut String) {
        let template = self.template;
        let pad = |text: &mut String| {
            if !template.is_filled {
                text.push(' ');
            }
        };
        for part in &template.parts {
            match part {
                Part::Digit { is_zero } => self.push_place(*is_zero, text),
                Part::Point => self.push_place(false, text),
                Part::Group if self.has_digits => text.push(','),
                Part::Group => pad(text),
                Part::Currency => text.push(' '),
                Part::Minus if self.is_negative => text.push('-'),
                Part::Plus if !self.is_negative => text.push('+'),
                Part::Minus | Part::Plus => pad(text),
                Part::Sign => text.push(if self.is_negative { '-' } else { '+' }),
                Part::Ordinal(letters) => {
                    if !self.is_negative
                        && !template.has_point
                        && self.number.first() != Some(&b'#')
                    {
                        let ending = ordinal_ending(&String::from_utf8_lossy(&self.number));
                        match letters {
                            Letters::Upper => text.push_str(&ending.to_ascii_uppercase()),
                            Letters::Lower => text.push_str(ending),
                        }
                    }
                }
                Part::Text(char) => text.push(*char),
            }
        }
    }

    /// Returns whether the next digit is a zero before the point that is not written.
    fn is_space_before_point(&self) -> bool {
        self.template.first_zero.is_none()
            && self.at == 0
            && self.number.first() == Some(&b'0')
            && self.template.fraction_digits != 0
    }

    fn last_relevant_is_point(&self) -> bool {
        self.last_relevant
            .is_some_and(|last| self.number.get(last) == Some(&b'.'))
    }

    /// Writes the next place. `is_zero` says whether the template has a `0` there.
    fn push_place(&mut self, is_zero: bool, text: &mut String) {
        let template = self.template;
        let first_zero = template.first_zero;
        let begins = self.done >= self.spaces || first_zero == Some(self.done);
        if !self.sign_is_written
            && begins
            && (!self.is_space_before_point() || self.last_relevant_is_point())
        {
            self.push_sign(text);
        }
        if self.done < self.spaces && first_zero.is_none_or(|zero| zero > self.done) {
            if !template.is_filled {
                text.push(' ');
            }
        } else if self.done < self.spaces {
            text.push('0');
            self.has_digits = true;
        } else {
            self.push_next(is_zero, text);
            if self.at < self.number.len() {
                self.at += 1;
            }
        }
        let mut end = self.places + usize::from(self.spaces > 0) + usize::from(template.has_point);
        if self.last_relevant.is_some_and(|last| last + 1 == self.at) {
            end = end.min(self.done + 1);
        }
        if self.done + 1 == end {
            match template.sign {
                Sign::Brackets
                    if self.sign_is_written && (self.is_negative || !template.is_filled) =>
                {
                    text.push(if self.is_negative { '>' } else { ' ' });
                }
                Sign::After => text.push(if self.is_negative { '-' } else { '+' }),
                _ => {}
            }
        }
        self.done += 1;
    }

    fn push_sign(&mut self, text: &mut String) {
        let sign = match self.template.sign {
            Sign::Before(_) => Some(if self.is_negative { '-' } else { '+' }),
            Sign::After => return,
            Sign::Brackets => Some(if self.is_negative { '<' } else { ' ' }),
            _ if self.is_negative => Some('-'),
            _ => (!self.template.is_filled).then_some(' '),
        };
        text.extend(sign);
        self.sign_is_written = true;
    }

    fn push_next(&mut self, is_zero: bool, text: &mut String) {
        let Some(digit) = self.number.get(self.at).copied() else {
            return;
        };
        if digit == b'.' {
            if !self.last_relevant_is_point() || self.template.is_filled {
                text.push('.');
            }
        } else if self.last_relevant.is_some_and(|last| self.at > last) && !is_zero {
            // FM leaves out the zeros at the end.
        } else if self.is_space_before_point() {
            if !self.template.is_filled {
                text.push(' ');
            } else if self.last_relevant_is_point() {
                text.push('0');
            }
        } else {
            text.push(char::from(digit));
            self.has_digits = true;
        }
    }
}

/// Returns the digits without their point.
fn shifted(digits: &str) -> String {
    let joined: String = digits.chars().filter(|char| *char != '.').collect();
    let significant = joined.trim_start_matches('0');
    if significant.is_empty() {
        "0"
    } else {
        significant
    }
    .to_owned()
}

/// Rounds a number that is written with a sign and a point to so many digits after the point. A
/// number in the middle is rounded away from zero.
pub(in super::super) fn round_decimal(number: &str, digits: usize) -> String {
    let (sign, unsigned) = match number.strip_prefix('-') {
        Some(unsigned) => ("-", unsigned),
        None => ("", number),
    };
    let (whole, fraction) = unsigned.split_once('.').unwrap_or((unsigned, ""));
    let mut kept: Vec<u8> = whole.bytes().chain(fraction.bytes().take(digits)).collect();
    kept.resize(whole.len() + digits, b'0');
    if fraction
        .as_bytes()
        .get(digits)
        .is_some_and(|next| *next >= b'5')
    {
        let mut carries = true;
        for digit in kept.iter_mut().rev() {
            if *digit == b'9' {
                *digit = b'0';
            } else {
                *digit += 1;
                carries = false;
                break;
            }
        }
        if carries {
            kept.insert(0, b'1');
        }
    }
    let all = String::from_utf8_lossy(&kept).into_owned();
    let (whole, fraction) = all.split_at(all.len() - digits);
    let whole = if whole.is_empty() { "0" } else { whole };
    if digits == 0 {
        format!("{sign}{whole}")
    } else {
        format!("{sign}{whole}.{fraction}")
    }
}

fn roman(number: u32) -> Option<String> {
    const NUMERALS: [(u32, &str); 13] = [
        (1_000, "M"),
        (900, "CM"),
        (500, "D"),
        (400, "CD"),
        (100, "C"),
        (90, "XC"),
        (50, "L"),
        (40, "XL"),
        (10, "X"),
        (9, "IX"),
        (5, "V"),
        (4, "IV"),
        (1, "I"),
    ];
    if !(1..4_000).contains(&number) {
        return None;
    }
    let (mut rest, mut roman) = (number, String::new());
    for (value, numeral) in NUMERALS {
        while rest >= value {
            roman.push_str(numeral);
            rest -= value;
        }
    }
    Some(roman)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn formatted(number: &str, template: &str) -> String {
        let mut text = String::new();
        let template = NumberTemplate::parse(template).unwrap();
        let round = |digits| round_decimal(number, digits);
        template.format(number, round, &mut text);
        text
    }

    /// The examples are those of PostgreSQL's documentation and of its regression tests.
    #[test]
    fn numbers_are_written_as_by_postgresql() {
        for (number, template, expected) in [
            ("-0.1", "99.99", "  -.10"),
            ("-0.1", "FM9.99", "-.1"),
            ("-0.1", "FM90.99", "-0.1"),
            ("0.1", "0.9", " 0.1"),
            ("12", "9990999.9", "    0012.0"),
            ("12", "FM9990999.9", "0012."),
            ("485", "999", " 485"),
            ("-485", "999", "-485"),
            ("485", "9 9 9", " 4 8 5"),
            ("1485", "9,999", " 1,485"),
            ("1485", "9G999", " 1,485"),
            ("148.5", "999.999", " 148.500"),
            ("148.5", "FM999.999", "148.5"),
            ("148.5", "FM999.990", "148.500"),
            ("148.5", "999D999", " 148.500"),
            ("3148.5", "9G999D999", " 3,148.500"),
            ("-485", "999S", "485-"),
            ("-485", "999MI", "485-"),
            ("485", "999MI", "485 "),
            ("485", "FM999MI", "485"),
            ("485", "PL999", "+ 485"),
            ("485", "SG999", "+485"),
            ("-485", "SG999", "-485"),
            ("-485", "9SG99", "4-85"),
            ("-485", "999PR", "<485>"),
            ("485", "999PR", " 485 "),
            ("485", "RN", "        CDLXXXV"),
            ("485", "FMRN", "CDLXXXV"),
            ("5.2", "FMRN", "V"),
            ("482", "999th", " 482nd"),
            ("485", "\"Good number:\"999", "Good number: 485"),
            ("485.8", "\"Pre:\"999\" Post:\" .999", "Pre: 485 Post: .800"),
            ("12", "99V999", " 12000"),
            ("12.4", "99V999", " 12400"),
            ("12.45", "99V9", " 125"),
            ("0.0004859", "9.99EEEE", " 4.86e-04"),
            ("9.999", "9.99EEEE", " 1.00e+01"),
            ("1234", "999", " ###"),
            ("0", "9999", "    0"),
            ("0", "9999.99", "     .00"),
            ("0", "FM9.9", "0."),
            ("1234567.891", "FM999,990.00", "###,###.##"),
            ("1234.5", "FM999,990.00", "1,234.50"),
            ("0.5", "FM999,990.00", "0.50"),
            ("-1234.567", "S9999.99", "-1234.57"),
            ("1234", "S9999", "+1234"),
            ("7", "000", " 007"),
            ("7", "L9", "  7"),
        ] {
            assert_eq!(
                formatted(number, template),
                expected,
                "{number}: {template}"
            );
        }
    }

    #[test]
    fn decimals_are_rounded_away_from_zero() {
        for (number, digits, expected) in [
            ("0.125", 2, "0.13"),
            ("-0.125", 2, "-0.13"),
            ("99.95", 1, "100.0"),
            ("7", 2, "7.00"),
            (".5", 0, "1"),
            ("2.4", 0, "2"),
        ] {
            assert_eq!(round_decimal(number, digits), expected);
        }
    }
}
