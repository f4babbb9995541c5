//! Segments of about the same size are merged, so that each row is written once per tier and not
//! once per merge. A shard keeps at most [`FAN_IN`] - 1 segments per tier, and its full segments.

/// Number of segments of a tier that are merged.
pub(super) const FAN_IN: usize = 8;
/// Size of the segments of the lowest tier, in bytes. Each tier is [`FAN_IN`] times the one below.
const LOWEST_TIER_BYTES: u64 = 1 << 20;
/// Maximum number of segments that one merge reads.
const MOST_INPUTS: usize = 64;

/// Chooses segments of a shard to merge in the background, by their sizes in bytes: those of the
/// lowest tier that has enough of them, and all smaller ones. Returns their positions, or `None` if
/// no tier has enough. `full_bytes` is the size at which a segment is full.
pub(super) fn choose(sizes: &[u64], full_bytes: u64) -> Option<Vec<usize>> {
    let mut small = smallest_first(sizes, full_bytes);
    let mut in_tier = 0;
    let mut tier = 0;
    for (count, position) in small.iter().enumerate() {
        let its_tier = tier_of(sizes[*position]);
        if its_tier != tier {
            if in_tier >= FAN_IN {
                small.truncate(count);
                break;
            }
            (tier, in_tier) = (its_tier, 0);
        }
        in_tier += 1;
    }
    if in_tier < FAN_IN {
        return None;
    }
    Some(fitting(small, sizes, full_bytes))
}

/// Chooses segments of a shard to merge, so that it has as few as possible. Returns their
/// positions, or `None` if there is nothing to gain.
pub(super) fn choose_all(sizes: &[u64], full_bytes: u64) -> Option<Vec<usize>> {
    let small = fitting(smallest_first(sizes, full_bytes), sizes, full_bytes);
    (small.len() > 1).then_some(small)
}

/// Returns the positions of the segments that are at most half full.
fn smallest_first(sizes: &[u64], full_bytes: u64) -> Vec<usize> {
    let mut small: Vec<_> = (0..sizes.len())
        .filter(|position| sizes[*position] <= full_bytes / 2)
        .collect();
    small.sort_by_key(|position| sizes[*position]);
    small
}

/// Leaves out the last segments if there are too many for one merge.
fn fitting(mut chosen: Vec<usize>, sizes: &[u64], full_bytes: u64) -> Vec<usize> {
    chosen.truncate(MOST_INPUTS);
    let mut bytes = 0_u64;
    let fit = chosen.iter().take_while(|position| {
        bytes = bytes.saturating_add(sizes[**position]);
        bytes <= full_bytes.saturating_mul(2)
    });
    let fit = fit.count();
    chosen.truncate(fit);
    chosen
}

fn tier_of(bytes: u64) -> u32 {
    let mut tier = 0;
    let mut bound = LOWEST_TIER_BYTES;
    while bytes >= bound {
        tier += 1;
        bound = bound.saturating_mul(FAN_IN as u64);
    }
    tier
}

#[cfg(test)]
mod tests {
    use super::*;

    const FULL: u64 = 256 << 20;

    #[test]
    fn the_lowest_tier_with_enough_segments_is_merged_with_all_smaller_ones() {
        let mut sizes = vec![20 << 20; 8];
        sizes.extend([3 << 20; 7]);
        sizes.extend([5000; 7]);
        let chosen = choose(&sizes, FULL).unwrap();
        assert_eq!(chosen.len(), 22, "{chosen:?}");
        sizes.push(5000);
        let mut chosen = choose(&sizes, FULL).unwrap();
        chosen.sort_unstable();
        assert_eq!(chosen, (15..23).collect::<Vec<_>>());
        assert_eq!(choose(&[20 << 20; 7], FULL), None);
        assert_eq!(choose(&[], FULL), None);
    }

    #[test]
    fn full_segments_are_left_alone() {
        assert_eq!(choose(&[FULL * 3 / 4; 100], FULL), None);
        assert_eq!(choose_all(&[FULL * 3 / 4, 100], FULL), None);
        assert_eq!(choose_all(&[FULL / 2, 100], FULL), Some(vec![1, 0]));
    }

    #[test]
    fn a_shard_to_which_small_segments_are_added_keeps_few_and_writes_each_row_a_few_times() {
        let added = 40_000_u64;
        let bytes = 300_000_u64;
        let mut sizes: Vec<u64> = Vec::new();
        let mut written = 0;
        for _ in 0..added {
            sizes.push(bytes);
            written += bytes;
            while let Some(mut chosen) = choose(&sizes, FULL) {
                let merged: u64 = chosen.iter().map(|position| sizes[*position]).sum();
                assert!(merged <= 2 * FULL && chosen.len() <= MOST_INPUTS);
                written += merged;
                chosen.sort_unstable_by(|one, other| other.cmp(one));
                for position in chosen {
                    sizes.swap_remove(position);
                }
                let full = merged / FULL;
                sizes.extend((0..full).map(|_| FULL));
                sizes.push(merged - full * FULL);
                sizes.retain(|size| *size > 0);
            }
            let small = sizes.iter().filter(|size| **size <= FULL / 2).count();
            assert!(small <= 4 * (FAN_IN - 1), "{small} small segments");
        }
        assert_eq!(sizes.iter().sum::<u64>(), added * bytes);
        assert!(
            sizes.len() as u64 <= 28 + 2 * added * bytes / FULL,
            "{}",
            sizes.len()
        );
        let amplification = written as f64 / (added * bytes) as f64;
        assert!(amplification < 5.0, "{amplification}");
        while let Some(chosen) = choose_all(&sizes, FULL) {
            let merged: u64 = chosen.iter().map(|position| sizes[*position]).sum();
            let before = sizes.len();
            let mut position = 0;
            sizes.retain(|_| {
                position += 1;
                !chosen.contains(&(position - 1))
            });
            let full = merged / FULL;
            sizes.extend((0..full).map(|_| FULL));
            sizes.extend(Some(merged - full * FULL).filter(|rest| *rest > 0));
            assert!(sizes.len() < before);
        }
        assert!(sizes.iter().filter(|size| **size <= FULL / 2).count() <= 1);
    }
}
