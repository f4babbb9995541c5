//! The templates of PostgreSQL's `to_char`, `to_timestamp` and `to_date` for times, such as
//! `YYYY-MM-DD HH24:MI:SS`. The behaviour is that of PostgreSQL's formatting.c.

/// Writes a time as a template says.
mod format;
/// Reads a time as a template says.
mod read;

use datafusion::common::Result;
use volary_flight_proto::{Error, SqlState};

use super::template::{quoted, starts_with};
pub(super) use format::Moment;

/// A template for times.
#[derive(Debug, PartialEq)]
pub(super) struct DateTemplate {
    parts: Vec<Part>,
    /// Says whether the text must have exactly the form of the template (`FX`).
    is_exact: bool,
}

#[derive(Debug, PartialEq)]
enum Part {
    Field(Field),
    /// A space or a punctuation mark, which matches any of these.
    Separator(char),
    /// Any other character, or one in quotes.
    Text(char),
}

#[derive(Debug, Clone, PartialEq)]
struct Field {
    kind: Kind,
    case: Case,
    /// Says whether the field is written without padding (`FM`, the fill mode).
    is_filled: bool,
    ordinal: Option<Case>,
}

/// How letters are written.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Case {
    Upper,
    Lower,
    Capitalised,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Kind {
    /// AD or BC, with points or without.
    Era {
        with_points: bool,
    },
    /// AM or PM, with points or without.
    Noon {
        with_points: bool,
    },
    Century,
    /// The name of a day.
    Day,
    /// The name of a day, with three letters.
    ShortDay,
    DayOfYear,
    DayOfMonth,
    /// The number of a day, from Sunday, which is 1.
    DayOfWeek,
    IsoDayOfYear,
    /// The number of a day, from Monday, which is 1.
    IsoDayOfWeek,
    IsoWeek,
    /// The year of the ISO week, with this number of digits.
    IsoYear(usize),
    /// A fraction of a second with this number of digits.
    Fraction(usize),
    Hour24,
    Hour12,
    JulianDay,
    Minute,
    Month,
    /// The name of a month.
    MonthName,
    /// The name of a month, with three letters.
    ShortMonthName,
    Offset,
    Quarter,
    RomanMonth,
    SecondOfDay,
    Second,
    ZoneHour,
    ZoneMinute,
    ZoneName,
    WeekOfYear,
    WeekOfMonth,
    /// A year with a comma after the thousands.
    GroupedYear,
    /// The last digits of the year.
    Year(usize),
}

/// The fields, by their names in capitals. A longer name comes before its beginnings.
const FIELDS: [(&str, Kind); 53] = [
    ("A.D.", Kind::Era { with_points: true }),
    ("A.M.", Kind::Noon { with_points: true }),
    ("AD", Kind::Era { with_points: false }),
    ("AM", Kind::Noon { with_points: false }),
    ("B.C.", Kind::Era { with_points: true }),
    ("BC", Kind::Era { with_points: false }),
    ("CC", Kind::Century),
    ("DAY", Kind::Day),
    ("DDD", Kind::DayOfYear),
    ("DD", Kind::DayOfMonth),
    ("DY", Kind::ShortDay),
    ("D", Kind::DayOfWeek),
    ("FF1", Kind::Fraction(1)),
    ("FF2", Kind::Fraction(2)),
    ("FF3", Kind::Fraction(3)),
    ("FF4", Kind::Fraction(4)),
    ("FF5", Kind::Fraction(5)),
    ("FF6", Kind::Fraction(6)),
    ("HH24", Kind::Hour24),
    ("HH12", Kind::Hour12),
    ("HH", Kind::Hour12),
    ("IDDD", Kind::IsoDayOfYear),
    ("ID", Kind::IsoDayOfWeek),
    ("IW", Kind::IsoWeek),
    ("IYYY", Kind::IsoYear(4)),
    ("IYY", Kind::IsoYear(3)),
    ("IY", Kind::IsoYear(2)),
    ("I", Kind::IsoYear(1)),
    ("J", Kind::JulianDay),
    ("MI", Kind::Minute),
    ("MM", Kind::Month),
    ("MONTH", Kind::MonthName),
    ("MON", Kind::ShortMonthName),
    ("MS", Kind::Fraction(3)),
    ("OF", Kind::Offset),
    ("P.M.", Kind::Noon { with_points: true }),
    ("PM", Kind::Noon { with_points: false }),
    ("Q", Kind::Quarter),
    ("RM", Kind::RomanMonth),
    ("SSSSS", Kind::SecondOfDay),
    ("SSSS", Kind::SecondOfDay),
    ("SS", Kind::Second),
    ("TZH", Kind::ZoneHour),
    ("TZM", Kind::ZoneMinute),
    ("TZ", Kind::ZoneName),
    ("US", Kind::Fraction(6)),
    ("WW", Kind::WeekOfYear),
    ("W", Kind::WeekOfMonth),
    ("Y,YYY", Kind::GroupedYear),
    ("YYYY", Kind::Year(4)),
    ("YYY", Kind::Year(3)),
    ("YY", Kind::Year(2)),
    ("Y", Kind::Year(1)),
];

