# "make help" lists the targets. Only Go is needed; "make test" installs the
# tools that some tests compare with (see scripts/deps).

# Nothing needs a C compiler, and what is built need not differ with one.
export CGO_ENABLED ?= 0

GO       ?= go
FUZZTIME ?= 20s
# Many tests wait for processes: two packages more than there are processors at
# a time, and those that take longest first.
TESTP    ?= $(shell expr $$(nproc) + 2)
# The compiler and the linker collect garbage more rarely, which takes a fifth
# less of their time. Without debugging information tests link faster; stack
# traces have lines nevertheless.
TOOLS     = -toolexec='env GOGC=400'
TESTFLAGS = $(TOOLS) -vet=off -timeout 30m -ldflags=-w
LONGEST   = ./internal/e2e ./internal/serve ./internal/difftest ./internal/supervise ./internal/engine ./resume
FAULTS   ?= 1000
SEED     ?= 1
FOR      ?= 0
PREFIX   ?= /usr/local
PLATFORMS = darwin/arm64 windows/amd64 linux/arm64 linux/s390x

.DEFAULT_GOAL := help
.PHONY: demo interconnects build lib install man test test-s3 test-long race lint cross bench gpu overhead migration tiers flake fuzz faults mutants release release-check clean help

demo: ## run a plain program with cairn run, kill it four times, and compare its results with those of an undisturbed run
	@echo "building the demo (about a minute if Go's build cache is empty)"
	@$(GO) run ./internal/demo

interconnects: ## stop and resume one run on every interconnect, and draw docs/interconnects.svg (as root: network namespaces)
	@scripts/deps
	@$(GO) run ./internal/interconnects/draw

build: ## build the cairn command and the examples into build/
	$(GO) build -o build/ ./cmd/cairn ./examples/...

lib: ## build libcairn, for C, Fortran and Python programs, into build/lib (needs a C compiler)
	@$(MAKE) --no-print-directory -C lib

install: build lib ## install the cairn command, libcairn, its headers and Fortran module under PREFIX (/usr/local)
	install -d $(DESTDIR)$(PREFIX)/bin
	install -m 755 build/cairn $(DESTDIR)$(PREFIX)/bin
	@$(MAKE) --no-print-directory -C lib install PREFIX=$(PREFIX)

man: ## write the manual pages of all commands into build/man
	$(GO) run -tags man ./cmd/cairn _man build/man

# Programs and tests need neither debugging information, which takes a tenth of
# the time to compile, nor the state of the repository.
test flake: export GOFLAGS := $(strip $(GOFLAGS) -gcflags=all=-dwarf=false -ldflags=-w -buildvcs=false)
test: ## run all checks and all tests
	@scripts/deps & $(MAKE) --no-print-directory lint; ok=$$?; wait; exit $$ok
	$(GO) test $(TESTFLAGS) -p $(TESTP) $(LONGEST) $$($(GO) list ./... | grep -v '/internal/lint$$')

lint: ## check formatting, vet, layers, words, no cgo, types on other systems
	@bad=$$(gofmt -l .); test -z "$$bad" || { echo "not formatted (run gofmt -w):"; echo "$$bad"; exit 1; }
	$(GO) vet $(TOOLS) ./...
	$(GO) test $(TESTFLAGS) ./internal/lint
	@bad=$$($(GO) list -deps . ./cmd/cairn ./examples/... | grep -x 'runtime/cgo'); \
	test -z "$$bad" || { echo "the default build uses cgo"; exit 1; }

cross: ## build for other systems, and the code that writes the manual pages
	@for p in $(PLATFORMS); do \
		echo "$(GO) build ./... # $$p"; \
		CGO_ENABLED=0 GOOS=$${p%/*} GOARCH=$${p#*/} $(GO) build ./... || exit 1; \
	done
	$(GO) vet -tags man ./cmd/cairn

