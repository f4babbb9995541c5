#!/usr/bin/env bash
# Builds the container image from the compiled program, without compiling anything.
#
#   packaging/container/build.sh PROGRAM [NAME]    NAME of the image, by default localhost/volary
#
# ENGINE names the program that builds it (podman), and BASE the image that it begins with. Without BASE, base.sh makes
# one if there is none yet.
set -euo pipefail
here="$(cd "${BASH_SOURCE[0]%/*}" && pwd)"

program="$1"
name="${2:-localhost/volary}"
engine="${ENGINE:-podman}"
base="${BASE:-localhost/volary-base}"
if [[ -z "${BASE:-}" ]] && ! "$engine" image inspect "$base" >/dev/null 2>&1; then
    "$here/base.sh" "$base" >/dev/null
fi

context="$(mktemp -d)"
trap 'rm -rf "$context"' EXIT
chmod 0755 "$context"
mkdir -m 0700 "$context/data"
# The names of functions take a fifth of the program's size.
strip -o "$context/volary" "$program" 2>/dev/null || cp "$program" "$context/volary"
cp "$here/healthy" "$here/volary.toml" "$here/../licenses/third-party.txt" "$context"
chmod 0755 "$context/volary" "$context/healthy"
chmod 0644 "$context/volary.toml" "$context/third-party.txt"

# A health check is no part of the OCI format.
format=()
[[ "$(basename "$engine")" == docker ]] || format=(--format docker)
"$engine" build "${format[@]}" --build-arg "BASE=$base" --tag "$name" --file "$here/Containerfile" "$context" >&2
echo "$name"
