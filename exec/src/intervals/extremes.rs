use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{ArrayRef, AsArray, PrimitiveArray};
use arrow::datatypes::{DataType, Field, FieldRef, IntervalMonthDayNano, IntervalMonthDayNanoType};
use datafusion::common::{Result, ScalarValue, internal_err};
use datafusion::logical_expr::function::{AccumulatorArgs, StateFieldsArgs};
use datafusion::logical_expr::utils::AggregateOrderSensitivity;
use datafusion::logical_expr::{
    Accumulator, AggregateUDF, AggregateUDFImpl, Signature, Volatility,
};

use super::length::{INTERVAL, nanos_of};

/// Returns the aggregates that stand for MIN and MAX of intervals.
pub fn aggregates() -> [Arc<AggregateUDF>; 2] {
    [Extreme::Min, Extreme::Max].map(|extreme| {
        let signature = Signature::exact(vec![INTERVAL], Volatility::Immutable);
        Arc::new(AggregateUDF::from(ExtremeInterval { extreme, signature }))
    })
}

/// Returns the aggregate that stands for MIN or MAX, by the name of these.
pub fn aggregate(name: &str) -> Option<Arc<AggregateUDF>> {
    let [min, max] = aggregates();
    match name {
        "min" => Some(min),
        "max" => Some(max),
        _ => None,
    }
}

/// Says whether the shortest or the longest interval is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Extreme {
    Min,
    Max,
}

impl Extreme {
    /// Returns the shorter or the longer one of two intervals.
    pub(super) fn of(
        self,
        left: IntervalMonthDayNano,
        right: IntervalMonthDayNano,
    ) -> IntervalMonthDayNano {
        let is_left = match self {
            Self::Min => order_of(left) <= order_of(right),
            Self::Max => order_of(left) >= order_of(right),
        };
        if is_left { left } else { right }
    }
}

#[derive(Debug, PartialEq, Eq, Hash)]
struct ExtremeInterval {
    extreme: Extreme,
    signature: Signature,
}

impl AggregateUDFImpl for ExtremeInterval {
    fn name(&self) -> &str {
        match self.extreme {
            Extreme::Min => "interval_min",
            Extreme::Max => "interval_max",
        }
    }

    fn signature(&self) -> &Signature {
        &self.signature
    }

    fn return_type(&self, _: &[DataType]) -> Result<DataType> {
        Ok(INTERVAL)
    }

    fn accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(ExtremeAccumulator {
            extreme: self.extreme,
            value: None,
        }))
    }

    fn create_sliding_accumulator(&self, _: AccumulatorArgs<'_>) -> Result<Box<dyn Accumulator>> {
        Ok(Box::new(SlidingExtreme {
            extreme: self.extreme,
            counts: BTreeMap::new(),
        }))
    }

    fn state_fields(&self, args: StateFieldsArgs<'_>) -> Result<Vec<FieldRef>> {
        Ok(vec![Arc::new(Field::new(
            format!("{}[value]", args.name),
            INTERVAL,
            true,
        ))])
    }

    fn order_sensitivity(&self) -> AggregateOrderSensitivity {
        AggregateOrderSensitivity::Insensitive
    }
}

#[derive(Debug)]
struct ExtremeAccumulator {
    extreme: Extreme,
    value: Option<IntervalMonthDayNano>,
}

/// Returns by what an interval is compared: its length, and then its parts, so that the answer does
/// not depend on the order of the rows.
fn order_of(interval: IntervalMonthDayNano) -> (i128, IntervalMonthDayNano) {
    (nanos_of(interval), interval)
}

impl Accumulator for ExtremeAccumulator {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in only_column(values)?.iter().flatten() {
            self.value = Some(match self.value {
                Some(known) => self.extreme.of(known, value),
                None => value,
            });
        }
        Ok(())
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        Ok(ScalarValue::IntervalMonthDayNano(self.value))
    }

    fn size(&self) -> usize {
        size_of::<Self>()
    }
}

fn only_column(values: &[ArrayRef]) -> Result<&PrimitiveArray<IntervalMonthDayNanoType>> {
    match values {
        [values] => Ok(values.as_primitive()),
        _ => internal_err!("the minimum of intervals takes one argument"),
    }
}

/// The extreme of the rows of a window, which rows enter and leave.
#[derive(Debug)]
struct SlidingExtreme {
    extreme: Extreme,
    /// How many rows of the window have each interval.
    counts: BTreeMap<(i128, IntervalMonthDayNano), usize>,
}

impl Accumulator for SlidingExtreme {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in only_column(values)?.iter().flatten() {
            *self.counts.entry(order_of(value)).or_default() += 1;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        for value in only_column(values)?.iter().flatten() {
            let order = order_of(value);
            if let Some(count) = self.counts.get_mut(&order) {
                *count -= 1;
                if *count == 0 {
                    self.counts.remove(&order);
                }
            }
        }
        Ok(())
    }

    fn supports_retract_batch(&self) -> bool {
        true
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        self.update_batch(states)
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        Ok(vec![self.evaluate()?])
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        let extreme = match self.extreme {
            Extreme::Min => self.counts.keys().next(),
            Extreme::Max => self.counts.keys().next_back(),
        };
        let value = extreme.map(|(_, interval)| *interval);
        Ok(ScalarValue::IntervalMonthDayNano(value))
    }

    fn size(&self) -> usize {
        size_of::<Self>() + self.counts.len() * size_of::<((i128, IntervalMonthDayNano), usize)>()
    }
}
