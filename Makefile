# Verbs only; each is one line into cargo or hack/.
.DEFAULT_GOAL := help
.PHONY: help build test verify generate bench bench-paper bench-check demo cluster-up cluster-down clean

help: ## Print this
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

build: ## Compile everything
	cargo build --workspace

test: ## Run all three tiers of tests; `hack/test.sh 1 2` runs some
	hack/test.sh

verify: ## Regenerate and check all that can be checked without running it
	hack/verify.sh

generate: ## Write the custom resource definitions and manifests/install.yaml anew
	hack/generate.sh

bench: ## Print the tables of performance
	hack/bench.sh

bench-paper: ## Run every benchmark of the decisions and write docs/benchmarks.md anew (SEEDS=20; 10 minutes)
	hack/bench-paper.sh

bench-check: ## Hold short runs of them against ranges, a line each
	hack/bench-check.sh

demo: ## Show it at work on a real local cluster
	hack/demo.sh

cluster-up: ## Start a local cluster of two nodes with our chart
	hack/cluster.sh up

cluster-down: ## End it and leave nothing
	hack/cluster.sh down

clean: ## Remove what was built here (not the cache in ~/.cache/migpool)
	cargo clean
