use std::time::Duration;

/// Unit of time in `stat`: USER_HZ is 100 on every architecture in use.
const TICK: Duration = Duration::from_millis(10);
/// Number of the first field after the name of the program, in the numbering of proc(5). The next
/// two constants are the numbers of the time in user mode and in system mode.
const AFTER_NAME: usize = 3;
const USER_TIME: usize = 14;
const SYSTEM_TIME: usize = 15;

/// Returns the processor time in user and system mode from the text of `stat`.
pub(super) fn stat(text: &str) -> Option<Duration> {
    // The name can contain spaces and parentheses.
    let (_, after_name) = text.rsplit_once(')')?;
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks = |field: usize| fields.get(field - AFTER_NAME)?.parse::<u32>().ok();
    Some(TICK * (ticks(USER_TIME)? + ticks(SYSTEM_TIME)?))
}

/// Returns the processor time from the text of `schedstat`, whose first number is in nanoseconds.
pub(super) fn schedstat(text: &str) -> Option<Duration> {
    let nanos = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(nanos))
}

/// Returns a number from the text of `status`, without its unit.
pub(super) fn status_number(text: &str, key: &str) -> Option<u64> {
    let value = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_found_behind_any_name() {
        let rest = "S 9959 9957 7188 0 -1 4194304 27529 0 0 0 108 8 0 0 20 0 1 0 6243890";
        for name in ["python3", "a b", "x) S 1 (y"] {
            let text = format!("10000 ({name}) {rest}\n");
            assert_eq!(stat(&text), Some(Duration::from_millis(1_160)));
        }
        assert_eq!(stat("10000 (cut) S 1"), None);
        assert_eq!(
            schedstat("1170974967 4109925 7\n"),
            Some(Duration::from_nanos(1_170_974_967))
        );
        assert_eq!(schedstat(""), None);
    }

    #[test]
    fn numbers_of_status_are_found_by_their_whole_name() {
        let text = "Name:\tcat\nVmHWM:\t    1720 kB\nvoluntary_ctxt_switches:\t3\nnonvoluntary_ctxt_switches:\t4\n";
        assert_eq!(status_number(text, "VmHWM"), Some(1720));
        assert_eq!(status_number(text, "voluntary_ctxt_switches"), Some(3));
        assert_eq!(status_number(text, "nonvoluntary_ctxt_switches"), Some(4));
        assert_eq!(status_number(text, "Name"), None);
        assert_eq!(status_number(text, "Vm"), None);
    }
}
