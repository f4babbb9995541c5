use std::fmt;
use std::hash::Hash;

use arrow::array::{Array, ArrowPrimitiveType, PrimitiveArray};
use arrow::datatypes::{
    ArrowNativeTypeOp, DECIMAL128_MAX_PRECISION, DataType, Decimal128Type, DurationMicrosecondType,
    DurationMillisecondType, DurationNanosecondType, DurationSecondType, Int64Type, UInt64Type,
};
use arrow::error::ArrowError;
use datafusion::common::{DataFusionError, Result};

/// A type of numbers that is summed.
pub(super) trait Summand:
    ArrowPrimitiveType<Native: ArrowNativeTypeOp + Eq + Hash> + Sized
{
    /// The type of partial sums.
    type State: ArrowPrimitiveType;

    /// Returns the type of partial sums of a sum of this type.
    fn state_type(data_type: &DataType) -> DataType;

    /// Adds two numbers. Also returns how many times the sum has wrapped around: 1, 0 or -1.
    fn add(left: Self::Native, right: Self::Native) -> (Self::Native, i64);

    /// Returns the sum of the values that are not NULL.
    fn sum(values: &PrimitiveArray<Self>) -> Total<Self>;

    /// Returns a sum as a partial sum.
    fn to_state(total: Total<Self>) -> Result<<Self::State as ArrowPrimitiveType>::Native>;

    /// Returns a partial sum as a sum.
    fn of_state(state: <Self::State as ArrowPrimitiveType>::Native) -> Total<Self>;

    /// Returns the value of a sum that has not wrapped around.
    fn in_range(value: Self::Native) -> Result<Self::Native>;
}

/// A sum that may be beyond the range of its type: it is `low`, plus `wraps` times the number of
/// values that the type has.
pub(super) struct Total<T: Summand> {
    pub(super) low: T::Native,
    pub(super) wraps: i64,
}

impl<T: Summand> Clone for Total<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Summand> Copy for Total<T> {}

impl<T: Summand> fmt::Debug for Total<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} and {} wraps", self.low, self.wraps)
    }
}

impl<T: Summand> Default for Total<T> {
    fn default() -> Self {
        Self {
            low: T::Native::ZERO,
            wraps: 0,
        }
    }
}

impl<T: Summand> Total<T> {
    /// Returns the sum of one value.
    pub(super) fn of(value: T::Native) -> Self {
        Self {
            low: value,
            wraps: 0,
        }
    }

    /// Adds another sum.
    pub(super) fn add(&mut self, other: Self) {
        let (low, wraps) = T::add(self.low, other.low);
        self.low = low;
        self.wraps += wraps + other.wraps;
    }

    /// Takes another sum away.
    pub(super) fn subtract(&mut self, other: Self) {
        let difference = self.low.sub_wrapping(other.low);
        let (_, wraps) = T::add(difference, other.low);
        self.low = difference;
        self.wraps -= wraps + other.wraps;
    }

    /// Returns the partial sum.
    pub(super) fn state(self) -> Result<<T::State as ArrowPrimitiveType>::Native> {
        T::to_state(self)
    }

    /// Returns the value of the sum.
    ///
    /// # Errors
    /// Fails if the sum is out of the range of its type.
    pub(super) fn value(self) -> Result<T::Native> {
        match self.wraps {
            0 => T::in_range(self.low),
            _ => Err(out_of_range()),
        }
    }
}

/// Returns the error for a sum that does not fit its type.
pub(super) fn out_of_range() -> DataFusionError {
    let text = "a sum is out of the range of its type; sum a wider type, such as sum(CAST(x AS DECIMAL(38, 0))) or sum(CAST(x AS DOUBLE))";
    ArrowError::ArithmeticOverflow(text.to_owned()).into()
}

/// The type of partial sums of integers and durations. It has room for the sum of 2^63 integers.
const WIDE: DataType = DataType::Decimal128(DECIMAL128_MAX_PRECISION, 0);

fn sum_rows<T: Summand>(values: &PrimitiveArray<T>) -> Total<T> {
    let mut total = Total::default();
    let mut add = |value| {
        let (low, wraps) = T::add(total.low, value);
        total.low = low;
        total.wraps += wraps;
    };
    if values.null_count() == 0 {
        values.values().iter().copied().for_each(&mut add);
    } else {
        values.iter().flatten().for_each(&mut add);
    }
    total
}

/// Number of rows whose halves are summed in 64 bits, which cannot overflow.
const BLOCK_ROWS: usize = 1 << 31;

