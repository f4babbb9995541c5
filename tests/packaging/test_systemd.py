"""Runs the units of the Debian package on a machine that systemd has booted."""

from __future__ import annotations

from machine import Machine
from processes import until

GATEWAY, WORKER = "volary-gateway.service", "volary-worker.service"


def joined(machine: Machine) -> bool:
    rows = machine.sql("SELECT count(*) AS n FROM system.nodes WHERE role = 'worker' AND state = 'alive'")
    return rows.split() == ["n", "1"]


def test_a_gateway_and_a_worker_serve_restart_and_stop(machine: Machine):
    machine.run("systemctl", "enable", "--now", GATEWAY, WORKER)
    for unit in (GATEWAY, WORKER):
        machine.await_state(unit, "active")
    until(lambda: joined(machine), "the worker has joined")
    machine.sql("CREATE TABLE birds AS SELECT 1 AS id")
    assert machine.sql("SELECT id FROM birds").split() == ["id", "1"]

    # After a crash, systemd starts both again, and the rows are there.
    for unit in (GATEWAY, WORKER):
        machine.kill(unit)
        until(lambda unit=unit: machine.property(unit, "NRestarts") != "0", f"{unit} was started again")
        machine.await_state(unit, "active")
    until(lambda: joined(machine), "the worker has joined again")
    assert machine.sql("SELECT id FROM birds").split() == ["id", "1"]

    for unit in (GATEWAY, WORKER):
        machine.run("systemctl", "restart", unit)
        machine.await_state(unit, "active")
    until(lambda: joined(machine), "the worker has joined again")

    for unit in (WORKER, GATEWAY):
        machine.run("systemctl", "stop", unit)
        assert machine.property(unit, "ActiveState") == "inactive"
        assert machine.property(unit, "Result") == "success", machine.journal(unit)
        assert machine.property(unit, "ExecMainStatus") == "0"


def test_the_data_is_where_only_the_nodes_read_it(machine: Machine):
    listing = machine.run("stat", "--format=%a %U %n", "/var/lib/volary/gateway", "/var/lib/volary/worker")
    assert listing.splitlines() == ["700 volary /var/lib/volary/gateway", "700 volary /var/lib/volary/worker"]


def test_wrong_settings_are_named_and_start_nothing(machine: Machine):
    settings = machine.root / "etc/volary/gateway.toml"
    before = settings.read_text()
    try:
        settings.write_text("[gateway]\nlisten_to = 1\n")
        machine.run("systemctl", "start", "--no-block", GATEWAY)
        until(lambda: "there is no setting gateway.listen_to" in machine.journal(GATEWAY), "the setting is named")
        assert machine.property(GATEWAY, "MainPID") == "0"
    finally:
        settings.write_text(before)
        machine.run("systemctl", "stop", GATEWAY)
