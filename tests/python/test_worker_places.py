"""Tests the places for fragments on a worker. No user may take all of them."""

from __future__ import annotations

from contextlib import ExitStack

import pytest
from secured import PASSWORD, Secured

import volary

pytestmark = pytest.mark.server

PLACES = 4
# The query has many more rows than the buffers for a client that does not read.
UNREAD = "SELECT a.v, b.v AS w FROM nests a JOIN nests b ON a.k = b.k"


def test_fragments_that_nobody_reads_leave_places_to_other_users(tmp_path):
    """The gateway has places for all of these statements."""
    with Secured(tmp_path, {"VOLARY_WORKER__EXECUTION__MAX_RUNNING": str(PLACES)}) as cluster, ExitStack() as opened:
        cluster.add_worker()
        cluster.populate()
        cluster.administer(
            "CREATE TABLE nests (k BIGINT, v BIGINT) WITH (shard_key = 'k', shards = 1)",
            "INSERT INTO nests SELECT 1, value FROM generate_series(1, 20000)",
            "GRANT SELECT ON nests TO kea",
            "GRANT SELECT ON nests TO auk",
        )

        def logged_in(user: str) -> volary.Connection:
            return opened.enter_context(volary.connect(cluster.gateway.uri, username=user, password=PASSWORD))

        kea, auk = logged_in("kea"), logged_in("auk")
        unread = [logged_in("kea").sql(UNREAD).batches() for _ in range(PLACES - PLACES // 4)]
        for batches in unread:
            next(batches)
        point = "SELECT v FROM nests WHERE k = 1 AND v = 7"
        with pytest.raises(volary.DeadlineExceededError):
            kea.sql(point, timeout=0.5).rows()
        assert auk.sql(point).rows() == [(7,)]
        unread.pop().close()
        assert kea.sql(point).rows() == [(7,)]
