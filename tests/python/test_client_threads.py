"""Tests the thread that waits instead of the main thread if a program has its own handler of Ctrl-C."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
from interrupts import handled_by, own_handler
from processes import PATIENCE_SECONDS, until

import volary
from volary._interrupt import Interruptible


def helpers() -> list[threading.Thread]:
    """Returns the helper threads of connections."""
    return [thread for thread in threading.enumerate() if thread.name == "volary"]


@pytest.fixture(autouse=True)
def _own_handler():
    with handled_by(own_handler):
        yield


@pytest.mark.server
def test_a_connection_that_is_closed_ends_its_thread(cluster):
    before = helpers()
    connection = cluster.connect()
    (helper,) = set(helpers()) - set(before)
    connection.close()
    helper.join(timeout=PATIENCE_SECONDS)
    assert not helper.is_alive()


@pytest.mark.server
def test_a_connection_that_is_forgotten_ends_its_thread(cluster):
    before = helpers()
    connection = cluster.connect()
    (helper,) = set(helpers()) - set(before)
    del connection
    gc.collect()
    helper.join(timeout=PATIENCE_SECONDS)
    assert not helper.is_alive()


@pytest.mark.server
def test_rows_that_were_given_away_are_not_held(cluster):
    with cluster.connect() as connection:
        rows = connection.sql("SELECT * FROM generate_series(1, 100000)").to_arrow()
        forgotten = weakref.ref(rows)
        del rows
        gc.collect()
        assert forgotten() is None
        # The last value that the helper thread returned is not held either.
        batch = next(connection.sql("SELECT 1").batches())
        held = weakref.ref(batch)
        del batch
        until(lambda: held() is None, "the batch is forgotten")


def test_what_a_call_raises_comes_with_where_it_was_raised():
    interruptible = Interruptible()

    def fails():
        raise volary.NotFoundError("no such bird")

    with pytest.raises(volary.NotFoundError, match="no such bird") as raised:
        interruptible.run(fails, None)
    assert raised.traceback[-1].name == "fails"
    interruptible.close()


def test_nobody_waits_for_a_thread_that_has_ended():
    interruptible = Interruptible()
    assert interruptible.run(lambda: 1, None) == 1
    interruptible.close()
    with pytest.raises(RuntimeError, match="the connection is closed"):
        interruptible.run(lambda: 1, None)