/// Sums the upper and the lower halves of numbers separately, so that no addition needs a test for
/// overflow.
fn sum_halves<N: Copy>(values: &[N], to_unsigned: impl Fn(N) -> u64) -> i128 {
    let blocks = values.chunks(BLOCK_ROWS).map(|block| {
        let halves = block.iter().map(|value| {
            let value = to_unsigned(*value);
            (value >> 32, value & 0xFFFF_FFFF)
        });
        let (high, low) = halves.fold((0_u64, 0_u64), |sums, (high, low)| {
            (sums.0 + high, sums.1 + low)
        });
        (i128::from(high) << 32) + i128::from(low)
    });
    blocks.sum()
}

/// Sums numbers of 64 bits with a sign: integers and durations.
macro_rules! signed_summands {
    ($($type:ty),*) => {
        $(
            impl Summand for $type {
                type State = Decimal128Type;

                fn state_type(_: &DataType) -> DataType {
                    WIDE
                }

                fn add(left: i64, right: i64) -> (i64, i64) {
                    match left.overflowing_add(right) {
                        (sum, false) => (sum, 0),
                        (sum, true) if right < 0 => (sum, -1),
                        (sum, true) => (sum, 1),
                    }
                }

                fn sum(values: &PrimitiveArray<Self>) -> Total<Self> {
                    if values.null_count() > 0 {
                        return sum_rows(values);
                    }
                    // With the sign bit flipped, each number is larger by 2^63 and has no sign.
                    let unsigned = |value: i64| value.cast_unsigned() ^ (1 << 63);
                    let shifted = sum_halves(values.values(), unsigned);
                    let sum = shifted - ((values.len() as i128) << 63);
                    Self::of_state(sum)
                }

                fn to_state(total: Total<Self>) -> Result<i128> {
                    Ok((i128::from(total.wraps) << 64) + i128::from(total.low))
                }

                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "the lower half is what is wanted, and the upper one is small"
                )]
                fn of_state(state: i128) -> Total<Self> {
                    let low = state as i64;
                    let wraps = ((state - i128::from(low)) >> 64) as i64;
                    Total { low, wraps }
                }

                fn in_range(value: i64) -> Result<i64> {
                    Ok(value)
                }
            }
        )*
    };
}

signed_summands!(
    Int64Type,
    DurationSecondType,
    DurationMillisecondType,
    DurationMicrosecondType,
    DurationNanosecondType
);

impl Summand for UInt64Type {
    type State = Decimal128Type;

    fn state_type(_: &DataType) -> DataType {
        WIDE
    }

    fn add(left: u64, right: u64) -> (u64, i64) {
        let (sum, has_wrapped) = left.overflowing_add(right);
        (sum, i64::from(has_wrapped))
    }

    fn sum(values: &PrimitiveArray<Self>) -> Total<Self> {
        if values.null_count() > 0 {
            return sum_rows(values);
        }
        Self::of_state(sum_halves(values.values(), |value| value))
    }

    fn to_state(total: Total<Self>) -> Result<i128> {
        Ok((i128::from(total.wraps) << 64) + i128::from(total.low))
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "the lower half is what is wanted, and the upper one is small"
    )]
    fn of_state(state: i128) -> Total<Self> {
        Total {
            low: state as u64,
            wraps: (state >> 64) as i64,
        }
    }

    fn in_range(value: u64) -> Result<u64> {
        Ok(value)
    }
}

impl Summand for Decimal128Type {
    /// A partial sum may have a digit more than its type says. One that does not even fit 128 bits
    /// is an error.
    type State = Decimal128Type;

    fn state_type(data_type: &DataType) -> DataType {
        data_type.clone()
    }

    fn add(left: i128, right: i128) -> (i128, i64) {
        match left.overflowing_add(right) {
            (sum, false) => (sum, 0),
            (sum, true) if right < 0 => (sum, -1),
            (sum, true) => (sum, 1),
        }
    }

    fn sum(values: &PrimitiveArray<Self>) -> Total<Self> {
        sum_rows(values)
    }

    fn to_state(total: Total<Self>) -> Result<i128> {
        match total.wraps {
            0 => Ok(total.low),
            _ => Err(out_of_range()),
        }
    }

    fn of_state(state: i128) -> Total<Self> {
        Total {
            low: state,
            wraps: 0,
        }
    }

    fn in_range(value: i128) -> Result<i128> {
        /// The lowest number with too many digits.
        const TOO_LARGE: u128 = 10_u128.pow(DECIMAL128_MAX_PRECISION as u32);
        if value.unsigned_abs() < TOO_LARGE {
            Ok(value)
        } else {
            Err(out_of_range())
        }
    }
}
