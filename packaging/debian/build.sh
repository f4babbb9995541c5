#!/usr/bin/env bash
# Makes the Debian package from the compiled program, without compiling anything.
#
#   packaging/debian/build.sh CARGO_DEB DIRECTORY [FLAG…]    prints the path of the package, which is in DIRECTORY
#
# CARGO_DEB is the program `cargo-deb`, which gets the flags. CARGO_TARGET_DIR names the directory for compiled files.
set -euo pipefail
here="$(cd "${BASH_SOURCE[0]%/*}/../.." && pwd)"

cargo_deb="$1"
mkdir -p "$2"
out="$(cd "$2" && pwd)"
shift 2
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$here/target}"
release="$CARGO_TARGET_DIR/release"
made="$release/package"

rm -rf "$made"
mkdir -p "$made/man" "$made/completions"
"$release/volary" man "$made/man" >/dev/null
gzip -9n "$made"/man/*
for shell in bash zsh fish; do
    "$release/volary" completions "$shell" >"$made/completions/volary.$shell"
done

version="$("$release/volary" --version)"
version="${version#volary }"
# The same sources make the same package: its times are that of the last commit.
SOURCE_DATE_EPOCH="${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
gzip -9n >"$made/changelog.Debian.gz" <<END
volary ($version-1) unstable; urgency=medium

  * Release $version. CHANGELOG.md of the sources lists its changes.

 -- Volary maintainers <maintainers@volary.invalid>  $(LC_ALL=C date --utc --rfc-email --date="@$SOURCE_DATE_EPOCH")
END

# The description is looked for from the current directory, and everything else from the directory of the crate.
cd "$here/cli"
"$cargo_deb" --no-build --compress-system --output "$out/" "$@"
