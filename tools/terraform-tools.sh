#!/usr/bin/env bash
# Installs what `make test-terraform` uses into a directory: checkov, the types of AWS' machines, tflint, and the JSON
# schema of cloud-init. It names what cannot be had. The tests that need it are then skipped, and fail in CI.
#
#   tools/terraform-tools.sh DIRECTORY
set -euo pipefail
here="$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)"
directory="${1:?the directory is missing}"
python="${PYTHON:-python3}"
tflint_release=v0.64.0

failed=0
without() {
    echo "$1 cannot be installed: the tests that need it are skipped" >&2
    failed=1
}

install_python() {
    "$python" -m venv "$directory" &&
        "$directory/bin/pip" install --quiet --disable-pip-version-check --requirement "$here/tests/terraform/requirements.txt"
}

install_tflint() {
    GOBIN="$(cd "$directory" && pwd)/bin" go install "github.com/terraform-linters/tflint@$tflint_release"
}

# The package is not installed, because it would change how this machine boots.
unpack_schema() {
    local temporary
    temporary="$(mktemp -d)"
    (cd "$temporary" && apt-get download -qq -o APT::Sandbox::User=root cloud-init && dpkg-deb --extract cloud-init_*.deb package) &&
        cp "$temporary"/package/usr/lib/python3/dist-packages/cloudinit/config/schemas/schema-cloud-config-v1.json \
            "$directory/cloud-init.schema.json"
    rm -rf "$temporary"
    [[ -s "$directory/cloud-init.schema.json" ]]
}

mkdir -p "$directory"
install_python || without "checkov"
install_tflint || without "tflint"
unpack_schema || without "the schema of cloud-init"
exit "$failed"
