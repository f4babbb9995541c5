use arrow::array::{Array, ArrayRef};
use datafusion::common::{Result, ScalarValue};
use datafusion::logical_expr::Accumulator;

/// The aggregates of DataFusion 55 whose accumulator reads only the first state of a batch. It
/// loses the rows of all others. Whether states come in one batch depends on when they arrive.
pub(super) const SINGLE_STATE_AGGREGATES: [&str; 1] = ["percentile_cont"];

/// An accumulator that passes states on one by one.
#[derive(Debug)]
pub(super) struct OneStateAtATime(pub(super) Box<dyn Accumulator>);

#[warn(clippy::missing_trait_methods)]
impl Accumulator for OneStateAtATime {
    fn update_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.update_batch(values)
    }

    fn evaluate(&mut self) -> Result<ScalarValue> {
        self.0.evaluate()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn state(&mut self) -> Result<Vec<ScalarValue>> {
        self.0.state()
    }

    fn merge_batch(&mut self, states: &[ArrayRef]) -> Result<()> {
        let rows = states.first().map_or(0, |state| state.len());
        for row in 0..rows {
            let one: Vec<_> = states.iter().map(|state| state.slice(row, 1)).collect();
            self.0.merge_batch(&one)?;
        }
        Ok(())
    }

    fn retract_batch(&mut self, values: &[ArrayRef]) -> Result<()> {
        self.0.retract_batch(values)
    }

    fn supports_retract_batch(&self) -> bool {
        self.0.supports_retract_batch()
    }
}
