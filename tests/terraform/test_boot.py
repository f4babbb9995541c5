"""Runs the script that makes a machine a node, with programs in place of those that need root and AWS."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from machine import FAKES, Cloud, Machine
from module import Module
from programs import missing, run, tool
from test_bootstrap import with_nodes

ODD_SECRET = 'a "quoted" $HOME `secret` with \\ and \' and spaces'


@pytest.fixture
def cloud(tmp_path: Path) -> Cloud:
    return Cloud(tmp_path / "cloud")


@pytest.fixture
def machine(tmp_path: Path, cloud: Cloud, bootstrap: Module) -> Machine:
    """A worker that has not booted."""
    made = Machine(tmp_path / "machine", cloud, cloud.volume("worker"))
    node = {
        "role": "worker",
        "node": {"listen": "127.0.0.1:7200", "advertise": "127.0.0.1:7200", "gateway": "grpc+tls://127.0.0.1:7100"},
        "directories": {"settings": str(made.etc), "data": str(made.directory / "data")},
        "secrets": {
            "region": "eu-central-1",
            "variables": {"VOLARY_SECRET": cloud.add_secret("secret", ODD_SECRET)},
            "files": {"node.pem": cloud.add_secret("node", "certificate"), "node.key": cloud.add_secret("key", "key")},
        },
    }
    package = cloud.add_package("#!/bin/sh\necho volary\n")
    nodes = with_nodes(bootstrap).apply("nodes", {"nodes": {"worker": node}, "package": package})["nodes"]
    made.begin(nodes["worker"]["files"])
    return made


def test_a_machine_boots_to_a_node_that_starts(machine):
    booted = machine.boot()
    assert booted.returncode == 0, booted.stderr
    assert machine.calls()[-2:] == [
        "systemctl enable --quiet volary-worker.service",
        "systemctl start --no-block volary-worker.service",
    ]
    assert machine.program.read_text() == "#!/bin/sh\necho volary\n"
    assert (machine.program.stat().st_mode & 0o777) == 0o755


def test_secrets_are_in_files_that_others_cannot_read(machine):
    assert machine.boot().returncode == 0
    assert machine.environment("worker") == {"AWS_REGION": "eu-central-1", "VOLARY_SECRET": ODD_SECRET}
    assert ((machine.etc / "worker.env").stat().st_mode & 0o777) == 0o600
    assert (machine.etc / "tls/node.key").read_text() == "key\n"
    # The node reads its key as a member of its group.
    assert ((machine.etc / "tls/node.key").stat().st_mode & 0o777) == 0o640
    assert f"chown root:volary {machine.etc}/tls/node.key.new" in machine.calls()
    assert ((machine.etc / "tls").stat().st_mode & 0o777) == 0o750


def test_an_empty_volume_gets_a_file_system_and_a_full_one_keeps_its_own(machine, cloud):
    assert machine.boot().returncode == 0
    device = cloud.volume("worker")
    assert [call for call in machine.calls() if call.startswith("made")] == [f"made -q -L worker {device}"]
    data = machine.directory / "data" / "worker"
    (data / "rows").write_text("rows")
    assert machine.boot().returncode == 0
    assert len([call for call in machine.calls() if call.startswith("made")]) == 1
    assert (data / "rows").read_text() == "rows"
    assert len([call for call in machine.calls() if call.startswith("mount ")]) == 1
    # A missing volume stops the node, and not the machine.
    (line,) = (machine.directory / "fstab").read_text().splitlines()
    assert line.startswith(f"{device} {data} xfs ")
    assert "nofail" in line


def test_a_volume_that_cannot_be_read_is_left_alone(machine, cloud):
    cloud.volume("worker").write_text("rows")
    fakes = machine.directory / "other-fakes"
    fakes.mkdir(parents=True)
    (fakes / "blkid").write_text("#!/bin/sh\nexit 8\n")
    (fakes / "blkid").chmod(0o755)
    booted = machine.boot(first=fakes)
    assert booted.returncode != 0
    assert "blkid ended with 8" in booted.stderr
    assert not [call for call in machine.calls() if call.startswith(("made", "mount"))]


def test_without_its_volume_a_machine_becomes_no_node(machine, cloud):
    cloud.volume("worker").unlink()
    booted = machine.boot()
    assert booted.returncode != 0
    assert f"the data volume {cloud.directory}/volumes/worker is not attached" in booted.stderr
    assert not [call for call in machine.calls() if call.startswith("systemctl")]


def test_a_package_with_another_checksum_is_not_installed(machine, cloud):
    (cloud.directory / "objects/volary.tar.gz").write_bytes(b"something else")
    booted = machine.boot()
    assert booted.returncode != 0
    assert "s3://packages/volary.tar.gz has another sha256" in booted.stderr
    assert not machine.program.exists()
    assert not [call for call in machine.calls() if call.startswith("systemctl start")]


def test_a_secret_that_is_missing_is_named(machine, cloud):
    (cloud.directory / "secrets/key").unlink()
    booted = machine.boot()
    assert booted.returncode != 0
    assert "cannot read the secret arn:aws:secretsmanager:eu-central-1:123456789012:secret:volary/key" in booted.stderr


def test_a_second_boot_takes_new_secrets_and_installs_nothing_again(machine, cloud):
    assert machine.boot().returncode == 0
    cloud.add_secret("node", "a newer certificate")
    (cloud.directory / "objects/volary.tar.gz").unlink()
    booted = machine.boot()
    assert booted.returncode == 0, booted.stderr
    assert (machine.etc / "tls/node.pem").read_text() == "a newer certificate\n"
    assert list((machine.etc / "tls").glob("*.new")) == []


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """A file of 400 MiB and the block device that it is."""
    if os.geteuid() != 0:
        missing("the right to mount")
    for name in ("blkid", "losetup", "mkfs.xfs", "mount", "unshare"):
        tool(name)
    file = tmp_path / "disk"
    with file.open("w") as made:
        made.truncate(400 << 20)
    device = run("losetup", "--find", "--show", file, succeeds=False)
    if device.returncode != 0:
        missing("a loop device")
    yield file, Path(device.stdout.strip())
    run("losetup", "--detach", device.stdout.strip())


_TWO_BOOTS = """
set -e
fstab=$1 data=$2 file=$3 device=$4; shift 4
mount --bind "$fstab" /etc/fstab
"$@"
mountpoint -q "$data"
echo "size $(stat --file-system --format %b "$data")"
echo rows >"$data/rows"
umount "$data"
# The volume grows, and goes to another machine.
truncate --size 800M "$file"
losetup --set-capacity "$device"
: >"$fstab"
"$@"
echo "size $(stat --file-system --format %b "$data")"
echo "mode $(stat --format %a "$data")"
cat "$data/rows"
"""


def test_a_real_volume_keeps_its_rows_and_grows(machine, disk, tmp_path):
    """Here, only AWS, systemd and the users of the machine are replaced. Nobody else sees what is mounted."""
    file, device = disk
    fakes = tmp_path / "few-fakes"
    fakes.mkdir()
    for name in ("aws", "chown", "getent", "install", "systemctl", "useradd"):
        (fakes / name).symlink_to(FAKES / name)
    with (machine.etc / "bootstrap.conf").open("a") as conf:
        conf.write(f"DEVICE='{device}'\n")
    fstab, data = machine.directory / "fstab", machine.directory / "data" / "worker"
    fstab.touch()
    command = ["unshare", "--mount", "bash", "-c", _TWO_BOOTS, "boots", fstab, data, file, device]
    booted = machine.run(*command, *machine.boot_command, programs=[fakes])
    assert booted.returncode == 0, booted.stdout + booted.stderr
    assert booted.stdout.count("making a file system") == 1
    said = booted.stdout.splitlines()
    before, after = [int(line.split()[1]) for line in said if line.startswith("size ")]
    assert after > 1.5 * before
    assert "mode 700" in said
    assert said[-1] == "rows"
