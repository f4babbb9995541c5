"""Tests the Helm chart: what helm and the schemas of Kubernetes say about it, what pods get, and messages for wrong
values. No server is needed, but helm is.
"""

from __future__ import annotations

import copy
import json
import tomllib
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import pytest
import yaml
from helm_chart import (
    CHART,
    DEFINITIONS,
    NAMESPACE,
    VARIANTS,
    Manifest,
    Refused,
    definition,
    of_kind,
    pod_specs,
    render,
    settings_text,
    values_file,
)
from optional_tools import run_tool
from pods import Pod, generated_secrets

REPOSITORY = CHART.parents[1]
# The oldest release of Kubernetes that Chart.yaml allows, and the newest with a schema here.
RELEASES = ("1.27.0", kubernetes_validate.latest_version())
SECONDS_TO_STOP = 20
"""How long a node lets running statements end."""

Rendering = Callable[..., list[Manifest]]

each_variant = pytest.mark.parametrize("variant", VARIANTS)


@pytest.fixture
def rendered(tmp_path: Path) -> Rendering:
    return lambda values, *flags: render(tmp_path, values, *flags)


@each_variant
def test_helm_lint_has_no_complaint(tmp_path: Path, variant: str):
    file = values_file(tmp_path, VARIANTS[variant])
    done = run_tool("helm", "lint", "--strict", CHART, f"--values={file}", "--kube-version=1.33.0")
    assert done.returncode == 0, done.stdout + done.stderr


@each_variant
@pytest.mark.parametrize("release", RELEASES)
def test_kubernetes_knows_each_field_of_each_object(rendered: Rendering, variant: str, release: str):
    checked = 0
    for manifest in rendered(VARIANTS[variant]):
        if manifest["kind"] not in DEFINITIONS:
            kubernetes_validate.validate(manifest, release, strict=True)
            checked += 1
    assert checked > 8


def test_a_misspelt_field_of_an_object_is_found(rendered: Rendering):
    (manifest,) = [it for it in rendered({}) if it["kind"] == "StatefulSet" and "gateway" in it["metadata"]["name"]]
    manifest["spec"]["podManagmentPolicy"] = manifest["spec"].pop("podManagementPolicy")
    with pytest.raises(kubernetes_validate.ValidationError, match="podManagmentPolicy"):
        kubernetes_validate.validate(manifest, RELEASES[-1], strict=True)


def test_the_operators_know_each_field_of_their_objects(rendered: Rendering, tmp_path: Path):
    custom = {it["kind"]: it for it in rendered(VARIANTS["production"]) if it["kind"] in DEFINITIONS}
    assert custom.keys() == DEFINITIONS.keys()
    schemas = {kind: custom_schema(tmp_path, kind) for kind in DEFINITIONS}
    for kind, manifest in custom.items():
        jsonschema.Draft202012Validator(schemas[kind]).validate(manifest)
    custom["Certificate"]["spec"]["dnsName"] = []
    with pytest.raises(jsonschema.ValidationError, match="dnsName"):
        jsonschema.Draft202012Validator(schemas["Certificate"]).validate(custom["Certificate"])


def custom_schema(directory: Path, kind: str) -> dict[str, Any]:
    """Returns a strict schema of a custom resource."""
    versions = definition(directory, kind)["spec"]["versions"]
    (schema,) = [version["schema"]["openAPIV3Schema"] for version in versions if version["storage"]]
    return strict(schema)


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """Returns a schema of a custom resource that refuses fields that it does not list, except those of metadata."""

    def refuse_others(part: Any, name: str) -> None:
        if isinstance(part, dict):
            if isinstance(part.get("properties"), dict) and name != "metadata":
                part.setdefault("additionalProperties", False)
            for key, below in part.items():
                refuse_others(below, key)
        elif isinstance(part, list):
            for below in part:
                refuse_others(below, name)

    refuse_others(schema, "")
    return schema


@each_variant
def test_pods_keep_to_the_restricted_security_standard(rendered: Rendering, variant: str):
    pods = list(pod_specs(rendered(VARIANTS[variant])))
    assert len(pods) >= 3
    for name, _, spec in pods:
        assert spec["securityContext"]["runAsNonRoot"] is True, name
        assert spec["securityContext"]["runAsUser"] > 0, name
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}, name
        assert spec["automountServiceAccountToken"] is False, name
        for container in spec["containers"] + spec.get("initContainers", []):
            assert container["securityContext"] == {
                "allowPrivilegeEscalation": False,
                "readOnlyRootFilesystem": True,
                "capabilities": {"drop": ["ALL"]},
            }, (name, container["name"])
            assert "memory" in container["resources"]["limits"], (name, container["name"])


