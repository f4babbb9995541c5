# Each task is one word. CI calls the same tasks. Compiled files go to CARGO_TARGET_DIR if it is set.

PYTHON ?= python3
MAVEN  ?= mvn --quiet --batch-mode
VENV   := .venv
TARGET := $(or $(CARGO_TARGET_DIR),target)
BIN    := $(TARGET)/release/volary
# Flags of `volary demo`: the scale factor, the number of workers, and any others.
SCALE   ?= 0.1
WORKERS ?= 4
DEMO    ?=

# Ballista's programs, which volary-bench compares with. It looks for them here, and measures only this release.
BALLISTA         := $(TARGET)/ballista
BALLISTA_RELEASE := 55.0.0
BALLISTA_INSTALL := cargo install --locked --root $(BALLISTA) --target-dir $(BALLISTA)/build

# The JDBC benchmark runs in the directory of its POM.
JDBC_BENCH := $(MAVEN) --file benches/jdbc/pom.xml compile exec:exec
PYTHON_BENCH := $(VENV)/bin/python benches/python/bench.py

PYTHON_SOURCES := python-client tests/python tests/torture tests/packaging tests/terraform terraform tests/sqlalchemy \
	tests/superset tests/ibis tests/dbt benches/python tools

# Superset and dbt need other releases of some packages than the tests in .venv, and Ibis needs packages that no other
# test needs. So each of them has an environment.
SUPERSET_VENV := .venv-superset
IBIS_VENV     := .venv-ibis
DBT_VENV      := .venv-dbt
# What checks the Terraform module.
TERRAFORM_VENV := .venv-terraform

# cargo-deny checks the licences, versions, sources and advisories of dependencies.
DENY         := $(TARGET)/tools/bin/cargo-deny
DENY_RELEASE := 0.20.2

# cargo-deb makes the Debian package from cli/Cargo.toml.
CARGO_DEB         := $(abspath $(TARGET))/tools/bin/cargo-deb
CARGO_DEB_RELEASE := 3.8.0
# cargo-about finds the licences of the libraries in the program.
CARGO_ABOUT         := $(abspath $(TARGET))/tools/bin/cargo-about
CARGO_ABOUT_RELEASE := 0.9.3
# Where the wheel and the Debian package are put, and the name of the container image.
DIST  ?= dist
IMAGE ?= localhost/volary

