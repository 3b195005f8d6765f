# make demo   set up, build, and show how many more calls a two-hop mesh carries
# make test   everything that is tested; network namespaces need root, so it asks for sudo
# make kernels  the programs on Debian's oldest, long-term and newest kernels, in QEMU
# make check  formatting, import circles, lints and the links of the documentation
# make install  sheaf and its manual under PREFIX (/usr/local), after make build; make uninstall
# make bench  what is fast, as ratios against a baseline of the same run; needs a quiet machine

.PHONY: demo build setup test kernels check install uninstall bench clean
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env "PATH=$$PATH")
OUT ?= results
PREFIX ?= /usr/local
DESTDIR ?=
BIN := $(DESTDIR)$(PREFIX)/bin
MAN := $(DESTDIR)$(PREFIX)/share/man

demo: build
	$(SUDO) target/release/sheaf lab run voip-two-hop --engine netns --quick --out $(OUT)/netns
	target/release/sheaf lab run voip-two-hop --engine virtual --out $(OUT)/virtual

build: setup
	cargo build --release --locked --package sheaf

setup:
	@scripts/setup

test: setup check
	$(SUDO) cargo test --locked --workspace --no-fail-fast
	scripts/kernels --if-possible --commands 6.1

kernels: setup
	scripts/kernels

check: setup
	cargo fmt --check
	scripts/check-imports
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --locked --workspace --no-deps

# Plans and programs for the kernel are part of the binary. It does not build: that is not for root.
install: target/release/sheaf
	install -D --mode 755 target/release/sheaf $(BIN)/sheaf
	install -D --mode 644 --target-directory $(MAN)/man1 man/*.1
	install -D --mode 644 --target-directory $(MAN)/man8 man/*.8

target/release/sheaf:
	@echo "install: there is no $@; run make build first" >&2; exit 2

uninstall:
	rm -f $(BIN)/sheaf $(patsubst man/%.1,$(MAN)/man1/%.1,$(wildcard man/*.1))
	rm -f $(patsubst man/%.8,$(MAN)/man8/%.8,$(wildcard man/*.8))

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
