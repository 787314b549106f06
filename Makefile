# What a developer runs. `make` lists the targets.

CARGO ?= cargo
PREFIX ?= /usr/local
# What `install` installs, and `limiters` and `wild` measure: a program that is built already, or nothing, and they build one.
PROGRAM ?=
FUZZ_SECONDS ?= 60
# The packages that are tested. Benchmarks, their report and the example crawler bring libraries of others, which no test needs.
TESTED := --locked --workspace --exclude fetchwise-benches --exclude fetchwise-bench-report --exclude fetchwise-example-crawler --all-features
# cargo-nextest where it is installed; CARGO_NEXTEST= says that it is not.
CARGO_NEXTEST ?= $(shell command -v cargo-nextest)
# The profile in .config/nextest.toml: default, gate or long.
PROFILE ?= default
# What plain `cargo test` runs, and the tests with programs of others. Naming targets leaves out the examples, which a test starts.
ALL_TARGETS := --lib --bins --test '*'
# Further arguments of the test runner for `test` and `test-system`, such as --no-fail-fast or --test program.
TEST_FLAGS ?=
# The packages that `make test-system` builds and tests as they are installed.
BINDINGS ?= python node
# Many tests wait for servers and pauses more than they compute.
export RUST_TEST_THREADS ?= $(shell echo $$((4 + 2 * $$(getconf _NPROCESSORS_ONLN))))
export NEXTEST_TEST_THREADS ?= $(RUST_TEST_THREADS)
# The cases of a property test, unless it sets its own number. Some run a multiple or a part of it. They are the same cases every time;
# `.ci/run long` draws another seed for each run.
export PROPTEST_CASES ?= 64
export PROPTEST_RNG_SEED ?= 1
SKIPPED_LIST = $(abspath $(or $(CARGO_TARGET_DIR),target))/skipped-tests.txt
# Arguments of the report: --quick, --full, --only SUBJECT, --out DIR.
BENCH_REPORT ?=
# Arguments of `limiters`: --quick, --seconds N, --seed N.
LIMITERS ?=
# Arguments of `wild`: --list, --only HOST,HOST, --quick, --peers, --kept.
WILD ?=
SHELL_PAGES := lab/testsite/src/pages/react-shell

.DEFAULT_GOAL := help
.PHONY: help test list-tests test-system check book fmt clippy doc fuzz fault-suite fleet-suite fleet-demo fleet-testbed bench bench-report instructions instructions-bless api api-bless react-shell uplot pictures terminal-pictures crawl chromium nginx nats-server prometheus yt-dlp limits limiters wild fleet-queue warc-tools peers python node examples install release ci

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  %-18s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

test: ## Run the tests that need nothing but Rust (and those with Chromium or Python, where these are installed)
	@mkdir -p $(dir $(SKIPPED_LIST)) && rm -f $(SKIPPED_LIST)
ifneq ($(CARGO_NEXTEST),)
	$(if $(filter default,$(PROFILE)),,$(CARGO) build $(TESTED) --examples)
	FETCHWISE_SKIPPED_LIST=$(SKIPPED_LIST) $(CARGO) nextest run $(TESTED) $(if $(filter default,$(PROFILE)),,$(ALL_TARGETS)) --profile $(PROFILE) $(TEST_FLAGS)
	$(CARGO) test $(TESTED) --doc
else
	FETCHWISE_SKIPPED_LIST=$(SKIPPED_LIST) $(CARGO) test $(TESTED) $(TEST_FLAGS)
	$(if $(filter default,$(PROFILE)),,FETCHWISE_SKIPPED_LIST=$(SKIPPED_LIST) $(CARGO) test $(TESTED) --test system $(TEST_FLAGS))
endif
	@if [ -f $(SKIPPED_LIST) ]; then echo; sort $(SKIPPED_LIST) | uniq -c | sed 's/^ *\([0-9]*\) \(.*\)/SKIPPED: \2: \1/'; fi

# For .ci/tiers: what nextest says of each test, as JSON.
list-tests:
	@$(CARGO) nextest list $(TESTED) $(ALL_TARGETS) --profile $(PROFILE) --message-format json

test-system: chromium nats-server nginx prometheus yt-dlp warc-tools ## Install Chromium, NATS, nginx, Prometheus, yt-dlp, warcio and pywb where missing, and run all tests, and those of the Python and Node packages
	FETCHWISE_SYSTEM_TESTS=1 $(MAKE) test PROFILE=long
	$(if $(BINDINGS),$(MAKE) $(BINDINGS))

check: ## Check format, lints and unit tests of the crates that changed on this branch (since main)
	@.ci/check

chromium: ## Make sure that there is a Chromium
	@.ci/chromium

yt-dlp: ## Make sure that there is a yt-dlp, in target/ when there is none on the PATH
	@.ci/yt-dlp

warc-tools: ## Make sure that there are warcio and pywb, in target/warc-tools
	@.ci/warc-tools

nginx: ## Make sure that there is an nginx
	@.ci/nginx

nats-server: ## Make sure that there is a NATS server, in target/nats-server
	@.ci/nats-server

prometheus: ## Make sure that there is a Prometheus
	@.ci/prometheus

limits: nginx ## Crawl servers that limit, for some ten minutes, and print what they refused
	$(CARGO) test --locked --workspace --all-features --test system -- --ignored limits:: --nocapture --test-threads 4

fleet-queue: nats-server ## Fetch a queue of 100,000 links with three nodes, of which one is killed and one cut off, and check that each link has one result (some two minutes)
	FETCHWISE_SYSTEM_TESTS=1 $(CARGO) test --locked --workspace --all-features --test system -- --ignored a_large_queue --nocapture

