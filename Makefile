# SPDX-License-Identifier: Apache-2.0 OR MIT
#
# Timewire: build, prove, measure. `make` alone lists the targets.

CARGO ?= cargo
TARGET_DIR := $(or $(CARGO_TARGET_DIR),target)
# For the demo: DEMO_FLAGS=--quick
DEMO_FLAGS ?=

# Where rustup puts cargo, in case `make setup` has just installed it.
export PATH := $(or $(CARGO_HOME),$(HOME)/.cargo)/bin:$(PATH)
# Cargo with its progress told, also where there is no terminal.
BUILD := CARGO="$(CARGO)" scripts/cargo.sh build

.PHONY: help
help: ## print this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: setup
setup: ## install what the build needs and this machine lacks (Debian: apt as root; Rust: rustup)
	@scripts/setup.sh demo

# A verdict is no error of make: on a busy machine limits fail.
.PHONY: demo
demo: ## build Timewire and run the experiment in the local laboratory (DEMO_FLAGS=--quick)
	@scripts/setup.sh demo --then $(if $(findstring --quick,$(DEMO_FLAGS)),15,90)
	@$(BUILD) --release --package timewire-cli
	@$(TARGET_DIR)/release/timewire demo $(DEMO_FLAGS) || [ $$? -eq 1 ]

.PHONY: lab
lab: ## build the laboratory's kernel (once, some minutes), and run the same experiment in it, exactly
	@scripts/setup.sh lab
	@$(BUILD) --release --package timewire-cli
	@$(TARGET_DIR)/release/timewire lab uml
	@$(TARGET_DIR)/release/timewire demo --on lab:uml $(DEMO_FLAGS)

.PHONY: lib
lib: setup ## build libtimewire for programs in C, C++ and Python; prints where header and library are
	@$(BUILD) --release --package timewire-capi
	@scripts/stage-library.sh $(TARGET_DIR)/release $(TARGET_DIR)/libtimewire

.PHONY: package
package: export CARGO_PROFILE_RELEASE_DEBUG = line-tables-only
package: ## build Debian packages, the static command, a Python wheel, and their bills, in target/packages
	@scripts/setup.sh package
	@scripts/link-static.sh $(TARGET_DIR)/release
	@$(BUILD) --release --package timewire-cli --package timewire-capi
	@scripts/package.sh $(TARGET_DIR)/release $(TARGET_DIR)/packages

.PHONY: test
test: ## format, lints, licences, repository rules, all tests; ends with `N passed, N failed, N skipped`
	@scripts/setup.sh test
	@$(BUILD) --package xtask
	@$(CARGO) xtask test

.PHONY: bench
bench: ## all benchmarks, then the instruction count gate
	@scripts/setup.sh bench
	@$(BUILD) --package xtask
	@$(CARGO) xtask bench

.PHONY: fmt
fmt: ## format the sources
	@$(CARGO) fmt --all

.PHONY: clean
clean: ## remove what was built
	@$(CARGO) clean --quiet