impl DateTemplate {
    /// Parses a template. Every text is a template: what is not a field stands for itself.
    pub(super) fn parse(template: &str) -> Self {
        let mut parsed = Self {
            parts: Vec::new(),
            is_exact: false,
        };
        let mut rest = template;
        while let Some(next) = rest.chars().next() {
            if next == '"' {
                let (text, after) = quoted(&rest[1..]);
                parsed.parts.extend(text.chars().map(Part::Text));
                rest = after;
            } else if let Some(after) = rest.strip_prefix("\\\"") {
                parsed.parts.push(Part::Text('"'));
                rest = after;
            } else if let Some(after) = rest.strip_prefix("FX").or(rest.strip_prefix("fx")) {
                parsed.is_exact = true;
                rest = after;
            } else if let Some((field, after)) = field(rest) {
                parsed.parts.push(Part::Field(field));
                rest = after;
            } else {
                parsed.parts.push(if is_separator(next) {
                    Part::Separator(next)
                } else {
                    Part::Text(next)
                });
                rest = &rest[next.len_utf8()..];
            }
        }
        parsed
    }
}

/// Reads a field, with its prefixes and suffixes, at the beginning of a text. Also returns what
/// follows it.
fn field(text: &str) -> Option<(Field, &str)> {
    let (mut rest, mut is_filled) = (text, false);
    loop {
        if let Some(after) = rest.strip_prefix("FM").or(rest.strip_prefix("fm")) {
            is_filled = true;
            rest = after;
        } else if let Some(after) = rest.strip_prefix("TM").or(rest.strip_prefix("tm")) {
            // There is only one language, so a translated name is the name.
            rest = after;
        } else {
            break;
        }
    }
    let (name, kind) = FIELDS.iter().find(|(name, _)| starts_with(rest, name))?;
    let (written, mut rest) = rest.split_at(name.len());
    let mut letters = written.chars().filter(char::is_ascii_alphabetic);
    let first_is_upper = letters
        .next()
        .is_some_and(|first| first.is_ascii_uppercase());
    let second_is_upper = letters
        .next()
        .is_none_or(|second| second.is_ascii_uppercase());
    let case = match (first_is_upper, second_is_upper) {
        (true, true) => Case::Upper,
        (true, false) => Case::Capitalised,
        (false, _) => Case::Lower,
    };
    let mut ordinal = None;
    if let Some(after) = rest.strip_prefix("TH") {
        (ordinal, rest) = (Some(Case::Upper), after);
    } else if let Some(after) = rest.strip_prefix("th") {
        (ordinal, rest) = (Some(Case::Lower), after);
    }
    let field = Field {
        kind: *kind,
        case,
        is_filled,
        ordinal,
    };
    Some((field, rest))
}

fn is_separator(char: char) -> bool {
    char.is_ascii() && !char.is_ascii_alphanumeric() && !char.is_ascii_control()
        || char.is_whitespace()
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const ROMAN_MONTHS: [&str; 12] = [
    "I", "II", "III", "IV", "V", "VI", "VII", "VIII", "IX", "X", "XI", "XII",
];
/// The days, from Sunday.
const DAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];
/// The Julian day of the day before 1 January of the year 1, which chrono gives the number 0.
const DAY_BEFORE_COMMON_ERA: i32 = 1_721_425;

fn refuse<T>(message: String) -> Result<T> {
    let error = Error::invalid(message).with_sqlstate(SqlState::InvalidTextRepresentation);
    Err(error.into())
}
