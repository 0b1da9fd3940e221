# The front door. Each target first sees to it that a Rust toolchain is there, then hands over to `cargo xtask`,
# where the logic is. Variables: MNT and STATE (places of the demo), SEED and SET (simulation), SECONDS_EACH (soak), PEERS, SEEDS and PACKAGE (options).
.POSIX:
.SUFFIXES:
XTASK = sh xtask/need-cargo.sh && exec cargo xtask

help:
	@echo 'make demo       build, start 1 MGS, 1 MDT and 4 OSTs on this machine, mount at ./mnt (MNT=DIR), take a tour'
	@echo 'make down       end the demo: no process, mount or file stays behind'
	@echo 'make demo-cluster  the same with 6 servers and 2 clients on hosts of their own (network namespaces); hosts die, programs go on'
	@echo 'make demo-slurm  a private Slurm on this machine runs a job with a burst buffer; its life on a time line; nothing stays'
	@echo 'make test       everything that CI runs; the last line is "N passed, N failed, N skipped"'
	@echo 'make build      only build target/release/brindle'
	@echo 'make dist       build target/dist/brindle, optimised as a whole: for use and for measuring'
	@echo 'make package    a Debian package of it, in target/package (PACKAGE="--profile release": built sooner, slower)'
	@echo 'make container  an OCI image of it, in target/container (PACKAGE="--profile release")'
	@echo 'make soak       the long forms of the tests (SECONDS_EACH=3600), log in bench/soak/'
	@echo 'make sim        simulated clusters with faults (SEED=n replays one seed, SET=n one of a replica set)'
	@echo 'make sim-teeth  check that the simulator catches every planted bug'
	@echo 'make bench      figures of a mount beside the local file system, row in bench/runs/'
	@echo 'make peers      the same programs on GlusterFS, MooseFS, CephFS, ext4 and Brindle; as root (PEERS=OPTIONS)'
	@echo 'make seeds      what the seed documents measured, again, as shares of what the links allow; as root (SEEDS="--quick --rows=L,M,N")'
	@echo 'make lint       formatting, clippy, tidy'
	@echo 'make fmt        format the sources'
	@echo 'make docs       write the generated documents again'

build:
	@$(XTASK) build
dist:
	@$(XTASK) dist
demo:
	@$(XTASK) demo
demo-cluster:
	@$(XTASK) demo-cluster
demo-slurm:
	@$(XTASK) demo-slurm
down:
	@$(XTASK) down
test:
	@$(XTASK) test
package:
	@$(XTASK) package $(PACKAGE)
container:
	@$(XTASK) container $(PACKAGE)
soak:
	@$(XTASK) soak
sim:
	@$(XTASK) sim
sim-teeth:
	@$(XTASK) sim-teeth
bench:
	@$(XTASK) bench
peers:
	@$(XTASK) peers $(PEERS)
seeds:
	@$(XTASK) seeds $(SEEDS)
fmt:
	@$(XTASK) fmt
lint:
	@$(XTASK) lint
docs:
	@$(XTASK) docs

.PHONY: help build dist package container demo demo-cluster demo-slurm down test soak sim sim-teeth bench peers seeds fmt lint docs
