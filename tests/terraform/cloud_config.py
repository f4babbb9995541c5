"""Compares user data with the JSON schema of cloud-init, and prints the files that it writes, as JSON.

cloud_config.py SCHEMA USER_DATA
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import jsonschema
import yaml


def main() -> None:
    schema, user_data = (Path(name).read_text() for name in sys.argv[1:])
    assert user_data.startswith("#cloud-config\n")
    config = yaml.safe_load(user_data)
    errors = list(jsonschema.Draft4Validator(json.loads(schema)).iter_errors(config))
    if errors:
        sys.exit("\n".join(error.message for error in errors))
    print(json.dumps({file["path"]: file["content"] for file in config["write_files"]}))


if __name__ == "__main__":
    main()