bench: ## measure what checkpoints cost
	@scripts/deps bench
	$(GO) run ./internal/bench

gpu: ## measure what checkpoints of device state cost (GPUFLAGS="-part state -sizes 1,8 -device cuda", "-part restart -o docs" or "-help")
	$(GO) run ./internal/bench/gpu $(GPUFLAGS)

overhead: ## measure the cost of programs that cairn build made, without checkpoints (OVERHEADFLAGS="-rounds 9 -programs lu,vm" or "-help")
	$(GO) run ./internal/bench/restart $(OVERHEADFLAGS)

migration: ## measure the cost of moving ranks, and draw docs/migration.svg (as root: network namespaces; MIGRATIONFLAGS="-part pause -v" or "-help")
	@scripts/deps
	$(GO) run ./internal/bench/move -o docs/migration.svg $(MIGRATIONFLAGS)

tiers: ## measure storage tiers, and draw docs/tiers.svg (as root: network namespaces; TIERSFLAGS="-rounds 5 -v" or "-help")
	@scripts/deps
	$(GO) run ./internal/bench/move -part tiers,slowdown,coder -o docs/tiers.svg $(TIERSFLAGS)

flake: ## run the tests 20 times with two busy loops beside them, and report every failure (FLAKEFLAGS="-n 5 ./internal/supervise"; after an interruption it continues)
	@scripts/deps
	@scripts/flake $(FLAKEFLAGS)

fuzz: ## run every fuzz target for FUZZTIME (20s)
	@for p in $$($(GO) list ./...); do \
		for f in $$($(GO) test -list '^Fuzz' $$p | grep '^Fuzz'); do \
			echo "$$p $$f"; \
			$(GO) test -run '^$$' -fuzz "^$$f\$$" -fuzztime $(FUZZTIME) -fuzzminimizetime 1x $$p || exit 1; \
		done; \
	done

faults: ## run the fault campaign until FAULTS (1000) cases of SEED (1) are recorded in build/faults, at most for FOR=20m; after an interruption it continues (as root: with its own disks and networks)
	@scripts/deps
	@$(GO) run ./internal/faults -n $(FAULTS) -seed $(SEED) -for $(FOR) $(FAULTSFLAGS)

test-s3: ## run the tests of the S3 tier against a real server, versitygw, which is built once and kept in the user's cache directory
	CAIRN_LONG=1 $(GO) test -vet=off -count=1 -timeout 60m -v -run '^TestVersity' ./internal/tier/s3

test-long: ## run the long versions of all tests, and the race detector if there is a C compiler; takes hours
	@scripts/deps long
	@$(MAKE) --no-print-directory lint cross
	CAIRN_LONG=1 $(GO) test -vet=off -count=1 -timeout 6h ./...
	@if command -v gcc >/dev/null; then $(MAKE) --no-print-directory race; fi

race: ## run the short tests with the race detector (needs a C compiler)
	CGO_ENABLED=1 $(GO) test -race -short -count=1 -timeout 60m $$($(GO) list ./... | grep -v /internal/e2e)

mutants: ## remove one thing after another from the compiler, and check that a test notices (MUTANTS=REGEXP selects; after an interruption it continues)
	@mkdir -p build/mutants
	CAIRN_LONG=1 CAIRN_MUTANTS='$(MUTANTS)' CAIRN_MUTANTS_DIR=$(CURDIR)/build/mutants CAIRN_MUTANTS_TABLE=$(CURDIR)/docs/reliability.md \
		$(GO) test -count=1 -timeout 6h -v -run '^TestMutants$$' ./internal/difftest/oracle

release: ## build the files of a release from the current commit into build/release (VERSION=v0.1.0; see docs/release.md)
	@GO='$(GO)' scripts/release '$(VERSION)'

release-check: ## build a release twice, in different directories and without caches, and compare the files
	@GO='$(GO)' scripts/release-check

clean: ## remove what was built
	rm -rf build bin

help: ## show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-13s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
