use std::fmt::Write;

use chrono::{Datelike, NaiveDate, NaiveDateTime, Timelike};
use datafusion::common::Result;

use super::{
    Case, DAY_BEFORE_COMMON_ERA, DAYS, DateTemplate, Field, Kind, MONTHS, Part, ROMAN_MONTHS,
    refuse,
};
use crate::postgres::template::ordinal_ending;

/// A time that is written.
#[derive(Debug, Clone, Copy)]
pub(in super::super) enum Moment<'a> {
    /// A point in time, with the offset of its zone in seconds and the zone's name.
    Time(NaiveDateTime, Option<(i32, &'a str)>),
    /// A length of time.
    Interval { months: i32, days: i32, nanos: i64 },
}

impl Moment<'_> {
    fn year(self) -> i32 {
        match self {
            Self::Time(time, _) => time.year(),
            Self::Interval { months, .. } => months / 12,
        }
    }

    fn month(self) -> i32 {
        match self {
            Self::Time(time, _) => time.month() as i32,
            Self::Interval { months, .. } => months % 12,
        }
    }

    fn day(self) -> i32 {
        match self {
            Self::Time(time, _) => time.day() as i32,
            Self::Interval { days, .. } => days,
        }
    }

    fn seconds(self) -> i64 {
        match self {
            Self::Time(time, _) => i64::from(time.num_seconds_from_midnight()),
            Self::Interval { nanos, .. } => nanos / 1_000_000_000,
        }
    }

    fn nanos(self) -> i64 {
        match self {
            Self::Time(time, _) => i64::from(time.nanosecond() % 1_000_000_000),
            Self::Interval { nanos, .. } => nanos % 1_000_000_000,
        }
    }

    fn hour(self) -> i64 {
        self.seconds() / 3_600
    }

    fn date(self, template_field: &str) -> Result<NaiveDate> {
        match self {
            Self::Time(time, _) => Ok(time.date()),
            Self::Interval { .. } => refuse(format!(
                "an interval has no {template_field}, which the template of to_char asks for"
            )),
        }
    }

    fn zone(self) -> Option<(i32, &'static str)> {
        match self {
            Self::Time(_, Some((offset, _))) => Some((offset, "")),
            _ => None,
        }
    }
}

impl DateTemplate {
    /// Appends the time to a text.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT` if the template asks for what an interval does not have.
    pub(in super::super) fn format(&self, moment: Moment<'_>, text: &mut String) -> Result<()> {
        for part in &self.parts {
            match part {
                Part::Separator(char) | Part::Text(char) => text.push(*char),
                Part::Field(field) => field.format(moment, text)?,
            }
        }
        Ok(())
    }
}

