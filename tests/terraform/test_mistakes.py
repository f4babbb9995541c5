"""Plants mistakes in copies of the module, and sees that its checks find each of them."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from module import Module
from test_policy import SKIPPED, checkov

pytestmark = pytest.mark.downloads


class Mistake(NamedTuple):
    """A text in a file of the module, what replaces it, and the test of Terraform's language that must fail.

    Without a test, the module must not even be valid. `check` is the check of checkov that must fail, too.
    """

    file: str
    right: str
    wrong: str
    complaint: str
    test: str | None
    check: str | None = None


MISTAKES = {
    "a misspelt argument": Mistake(
        "modules/node/main.tf",
        "ebs_optimized ",
        "ebs_optimised ",
        'An argument named "ebs_optimised" is not expected here',
        None,
    ),
    "an action of everything": Mistake(
        "modules/role/main.tf",
        '["secretsmanager:GetSecretValue"]',
        '["secretsmanager:*"]',
        "The policy allows a class of actions.",
        "role",
    ),
    "a resource of everything": Mistake(
        "modules/role/main.tf",
        "Resource = distinct(var.secret_arns)",
        'Resource = ["*"]',
        "The policy allows actions on everything.",
        "role",
    ),
    "an open port of the gateway": Mistake(
        "modules/gateway/security.tf",
        'description       = "Clients"\n  cidr_ipv4         = each.key',
        'description       = "Clients"\n  cidr_ipv4         = "0.0.0.0/0"',
        "A port is open that should not be.",
        "gateway",
    ),
    "an open port of a worker": Mistake(
        "modules/worker/security.tf",
        'description                  = "The gateway"\n  referenced_security_group_id = var.gateway.security_group_id',
        'description                  = "The gateway"\n  cidr_ipv4                    = "0.0.0.0/0"',
        "A port is open that should not be.",
        "worker",
    ),
    "ssh": Mistake(
        "modules/worker/security.tf",
        'description                  = "The gateway"\n  referenced_security_group_id = var.gateway.security_group_id\n'
        '  ip_protocol                  = "tcp"\n  from_port                    = var.port',
        'description                  = "SSH"\n  cidr_ipv4                    = "10.0.0.0/8"\n'
        '  ip_protocol                  = "tcp"\n  from_port                    = 22',
        "A port is open that should not be.",
        "worker",
    ),
    "user data over 16 KiB": Mistake(
        "modules/bootstrap/main.tf",
        '["# Rendered by Terraform. This node gets other settings when it is replaced.", ""],',
        '["# ${join(" ", [for number in range(1000) : "0123456789"])}", ""],',
        "and EC2 takes 16384",
        "node",
    ),
    "a data volume that is not encrypted": Mistake(
        "modules/node/main.tf",
        "snapshot_id       = var.volume.snapshot_id\n  encrypted         = true",
        "snapshot_id       = var.volume.snapshot_id\n  encrypted         = false",
        "The data volume is not encrypted.",
        "node",
        "CKV_AWS_3",
    ),
    "a root volume that is not encrypted": Mistake(
        "modules/node/main.tf",
        "volume_size = 16\n    encrypted   = true",
        "volume_size = 16\n    encrypted   = false",
        "The root volume, which has the keys of the certificates, is not encrypted.",
        "node",
        "CKV_AWS_8",
    ),
    "IMDSv1": Mistake(
        "modules/node/main.tf",
        '"required"',
        '"optional"',
        "The machine answers IMDSv1.",
        "node",
        "CKV_AWS_79",
    ),
    "a volume that is lost with its machine": Mistake(
        "modules/node/main.tf",
        "final_snapshot = true",
        "final_snapshot = false",
        "The rows are lost when the cluster is destroyed.",
        "node",
    ),
    "a second gateway": Mistake(
        "variables.tf",
        "var.gateway.count == 1",
        "var.gateway.count >= 1",
        "a_second_gateway_is_refused",
        "inputs",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_planted_mistake_is_found(name, tmp_path, replica):
    mistake = MISTAKES[name]
    copy = Module(tmp_path, replica)
    file = copy.directory / "aws" / mistake.file
    text = file.read_text()
    assert text.count(mistake.right) == 1, "the file has changed: plant the mistake elsewhere"
    file.write_text(text.replace(mistake.right, mistake.wrong))
    copy.run("init", "-no-color", "-input=false")
    if mistake.test is None:
        found = copy.run("validate", "-no-color", succeeds=False)
    else:
        copy.run("validate", "-no-color")
        found = copy.run("test", "-no-color", f"-filter=tests/{mistake.test}.tftest.hcl", succeeds=False)
    assert found.returncode != 0
    # Terraform breaks lines where it likes, and draws a frame.
    assert mistake.complaint in " ".join(found.stdout.replace("│", "").split())
    if mistake.check is not None:
        assert mistake.check not in SKIPPED
        assert mistake.check in checkov(copy.directory / "aws", f"--check={mistake.check}")
