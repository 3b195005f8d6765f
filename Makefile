# make demo   set up, build, and show how many more calls a two-hop mesh carries
# make test   everything that is tested; network namespaces need root, so it asks for sudo
# make kernels  the programs on Debian's oldest, long-term and newest kernels, in QEMU
# make check  formatting, import circles, long lines, lints and the links of the documentation
# make install  sheaf, its manual, examples, completions and units under PREFIX (/usr/local), after
#             make build; make uninstall
# make deb    a Debian package of what make build built, in target/deb
# make router  static binaries for routers, in target/router
# make identical  whether every plan has the same results on aarch64, under qemu-user
# make release  all of this, and install, demo and tests on fresh Debian roots
# make verify  the numbers of README and docs, under the virtual clock; VERIFY=--quick in minutes
# make mutants  whether that notices ten wrong constants, one after the other
# make reproduction  docs/reproduction.md: every published value beside ours
# make bench  what is fast, as ratios against a baseline of the same run; needs a quiet machine.
#             The trunk's mixes in a short form; whole by make bench ROUNDS=5 SECONDS=6

.PHONY: demo build setup setup-tests test kernels check install install-files uninstall deb \
	router identical release verify mutants reproduction bench clean
SUDO := $(shell [ "$$(id -u)" = 0 ] || echo sudo -E env "PATH=$$PATH")
OUT ?= results
ROUNDS ?= 1
SECONDS ?= 3
PREFIX ?= /usr/local
DESTDIR ?=
BINARY ?= target/release/sheaf
BIN := $(DESTDIR)$(PREFIX)/bin
SHARE := $(DESTDIR)$(PREFIX)/share
UNITS := $(DESTDIR)$(PREFIX)/lib/systemd/system
EXAMPLES := $(SHARE)/doc/sheaf/examples
PAGES := $(wildcard man/*.1 man/*.8)
COMPLETIONS := bash-completion/completions/sheaf zsh/vendor-completions/_sheaf \
	fish/vendor_completions.d/sheaf.fish

demo: build
	$(SUDO) target/release/sheaf lab run voip-two-hop --engine netns --quick --out $(OUT)/netns
	target/release/sheaf lab run voip-two-hop --engine virtual --repetitions 3 \
		--out $(OUT)/virtual

build: setup
	cargo build --release --locked --package sheaf

setup:
	@scripts/setup

setup-tests:
	@scripts/setup --tests

# The package of a binary that is made here needs the C library of this Debian.
SUITE = $(or $(shell . /etc/os-release && echo $$VERSION_CODENAME),bookworm)

test: setup-tests check
	$(SUDO) cargo test --locked --workspace --no-fail-fast
	$(SUDO) scripts/fresh-root --if-possible $(SUITE) --install target/debug/sheaf
	scripts/kernels --if-possible --commands 6.1

kernels: setup-tests
	scripts/kernels

check: setup
	cargo fmt --check
	scripts/check-imports
	scripts/check-lines
	cargo clippy --locked --workspace --all-targets -- --deny warnings
	RUSTDOCFLAGS="--deny warnings" cargo doc --locked --workspace --no-deps

# Plans and programs for the kernel are part of the binary. It does not build: that is not for root.
install: install-files
	install -d $(UNITS)
	for unit in packaging/systemd/*.service; do \
		sed 's|/usr/bin/sheaf|$(PREFIX)/bin/sheaf|' $$unit >$(UNITS)/$${unit##*/}; done
	[ -e $(DESTDIR)/etc/sheaf/sheaf.toml ] || \
		install -D --mode 644 packaging/sheaf.toml $(DESTDIR)/etc/sheaf/sheaf.toml

# What every packaging takes as it is.
install-files: $(BINARY)
	install -D --mode 755 $(BINARY) $(BIN)/sheaf
	for page in $(PAGES); do \
		install -D --mode 644 $$page $(SHARE)/man/man$${page##*.}/$${page##*/} || exit; done
	install -D --mode 755 --target-directory $(EXAMPLES) \
		$(filter-out %.toml,$(wildcard packaging/examples/*))
	install -D --mode 644 --target-directory $(EXAMPLES) packaging/examples/*.toml
	install -d $(dir $(addprefix $(SHARE)/,$(COMPLETIONS)))
	$(BINARY) completions bash >$(SHARE)/$(word 1,$(COMPLETIONS))
	$(BINARY) completions zsh >$(SHARE)/$(word 2,$(COMPLETIONS))
	$(BINARY) completions fish >$(SHARE)/$(word 3,$(COMPLETIONS))

target/release/sheaf:
	@echo "install: there is no $@; run make build first" >&2; exit 2

# The configuration stays.
uninstall:
	rm -f $(BIN)/sheaf $(addprefix $(SHARE)/,$(COMPLETIONS))
	rm -f $(patsubst packaging/examples/%,$(EXAMPLES)/%,$(wildcard packaging/examples/*))
	rm -f $(foreach page,$(PAGES), \
		$(SHARE)/man/man$(subst .,,$(suffix $(page)))/$(notdir $(page)))
	rm -f $(patsubst packaging/systemd/%,$(UNITS)/%,$(wildcard packaging/systemd/*.service))

deb: build setup-tests
	scripts/deb

router: setup-tests
	scripts/router

identical: build setup-tests
	scripts/identical

release: build deb router identical
	$(SUDO) scripts/fresh-root bookworm --install
	$(SUDO) scripts/fresh-root trixie --install
	$(SUDO) scripts/fresh-root bookworm make demo
	$(SUDO) scripts/fresh-root bookworm make test
	$(SUDO) scripts/fresh-root trixie make demo
	$(SUDO) scripts/fresh-root trixie make test

verify: build
	target/release/sheaf lab verify $(VERIFY) --out $(OUT)/verify

mutants: setup
	scripts/mutants

REPRODUCED := voip-karlstad voip-hop-vs-end home-ap \
	$(addprefix trunk-,basic congestion error hidden mobility scale latency) \
	$(addprefix emulator-,rate latency tcp)
REPRODUCTION := $(addprefix $(OUT)/reproduction/,$(REPRODUCED))

reproduction: build
	for plan in $(REPRODUCED); do target/release/sheaf lab run $$plan \
		--out $(OUT)/reproduction/$$plan >/dev/null || exit; done
	target/release/sheaf lab reproduction $(REPRODUCTION) >$(OUT)/reproduction.md
	mv $(OUT)/reproduction.md docs/reproduction.md

bench: build setup-tests
	$(SUDO) scripts/idle
	$(SUDO) cargo bench --locked --package sheaf-bpf --bench aggregation --bench window \
		--bench window_ways
	$(SUDO) env ROUNDS=$(ROUNDS) SECONDS=$(SECONDS) \
		cargo bench --locked --package sheaf --bench emulate --bench trunk
	cargo bench --locked --package sheaf-aggregate --bench aggregator
	cargo bench --locked --package sheaf-medium --bench medium
	cargo bench --locked --package sheaf-emulator --bench link
	cargo bench --locked --package sheaf-trunk --bench trunk

clean:
	cargo clean
	rm -rf $(OUT)
