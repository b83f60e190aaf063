# The project's front door: `make demo` and `make test` each set up everything they need, in .venv.
# Kept to what make 3.81 (macOS) and a POSIX shell understand.

SHELL = /bin/sh
VENV = .venv
BIN = $(VENV)/bin
LOGS = build/logs

DEMO_MODELS = qwen2.5-coder-1.5b qwen2.5-coder-0.5b
TEST_MODELS = smollm2-135m $(DEMO_MODELS)

# Options for pytest, such as ARGS="-k sampling"
ARGS =
# For `make verify`: a file of prompts, one JSON object a line
PROMPTS =

NATIVE = CMakeLists.txt $(foreach at,*/* */*/* */*/*/*,$(wildcard $(addprefix src/pilotfish/$(at).,cpp h inl)))

CPP = $(filter-out %.txt,$(NATIVE))

export PIP_DISABLE_PIP_VERSION_CHECK = 1

# $(call quietly,LOG,COMMAND) runs a command and shows what it says only if it fails.
quietly = mkdir -p $(LOGS); { $(2); } >$(LOGS)/$(1) 2>&1 || { status=$$?; \
	tail -n 30 $(LOGS)/$(1) >&2; echo "Failed; the whole log is in $(LOGS)/$(1)" >&2; exit $$status; }

# $(call requirements,LIST) prints the entries of a list that is made from the parsed pyproject.toml, one a line.
requirements = $(BIN)/python -c 'import tomllib; \
	toml = tomllib.load(open("pyproject.toml", "rb")); print("\n".join($(1)))'
NEEDED = toml["build-system"]["requires"] + toml["project"]["dependencies"] + ["cmake"] + ["ninja"]
NEEDED_BY_TESTS = toml["project"]["optional-dependencies"]["dev"]

.PHONY: help demo test check format stubs models demo-models verify verify-prompts clean

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

models: $(VENV)/.installed ## fetch the models that the tests and the demo use (1.7 GB)
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
