"""The tests that dbt has for all adapters. `left_out.py` says what is left out, and `changed.py` what is changed."""

from changed import CHANGED
from left_out import LEFT_OUT
from suite import test_classes

globals().update(test_classes(LEFT_OUT, CHANGED))
del test_classes
