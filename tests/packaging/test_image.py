"""Builds the container image, and runs it as an operator should: not as root, and able to write to a volume only."""

from __future__ import annotations

from podman import container, inspect, podman
from processes import until, within

SECRET = "--env=VOLARY_SECRET=of-the-tests-and-far-longer-than-128-bits"
READY = "Ctrl-C stops it."


def test_the_image_says_how_it_is_run(image: str):
    config = inspect(image)["Config"]
    assert config["User"] == "10001:10001"
    assert config["StopSignal"] == "SIGTERM"
    assert config["Entrypoint"] == ["/usr/bin/volary"]
    assert list(config["Volumes"]) == ["/var/lib/volary"]
    assert inspect(image)["Healthcheck"]["Test"] == ["CMD", "/usr/lib/volary/healthy"]


def test_a_container_serves_is_healthy_and_stops_when_it_is_told_to(image: str):
    with container(image, "local", "--workers=2", options=(SECRET,)) as cluster:
        until(lambda: READY in cluster.log(), "the cluster serves")
        cluster.rows("CREATE TABLE birds AS SELECT 1 AS id")
        assert cluster.rows("SELECT id FROM birds") == ["id", "1"]
        until(cluster.is_healthy, "it is healthy")
        assert cluster.run("id", "-u").output == "10001"
        assert "datafusion" in cluster.run("cat", "/usr/share/doc/volary/third-party.txt").output
        assert "Read-only file system" in cluster.run("touch", "/etc/volary/new").output
        with within():
            assert cluster.stop() == 0, cluster.log()


def test_rows_stay_in_the_volume(image: str):
    volume = podman("volume", "create").output.split()[-1]
    options = (SECRET, f"--volume={volume}:/var/lib/volary")
    try:
        with container(image, "local", "--workers=1", options=options) as cluster:
            until(lambda: READY in cluster.log(), "the cluster serves")
            cluster.rows("CREATE TABLE birds AS SELECT 1 AS id")
        with container(image, "local", "--workers=1", options=options) as cluster:
            until(lambda: READY in cluster.log(), "the cluster serves again")
            assert cluster.rows("SELECT id FROM birds") == ["id", "1"]
    finally:
        podman("volume", "rm", "--force", volume)


def test_a_node_without_a_secret_says_what_is_missing(image: str):
    with container(image, "gateway") as gateway:
        until(lambda: "set gateway.secret" in gateway.log(), "the error names the setting")


def test_a_worker_that_has_not_joined_is_not_healthy(image: str):
    options = (SECRET, "--env=VOLARY_WORKER__GATEWAY=127.0.0.1:1", "--env=VOLARY_WORKER__ADVERTISE=127.0.0.1:7200")
    with container(image, "worker", options=options) as worker:
        until(lambda: "127.0.0.1:1" in worker.log(), "the worker looks for its gateway")
        assert not worker.is_healthy()
