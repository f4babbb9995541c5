"""Looks up the rows of keys, batch by batch, over a long-lived call."""

from ._all import look_up_all
from ._answer import Answer
from ._call import Call
from ._keys import Keys, to_array, to_single_key
from ._lookup import Lookup, Route
from ._pending import PendingLookup

__all__ = ["Answer", "Call", "Keys", "Lookup", "PendingLookup", "Route", "look_up_all", "to_array", "to_single_key"]
