# The project's front door: `make demo` and `make test` each set up everything they need, in .venv.
# Kept to what make 3.81 (macOS) and a POSIX shell understand.

SHELL = /bin/sh
VENV = .venv
BIN = $(VENV)/bin
LOGS = build/logs

DEMO_MODELS = qwen2.5-coder-1.5b qwen2.5-coder-0.5b
TEST_MODELS = smollm2-135m gemma-3-270m $(DEMO_MODELS)

# Options for pytest, such as ARGS="-k sampling"
ARGS =
# For `make verify`: a file of prompts, one JSON object a line
PROMPTS =

NATIVE = CMakeLists.txt $(foreach at,*/* */*/* */*/*/*,$(wildcard $(addprefix src/pilotfish/$(at).,cpp h inl)))

CPP = $(filter-out %.txt,$(NATIVE)) $(foreach at,* */*,$(wildcard $(addprefix tests/kernels/emulated/$(at).,cpp h)))

export PIP_DISABLE_PIP_VERSION_CHECK = 1

# $(call quietly,LOG,COMMAND) runs a command and shows what it says only if it fails.
quietly = mkdir -p $(LOGS); { $(2); } >$(LOGS)/$(1) 2>&1 || { status=$$?; \
	tail -n 30 $(LOGS)/$(1) >&2; echo "Failed; the whole log is in $(LOGS)/$(1)" >&2; exit $$status; }

comma = ,

# $(call requirements,LIST) prints the entries of a list that is made from the parsed pyproject.toml, one a line.
requirements = $(BIN)/python -c 'import tomllib; \
	toml = tomllib.load(open("pyproject.toml", "rb")); print("\n".join($(1)))'
NEEDED = toml["build-system"]["requires"] + toml["project"]["dependencies"] + ["cmake"] + ["ninja"]
# Not by the name of the package itself: where it is not installed yet, the index would be asked for it.
NEEDED_BY_TESTS = [p for p in toml["project"]["optional-dependencies"]["dev"] if not p.startswith("pilotfish[")] \
	+ toml["project"]["optional-dependencies"]["server"]
PEERS = [p for p in toml["project"]["optional-dependencies"]["peers"] if p.startswith("llama-cpp-python")]

.PHONY: help demo test check format stubs peers references clients models demo-models verify verify-prompts emulate emulate-tools clean
.PHONY: fuzz sanitize sanitize-tools soak

help: ## show these targets (the default)
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-8s  %s\n", $$1, $$2 }' Makefile

demo: demo-models ## answer one prompt plain and with drafting, side by side (fetches 1.6 GB once)
	@$(BIN)/pilotfish demo

test: models $(VENV)/.dev ## run the tests; ARGS="-k WORD" picks some
	@echo "==> running the tests (a few minutes)"
	@$(BIN)/python -m pytest $(ARGS)

check: $(VENV)/.installed $(VENV)/.dev ## lint, formatting and types: ruff and mypy --strict
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/clang-format --dry-run -Werror $(CPP)
	@$(BIN)/mypy

format: $(VENV)/.dev ## format the code and apply the safe fixes
	@$(BIN)/ruff check --fix-only
	@$(BIN)/ruff format
	@$(BIN)/clang-format -i $(CPP)

stubs: $(VENV)/.installed ## write the type stub of the C++ module anew
	@$(BIN)/python -m nanobind.stubgen -q -m pilotfish.kernels._kernels -o src/pilotfish/kernels/_kernels.pyi

# Anew, and not from the cache: what is there may have been compiled for another processor.
peers: $(VENV)/.packages ## compile llama.cpp for this processor, for `bench passes --peer` (10 to 15 minutes)
	@echo "==> compiling llama-cpp-python for this processor (10 to 15 minutes on two cores)"
	@. ./$(VENV)/.preflight; export CXX; \
	$(call quietly,peers.log,$(call requirements,$(PEERS)) >$(VENV)/peers.txt \
		&& CMAKE_ARGS="-DGGML_NATIVE=ON" $(BIN)/pip install --force-reinstall --no-deps --no-cache-dir \
			--no-binary llama-cpp-python -r $(VENV)/peers.txt && $(BIN)/pip install -r $(VENV)/peers.txt)

