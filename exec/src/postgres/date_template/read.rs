use chrono::{Datelike, NaiveDate, NaiveTime, Weekday};
use datafusion::common::Result;

use super::{
    DAY_BEFORE_COMMON_ERA, DAYS, DateTemplate, Field, Kind, MONTHS, Part, ROMAN_MONTHS,
    is_separator, refuse,
};

impl DateTemplate {
    /// Reads a time and returns it in the form of ISO 8601, with the offset if the text has one.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` for a text that does not have the form of the template, and for a time
    /// that does not exist.
    pub(in super::super) fn read(&self, text: &str) -> Result<String> {
        let mut reader = Reader {
            text,
            rest: text,
            found: Found::default(),
        };
        reader.read(self)?;
        reader.found.to_iso(text)
    }
}

struct Reader<'a> {
    text: &'a str,
    rest: &'a str,
    found: Found,
}

impl Reader<'_> {
    fn read(&mut self, template: &DateTemplate) -> Result<()> {
        // Number of characters that were skipped although the template does not have them.
        let mut skipped_more = 0_i32;
        for (position, part) in template.parts.iter().enumerate() {
            if self.rest.is_empty() {
                break;
            }
            if !template.is_exact && (position == 0 || matches!(part, Part::Field(_))) {
                while self.rest.starts_with(char::is_whitespace) {
                    self.skip_char();
                    skipped_more += 1;
                }
            }
            match part {
                Part::Separator(_) if template.is_exact => self.skip_char(),
                Part::Separator(_) => {
                    skipped_more -= 1;
                    if self.rest.starts_with(is_separator) {
                        self.skip_char();
                        skipped_more += 1;
                    }
                }
                Part::Text(_) if !template.is_exact && skipped_more > 0 => skipped_more -= 1,
                Part::Text(_) => self.skip_char(),
                Part::Field(field) => {
                    let next = template.parts.get(position + 1);
                    self.field(field, field.is_filled || ends_number(field, next))?;
                    if !template.is_exact {
                        skipped_more = 0;
                        // Separators that the template does not have may stand before a field.
                        while matches!(next, None | Some(Part::Separator(_)))
                            && self.rest.starts_with(char::is_whitespace)
                        {
                            self.skip_char();
                            skipped_more += 1;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn skip_char(&mut self) {
        let mut chars = self.rest.chars();
        chars.next();
        self.rest = chars.as_str();
    }

    fn field(&mut self, field: &Field, takes_all_digits: bool) -> Result<()> {
        let mut number = |digits: usize| self.number(digits, takes_all_digits);
        match field.kind {
            Kind::Era { .. } => {
                let eras = ["A.D.", "B.C.", "AD", "BC"];
                let era = self.name(eras.into_iter(), "an era such as AD")?;
                self.found.is_before_christ = era % 2 == 1;
            }
            Kind::Noon { .. } => {
                let halves = ["A.M.", "P.M.", "AM", "PM"];
                let half = self.name(halves.into_iter(), "AM or PM")?;
                self.found.is_afternoon = Some(half % 2 == 1);
            }
            Kind::Hour24 => self.found.hour = number(2)?.0,
            Kind::Hour12 => {
                self.found.hour = number(2)?.0;
                if !(1..=12).contains(&self.found.hour) {
                    return refuse(format!(
                        "hour {} in '{}' is none of the 12-hour clock; use HH24",
                        self.found.hour, self.text
                    ));
                }
                self.found.has_hour12 = true;
            }
            Kind::Minute => self.found.minute = number(2)?.0,
            Kind::Second => self.found.second = number(2)?.0,
            Kind::SecondOfDay => {
                let seconds = number(5)?.0;
                self.found.hour = seconds / 3_600;
                self.found.minute = seconds / 60 % 60;
                self.found.second = seconds % 60;
            }
            Kind::Fraction(digits) => {
                let (fraction, written) = number(digits)?;
                self.found.nanos = nanos_of(fraction, written);
            }
            Kind::Day | Kind::ShortDay => {
                let short = DAYS.iter().map(|day| &day[..3]);
                let day = self.name(DAYS.into_iter().chain(short), "the name of a day")?;
                let days = i64::try_from(day % DAYS.len()).unwrap_or_default();
                // ISO days begin with Monday.
                self.found.iso_day = Some(if days == 0 { 7 } else { days });
            }
            Kind::MonthName | Kind::ShortMonthName => {
                let short = MONTHS.iter().map(|month| &month[..3]);
                let month = self.name(MONTHS.into_iter().chain(short), "the name of a month")?;
                let months = i64::try_from(month % MONTHS.len()).unwrap_or_default();
                self.found.month = Some(months + 1);
            }
            Kind::RomanMonth => {
                // A longer numeral comes before its beginnings.
                const BY_LENGTH: [usize; 12] = [7, 11, 6, 2, 10, 8, 5, 3, 1, 9, 4, 0];
                let numerals = BY_LENGTH.iter().map(|month| ROMAN_MONTHS[*month]);
                let month = BY_LENGTH[self.name(numerals, "a month in Roman numerals")?];
                self.found.month = Some(i64::try_from(month).unwrap_or_default() + 1);
            }
            Kind::Month => self.found.month = Some(number(2)?.0),
            Kind::DayOfMonth => self.found.day = Some(number(2)?.0),
            Kind::DayOfYear => self.found.day_of_year = Some(number(3)?.0),
            Kind::IsoDayOfYear => self.found.iso_day_of_year = Some(number(3)?.0),
            Kind::DayOfWeek => {
                let day = number(1)?.0;
                self.found.iso_day = Some(if day == 1 { 7 } else { day.saturating_sub(1) });
            }
            Kind::IsoDayOfWeek => self.found.iso_day = Some(number(1)?.0),
            Kind::WeekOfYear => self.found.week_of_year = Some(number(2)?.0),
            Kind::IsoWeek => self.found.iso_week = Some(number(2)?.0),
            Kind::WeekOfMonth => self.found.week_of_month = Some(number(1)?.0),
            // The quarter follows from the month, so it is read and ignored, as in PostgreSQL.
            Kind::Quarter => {
                number(1)?;
            }
            Kind::Century => self.found.century = Some(number(2)?.0),
            Kind::JulianDay => self.found.julian_day = Some(self.number(7, true)?.0),
            Kind::GroupedYear => {
                let thousands = self.number(3, true)?.0;
                if !self.rest.starts_with(',') {
                    return refuse(format!("there is no Y,YYY in '{}'", self.text));
                }
                self.skip_char();
                let rest = self.number(3, false)?.0;
                self.found.year = Some(thousands.saturating_mul(1_000).saturating_add(rest));
            }
            Kind::Year(digits) => {
                let (year, written) = number(digits)?;
                self.found.year = Some(near_2020(year, written, digits));
                self.found.year_is_short = digits <= 2;
            }
            Kind::IsoYear(digits) => {
                let (year, written) = number(digits)?;
                self.found.iso_year = Some(near_2020(year, written, digits));
            }
            Kind::ZoneHour => {
                self.found.zone_is_negative = self.sign();
                self.found.zone_hour = Some(self.number(2, false)?.0);
            }
            Kind::ZoneMinute => self.found.zone_minute = Some(number(2)?.0),
            Kind::Offset => {
                self.found.zone_is_negative = self.sign();
                self.found.zone_hour = Some(self.number(2, false)?.0);
                if self.rest.starts_with(':') {
                    self.skip_char();
                    self.found.zone_minute = Some(self.number(2, false)?.0);
                }
            }
            Kind::ZoneName => {
                return refuse(
                    "a time zone is read with TZH and TZM or with OF, not with TZ".to_owned(),
                );
            }
        }
        if field.ordinal.is_some() {
            for _ in 0..2 {
                if self
                    .rest
                    .starts_with(|next: char| next.is_ascii_alphabetic())
                {
                    self.skip_char();
                }
            }
        }
        Ok(())
    }

    fn sign(&mut self) -> bool {
        let is_negative = self.rest.starts_with('-');
        if self.rest.starts_with(['+', '-', ' ']) {
            self.skip_char();
        }
        is_negative
    }

    /// Reads a number of at most so many digits, or of any number of digits. Returns it with the
    /// number of its digits.
    fn number(&mut self, most: usize, takes_all: bool) -> Result<(i64, usize)> {
        let unsigned = self.rest.strip_prefix(['-', '+']).filter(|_| takes_all);
        let is_negative = unsigned.is_some() && self.rest.starts_with('-');
        let from = unsigned.unwrap_or(self.rest);
        let digits = from.bytes().take_while(u8::is_ascii_digit).count();
        let digits = if takes_all { digits } else { digits.min(most) };
        let Ok(number) = from[..digits].parse::<i64>() else {
            return refuse(format!(
                "there is no number where the template expects one, at '{}' in '{}'",
                self.rest, self.text
            ));
        };
        self.rest = &from[digits..];
        Ok((if is_negative { -number } else { number }, digits))
    }

    /// Reads one of the names, in capitals or not. Returns its position.
    fn name<'n>(&mut self, mut names: impl Iterator<Item = &'n str>, what: &str) -> Result<usize> {
        let starts = |name: &str| {
            let start = self.rest.get(..name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(name))
        };
        let mut length = 0;
        let found = names.position(|name| {
            length = name.len();
            starts(name)
        });
        match found {
            Some(position) => {
                self.rest = &self.rest[length..];
                Ok(position)
            }
            None => refuse(format!(
                "there is no {what} at '{}' in '{}'",
                self.rest, self.text
            )),
        }
    }
}

/// Returns whether a number ends where its digits end, because the next part of the template is
/// not a number.
fn ends_number(field: &Field, next: Option<&Part>) -> bool {
    if field.ordinal.is_some() {
        return true;
    }
    match next {
        None | Some(Part::Separator(_)) => true,
        Some(Part::Text(char)) => !char.is_ascii_digit(),
        Some(Part::Field(next)) => matches!(
            next.kind,
            Kind::Era { .. }
                | Kind::Noon { .. }
                | Kind::Day
                | Kind::ShortDay
                | Kind::MonthName
                | Kind::ShortMonthName
                | Kind::RomanMonth
                | Kind::ZoneName
                | Kind::ZoneHour
                | Kind::Offset
        ),
    }
}

/// Returns the nanoseconds of a fraction of a second that is written with so many digits.
fn nanos_of(fraction: i64, written: usize) -> i64 {
    const DIGITS: usize = 9;
    let power = |digits: usize| 10_i64.saturating_pow(u32::try_from(digits).unwrap_or(u32::MAX));
    match DIGITS.checked_sub(written) {
        Some(missing) => fraction.saturating_mul(power(missing)),
        None => fraction / power(written - DIGITS),
    }
}

/// Returns the year that is nearest to 2020 and ends with these digits, as PostgreSQL does for
/// years with less than four digits.
fn near_2020(year: i64, written: usize, digits: usize) -> i64 {
    if digits > 3 || written > 3 {
        return year;
    }
    match year {
        0..70 => year + 2_000,
        70..100 => year + 1_900,
        100..520 => year + 2_000,
        520..1_000 => year + 1_000,
        _ => year,
    }
}

/// What was found in a text.
#[derive(Debug, Default)]
struct Found {
    year: Option<i64>,
    /// Says whether the template has at most two digits for the year (`YY`), which are then those
    /// of a year in the century.
    year_is_short: bool,
    is_before_christ: bool,
    century: Option<i64>,
    month: Option<i64>,
    day: Option<i64>,
    day_of_year: Option<i64>,
    week_of_year: Option<i64>,
    week_of_month: Option<i64>,
    iso_year: Option<i64>,
    iso_week: Option<i64>,
    iso_day: Option<i64>,
    iso_day_of_year: Option<i64>,
    julian_day: Option<i64>,
    hour: i64,
    has_hour12: bool,
    is_afternoon: Option<bool>,
    minute: i64,
    second: i64,
    nanos: i64,
    zone_is_negative: bool,
    zone_hour: Option<i64>,
    zone_minute: Option<i64>,
}

impl Found {
    fn to_iso(&self, text: &str) -> Result<String> {
        let Some(date) = self.date() else {
            return refuse(format!("there is no such date: '{text}'"));
        };
        let Some(time) = self.time() else {
            return refuse(format!("there is no such time of day: '{text}'"));
        };
        let mut iso = format!("{}T{}", date.format("%Y-%m-%d"), time.format("%H:%M:%S%.f"));
        if self.zone_hour.is_some() || self.zone_minute.is_some() {
            let (hours, minutes) = (
                self.zone_hour.unwrap_or_default(),
                self.zone_minute.unwrap_or_default(),
            );
            if hours > 15 || minutes > 59 {
                return refuse(format!("there is no such offset: '{text}'"));
            }
            let sign = if self.zone_is_negative { '-' } else { '+' };
            iso.push_str(&format!("{sign}{hours:02}:{minutes:02}"));
        }
        Ok(iso)
    }

    fn date(&self) -> Option<NaiveDate> {
        if let Some(day) = self.julian_day {
            let day = i32::try_from(day).ok()?;
            return NaiveDate::from_num_days_from_ce_opt(day.checked_sub(DAY_BEFORE_COMMON_ERA)?);
        }
        if let Some(year) = self.iso_year {
            return self.iso_date(i32::try_from(year).ok()?);
        }
        let year = match (self.year, self.century) {
            (Some(year), Some(century)) if self.year_is_short => {
                // The last year of the 20th century is 2000.
                let centuries = match year % 100 {
                    0 => century,
                    _ => century.checked_sub(1)?,
                };
                centuries.checked_mul(100)?.checked_add(year % 100)?
            }
            (Some(year), _) => year,
            (None, Some(century)) => century.checked_sub(1)?.checked_mul(100)?.checked_add(1)?,
            (None, None) => i64::from(!self.is_before_christ),
        };
        let year = if self.is_before_christ {
            1_i64.checked_sub(year)?
        } else {
            year
        };
        let year = i32::try_from(year).ok()?;
        if let Some(day) = self.day_of_year {
            return NaiveDate::from_yo_opt(year, u32::try_from(day).ok()?);
        }
        if let Some(week) = self.week_of_year {
            let day = week.checked_sub(1)?.checked_mul(7)?.checked_add(1)?;
            return NaiveDate::from_yo_opt(year, u32::try_from(day).ok()?);
        }
        let day = match (self.day, self.week_of_month) {
            (Some(day), _) => day,
            (None, Some(week)) => week.checked_sub(1)?.checked_mul(7)?.checked_add(1)?,
            (None, None) => 1,
        };
        let month = u32::try_from(self.month.unwrap_or(1)).ok()?;
        NaiveDate::from_ymd_opt(year, month, u32::try_from(day).ok()?)
    }

    fn iso_date(&self, year: i32) -> Option<NaiveDate> {
        let first = NaiveDate::from_isoywd_opt(year, 1, Weekday::Mon)?;
        let days = match (self.iso_day_of_year, self.iso_week) {
            (Some(day), _) => day.checked_sub(1)?,
            (None, Some(week)) => {
                let day = self.iso_day.unwrap_or(1);
                week.checked_sub(1)?
                    .checked_mul(7)?
                    .checked_add(day.checked_sub(1)?)?
            }
            (None, None) => 0,
        };
        let days = chrono::Days::new(u64::try_from(days).ok()?);
        let date = first.checked_add_days(days)?;
        (date.iso_week().year() == year).then_some(date)
    }

    fn time(&self) -> Option<NaiveTime> {
        let hour = match self.is_afternoon {
            Some(true) if self.hour < 12 => self.hour + 12,
            Some(false) if self.hour == 12 => 0,
            // Without AM or PM, the clock of 12 hours begins with 12.
            None if self.has_hour12 && self.hour == 12 => 0,
            _ => self.hour,
        };
        let part = |number: i64| u32::try_from(number).ok();
        NaiveTime::from_hms_nano_opt(
            part(hour)?,
            part(self.minute)?,
            part(self.second)?,
            part(self.nanos)?,
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str, template: &str) -> Result<String> {
        DateTemplate::parse(template).read(text)
    }

    #[test]
    fn times_are_read_as_by_postgresql() {
        for (text, template, expected) in [
            ("2024-05-06", "YYYY-MM-DD", "2024-05-06T00:00:00"),
            (
                "20240506 070809",
                "YYYYMMDD HH24MISS",
                "2024-05-06T07:08:09",
            ),
            ("5/6/24", "MM/DD/YY", "2024-05-06T00:00:00"),
            ("06 Dec 2000", "DD Mon YYYY", "2000-12-06T00:00:00"),
            ("  2000    JUN", "YYYY MON", "2000-06-01T00:00:00"),
            ("2024/05/06", "YYYY-MM-DD", "2024-05-06T00:00:00"),
            (
                "12:34:56.5 pm",
                "HH12:MI:SS.MS AM",
                "0001-01-01T12:34:56.500",
            ),
            ("12 am", "HH AM", "0001-01-01T00:00:00"),
            ("2024-127", "YYYY-DDD", "2024-05-06T00:00:00"),
            ("2024-W19-1", "IYYY-\"W\"IW-ID", "2024-05-06T00:00:00"),
            ("2460437", "J", "2024-05-06T00:00:00"),
            (
                "2024-05-06 07 +02:30",
                "YYYY-MM-DD HH24 TZH:TZM",
                "2024-05-06T07:00:00+02:30",
            ),
            ("May 6th, 2024", "Month DDth, YYYY", "2024-05-06T00:00:00"),
            ("VI 2024", "RM YYYY", "2024-06-01T00:00:00"),
            ("97", "YY", "1997-01-01T00:00:00"),
            ("19 97", "CC YY", "1897-01-01T00:00:00"),
            ("20 00", "CC YY", "2000-01-01T00:00:00"),
            ("19 1997", "CC YYYY", "1997-01-01T00:00:00"),
            (
                "00:00:59.12345678901",
                "HH24:MI:SS.US",
                "0001-01-01T00:00:59.123456789",
            ),
            (
                "2024-05-06T07:08",
                "YYYY-MM-DD\"T\"HH24:MI",
                "2024-05-06T07:08:00",
            ),
        ] {
            assert_eq!(read(text, template).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn times_that_do_not_exist_are_refused() {
        for (text, template) in [
            ("2023-02-29", "YYYY-MM-DD"),
            ("2024-13-01", "YYYY-MM-DD"),
            ("24:00:00", "HH24:MI:SS"),
            ("13", "HH12"),
            ("kea", "YYYY"),
            ("1 Foo", "DD Mon"),
            ("99999999999999999999", "YYYY"),
            ("2023-53", "IYYY-IW"),
        ] {
            assert!(read(text, template).is_err(), "{text}");
        }
    }
}
