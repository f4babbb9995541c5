#!/usr/bin/env bash
# Makes the base of the image from Debian's packages, without an image registry, and imports it as NAME.
#
#   packaging/container/base.sh [NAME]    the default is localhost/volary-base
#
# ENGINE names the program that keeps images (podman). DEBIAN_SUITE and DEBIAN_MIRROR say what the base is made of.
set -euo pipefail

engine="${ENGINE:-podman}"
name="${1:-localhost/volary-base}"
file="$(mktemp --suffix=.tar)"
trap 'rm -f "$file"' EXIT

# Without apt, nobody can install anything in the image. Manuals and translations take half of what is left.
mmdebstrap --quiet --variant=essential --include=ca-certificates \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/locale/*' \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' \
    --customize-hook='rm -rf "$1"/var/lib/apt/lists "$1"/var/cache/* "$1"/var/log/*' \
    "${DEBIAN_SUITE:-bookworm}" "$file" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"}
"$engine" import --quiet "$file" "$name" >/dev/null
echo "$name"
