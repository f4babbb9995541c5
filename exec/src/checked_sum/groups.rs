use std::collections::HashMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, ArrowPrimitiveType, AsArray, BooleanArray, BooleanBufferBuilder,
    PrimitiveArray,
};
use arrow::buffer::{NullBuffer, ScalarBuffer};
use arrow::datatypes::{ArrowNativeTypeOp, DataType};
use datafusion::common::Result;
use datafusion::logical_expr::{EmitTo, GroupsAccumulator};

use super::summand::{Summand, Total};

/// The sums of groups. A group takes no more memory than its sum has bytes, because few sums wrap
/// around.
pub(super) struct GroupSums<T: Summand> {
    data_type: DataType,
    lows: Vec<T::Native>,
    /// How many times the sums of groups have wrapped around. Groups that are not listed have not.
    wraps: HashMap<usize, i64>,
    /// The groups that have a value. `None` if all have one.
    with_value: Option<BooleanBufferBuilder>,
}

impl<T: Summand> GroupSums<T> {
    /// Creates the sums of no groups. `data_type` is the type of the sums.
    pub(super) fn new(data_type: &DataType) -> Self {
        Self {
            data_type: data_type.clone(),
            lows: Vec::new(),
            wraps: HashMap::new(),
            with_value: None,
        }
    }

    /// Makes room for groups. `all_have_values` says whether each new group gets a value now.
    fn grow(&mut self, groups: usize, all_have_values: bool) {
        let before = self.lows.len();
        self.lows.resize(groups, T::Native::ZERO);
        match &mut self.with_value {
            None if all_have_values => {}
            None => {
                let mut bits = BooleanBufferBuilder::new(groups);
                bits.append_n(before, true);
                bits.append_n(groups - before, false);
                self.with_value = Some(bits);
            }
            Some(bits) => bits.append_n(groups - before, false),
        }
    }

    #[inline]
    fn add(&mut self, group: usize, value: T::Native) {
        let (low, wraps) = T::add(self.lows[group], value);
        self.lows[group] = low;
        if wraps != 0 {
            self.add_wraps(group, wraps);
        }
    }

    #[cold]
    fn add_wraps(&mut self, group: usize, wraps: i64) {
        *self.wraps.entry(group).or_default() += wraps;
    }

    fn set_has_value(&mut self, group: usize) {
        if let Some(bits) = &mut self.with_value {
            bits.set_bit(group, true);
        }
    }

    fn take(&mut self, emit_to: EmitTo) -> Groups<T> {
        let lows = emit_to.take_needed(&mut self.lows);
        let taken = lows.len();
        let all = std::mem::take(&mut self.wraps);
        let (first, rest): (HashMap<_, _>, HashMap<_, _>) = all
            .into_iter()
            .filter(|(_, wraps)| *wraps != 0)
            .partition(|(group, _)| *group < taken);
        let rest = rest.into_iter();
        self.wraps = rest.map(|(group, wraps)| (group - taken, wraps)).collect();
        let nulls = self.with_value.take().map(|mut bits| {
            let bits = bits.finish();
            if bits.len() > taken {
                let mut rest = BooleanBufferBuilder::new(bits.len() - taken);
                rest.append_buffer(&bits.slice(taken, bits.len() - taken));
                self.with_value = Some(rest);
            }
            NullBuffer::new(bits.slice(0, taken))
        });
        Groups {
            lows,
            wraps: first,
            nulls,
        }
    }
}

/// The sums of groups that are taken out.
struct Groups<T: Summand> {
    lows: Vec<T::Native>,
    wraps: HashMap<usize, i64>,
    nulls: Option<NullBuffer>,
}

impl<T: Summand> Groups<T> {
    /// Returns the sums, each as `convert` makes it.
    fn into_array<U: ArrowPrimitiveType>(
        self,
        data_type: &DataType,
        convert: impl Fn(Total<T>) -> Result<U::Native>,
    ) -> Result<ArrayRef> {
        let sums = self.lows.iter().enumerate().map(|(group, low)| {
            let wraps = if self.wraps.is_empty() {
                0
            } else {
                self.wraps.get(&group).copied().unwrap_or(0)
            };
            convert(Total { low: *low, wraps })
        });
        let sums: ScalarBuffer<U::Native> = sums.collect::<Result<Vec<_>>>()?.into();
        let sums = PrimitiveArray::<U>::new(sums, self.nulls);
        Ok(Arc::new(sums.with_data_type(data_type.clone())))
    }
}

impl<T: Summand> GroupsAccumulator for GroupSums<T> {
    fn update_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        opt_filter: Option<&BooleanArray>,
        total_num_groups: usize,
    ) -> Result<()> {
        let values = values[0].as_primitive::<T>();
        let rows = group_indices.iter().copied().zip(values.values());
        let all_count = values.null_count() == 0 && opt_filter.is_none();
        self.grow(total_num_groups, all_count);
        if all_count && self.with_value.is_none() {
            for (group, value) in rows {
                self.add(group, *value);
            }
            return Ok(());
        }
        for (row, (group, value)) in rows.enumerate() {
            let passes = opt_filter.is_none_or(|filter| filter.is_valid(row) && filter.value(row));
            if passes && values.is_valid(row) {
                self.add(group, *value);
                self.set_has_value(group);
            }
        }
        Ok(())
    }

    fn merge_batch(
        &mut self,
        values: &[ArrayRef],
        group_indices: &[usize],
        total_num_groups: usize,
    ) -> Result<()> {
        let states = values[0].as_primitive::<T::State>();
        self.grow(total_num_groups, states.null_count() == 0);
        for (row, (group, state)) in group_indices.iter().zip(states.values()).enumerate() {
            if states.is_valid(row) {
                let Total { low, wraps } = T::of_state(*state);
                self.add(*group, low);
                if wraps != 0 {
                    self.add_wraps(*group, wraps);
                }
                self.set_has_value(*group);
            }
        }
        Ok(())
    }

    fn evaluate(&mut self, emit_to: EmitTo) -> Result<ArrayRef> {
        let groups = self.take(emit_to);
        groups.into_array::<T>(&self.data_type, Total::value)
    }

    fn state(&mut self, emit_to: EmitTo) -> Result<Vec<ArrayRef>> {
        let data_type = T::state_type(&self.data_type);
        let groups = self.take(emit_to);
        let states = groups.into_array::<T::State>(&data_type, Total::state)?;
        Ok(vec![states])
    }

    fn convert_to_state(
        &self,
        values: &[ArrayRef],
        opt_filter: Option<&BooleanArray>,
    ) -> Result<Vec<ArrayRef>> {
        let values = values[0].as_primitive::<T>();
        let passing = opt_filter.map(|filter| {
            let passes = filter.iter().map(|passes| passes == Some(true));
            NullBuffer::from_iter(passes)
        });
        let groups = Groups::<T> {
            lows: values.values().to_vec(),
            wraps: HashMap::new(),
            nulls: NullBuffer::union(values.nulls(), passing.as_ref()),
        };
        let data_type = T::state_type(&self.data_type);
        let states = groups.into_array::<T::State>(&data_type, Total::state)?;
        Ok(vec![states])
    }

    fn size(&self) -> usize {
        let bits = self
            .with_value
            .as_ref()
            .map_or(0, |bits| bits.capacity() / 8);
        let wraps = self.wraps.capacity() * size_of::<(usize, i64)>();
        self.lows.capacity() * size_of::<T::Native>() + bits + wraps
    }
}