@each_variant
def test_nodes_have_probes_and_more_time_to_stop_than_they_need(rendered: Rendering, variant: str):
    manifests = rendered(VARIANTS[variant])
    operations = VARIANTS[variant].get("operations", {})
    for name in of_kind(manifests, "StatefulSet"):
        spec = next(spec for found, _, spec in pod_specs(manifests) if found == name)
        assert spec["terminationGracePeriodSeconds"] > SECONDS_TO_STOP
        (node,) = spec["containers"]
        ports = {port["name"] for port in node["ports"]}
        for probe, path in {
            "startupProbe": "/healthz",
            "livenessProbe": "/healthz",
            "readinessProbe": "/readyz",
        }.items():
            if operations.get("enabled", True):
                scheme = "HTTPS" if operations.get("tls") else "HTTP"
                assert node[probe]["httpGet"] == {"path": path, "port": "operations", "scheme": scheme}
                assert "operations" in ports
            else:
                assert node[probe]["tcpSocket"] == {"port": "flight"}
                assert "operations" not in ports


@each_variant
def test_services_budgets_and_policies_select_pods_and_name_their_ports(rendered: Rendering, variant: str):
    manifests = rendered(VARIANTS[variant])
    pods = [(labels, spec) for _, labels, spec in pod_specs(manifests)]

    def selected(selector: dict[str, str]) -> list[Manifest]:
        return [spec for labels, spec in pods if selector.items() <= labels.items()]

    def ports(specs: list[Manifest]) -> set[str]:
        return {port["name"] for spec in specs for it in spec["containers"] for port in it.get("ports", [])}

    for name, service in of_kind(manifests, "Service").items():
        specs = selected(service["spec"]["selector"])
        assert specs, name
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports(specs), name
    for name, budget in of_kind(manifests, "PodDisruptionBudget").items():
        assert selected(budget["spec"]["selector"]["matchLabels"]), name
    for name, policy in of_kind(manifests, "NetworkPolicy").items():
        specs = selected(policy["spec"]["podSelector"]["matchLabels"])
        assert specs, name
        for rule in policy["spec"]["ingress"]:
            assert {port["port"] for port in rule["ports"]} <= ports(specs), name
            for peer in rule.get("from", []):
                if set(peer) == {"podSelector"}:
                    assert selected(peer["podSelector"]["matchLabels"]), name
    claimed = [it["spec"]["serviceName"] for it in of_kind(manifests, "StatefulSet").values()]
    assert set(claimed) <= set(of_kind(manifests, "Service"))
    for monitor in of_kind(manifests, "ServiceMonitor").values():
        wanted = monitor["spec"]["selector"]["matchLabels"].items()
        (service,) = [it for it in of_kind(manifests, "Service").values() if wanted <= it["metadata"]["labels"].items()]
        (endpoint,) = monitor["spec"]["endpoints"]
        assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}


