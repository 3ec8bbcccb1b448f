# Every target builds the virtual environment it needs. `make help` lists them.
.DEFAULT_GOAL := help
.PHONY: help install demo test test-core test-slow test-chaos test-compose test-random test-hostile test-mutants test-privacy test-flower test-flower-faults test-deployment test-hf test-loaders test-ray test-trackers test-notebook test-lowest test-pythons check bench bench-selectors bench-compression bench-scaling bench-peers gpu docs release-check clean

help:  ## list these targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-19s %s\n", $$1, $$2}'

install:  ## build .venv with pinned versions
	@scripts/install

demo: install  ## three selectors on scikit-learn's digits, a table and a report
	@scripts/demo

test: install  ## the test suite (about 11 minutes)
	@scripts/test

# make test runs these, too: a minute of random draws that a change seldom needs at once
RANDOM = tests/motley/engines/test_fuzzed_models.py tests/motley/resume/test_compositions.py tests/motley/resume/test_random_checks.py
test-core: install  ## the tests of the library alone, without deployments, recipes, pages and random experiments
	@scripts/test tests/motley packages/motley $(RANDOM:%=--ignore=%)

test-slow: install  ## the long tests: 30 kills and resumes, statistics
	@scripts/test -m slow

test-chaos: install  ## 1,000 kills of 150 random experiments, resumed and compared bit for bit (about 20 minutes)
	@scripts/test-chaos --log build/chaos.jsonl --summary benchmarks/results/chaos.json

test-compose: install  ## 20,000 random compositions of all components, run whole, again, and killed and resumed (2 to 4 hours; resumable)
	@scripts/compose --count 20000 --log build/compose.jsonl --summary benchmarks/results/compose.json

test-random: install  ## random experiments on other engines, killed, extended, from files, renamed, in grids, deployed (an hour, or MINUTES=5; resumable)
	@scripts/test-random --count 1000000 --minutes $(or $(MINUTES),60) --log build/random.jsonl --summary benchmarks/results/random.json

test-hostile: install  ## 600 changes in the files of runs: none may be believed (about 5 minutes)
	@scripts/test-hostile --summary benchmarks/results/hostile.json

test-mutants: install  ## 300 small changes of the code: how many do the tests notice? (about 7 hours of one core; resumable)
	@.venv/bin/python scripts/mutants.py --log build/mutants.jsonl

test-privacy: install  ## runs that differ in one client's data, with the same releases, for every combination (30 minutes at most)
	@scripts/test-privacy --summary benchmarks/results/privacy.json

test-flower:  ## the Flower adapter on real processes (20 minutes, 35 beside other work; builds .venv-flower)
	@scripts/test-flower

test-flower-faults:  ## faults in real deployments: killed, paused, late, full disks (about 30 minutes; builds .venv-flower)
	@scripts/test-flower-faults

test-deployment:  ## the doors of a deployment: SuperLink, SuperNodes, proxy, outsider (5 minutes; needs nginx; builds .venv-flower)
	@scripts/test-deployment

test-hf:  ## models of Hugging Face with adapters (1 minute; builds .venv-hf)
	@scripts/test-hf

test-loaders:  ## data sets of Hugging Face, Flower's partitioners, pandas, Polars and Excel (1 minute; builds .venv-loaders)
	@scripts/test-loaders

test-ray:  ## the engine on a Ray cluster of two nodes (about 10 minutes; builds .venv-ray)
	@scripts/test-ray

test-trackers:  ## trackers against MLflow, its server, and W&B themselves; ONNX against onnxruntime (2 minutes; builds .venv-trackers)
	@scripts/test-trackers

test-notebook: install  ## the example notebook in a kernel (1 minute)
	@scripts/test-notebook

test-lowest:  ## the test suite with the lowest versions that pyproject.toml declares (builds .venv-lowest)
	@scripts/test-lowest

test-pythons:  ## the test suite on the other versions of Python on this machine (builds .venv-3.12, .venv-3.13)
	@scripts/test-pythons

check: install  ## ruff and mypy
	@scripts/check

bench: install  ## speed against a plain PyTorch loop; writes benchmarks/results/*.json
	@scripts/bench

bench-selectors: install  ## time and memory of every selector, 10^3 to 10^6 clients
	@scripts/bench-selectors

bench-compression: install  ## time, bytes and memory of every compressor on one update
	@scripts/bench-compression

bench-scaling: install  ## every engine beside every other (about 6 minutes; with Ray where make test-ray has installed it)
	@scripts/bench-scaling

bench-peers: install  ## Motley beside Flower, pfl-research, FLGo, NVFlare, FedLab, fluke, BlazeFL and FedJAX (an hour; builds their environments; FRESH=1 measures anew)
	@scripts/bench-peers $(if $(FRESH),--fresh)

gpu:  ## all that waits for a GPU: tests, agreement, speed, pfl-research's benchmark, the recipes' rows (40 minutes; resumable; OUT=folder)
	@scripts/gpu $(if $(OUT),--out $(OUT)) $(if $(MINUTES),--minutes $(MINUTES))

docs: install  ## build the documentation into site/
	@scripts/docs

release-check: install  ## build wheel and source distribution, check them, install each far from here, run the demo (10 to 30 minutes)
	@scripts/release-check

clean:  ## remove what the other targets made
	rm -rf .venv .venv-flower .venv-ray .venv-trackers .venv-hf .venv-loaders .venv-lowest .venv-3.* benchmarks/peers/.venv-* site dist build .pytest_cache .mypy_cache .ruff_cache