# How long each fuzz target runs. libFuzzer needs a nightly compiler.
FUZZ_SECONDS ?= 600
SOAK_SECONDS ?= 600
# How many rounds the torture test has, and what it draws its strikes from. Without a seed, it takes a random one.
ROUNDS ?= 500
SEED   ?=
FUZZ_TARGETS ?= $(notdir $(basename $(wildcard fuzz/fuzz_targets/*.rs)))
FUZZ := cargo +nightly fuzz

# Most Rust tests wait for nodes most of the time, so two run on each processor.
TEST_THREADS ?= $(shell echo $$((2 * $$(getconf _NPROCESSORS_ONLN))))

# How often a test that fails is run again. The output names each test that then passes. CI runs it once more, so that
# one slow moment of a busy machine does not refuse a change.
RERUNS ?= 0
RERUN_ONCE = $(if $(filter-out 0,$(RERUNS)),|| { echo "Tests have failed. They run once more."; $(1); })

# No test is in a doc comment, and cargo would look for them for seconds.
TEST_TARGETS := --lib --bins --tests
CARGO_TEST   := cargo test --release --workspace $(TEST_TARGETS)

# Tests that start real processes find the binary by this name.
export VOLARY_BIN := $(abspath $(BIN))

.DEFAULT_GOAL := help
.PHONY: help setup build build-tests demo test test-rust test-python test-jdbc test-go test-tools test-superset test-ibis test-dbt test-packaging test-terraform wheel deb image licenses soak torture lint fmt docs bench bench-jdbc bench-python bench-quick plots ballista fuzz clean-data needs-build needs-test

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(VENV)/.installed ## Make the Python environment in .venv (make test does it by itself)

$(VENV)/.installed: python-client/pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --editable 'python-client[test]'
	@touch $@

# Finds missing tools before a long build fails without them. Cargo shows the progress of the build.
needs-build needs-test: needs-%:
	@PYTHON="$(PYTHON)" tools/check-needs.sh $*
	@test -x $(BIN) || echo "The first build compiles DataFusion. It takes about half an hour on two processors."

# All builds are of the workspace: a build of one package would enable fewer features, and compile DataFusion anew for it.
build: needs-build ## Build the binary
	cargo build --release --workspace --bin volary

demo: build ## Load TPC-H into a local cluster and show a few queries; Ctrl-C ends it
	$(BIN) demo --scale $(SCALE) --workers $(WORKERS) $(DEMO)

build-tests: needs-test
	cargo test --release --workspace $(TEST_TARGETS) --no-run
	cargo build --release --workspace --bins

# Tests wait for nodes much of the time, so the tests of two languages run side by side, those that take longest first.
# Cargo must not look for the job server of this make.
test: build-tests ## Everything that must pass, Rust, Python, Java, and Go where it is installed
	$(MAKE) --jobs=2 test-python test-rust test-jdbc test-go

test-rust: ## Formatting, and all Rust tests
	cargo fmt --all --check
	cargo fmt --manifest-path fuzz/Cargo.toml --check
	export MAKEFLAGS= RUST_TEST_THREADS=$(TEST_THREADS); $(CARGO_TEST) $(call RERUN_ONCE,$(CARGO_TEST))

test-python: setup ## Types, and all Python tests, file beside file; they start real processes
	cargo build --release --workspace --bins
	$(VENV)/bin/mypy --config-file python-client/pyproject.toml python-client/src
	$(VENV)/bin/pytest -n auto --reruns $(RERUNS) -r fER tests/python
	$(VENV)/bin/pytest -m 'not downloads' tests/terraform

test-jdbc: ## All Java tests, with the JDBC driver; they start real processes
	cargo build --release --workspace --bins
	$(MAVEN) --file tests/jdbc/pom.xml -Dsurefire.rerunFailingTestsCount=$(RERUNS) test
	$(MAVEN) --file tests/jdbc-tools/pom.xml --projects mappers test
	$(MAVEN) --file benches/jdbc/pom.xml test

test-go: ## All Go tests, with ADBC, database/sql and arrow-go; they start real processes; skipped without Go
	cargo build --release --workspace --bins
	@tools/check-needs.sh go || exit 0; cd tests/go && \
		{ test -d "$$(go env GOMODCACHE)/github.com/apache/arrow-go" || \
			echo "The first run downloads and compiles Arrow for Go. It takes about three minutes on two processors."; } && \
		{ go mod download || { echo "The modules of tests/go cannot be downloaded: the tests of Go clients are skipped."; exit 0; }; } && \
		go vet ./... && { go test -count=1 ./... $(call RERUN_ONCE,go test -count=1 ./...); }

test-tools: test-superset test-ibis test-dbt ## jOOQ, MyBatis, Hibernate, Spring Data JDBC and Spark over JDBC; Superset, Ibis, dbt
	cargo build --release --workspace --bins
	$(MAVEN) --file tests/jdbc-tools/pom.xml test

test-superset: $(SUPERSET_VENV)/.installed ## Apache Superset with the engine spec of the Python client
	cargo build --release --workspace --bins
	$(SUPERSET_VENV)/bin/pytest --config-file=tests/superset/pytest.ini tests/superset

$(SUPERSET_VENV)/.installed: python-client/pyproject.toml
	$(PYTHON) -m venv $(SUPERSET_VENV)
	$(SUPERSET_VENV)/bin/pip install --quiet --disable-pip-version-check --editable 'python-client[superset]'
	@touch $@

test-ibis: $(IBIS_VENV)/.installed ## Ibis' own tests of backends, and a comparison with DuckDB
	cargo build --release --workspace --bins
	cd tests/ibis && $(abspath $(IBIS_VENV))/bin/pytest -q -n 2 .
	cd tests/ibis && $(abspath $(IBIS_VENV))/bin/pytest -q -n 2 -p suite --pyargs ibis.backends.tests

$(IBIS_VENV)/.installed: python-client/pyproject.toml tests/ibis/requirements.txt
	$(PYTHON) -m venv $(IBIS_VENV)
	$(IBIS_VENV)/bin/pip install --quiet --disable-pip-version-check --editable 'python-client[ibis]' --requirement tests/ibis/requirements.txt
	@touch $@

test-dbt: $(DBT_VENV)/.installed ## dbt's own tests for adapters, and ours; they start real processes
	cargo build --release --workspace --bins
	cd tests/dbt && $(abspath $(DBT_VENV))/bin/pytest -n auto

$(DBT_VENV)/.installed: python-client/pyproject.toml tests/dbt/requirements.txt
	$(PYTHON) -m venv $(DBT_VENV)
	$(DBT_VENV)/bin/pip install --quiet --disable-pip-version-check --editable 'python-client[dbt]' \
		--requirement tests/dbt/requirements.txt
	@touch $@

wheel: setup build ## A wheel of the Python package that brings the program, in dist; compiles nothing that build has not compiled
	$(VENV)/bin/python tools/make_wheel.py $(BIN) $(DIST)

deb: build $(CARGO_DEB) ## A Debian package with units, user, man pages and completions, in dist
	packaging/debian/build.sh $(CARGO_DEB) $(DIST)

$(CARGO_DEB):
	cargo install --locked --root $(TARGET)/tools --target-dir $(TARGET)/tools/build cargo-deb@$(CARGO_DEB_RELEASE)
	rm -rf $(TARGET)/tools/build

image: build ## A container image (IMAGE), with podman or ENGINE, on a base of Debian's packages or BASE
	packaging/container/build.sh $(BIN) $(IMAGE)

licenses: setup $(CARGO_ABOUT) ## Write the licences of all libraries in the program, which each package brings
	$(VENV)/bin/python tools/third_party.py $(CARGO_ABOUT)

$(CARGO_ABOUT):
	cargo install --locked --root $(TARGET)/tools --target-dir $(TARGET)/tools/build --features cli cargo-about@$(CARGO_ABOUT_RELEASE)
	rm -rf $(TARGET)/tools/build

test-packaging: setup $(CARGO_DEB) ## Installs and runs the wheel, the Debian package and the image; needs root, the network and minutes
	cargo build --release --workspace --bins
	@PYTHON="$(PYTHON)" tools/check-needs.sh packaging || test "$$CI" != true
	CARGO_DEB=$(CARGO_DEB) $(VENV)/bin/pytest --config-file=tests/packaging/pytest.ini tests/packaging

test-terraform: setup $(TERRAFORM_VENV)/.installed ## The Terraform module: its own tests, policies, mistakes, and a cluster from what it renders
	cargo build --release --workspace --bins
	@tools/check-needs.sh terraform || true
	$(VENV)/bin/pytest tests/terraform

$(TERRAFORM_VENV)/.installed: tests/terraform/requirements.txt tools/terraform-tools.sh
	! PYTHON="$(PYTHON)" tools/terraform-tools.sh $(TERRAFORM_VENV) || touch $@

soak: setup ## Hostile users, and calls of functions that nobody would make, for ten minutes each (SOAK_SECONDS)
	cargo build --release --workspace --bins
	VOLARY_FUNCTION_SEED=$$(date +%s) VOLARY_FUNCTION_SECONDS=$(SOAK_SECONDS) VOLARY_HOSTILE_SECONDS=$(SOAK_SECONDS) $(VENV)/bin/pytest -s \
		--timeout=$$((3 * $(SOAK_SECONDS) + 600)) tests/python/test_every_function.py tests/python/test_hostile_users.py

torture: setup ## Writes and reads rows while nodes are killed, stopped, filled, torn and damaged: ROUNDS rounds from SEED
	cargo build --release --workspace --bins
	PYTHONPATH=tests/python $(VENV)/bin/python tests/torture --rounds $(ROUNDS) $(if $(SEED),--seed $(SEED))

lint: setup $(DENY) ## Clippy, ruff and our own rules, without a single warning, and what deny.toml asks of dependencies
	$(VENV)/bin/python tools/lint.py
	cargo clippy --workspace --all-targets -- -D warnings
	$(DENY) --workspace check licenses bans sources
	if $(DENY) fetch db; then $(DENY) --workspace check advisories; else echo "no database of advisories can be had: not checked"; fi
	$(VENV)/bin/ruff check $(PYTHON_SOURCES) --config python-client/pyproject.toml
	$(VENV)/bin/ruff format --check $(PYTHON_SOURCES) --config python-client/pyproject.toml
	! tools/check-needs.sh go || test -z "$$(gofmt -l tests/go)"

$(DENY):
	cargo install --locked --root $(TARGET)/tools --target-dir $(TARGET)/tools/build cargo-deny@$(DENY_RELEASE)
	rm -rf $(TARGET)/tools/build

fmt: setup ## Format everything
	cargo fmt --all
	cargo fmt --manifest-path fuzz/Cargo.toml
	$(VENV)/bin/ruff format $(PYTHON_SOURCES) --config python-client/pyproject.toml
	! tools/check-needs.sh go || gofmt -w tests/go terraform/aws/testing/schema
	! command -v terraform >/dev/null || terraform fmt -recursive terraform tests/terraform

docs: build ## Make the pages of docs that list settings, limits and metrics, and the keys that Terraform knows
	$(BIN) config --reference > docs/configuration.md
	$(BIN) config --limits > docs/limits.md
	$(BIN) config --metrics > docs/metrics.md
	$(PYTHON) tools/terraform_settings.py

bench: setup ## Run the benchmarks into benches/results, and draw them; docs/benchmarks.md says how they are read
	cargo build --release --workspace --bins
	$(dir $(BIN))volary-bench --results benches/results
	$(JDBC_BENCH) -Dbench.arguments="--results ../results"
	$(PYTHON_BENCH) --results benches/results
	cargo bench --workspace --bench hot_parts
	$(MAKE) plots

bench-jdbc: build ## Run one of them: rows through JDBC, one by one and all at once, beside PostgreSQL where it is installed
	$(JDBC_BENCH) -Dbench.arguments="--results ../results"

bench-python: setup ## Run four of them: small queries by threads and processes, large results, point queries through drivers, and lookups beside DuckDB and SQLite
	cargo build --release --workspace --bins
	$(PYTHON_BENCH) --results benches/results

bench-quick: setup ## The same in a few minutes, with smaller sizes, into a temporary directory
	cargo build --release --workspace --bins
	directory=$$(mktemp -d) && \
		$(dir $(BIN))volary-bench --quick --results $$directory/results && \
		$(JDBC_BENCH) -Dbench.arguments="--quick --results $$directory/results" && \
		$(PYTHON_BENCH) --quick --results $$directory/results && \
		$(VENV)/bin/python benches/plots/plot.py $$directory/results $$directory/plots && \
		echo "results and plots are in $$directory"

plots: setup ## Draw the raw results in benches/results into docs/benchmarks
	$(VENV)/bin/python benches/plots/plot.py benches/results docs/benchmarks

ballista: ## Install Ballista's own programs, which the benchmarks compare with; takes as long as a first build
	$(BALLISTA_INSTALL) --features flight-sql --bin ballista-scheduler ballista-scheduler@$(BALLISTA_RELEASE)
	$(BALLISTA_INSTALL) --bin ballista-executor ballista-executor@$(BALLISTA_RELEASE)
	rm -rf $(BALLISTA)/build

fuzz: ## Run each fuzz target for ten minutes (FUZZ_SECONDS, FUZZ_TARGETS); it compiles DataFusion once more, for an hour
	rustup toolchain install nightly --profile minimal
	$(FUZZ) --version || cargo install cargo-fuzz --locked
	$(FUZZ) build --release --debug-assertions --sanitizer none
	for target in $(FUZZ_TARGETS); do \
		mkdir -p fuzz/corpus/$$target && \
		$(FUZZ) run --release --debug-assertions --sanitizer none $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
			-dict=fuzz/sql.dict -max_total_time=$(FUZZ_SECONDS) -rss_limit_mb=2048 -timeout=120 -print_final_stats=1 || exit 1; \
	done

clean-data: ## Delete what the demo and local clusters wrote below volary-data
	rm -rf volary-data
