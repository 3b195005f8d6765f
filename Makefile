# make demo   set up, build, and show how many more calls a two-hop mesh carries
# make test   everything that is tested, the parts that need root included
# make bench  the benchmarks whose numbers stand in docs/benchmarks.md
# make check  formatting and lints

.PHONY: demo build setup test check bench clean
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env "PATH=$$PATH")
OUT ?= results
SHEAF := target/release/sheaf

demo: build
	$(SUDO) $(SHEAF) lab run voip-two-hop --engine netns --quick --out $(OUT)/netns
	$(SHEAF) lab run voip-two-hop --engine virtual --quick --out $(OUT)/virtual

build: setup
	cargo build --release --locked --package sheaf

setup:
	@scripts/setup

# Tests that make network namespaces need root; built as the user, run as root.
test: setup
	cargo build --locked --workspace --all-targets
	$(SUDO) cargo test --locked --workspace --no-fail-fast
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings

check: setup
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings

bench: setup
	cargo bench --locked --package sheaf-medium
	$(SUDO) cargo bench --locked --package sheaf-bpf

clean:
	cargo clean
	rm -rf $(OUT)