impl Field {
    fn format(&self, moment: Moment<'_>, text: &mut String) -> Result<()> {
        let begin = text.len();
        match self.kind {
            Kind::Noon { with_points } => {
                let name = match (moment.hour().rem_euclid(24) >= 12, with_points) {
                    (false, false) => "am",
                    (false, true) => "a.m.",
                    (true, false) => "pm",
                    (true, true) => "p.m.",
                };
                self.push_letters(name, 0, text);
            }
            Kind::Era { with_points } => {
                let year = moment.date("era")?.year();
                let name = match (year > 0, with_points) {
                    (true, false) => "ad",
                    (true, true) => "a.d.",
                    (false, false) => "bc",
                    (false, true) => "b.c.",
                };
                self.push_letters(name, 0, text);
            }
            Kind::Hour12 => {
                let hour = moment.hour() % 12;
                self.push_number(if hour == 0 { 12 } else { hour }, 2, text);
            }
            Kind::Hour24 => self.push_number(moment.hour(), 2, text),
            Kind::Minute => self.push_number(moment.seconds() / 60 % 60, 2, text),
            Kind::Second => self.push_number(moment.seconds() % 60, 2, text),
            Kind::Fraction(digits) => {
                let nanos = moment.nanos().unsigned_abs();
                let fraction = format!("{nanos:09}");
                text.push_str(&fraction[..digits]);
            }
            Kind::SecondOfDay => self.push_number(moment.seconds(), 0, text),
            Kind::ZoneName => {
                if let Moment::Time(_, Some((_, name))) = moment {
                    self.push_letters(name, 0, text);
                }
            }
            Kind::ZoneHour => {
                let offset = moment.zone().map_or(0, |(offset, _)| offset);
                let sign = if offset < 0 { '-' } else { '+' };
                let _ = write!(text, "{sign}{:02}", offset.abs() / 3_600);
            }
            Kind::ZoneMinute => {
                let offset = moment.zone().map_or(0, |(offset, _)| offset);
                let _ = write!(text, "{:02}", offset.abs() / 60 % 60);
            }
            Kind::Offset => {
                let offset = moment.zone().map_or(0, |(offset, _)| offset);
                let sign = if offset < 0 { '-' } else { '+' };
                let _ = write!(text, "{sign}{:02}", offset.abs() / 3_600);
                let minutes = offset.abs() / 60 % 60;
                if minutes != 0 {
                    let _ = write!(text, ":{minutes:02}");
                }
            }
            Kind::MonthName | Kind::ShortMonthName | Kind::RomanMonth => {
                self.push_month(moment.month(), text);
            }
            Kind::Month => self.push_number(i64::from(moment.month()), 2, text),
            Kind::Day => {
                let day = moment.date("day of the week")?.weekday();
                let name = DAYS[day.num_days_from_sunday() as usize];
                self.push_letters(name, 9, text);
            }
            Kind::ShortDay => {
                let day = moment.date("day of the week")?.weekday();
                let name = DAYS[day.num_days_from_sunday() as usize];
                self.push_letters(&name[..3], 0, text);
            }
            Kind::DayOfYear => {
                let day = match moment {
                    Moment::Time(time, _) => i64::from(time.ordinal()),
                    Moment::Interval { months, days, .. } => {
                        i64::from(months) * 30 + i64::from(days)
                    }
                };
                self.push_number(day, 3, text);
            }
            Kind::IsoDayOfYear => {
                let date = moment.date("ISO day")?;
                let week = i64::from(date.iso_week().week());
                let day = i64::from(date.weekday().number_from_monday());
                self.push_number((week - 1) * 7 + day, 3, text);
            }
            Kind::DayOfMonth => self.push_number(i64::from(moment.day()), 2, text),
            Kind::DayOfWeek => {
                let day = moment.date("day of the week")?.weekday();
                self.push_number(i64::from(day.number_from_sunday()), 0, text);
            }
            Kind::IsoDayOfWeek => {
                let day = moment.date("day of the week")?.weekday();
                self.push_number(i64::from(day.number_from_monday()), 0, text);
            }
            Kind::WeekOfYear => {
                let day = moment.date("week")?.ordinal0();
                self.push_number(i64::from(day / 7 + 1), 2, text);
            }
            Kind::IsoWeek => {
                let week = moment.date("week")?.iso_week().week();
                self.push_number(i64::from(week), 2, text);
            }
            Kind::WeekOfMonth => {
                let day = moment.date("week")?.day0();
                self.push_number(i64::from(day / 7 + 1), 0, text);
            }
            Kind::Quarter => {
                let month = moment.month();
                if month != 0 {
                    self.push_number(i64::from((month - 1) / 3 + 1), 0, text);
                }
            }
            Kind::Century => {
                let year = moment.year();
                let century = if year > 0 {
                    (year - 1) / 100 + 1
                } else {
                    year / 100 - 1
                };
                self.push_number(i64::from(century), 2, text);
            }
            Kind::JulianDay => {
                let day = moment.date("Julian day")?.num_days_from_ce();
                self.push_number(i64::from(day + DAY_BEFORE_COMMON_ERA), 0, text);
            }
            Kind::GroupedYear => {
                let year = shown_year(moment.year(), moment);
                let _ = write!(text, "{},{:03}", year / 1_000, year % 1_000);
            }
            Kind::Year(digits) => {
                let year = shown_year(moment.year(), moment);
                self.push_year(year, digits, text);
            }
            Kind::IsoYear(digits) => {
                let year = shown_year(moment.date("ISO year")?.iso_week().year(), moment);
                self.push_year(year, digits, text);
            }
        }
        if let Some(case) = self.ordinal
            && text[begin..].ends_with(|last: char| last.is_ascii_digit())
        {
            let ending = ordinal_ending(&text[begin..]);
            match case {
                Case::Upper => text.push_str(&ending.to_ascii_uppercase()),
                _ => text.push_str(ending),
            }
        }
        Ok(())
    }