# An environment of its own: torch is large. From the second index comes torch without CUDA.
REFERENCES = build/references
references: $(VENV)/.installed $(VENV)/.dev ## compare each model family with the transformers library (fetches 0.3 GB)
	@test -x $(REFERENCES)/bin/python || $(BIN)/python -m venv $(REFERENCES)
	@echo "==> installing torch and transformers in $(REFERENCES) (a few minutes the first time)"
	@$(call quietly,references.log,$(call requirements,toml["project"]["optional-dependencies"]["references"]) \
		>$(REFERENCES)/packages.txt && $(REFERENCES)/bin/pip install --retries 1 \
		--extra-index-url https://download.pytorch.org/whl/cpu -r $(REFERENCES)/packages.txt)
	@$(BIN)/python benchmarks/references.py $(REFERENCES)/bin/python --out docs/results/references.json

# An environment of its own: these need 80 packages. Nothing in them is fetched while they run.
CLIENTS = build/clients
clients: $(VENV)/.installed $(VENV)/.dev ## try litellm, lm_eval, LangChain and llm at a server (1.1 GB of packages)
	@$(BIN)/pilotfish pull smollm2-135m
	@test -x $(CLIENTS)/bin/python || $(BIN)/python -m venv $(CLIENTS)
	@echo "==> installing other programs' packages in $(CLIENTS) (some minutes the first time)"
	@$(call quietly,clients.log,$(call requirements,toml["project"]["optional-dependencies"]["clients"]) \
		>$(CLIENTS)/packages.txt && $(CLIENTS)/bin/pip install --retries 1 -r $(CLIENTS)/packages.txt)
	@PILOTFISH_CLIENTS=$(CLIENTS)/bin/python $(BIN)/python -m pytest tests/server/clients/other $(ARGS)

models: $(VENV)/.installed ## fetch the models that the tests and the demo use (2.0 GB)
	@for model in $(TEST_MODELS); do $(BIN)/pilotfish pull $$model || exit $$?; done

demo-models: $(VENV)/.installed
	@for model in $(DEMO_MODELS); do $(BIN)/pilotfish pull $$model || exit $$?; done

# $(call verify,NAME,ARGUMENTS) keeps the JSON line of one comparison, and shows it.
verify = echo "==> pilotfish verify $(2)"; mkdir -p build/verify; \
	$(BIN)/pilotfish verify $(2) --prompts "$(PROMPTS)" --temperatures 0,0.8 --draft-lengths 1,4,8,16 \
		--max-tokens 64 --json >build/verify/$(1).json; \
	status=$$?; cat build/verify/$(1).json; exit $$status

verify: verify-prompts models ## compare plain and speculative answers bit by bit (most of an hour); PROMPTS=FILE.jsonl
	@$(call verify,qwen-model,-m qwen2.5-coder-1.5b -d qwen2.5-coder-0.5b --limit 13)
	@$(call verify,qwen-suffix,-m qwen2.5-coder-1.5b -d suffix --limit 13)
	@$(call verify,smollm2-suffix,-m smollm2-135m -d suffix --limit 52)

verify-prompts:
	@test -f "$(PROMPTS)" || { \
		echo "make verify needs a file of prompts: make verify PROMPTS=path/to/prompts.jsonl" >&2; \
		echo "(one JSON object a line with \"prompt\" or \"turns\"; found: \"$(PROMPTS)\")" >&2; exit 1; }

# $(call emulate,ISA,COMPILER,ITS FLAGS,EMULATOR) compares the kernels of one instruction set with the portable ones.
EMULATED = build/emulated
EMULATED_FLAGS = -std=c++17 -O3 -ffp-contract=off -fno-math-errno -Isrc/pilotfish/kernels
emulate = echo "==> building $(1) for emulation"; mkdir -p $(EMULATED) $(LOGS); { \
	$(2) $(EMULATED_FLAGS) -c src/pilotfish/kernels/isa_portable.cpp -o $(EMULATED)/portable.o && \
	$(2) $(EMULATED_FLAGS) $(3) -c src/pilotfish/kernels/isa_$(1).cpp -o $(EMULATED)/$(1).o && \
	$(2) $(EMULATED_FLAGS) -static -DPILOTFISH_KERNELS=kernels_$(1) tests/kernels/emulated/compare.cpp \
		$(EMULATED)/portable.o $(EMULATED)/$(1).o -o $(EMULATED)/$(1); \
	} >$(LOGS)/emulate.log 2>&1 || { tail -n 30 $(LOGS)/emulate.log >&2; exit 1; }; \
	$(4) $(EMULATED)/$(1) >$(EMULATED)/$(1).digest
SIMDE = -isystem tests/kernels/emulated/simde -Wno-psabi -O1 -mavx2 -mfma -mf16c

emulate: emulate-tools ## compare kernels for ARM, AVX-VNNI and AVX-512 with the portable ones, under emulation
	@$(call emulate,neon,aarch64-linux-gnu-g++,-march=armv8.2-a+dotprod,qemu-aarch64 -cpu max)
	@$(call emulate,avxvnni,g++,$(SIMDE),)
	@$(call emulate,avx512,g++,$(SIMDE),)
	@for isa in avxvnni avx512; do cmp $(EMULATED)/neon.digest $(EMULATED)/$$isa.digest || exit $$?; done
	@echo "the portable kernels give the same results on ARM and x86-64"

emulate-tools:
	@grep -qw avx2 /proc/cpuinfo 2>/dev/null && test "$$(uname -m)" = x86_64 || { \
		echo "make emulate needs Linux on x86-64 with AVX2; on other machines, make test compares what they have" >&2; \
		exit 1; }
	@missing=; test -e /usr/include/simde/x86/avx512.h || missing=simde; \
	for tool in g++ aarch64-linux-gnu-g++ qemu-aarch64; do command -v $$tool >/dev/null || missing=$$tool; done; \
	test -z "$$missing" || { \
		echo "make emulate needs a compiler for ARM, an emulator of ARM and SIMDe. Type (Debian, Ubuntu):" >&2; \
		echo "  sudo apt-get install -y g++ g++-aarch64-linux-gnu qemu-user libsimde-dev" >&2; exit 1; }

# For `make soak`: on what, and how long
SOAK_MODEL = qwen2.5-coder-1.5b
MINUTES = 5

soak: models $(VENV)/.dev ## load a server for MINUTES=5 and compare each answer with the same request alone
	@$(BIN)/python benchmarks/serve.py soak -m $(SOAK_MODEL) --minutes $(MINUTES)

# For `make fuzz`: how many files, and which
COUNT = 10000
SEED = 0

fuzz: $(VENV)/.installed $(VENV)/.dev ## damage COUNT=10000 model files, from SEED=0 on, and load each (half an hour)
	@PYTHONPATH=tests $(BIN)/python -m fuzz.run --count $(COUNT) --seed $(SEED)

# A build of its own: the installed one stays. Tests find it by tests/sanitized/sitecustomize.py.
SANITIZED = build/sanitized
SANITIZED_TESTS = tests/kernels tests/engines tests/contract tests/oracle tests/test_decode.py
# What is freed and kept for checks would count as memory taken.
sanitized = LD_PRELOAD="$$("$$CXX" -print-file-name=libasan.so) $$("$$CXX" -print-file-name=libstdc++.so.6)" \
	ASAN_OPTIONS=detect_leaks=0:quarantine_size_mb=1 UBSAN_OPTIONS=print_stacktrace=1 \
	SANITIZED_KERNELS="$$(ls $$PWD/$(SANITIZED)/_kernels*.so)" PYTHONPATH=$$PWD/tests/sanitized:$$PWD/tests

sanitize: $(VENV)/.installed $(VENV)/.dev sanitize-tools ## run the tests of kernels and engines on kernels that check memory
	@echo "==> building the kernels with checks of addresses and undefined behaviour (some minutes the first time)"
	@. ./$(VENV)/.preflight; export CXX; $(call quietly,sanitize.log,export PATH="$$PWD/$(BIN):$$PATH"; \
		cmake -S . -B $(SANITIZED) -G Ninja -DCMAKE_BUILD_TYPE=RelWithDebInfo \
			-DPILOTFISH_SANITIZE=address$(comma)undefined -DPython_EXECUTABLE="$$PWD/$(BIN)/python" \
			-Dnanobind_DIR="$$(python -m nanobind --cmake_dir)" && cmake --build $(SANITIZED))
	@echo "==> running tests and damaged files on them"
	@. ./$(VENV)/.preflight; $(sanitized) $(BIN)/python -m pytest -p no:faulthandler -o timeout=1800 \
		$(SANITIZED_TESTS) $(ARGS)
	@. ./$(VENV)/.preflight; $(sanitized) $(BIN)/python -m fuzz.run --count 300 --most-s 30

sanitize-tools: $(VENV)/.created
	@. ./$(VENV)/.preflight; test -f "$$("$$CXX" -print-file-name=libasan.so)" || { \
		echo "make sanitize needs Linux and g++ with libasan; the compiler here is $$CXX" >&2; exit 1; }

clean: ## remove what was built here, .venv included; the models stay in their cache
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# Stamps: each is younger than everything it was made from.

# Any Python will do to look for the right one.
$(VENV)/.created:
	@for python in python3 python3.13 python3.12 python3.11 python3.14; do \
		$$python -c 'import sys' >/dev/null 2>&1 && break; python=; \
	done; \
	if test -z "$$python"; then \
		echo "pilotfish needs Python 3.11 or newer, and there is no python3 here. Type the one for your system:" >&2; \
		echo "  sudo apt-get install -y g++ python3 python3-dev python3-venv   (Debian, Ubuntu)" >&2; \
		echo "  sudo dnf install -y gcc-c++ python3.12 python3.12-devel        (Fedora, RHEL)" >&2; \
		echo "  brew install python@3.13                                       (macOS)" >&2; exit 1; \
	fi; \
	mkdir -p $(VENV); $$python scripts/preflight.py --write $(VENV)/.preflight >/dev/null
	@. ./$(VENV)/.preflight; echo "==> making $(VENV) with $$PYTHON (a few seconds)"; \
	$(call quietly,venv.log,"$$PYTHON" -m venv $(VENV))
	@touch $@

$(VENV)/.packages: $(VENV)/.created pyproject.toml
	@echo "==> installing what pilotfish needs and is built with (about a minute)"
	@$(call quietly,packages.log,$(call requirements,$(NEEDED)) >$(VENV)/packages.txt \
		&& $(BIN)/pip install -r $(VENV)/packages.txt)
	@touch $@

# Without build isolation, so that a changed kernel rebuilds that kernel only.
$(VENV)/.installed: $(VENV)/.packages pyproject.toml $(NATIVE)
	@echo "==> building the kernels (a minute or two the first time)"
	@. ./$(VENV)/.preflight; export CXX; \
	$(call quietly,build.log,PATH="$$PWD/$(BIN):$$PATH" $(BIN)/pip install --no-build-isolation --no-deps -e .)
	@touch $@

$(VENV)/.dev: $(VENV)/.packages pyproject.toml
	@echo "==> installing what the tests need (about a minute)"
	@$(call quietly,dev.log,$(call requirements,$(NEEDED_BY_TESTS)) >$(VENV)/dev.txt \
		&& $(BIN)/pip install -r $(VENV)/dev.txt)
	@touch $@
