#!/usr/bin/env bash
# Checks what a task needs before it starts, and names what is missing with the command that installs it.
#
#   tools/check-needs.sh TASK            checks, and fails if something is missing
#   tools/check-needs.sh --install TASK  installs what is missing first
#   tools/check-needs.sh go              fails and says so if the tests of Go clients must be skipped
#   tools/check-needs.sh terraform       fails and says what the tests of the Terraform module lack
#
# The tasks are build, test, ci and packaging. Each of them needs what the one before it needs, and more. Of these tasks,
# only packaging needs Go, except that Helm is installed with it. Without Helm and Prometheus, some tests are skipped, but
# not those of ci. With --install, terraform installs what Debian has, too.
# PYTHON names the Python to use. CARGO_TARGET_DIR names the directory for compiled files.
set -euo pipefail
here="$(cd "${BASH_SOURCE[0]%/*}/.." && pwd)"

install=
if [[ "${1:-}" == --install ]]; then
    install=yes
    shift
fi
case "${1:-}" in
build) level=1 ;;
test) level=2 ;;
ci) level=3 ;;
packaging) level=4 ;;
go | terraform) level=0 ;;
*)
    echo "usage: $0 [--install] build|test|ci|packaging|terraform, or $0 go" >&2
    exit 2
    ;;
esac

python="${PYTHON:-python3}"
target="${CARGO_TARGET_DIR:-$here/target}"
sudo=
((EUID == 0)) || sudo="sudo "
rustup_command="curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c rustfmt -c clippy"

# The missing things as text, the packages of apt that bring them, and other commands that install them.
messages=()
packages=()
commands=()

missing() { # WHAT REMEDY: this script cannot install it
    messages+=("$1" "    $2")
}

missing_command() { # WHAT COMMAND
    missing "$1" "$2"
    commands+=("$2")
}

missing_packages() { # WHAT PACKAGE...
    missing "$1" "${sudo}apt-get install ${*:2}"
    packages+=("${@:2}")
}

has() { command -v "$1" >/dev/null 2>&1; }

at_least() { # FOUND NEEDED: compares MAJOR.MINOR
    local found_major="${1%%.*}" needed_major="${2%%.*}" found_minor=0 needed_minor=0
    [[ "$1" == *.* ]] && found_minor="${1#*.}" && found_minor="${found_minor%%[!0-9]*}"
    [[ "$2" == *.* ]] && needed_minor="${2#*.}" && needed_minor="${needed_minor%%[!0-9]*}"
    ((found_major > needed_major || (found_major == needed_major && ${found_minor:-0} >= ${needed_minor:-0})))
}

value_in() { # FILE BEFORE AFTER: the text between the two in the first line that has both
    local line
    while IFS= read -r line; do
        if [[ "$line" == *"$2"*"$3"* ]]; then
            line="${line#*"$2"}"
            printf '%s' "${line%%"$3"*}"
            return
        fi
    done <"$1"
}

check_rust() {
    local needed found
    needed="$(value_in "$here/Cargo.toml" 'rust-version = "' '"')"
    # A shell that was started before Rust was installed does not find cargo.
    if ! has cargo && [[ -x "$HOME/.cargo/bin/cargo" ]]; then
        if [[ -z "$install" ]]; then
            missing "cargo is installed, but not in PATH" ". \"$HOME/.cargo/env\""
            return
        fi
        PATH="$HOME/.cargo/bin:$PATH"
    fi
    if ! has cargo; then
        has curl || missing_packages "curl, which downloads Rust, is not installed" curl ca-certificates
        missing_command "cargo (Rust $needed or newer) is not installed" "$rustup_command"
        return
    fi
    found="$(cargo --version 2>/dev/null)" || found=
    found="${found#cargo }"
    found="${found%% *}"
    if [[ ! "$found" =~ ^[0-9]+\.[0-9]+ ]]; then
        missing_command "\`cargo --version\` fails; Rust $needed or newer is needed" "rustup default stable"
    elif ! at_least "$found" "$needed"; then
        if has rustup; then
            missing_command "cargo is $found; Rust $needed or newer is needed" "rustup update stable && rustup default stable"
        else
            missing_command "cargo is $found; Rust $needed or newer is needed" "$rustup_command"
        fi
    elif ((level >= 2)) && ! cargo fmt --version >/dev/null 2>&1; then
        missing_command "cargo fmt is not installed" "rustup component add rustfmt"
    fi
}

check_compiler() {
    local directory
    if ! has cc; then
        missing_packages "a C compiler (cc) is not installed" build-essential
    else
        # Linking a program shows whether the development files of the C library are installed, too.
        directory="$(mktemp -d)"
        if ! cc -x c - -o "$directory/program" <<<'int main(void) { return 0; }' >/dev/null 2>&1; then
            missing_packages "the C compiler (cc) cannot link a program" build-essential
        fi
        rm -rf "$directory"
    fi
    # jemalloc is built by its own makefile.
    has make || missing_packages "make is not installed" make
}

check_python() {
    local found
    if ! has "$python"; then
        missing_packages "Python 3.11 or newer ($python) is not installed" python3 python3-venv
        return
    fi
    found="$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null)" || found=
    if [[ ! "$found" =~ ^[0-9]+\.[0-9]+$ ]]; then
        missing_packages "\`$python\` does not run; Python 3.11 or newer is needed" python3 python3-venv
    elif ! at_least "$found" 3.11; then
        # If the system's Python is older, a newer one is installed beside it under its own name.
        missing "$python is Python $found; Python 3.11 or newer is needed" \
            "${sudo}apt-get install -y python3.11 python3.11-venv, then call make with PYTHON=python3.11"
    elif ! "$python" -c 'import ensurepip, venv' 2>/dev/null; then
        missing_packages "$python has no module venv" "python${found}-venv"
    fi
}

check_java() {
    local needed found javac="${JAVA_HOME:+$JAVA_HOME/bin/}javac"
    needed="$(value_in "$here/tests/jdbc/pom.xml" '<maven.compiler.release>' '</maven.compiler.release>')"
    if ! has "$javac"; then
        missing_packages "a JDK ($needed or newer) is not installed: there is no $javac" default-jdk-headless
    else
        # Java 8 and older ones call themselves 1.8, and answer on the standard error.
        found="$("$javac" -version 2>&1)" || found=
        found="${found##*javac }"
        found="${found%%[!0-9.]*}"
        if [[ ! "$found" =~ ^[0-9]+ ]]; then
            missing_packages "\`$javac -version\` fails; a JDK ($needed or newer) is needed" default-jdk-headless
        elif ! at_least "$found" "$needed"; then
            missing_packages "the JDK is $found; $needed or newer is needed" "openjdk-$needed-jdk-headless"
        fi
    fi
    has mvn || missing_packages "Maven (mvn) is not installed" maven
}

# Says why the tests of Go clients are skipped, if they are.
check_go() {
    local needed found
    needed="$(value_in "$here/tests/go/go.mod" 'go ' '.0')"
    # An older Go must not download a newer one by itself.
    found="$(GOTOOLCHAIN=local go env GOVERSION 2>/dev/null)" || found=
    found="${found#go}"
    if [[ ! "$found" =~ ^[0-9]+\.[0-9]+ ]]; then
        echo "Go ($needed or newer) is not installed: the tests of Go clients are skipped. It is optional: https://go.dev/dl"
        return 1
    elif ! at_least "$found" "$needed"; then
        echo "Go is $found, and $needed or newer is needed: the tests of Go clients are skipped. It is optional: https://go.dev/dl"
        return 1
    fi
}

helm_command="go install helm.sh/helm/v3/cmd/helm@v3.22.0"

has_helm() { has helm || [[ -x "$HOME/go/bin/helm" ]]; }

# Says which tests are skipped without programs that are optional.
check_optional() {
    has_helm || echo "helm is not installed: the tests of the Helm chart are skipped. It is optional: $helm_command"
    has promtool || echo "promtool is not installed: the tests of alerts are skipped. It is optional: ${sudo}apt-get install prometheus"
}

check_observability() {
    has_helm || if has go; then
        missing_command "helm is not installed" "$helm_command"
    else
        missing "helm is not installed" "install Go, or Helm 3: https://helm.sh/docs/intro/install"
    fi
    has promtool || missing_packages "Prometheus (promtool) is not installed" prometheus
}

# The tests of the Terraform module name what is missing, too, and skip what needs it, but not in CI.
check_terraform() {
    messages=()
    packages=()
    local found needed
    needed="$(value_in "$here/terraform/aws/versions.tf" 'required_version = ">= ' '"')"
    found="$(terraform version -json 2>/dev/null)" || found=
    found="${found#*\"terraform_version\": \"}"
    found="${found%%\"*}"
    if [[ ! "$found" =~ ^[0-9]+\.[0-9]+ ]]; then
        missing "Terraform ($needed or newer) is not installed" "https://developer.hashicorp.com/terraform/install"
    elif ! at_least "$found" "$needed"; then
        missing "Terraform is $found; $needed or newer is needed" "https://developer.hashicorp.com/terraform/install"
    fi
    has go || missing "Go, which builds the replica of the AWS provider and tflint, is not installed" "https://go.dev/dl"
    has npm || missing_packages "npm, which brings the schema of the AWS provider, is not installed" npm
    has shellcheck || missing_packages "shellcheck is not installed" shellcheck
    has mkfs.xfs || missing_packages "mkfs.xfs is not installed" xfsprogs
    has systemd-analyze || missing_packages "systemd-analyze is not installed" systemd
}

check_all() {
    messages=()
    packages=()
    commands=()
    check_compiler
    check_rust
    if ((level >= 2)); then
        check_python
        check_java
    fi
    if ((level >= 3)); then
        has rsync || missing_packages "rsync is not installed" rsync
        has flock || missing_packages "flock is not installed" util-linux
        check_observability
    fi
    if ((level >= 4)); then
        check_packaging
    fi
}

# What `make test-packaging` uses. Its tests skip what they cannot do without a tool, but fail in CI.
check_packaging() {
    local tool
    for tool in dpkg-deb:dpkg lintian:lintian mmdebstrap:mmdebstrap podman-compose:podman-compose runc:runc \
        systemd-nspawn:systemd-container systemd-analyze:systemd strip:binutils; do
        has "${tool%%:*}" || missing_packages "${tool%%:*} is not installed" "${tool##*:}"
    done
    # Containers of compose.yaml find each other by names.
    has podman || missing_packages "podman is not installed" podman containernetworking-plugins iptables \
        golang-github-containernetworking-plugin-dnsname
    has go || missing "Go is not installed; it checks compose.yaml" "https://go.dev/dl"
}

if [[ "$1" == go ]]; then
    check_go
    exit
elif [[ "$1" == terraform ]]; then
    check_terraform
    if [[ -n "$install" ]] && ((${#packages[@]})); then
        ${sudo}apt-get update -qq
        ${sudo}apt-get install -qq -y --no-install-recommends "${packages[@]}"
        check_terraform
    fi
    if ((${#messages[@]})); then
        echo "Some tests of the Terraform module are skipped. The commands are for Debian and Ubuntu." >&2
        printf '%s\n' "${messages[@]}" >&2
        exit 1
    fi
    exit
fi

check_all
if [[ -n "$install" ]] && ((${#messages[@]})); then
    if ((${#packages[@]})); then
        ${sudo}apt-get update -qq
        ${sudo}apt-get install -qq -y --no-install-recommends "${packages[@]}"
    fi
    for command in ${commands[@]+"${commands[@]}"}; do
        bash -c "$command"
    done
    check_all
fi

# Sizes in MiB, measured with DataFusion 55: the target directory, .venv and the caches of cargo and Maven after a build.
# With less than `least_…`, a build certainly fails. Less than `needed_…` is only a warning, because sizes change.
if ((level == 1)); then
    needed_disk=3000
else
    needed_disk=7500
fi
least_disk=500
needed_memory=4000
least_memory=1000

has_number() { [[ "${1:-}" =~ ^[0-9]+$ ]]; }

warnings=()
if [[ ! -x "$target/release/volary" ]]; then
    directory="$target"
    while [[ ! -d "$directory" ]]; do directory="$(dirname "$directory")"; done
    # The last line describes the file system. Its fourth column is the free space in KiB.
    free=
    while read -r _ _ _ available _; do free="$available"; done < <(df -Pk "$directory" 2>/dev/null || true)
    used=0
    if [[ -d "$target" ]]; then read -r used _ < <(du -sk "$target" 2>/dev/null || echo 0); fi
    if has_number "$free"; then
        free=$((free / 1024))
        has_number "$used" || used=0
        if ((free < least_disk)); then
            missing "only $free MiB are free on the disk of $target; the build needs about $needed_disk MiB" \
                "set CARGO_TARGET_DIR to a directory on a larger disk"
        elif ((free + used / 1024 < needed_disk)); then
            warnings+=("only $free MiB are free on the disk of $target; the build needs about $needed_disk MiB")
        fi
    fi
    memory=
    if pages="$(getconf _PHYS_PAGES 2>/dev/null)" && size="$(getconf PAGESIZE 2>/dev/null)" &&
        has_number "$pages" && has_number "$size"; then
        memory=$((pages * size / 1048576))
    fi
    # A container may have less memory than its machine.
    limit="$(cat /sys/fs/cgroup/memory.max 2>/dev/null)" || limit=
    if has_number "$limit" && has_number "$memory" && ((limit / 1048576 < memory)); then
        memory=$((limit / 1048576))
    fi
    if has_number "$memory"; then
        if ((memory < least_memory)); then
            missing "this machine has $memory MiB of memory; the compiler needs about $needed_memory MiB" \
                "build on a machine with more memory"
        elif ((memory < needed_memory)); then
            warnings+=("this machine has $memory MiB of memory; the compiler may need $needed_memory MiB")
        fi
    fi
fi

for warning in ${warnings[@]+"${warnings[@]}"}; do
    echo "warning: $warning" >&2
done
if ((${#messages[@]})); then
    echo "Something is missing. The commands are for Debian and Ubuntu." >&2
    printf '%s\n' "${messages[@]}" >&2
    exit 1
fi
if ((level >= 2)); then
    check_optional
    check_go || true
fi