limiters: ## Crawl twelve hosts with limiters, twice and on a busy machine, and write docs/reports/limiters.md (a quarter of an hour; wants an idle machine)
	$(if $(PROGRAM),,$(CARGO) build --locked --profile dist -p fetchwise-cli --features full)
	@python3 lab/limiters.py --fetchwise $(or $(PROGRAM),$(or $(CARGO_TARGET_DIR),target)/dist/fetchwise) --write docs/reports/limiters.md $(LIMITERS)

wild: ## Crawl software that others wrote, limiters and applications, and write docs/reports/wild.md (two hours; WILD=--quick takes minutes)
	$(if $(PROGRAM)$(filter --list --kept,$(WILD)),,$(CARGO) build --locked --profile dist -p fetchwise-cli --features full)
	@python3 lab/wild --program $(or $(PROGRAM),$(or $(CARGO_TARGET_DIR),target)/dist/fetchwise) --write docs/reports/wild.md $(WILD)

python: ## Build the Python package and test it as it is installed (some ten minutes)
	@.ci/python

node: ## Build the package for Node and test it as it is installed (some five minutes)
	@.ci/node

examples: ## Run the examples that are packages of their own
	@.ci/examples

book: ## Build the documentation as a book, in target/book (the first time compiles mdbook, which takes minutes)
	@.ci/book

fmt: ## Format the code
	$(CARGO) fmt --all
	$(CARGO) fmt --manifest-path fuzz/Cargo.toml
	$(CARGO) fmt --manifest-path .ci/public-api/Cargo.toml

clippy: ## Lint everything, with every feature and with each alone
	.ci/run clippy selector features

doc: ## Build the API documentation
	.ci/run html

fuzz: ## Run each fuzz target for FUZZ_SECONDS (60)
	FUZZ_SECONDS=$(FUZZ_SECONDS) .ci/fuzz

fault-suite: ## Run the log's fault suite, the long way, and write its summary into docs/reports/reliability.md
	.ci/fault-suite docs/reports/reliability.md

fleet-suite: ## Run the fleet's fault suite against real brokers, the long way, and write its table into docs/reports/fleet.md
	.ci/fleet-suite docs/reports/fleet.md

fleet-demo: ## Run three brokers and three nodes on loopback, kill one of each, and show that nothing was lost
	@.ci/fleet-demo

fleet-testbed: chromium ## Crawl the testbed with one node, ten apart and ten that share, and write the table into docs/reports/fleet.md (ten minutes)
	@.ci/fleet-testbed

bench: ## Run the benchmarks
	$(CARGO) bench --locked -p fetchwise-benches

bench-report: ## Measure everything side by side and write docs/reports/benchmarks.md (some ten minutes; wants an idle machine)
	$(CARGO) build --locked --profile bench -p fetchwise-cli
	$(CARGO) run --locked --profile bench -p fetchwise-bench-report -- $(BENCH_REPORT)

instructions: ## Count the instructions of the hot paths; fail where they have grown
	.ci/instructions

instructions-bless: ## Keep the counts of now
	.ci/instructions --bless

api: ## Compare the library's public API with .ci/public-api/*.txt
	.ci/api

api-bless: ## Write .ci/public-api/*.txt as the public API is now
	.ci/api --bless

react-shell: ## Rebuild the demo's React app and copy it to where it is embedded
	cd lab/testsite/web/react-shell && npm ci && npm run build
	rm -f $(SHELL_PAGES)/*
	cp lab/testsite/web/react-shell/dist/index.html $(SHELL_PAGES)/index.html
	cp lab/testsite/web/react-shell/dist/assets/*.js $(SHELL_PAGES)/app.js
	cp lab/testsite/web/react-shell/dist/assets/*.css $(SHELL_PAGES)/app.css
	cp lab/testsite/web/react-shell/node_modules/react/LICENSE $(SHELL_PAGES)/LICENSE-react.txt

uplot: ## Fetch the dashboard's chart library again, in the pinned version
	.ci/uplot

pictures: chromium nats-server ## Take the pictures of docs/guides/dashboard.md again (PICTURES_OF=DIR: of the log in DIR)
	$(CARGO) build --locked --workspace --all-features --bin fetchwise-lab
	$(CARGO) test --locked --workspace --all-features --test system -- --ignored pictures

terminal-pictures: chromium ## Take the pictures of a crawl on a terminal again: docs/images/crawl-*.svg (installs pyte)
	@.ci/terminal-pictures

crawl: chromium ## Crawl 2,000 URLs on ten sites of the testbed and write docs/reports/crawl.md (half an hour, most of it waiting; wants an idle machine)
	@.ci/crawl --write docs/reports/crawl.md

peers: chromium ## Crawl the testbed with other crawlers, too, and write docs/reports/peers.md (up to an hour; wants an idle machine)
	.ci/peers

install: ## Install the program with every feature, its manual pages and completions below PREFIX (/usr/local)
	$(if $(PROGRAM),,$(CARGO) build --locked --profile dist -p fetchwise-cli --features full)
	install -Dm755 $(or $(PROGRAM),$(or $(CARGO_TARGET_DIR),target)/dist/fetchwise) $(DESTDIR)$(PREFIX)/bin/fetchwise
	.ci/manual $(DESTDIR)$(PREFIX)/bin/fetchwise $(DESTDIR)$(PREFIX)/share

release: ## Do all of a release but the upload, into target/artifacts
	.ci/release

ci: ## Run the gate, as CI does for each change (`.ci/run long` is what it does every night)
	.ci/run