def test_policies_let_clients_to_the_gateway_only_and_nodes_to_each_other(rendered: Rendering):
    peer = {"ipBlock": {"cidr": "10.1.0.0/16"}}
    policies = of_kind(rendered({"networkPolicy": {"clients": [peer]}}), "NetworkPolicy")
    (gateway,) = [it["spec"]["ingress"] for name, it in policies.items() if name.endswith("-gateway")]
    (workers,) = [it["spec"]["ingress"] for name, it in policies.items() if name.endswith("-workers")]
    assert peer in gateway[0]["from"]
    assert "ipBlock" not in json.dumps(workers)
    components = [it["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for it in workers[0]["from"]]
    assert components == ["gateway", "worker"]
    assert [rule["ports"] for rule in workers] == [[{"port": "flight"}], [{"port": "operations"}]]


def test_nodes_connect_to_names_that_the_certificate_has(rendered: Rendering, tmp_path: Path):
    manifests = rendered(VARIANTS["production"])
    (certificate,) = of_kind(manifests, "Certificate").values()
    names = certificate["spec"]["dnsNames"]
    assert "sql.example" in names
    secrets = dict.fromkeys(("nodes", "birds-tls", "people"), SECRET_DATA)
    targets = [tomllib.loads(settings_text(manifests, "worker"))["worker"]["gateway"]]
    for number, name in enumerate(of_kind(manifests, "StatefulSet")):
        pod = Pod(tmp_path, manifests, name, number, secrets)
        variables = pod.environment(pod.container).items()
        targets += [value for name, value in variables if name.endswith(("URI", "ADVERTISE"))]
        pod.close()
    hosts = {target.split("/")[-1].split(":")[0] for target in targets}
    assert f"birds-worker-eu-west-1a-1.birds-workers.{NAMESPACE}.svc.cluster.local" in hosts
    for host in hosts:
        # A wildcard stands for one label.
        assert any(fnmatch(host, name) and host.count(".") == name.count(".") for name in names), host
    assert certificate["spec"]["usages"] == ["digital signature", "server auth", "client auth"]


SECRET_DATA = {"secret": "x", "admin-password": "x", "tls.crt": "x", "tls.key": "x", "ca.crt": "x"}


def test_each_zone_has_workers_that_know_it(rendered: Rendering, tmp_path: Path):
    manifests = rendered(VARIANTS["production"])
    sets = {name: it["spec"] for name, it in of_kind(manifests, "StatefulSet").items() if "-worker-" in name}
    assert {name: it["replicas"] for name, it in sets.items()} == {
        "birds-worker-eu-west-1a": 2,
        "birds-worker-eu-west-1b": 2,
        "birds-worker-eu-west-1c": 3,
    }
    selectors = [json.dumps(it["selector"], sort_keys=True) for it in sets.values()]
    assert len(set(selectors)) == 3, "each pod belongs to one StatefulSet"
    for name, spec in sets.items():
        zone = name.removeprefix("birds-worker-")
        pod = spec["template"]["spec"]
        assert pod["nodeSelector"] == {"topology.kubernetes.io/zone": zone, "pool": "workers"}
        assert {"name": "VOLARY_WORKER__ZONE", "value": zone} in pod["containers"][0]["env"]


def test_a_secret_is_generated_once(rendered: Rendering):
    first, second = (rendered({}) for _ in range(2))
    (secrets,) = generated_secrets(first).values()
    # 256 bits, as base64.
    assert len(secrets["secret"]) == 44
    assert len(secrets["admin-password"]) == 24
    assert generated_secrets(first) != generated_secrets(second)
    # So a second rendering must not replace the first one.
    (manifest,) = of_kind(first, "Secret").values()
    assert manifest["immutable"] is True
    assert manifest["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not of_kind(rendered(VARIANTS["an existing secret"]), "Secret")


def test_only_nodes_whose_settings_change_are_replaced(rendered: Rendering):
    def checksums(values: Manifest) -> dict[str, str]:
        sets = of_kind(rendered(values), "StatefulSet")
        return {name: it["spec"]["template"]["metadata"]["annotations"]["checksum/config"] for name, it in sets.items()}

    gateway, worker = "flock-volary-gateway", "flock-volary-worker"
    before = checksums({})
    assert checksums({"networkPolicy": {"enabled": False}}) == before
    after = checksums({"config": {"gateway": {"query": {"timeout": "10m"}}}})
    assert (after[gateway] != before[gateway], after[worker] != before[worker]) == (True, False)
    after = checksums({"worker": {"config": {"log": {"filter": "debug"}}}})
    assert (after[gateway] != before[gateway], after[worker] != before[worker]) == (False, True)


def test_settings_of_a_node_override_the_shared_ones(rendered: Rendering):
    values = {
        "log": {"filter": "warn"},
        "config": {"log": {"filter": "info"}, "gateway": {"query": {"max_running": 1_000_000}}},
        "worker": {"config": {"log": {"filter": "debug"}}},
    }
    manifests = rendered(values)
    gateway, worker = (tomllib.loads(settings_text(manifests, role)) for role in ("gateway", "worker"))
    assert (gateway["log"]["filter"], worker["log"]["filter"]) == ("info", "debug")
    assert gateway["gateway"]["query"]["max_running"] == 1_000_000
    assert "gateway" not in worker
    assert "worker" not in gateway


def test_special_characters_survive_in_settings(rendered: Rendering):
    text = 'a "quoted" <tag> & \\ back\tslash, ü'
    manifests = rendered({"log": {"filter": text}, "gateway": {"allowedRoots": ["/data", text]}})
    settings = tomllib.loads(settings_text(manifests, "gateway"))
    assert settings["log"]["filter"] == text
    assert settings["gateway"]["load"]["allowed_roots"] == ["/data", text]


@pytest.mark.parametrize(
    ("values", "flags", "message"),
    [
        ({"worker": {"replcas": 2}}, [], "at '/worker': additional properties 'replcas' not allowed"),
        ({"gateways": {}}, [], "additional properties 'gateways' not allowed"),
        ({"worker": {"replicas": "three"}}, [], "at '/worker/replicas': got string, want integer"),
        ({"worker": {"terminationGracePeriodSeconds": 20}}, [], "minimum: got 20, want 25"),
        ({"gateway": {"replicas": 2}}, [], "gateway.replicas is 2: the catalog belongs to one gateway"),
        ({"secret": {"generate": False}}, [], "set secret.existing to the name of a Secret"),
        ({}, ["--is-upgrade"], "the Secret flock-volary in the namespace aviary is not found"),
        ({"tls": {"enabled": True}}, [], "tls.enabled needs a certificate: set tls.existingSecret"),
        ({"tls": {"existingSecret": "certificate"}}, [], "but tls.enabled is false"),
        ({"tls": {"enabled": True, "certManager": {"enabled": True}}}, [], "needs tls.certManager.issuer.name"),
        (
            {"tls": {"enabled": True, "existingSecret": "a", "certManager": {"enabled": True}}},
            [],
            "tls.existingSecret and tls.certManager.enabled exclude each other",
        ),
        ({"operations": {"tls": True}}, [], "operations.tls and tls.clients need tls.enabled"),
        (
            {"operations": {"enabled": False}, "serviceMonitor": {"enabled": True}},
            [],
            "serviceMonitor.enabled needs operations.enabled",
        ),
        (
            {"operations": {"enabled": False, "token": {"existingSecret": "a"}}},
            [],
            "operations.token.existingSecret needs operations.enabled",
        ),
        ({"worker": {"zones": [{"name": "a"}, {"name": "a"}]}}, [], "worker.zones has a twice"),
        ({"worker": {"zones": [{"name": "Zone A"}]}}, [], "at '/worker/zones/0/name': 'Zone A' does not match pattern"),
        (
            {"fullnameOverride": "a" * 30, "worker": {"zones": [{"name": "northamerica-northeast1-a"}]}},
            [],
            "set fullnameOverride to a shorter prefix",
        ),
        ({"config": {"gateway": {"listen": "0.0.0.0:1"}}}, [], "config has the setting gateway.listen: the chart sets"),
        ({"config": {"gateway": {"secret": "x"}}}, [], "gateway.secret: a ConfigMap is no place for secrets"),
        ({"config": {"worker": {"tls": {"node_name": "x"}}}}, [], "worker.tls: use the values below tls"),
        ({"config": {"Worker": {}}}, [], "at '/config': additional properties 'Worker' not allowed"),
        ({"worker": {"config": {"local": {"workers": 3}}}}, [], "worker.config has the setting local"),
        ({"gateway": {"config": {"worker": {}}}}, [], "write it into config or worker.config"),
    ],
)
def test_wrong_values_are_refused(rendered: Rendering, values: Manifest, flags: list[str], message: str):
    with pytest.raises(Refused) as refused:
        rendered(values, *flags)
    assert message in str(refused.value)


def test_the_schema_has_exactly_the_values_of_the_file():
    values = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    schema = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
    free = {"$ref": "#/$defs/config"}

    def compare(value: Any, part: dict[str, Any], path: str) -> None:
        part = schema["$defs"][part["$ref"].split("/")[-1]] if "$ref" in part and part != free else part
        if "properties" in part and isinstance(value, dict):
            assert part["additionalProperties"] is False, path
            assert set(part["properties"]) - {"global"} == set(value), path
            for key, below in value.items():
                compare(below, part["properties"][key], f"{path}.{key}")

    compare(values, copy.deepcopy(schema), "")


def test_the_chart_installs_this_release():
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text(encoding="utf-8"))
    workspace = tomllib.loads((REPOSITORY / "Cargo.toml").read_text(encoding="utf-8"))
    assert chart["appVersion"] == workspace["workspace"]["package"]["version"]


def test_the_files_of_the_chart_are_those_of_the_repository(rendered: Rendering):
    manifests = rendered(VARIANTS["production"])
    observability = REPOSITORY / "packaging" / "observability"
    (rule,) = of_kind(manifests, "PrometheusRule").values()
    assert rule["spec"] == yaml.safe_load((observability / "volary-alerts.yaml").read_text(encoding="utf-8"))
    dashboard = of_kind(manifests, "ConfigMap")["birds-dashboard"]["data"]["volary-dashboard.json"]
    assert json.loads(dashboard) == json.loads((observability / "volary-dashboard.json").read_text(encoding="utf-8"))
