# make demo   set up, build, and show how many more calls a two-hop mesh carries
# make test   everything that is tested; network namespaces need root, so it asks for sudo
# make check  formatting, lints and the links of the documentation
# make bench  what is fast, as ratios against a baseline of the same run; needs a quiet machine

.PHONY: demo build setup test check bench clean
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env "PATH=$$PATH")
OUT ?= results

demo: build
	$(SUDO) target/release/sheaf lab run voip-two-hop --engine netns --quick --out $(OUT)/netns
	target/release/sheaf lab run voip-two-hop --engine virtual --out $(OUT)/virtual

build: setup
	cargo build --release --locked --package sheaf

setup:
	@scripts/setup

test: setup check
	$(SUDO) cargo test --locked --workspace --no-fail-fast

check: setup
	cargo fmt --check
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --locked --workspace --no-deps

bench: setup
	$(SUDO) cargo bench --locked --package sheaf-bpf --bench aggregation --bench window --bench window_ways
	$(SUDO) cargo bench --locked --package sheaf --bench emulate --bench trunk
	cargo bench --locked --package sheaf-aggregate --bench aggregator
	cargo bench --locked --package sheaf-medium --bench medium
	cargo bench --locked --package sheaf-emulator --bench link
	cargo bench --locked --package sheaf-trunk --bench trunk

clean:
	cargo clean
	rm -rf $(OUT)
