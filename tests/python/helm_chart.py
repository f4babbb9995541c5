"""Renders the Helm chart with values, and reads what Kubernetes would get."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from optional_tools import go_module, run_tool

Manifest = dict[str, Any]

CHART = Path(__file__).resolve().parents[2] / "helm" / "volary"
RELEASE = "flock"
NAMESPACE = "aviary"
# Charts are rendered for this release of Kubernetes, because a helm from `go install` knows no newer one than 1.20.
KUBERNETES = "1.33.0"

# The definitions of objects that are not part of Kubernetes come with the sources of the programs that use them.
_OPERATOR = ("github.com/prometheus-operator/prometheus-operator", "v0.85.0")
_CERT_MANAGER = ("github.com/cert-manager/cert-manager", "v1.21.2")
DEFINITIONS = {
    "ServiceMonitor": (_OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml"),
    "PrometheusRule": (_OPERATOR, "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"),
    "Certificate": (_CERT_MANAGER, "deploy/crds/cert-manager.io_certificates.yaml"),
}

VARIANTS: dict[str, Manifest] = {
    "the defaults": {},
    "an existing secret": {"secret": {"existing": "nodes", "generate": False}},
    "TLS from a secret": {
        "tls": {"enabled": True, "existingSecret": "certificate", "nodeName": "node.example"},
        "operations": {"tls": True, "token": {"existingSecret": "scrapers", "key": "bearer"}},
    },
    "no network policies": {"networkPolicy": {"enabled": False}, "doctor": {"enabled": False}},
    "no operations listener": {"operations": {"enabled": False}, "serviceAccount": {"create": False}},
    "production": {
        "fullnameOverride": "birds",
        "commonLabels": {"team": "ornithology"},
        "image": {"repository": "registry.example/volary", "digest": f"sha256:{'ab' * 32}"},
        "imagePullSecrets": [{"name": "registry"}],
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/reader"}},
        "secret": {"existing": "nodes"},
        "tls": {
            "enabled": True,
            "certManager": {
                "enabled": True,
                "issuer": {"name": "authority", "kind": "ClusterIssuer"},
                "dnsNames": ["sql.example"],
            },
            "clients": {"authoritiesSecret": "people", "required": True},
        },
        "operations": {"tls": True},
        "traces": {"endpoint": "http://collector.monitoring:4317", "sample": 0.1},
        "config": {
            "gateway": {"query": {"timeout": "10m", "max_running": 1_000_000}, "memory": {"limit": "40%"}},
            "worker": {"storage": {"compression": "zstd(1)", "scrub": True}},
        },
        "gateway": {
            "allowedRoots": ["s3://nests/eggs"],
            "config": {"log": {"filter": "info,volary_gateway=debug"}},
            "service": {
                "type": "LoadBalancer",
                "annotations": {"service.beta.kubernetes.io/aws-load-balancer-type": "external"},
                "loadBalancerSourceRanges": ["10.0.0.0/8"],
                "externalTrafficPolicy": "Local",
            },
            "podDisruptionBudget": {"enabled": True},
            "priorityClassName": "important",
            "nodeSelector": {"pool": "sql"},
            "extraEnv": [{"name": "AWS_REGION", "value": "eu-west-1"}],
            "extraEnvFrom": [{"secretRef": {"name": "bucket"}}],
            "extraVolumes": [{"name": "files", "persistentVolumeClaim": {"claimName": "files"}}],
            "extraVolumeMounts": [{"name": "files", "mountPath": "/data", "readOnly": True}],
            "podAnnotations": {"example/scraped": "no"},
            "podLabels": {"tier": "sql"},
        },
        "worker": {
            "replicas": 2,
            "zones": [{"name": "eu-west-1a"}, {"name": "eu-west-1b"}, {"name": "eu-west-1c", "replicas": 3}],
            "clients": {"enabled": True},
            "storage": {"size": "1Ti", "className": "fast", "accessModes": ["ReadWriteOncePod"]},
            "nodeSelector": {"pool": "workers"},
            "tolerations": [{"key": "workers", "operator": "Exists", "effect": "NoSchedule"}],
            "affinity": {"nodeAffinity": {}},
        },
        "networkPolicy": {
            "clients": [
                {"namespaceSelector": {"matchLabels": {"team": "analysts"}}},
                {"ipBlock": {"cidr": "10.0.0.0/8"}},
            ],
            "monitoring": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "workerEgress": {"restrict": True, "extra": [{"ports": [{"port": 4317}]}]},
        },
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
    },
}
"""The usual values, by what is special about them."""


class Refused(Exception):
    """The message with which helm refuses to render the chart."""


def values_file(directory: Path, values: Manifest) -> Path:
    """Writes values into a file."""
    file = directory / "values.yaml"
    # JSON is YAML.
    file.write_text(json.dumps(values), encoding="utf-8")
    return file


def render(directory: Path, values: Manifest, *flags: str) -> list[Manifest]:
    """Returns the objects of the release. Fails with `Refused` if helm refuses the values."""
    file = values_file(directory, values)
    fixed = (f"--namespace={NAMESPACE}", f"--kube-version={KUBERNETES}", f"--values={file}")
    done = run_tool("helm", "template", RELEASE, CHART, *fixed, *flags)
    if done.returncode != 0:
        raise Refused(done.stderr)
    return [manifest for manifest in yaml.safe_load_all(done.stdout) if manifest]


def definition(directory: Path, kind: str) -> Manifest:
    """Returns the definition of a kind of object that is not part of Kubernetes. Uses an empty directory."""
    (directory / "go.mod").write_text("module none\n")
    (module, version), file = DEFINITIONS[kind]
    content: Manifest = yaml.safe_load((go_module(directory, module, version) / file).read_text(encoding="utf-8"))
    return content


def of_kind(manifests: list[Manifest], kind: str) -> dict[str, Manifest]:
    """Returns the objects of a kind by their names."""
    return {manifest["metadata"]["name"]: manifest for manifest in manifests if manifest["kind"] == kind}


def pod_specs(manifests: list[Manifest]) -> Iterator[tuple[str, Mapping[str, str], Manifest]]:
    """Returns the name, the labels and the specification of each kind of pod."""
    for name, manifest in of_kind(manifests, "StatefulSet").items():
        template = manifest["spec"]["template"]
        yield name, template["metadata"]["labels"], template["spec"]
    for name, manifest in of_kind(manifests, "Pod").items():
        yield name, manifest["metadata"]["labels"], manifest["spec"]


def settings_text(manifests: list[Manifest], role: str) -> str:
    """Returns the settings file of a gateway or of the workers."""
    (text,) = [
        manifest["data"][f"{role}.toml"]
        for manifest in of_kind(manifests, "ConfigMap").values()
        if f"{role}.toml" in manifest["data"]
    ]
    return str(text)