    fn push_month(&self, month: i32, text: &mut String) {
        // An interval of whole years has no month.
        let Some(index) = month.unsigned_abs().checked_sub(1) else {
            return;
        };
        let index = if month < 0 { 11 - index } else { index } as usize;
        match self.kind {
            Kind::RomanMonth => self.push_letters(ROMAN_MONTHS[index], 4, text),
            Kind::ShortMonthName => self.push_letters(&MONTHS[index][..3], 0, text),
            _ => self.push_letters(MONTHS[index], 9, text),
        }
    }

    fn push_year(&self, year: i32, digits: usize, text: &mut String) {
        let shown = match digits {
            3 => year % 1_000,
            2 => year % 100,
            1 => year % 10,
            _ => year,
        };
        self.push_number(i64::from(shown), digits, text);
    }

    /// Appends a number with at least this number of digits, unless it is to be written without
    /// padding.
    fn push_number(&self, number: i64, digits: usize, text: &mut String) {
        let digits = if self.is_filled { 0 } else { digits };
        if number < 0 {
            text.push('-');
        }
        let _ = write!(text, "{:0digits$}", number.unsigned_abs());
    }

    fn push_letters(&self, name: &str, width: usize, text: &mut String) {
        let width = if self.is_filled { 0 } else { width };
        let name = match self.case {
            Case::Upper => name.to_ascii_uppercase(),
            Case::Lower => name.to_ascii_lowercase(),
            Case::Capitalised => name.to_owned(),
        };
        let _ = write!(text, "{name:width$}");
    }
}

/// Returns the year as it is counted in its era.
fn shown_year(year: i32, moment: Moment<'_>) -> i32 {
    match moment {
        Moment::Time(_, _) if year <= 0 => 1 - year,
        _ => year,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> NaiveDateTime {
        NaiveDateTime::parse_from_str(text, "%Y-%m-%d %H:%M:%S%.f").unwrap()
    }

    fn formatted(moment: Moment<'_>, template: &str) -> String {
        let mut text = String::new();
        let template = DateTemplate::parse(template);
        template.format(moment, &mut text).unwrap();
        text
    }

    #[test]
    fn times_are_written_as_by_postgresql() {
        let time = Moment::Time(at("2024-05-06 07:08:09.123456"), Some((-12_600, "NST")));
        for (template, expected) in [
            ("YYYY-MM-DD HH24:MI:SS.MS", "2024-05-06 07:08:09.123"),
            ("FMDay, FMDD  HH12:MI:SS AM", "Monday, 6  07:08:09 AM"),
            ("Day|DAY|day|Dy|dy", "Monday   |MONDAY   |monday   |Mon|mon"),
            ("Month|Mon|MON|RM|rm", "May      |May|MAY|V   |v   "),
            (
                "Q IW IYYY ID IDDD WW W D DDD J",
                "2 19 2024 1 127 19 1 2 127 2460437",
            ),
            ("Y,YYY YYY YY Y CC", "2,024 024 24 4 21"),
            ("DDth DDTH FMDDth", "06th 06TH 6th"),
            ("US FF1 FF6 SSSS", "123456 1 123456 25689"),
            ("TZ tz TZH:TZM OF", "NST nst -03:30 -03:30"),
            ("p.m. B.C. ad", "a.m. A.D. ad"),
            (r#""Today is" FMDay \"x\""#, r#"Today is Monday "x""#),
            ("hh24mi", "0708"),
            ("é%", "é%"),
        ] {
            assert_eq!(formatted(time, template), expected, "{template}");
        }
        let noon = Moment::Time(at("0000-12-31 12:00:00"), None);
        assert_eq!(formatted(noon, "YYYY BC HH PM CC"), "0001 BC 12 PM -01");
    }

    #[test]
    fn intervals_are_written_without_a_calendar() {
        let interval = Moment::Interval {
            months: 14,
            days: 3,
            nanos: 15 * 3_600_000_000_000 + 2 * 60_000_000_000 + 12_500_000_000,
        };
        for (template, expected) in [
            ("HH24:MI:SS.FF2", "15:02:12.50"),
            ("YYYY MM DD HH12", "0001 02 03 03"),
            ("FMDD \"days\"", "3 days"),
        ] {
            assert_eq!(formatted(interval, template), expected);
        }
        let mut text = String::new();
        assert!(
            DateTemplate::parse("Day")
                .format(interval, &mut text)
                .is_err()
        );
    }
}
