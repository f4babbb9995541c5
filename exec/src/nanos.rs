use arrow::datatypes::TimeUnit;

pub(crate) const NANOS_PER_SECOND: i64 = 1_000_000_000;
pub(crate) const NANOS_PER_MINUTE: i64 = 60 * NANOS_PER_SECOND;
pub(crate) const NANOS_PER_HOUR: i64 = 60 * NANOS_PER_MINUTE;
pub(crate) const NANOS_PER_DAY: i64 = 24 * NANOS_PER_HOUR;

/// Returns the number of nanoseconds of one unit.
pub(crate) fn nanos_per(unit: TimeUnit) -> i64 {
    match unit {
        TimeUnit::Second => NANOS_PER_SECOND,
        TimeUnit::Millisecond => 1_000_000,
        TimeUnit::Microsecond => 1_000,
        TimeUnit::Nanosecond => 1,
    }
}

/// Returns the number of units of one second.
pub(crate) fn units_per_second(unit: TimeUnit) -> i64 {
    NANOS_PER_SECOND / nanos_per(unit)
}
