# SPDX-License-Identifier: BSD-3-Clause
# Short names for the commands that people use; the build itself is CMake's (see CMakePresets.json).
PREFIX ?= /usr/local
EMULATION := build/release/tests/emulated_cuda/libcuda.so.1
export CMAKE_BUILD_PARALLEL_LEVEL ?= $(shell nproc)
export CTEST_PARALLEL_LEVEL ?= $(shell nproc)

# Variables of the caller's shell that tune its allocator, or pinfold: tests must not depend on them.
TUNING := $(filter GLIBC_TUNABLES MALLOC_% PINFOLD_%,$(filter-out PINFOLD_TEST_%,$(.VARIABLES)))

.DEFAULT_GOAL := help
.PHONY: help setup tool build demo demo-emulated gpu-test gpu-bundle weight-sync bench plots figures docs test quick soak hosts-test rdma-test rdma-soak deb format lint check install clean

help:            ## this list
	@sed -n 's/^\([a-z-]*\): *[^#]*## */  make \1\t/p' Makefile | expand -t 22

setup:           ## install the Debian packages that everything here needs
	scripts/setup check

CONFIGURED := if test -e build/release/build.ninja; then cmake build/release; else cmake --preset programs; fi

tool:            ## the tool alone, build/release/bin/pinfold: two minutes on two processors
	scripts/setup build
	$(CONFIGURED)
	cmake --build build/release --target pinfold_tool

build:           ## the library, the tool and all else that is installed
	scripts/setup build
	$(CONFIGURED)
	cmake --build build/release --target pinfold_installed

demo: tool       ## builds the tool as above, and shows with it in a second what the cache is for, on this machine
	build/release/bin/pinfold demo

demo-emulated:   ## the same with GPU memory, over pinfold's emulation of the CUDA driver
	scripts/setup test
	cmake --preset release
	cmake --build build/release --target pinfold_tool emulated_cuda
	build/release/bin/pinfold demo --emulated --library $(EMULATION)

weight-sync:     ## 19 500 tensors of GPU memory with and without the cache, over the emulation with opens of 1 ms
	scripts/setup test
	cmake --preset release
	cmake --build build/release --target pinfold_tool emulated_cuda
	PINFOLD_CUDA_LIBRARY=$(EMULATION) EMULATED_CUDA_DELAY=cuIpcOpenMemHandle=1000 \
	  build/release/bin/pinfold perf import --cuda --case weight-sync

gpu-test:        ## all CUDA tests and figures over the real driver; fails with a clear line where there is no GPU
	scripts/gpu-bundle.d/run --check
	$(MAKE) --no-print-directory gpu-bundle
	cd build/release && gpu-bundle/run

gpu-bundle:      ## the same as one archive, for a machine with a GPU but no compiler and no network
	scripts/setup test
	cmake --preset release
	cmake --build build/release --target pinfold pinfold_tool pinfold_python integration_tests conformance_tests \
	  cuda_peer emulated_cuda example_cuda_ipc_pair
	scripts/gpu-bundle

bench:           ## what the cache costs, beside those of UCX and Open MPI; half an hour, on a machine that is idle
	scripts/setup bench
	test -e build/release/build.ninja || cmake --preset release -DPINFOLD_BUILD_TESTS=OFF
	cmake build/release
	cmake --build build/release --target pinfold_tool pinfold_peers
	scripts/bench

plots:           ## draws hits by regions and by threads, beside UCX and Open MPI, into docs/plots; some minutes
	scripts/setup plots
	test -e build/release/build.ninja || cmake --preset release -DPINFOLD_BUILD_TESTS=OFF
	cmake build/release
	cmake --build build/release --target pinfold_tool pinfold_peers
	scripts/plots

figures:         ## measures again all that the documents show, tables and plots; hours, on a machine that is idle
	scripts/setup plots
	scripts/setup test
	cmake --preset release
	cmake --build build/release --target pinfold_installed pinfold_peers emulated_cuda
	scripts/figures

docs:            ## the reference in HTML: build/release/html/index.html
	scripts/setup docs
	$(CONFIGURED)
	cmake --build build/release --target reference

quick:           ## the tests of a commit: unit, conformance and model; two minutes after the first time
	scripts/setup test
	cmake --preset release
	cmake --build build/release --target unit_programs conformance_programs handles_programs model_programs
	env $(TUNING:%=-u %) PINFOLD_TEST_STEPS=20000 ctest --preset release --timeout 300 -L '^(unit|conformance|handles|model)$$'

test:            ## build everything and run all tests at their short lengths; ten minutes from nothing
	scripts/setup test
	cmake --preset release $(CONFIGURE)
	cmake --build --preset release
	env $(TUNING:%=-u %) ctest --preset release --timeout 300

soak:            ## what CI runs in part or not at all, at full length; goes on where it was interrupted; hours
	scripts/setup check
	scripts/soak

hosts-test:      ## unmodified programs under `pinfold run` between two hosts in namespaces; 40 seconds
	scripts/setup hosts
	cmake --preset release -DPINFOLD_WITH_LIBFABRIC=ON
	cmake --build --preset release --target pinfold_tool pinfold_openmpi openmpi_remap pinfold_ucx windows_openmpi pinfold_fi
	scripts/hosts-test build/release

rdma-test:       ## the tests that need an RDMA device, in an emulated machine that has one; 3 minutes
	scripts/setup rdma
	cmake --preset release -DPINFOLD_WITH_VERBS=ON -DPINFOLD_WITH_LIBFABRIC=ON
	cmake --build --preset release --target rdma_programs pinfold_tool probed
	scripts/rdma-test build/release

rdma-soak:       ## the same for a minute each and with sanitizers; half an hour
	scripts/setup check
	scripts/rdma-soak

deb:             ## Debian packages, into build/deb
	scripts/setup deb
	scripts/deb

format:          ## rewrite the sources as .clang-format says
	scripts/setup check
	scripts/format --fix

lint:            ## clang-tidy
	scripts/setup check
	scripts/lint

check:           ## everything that CI runs
	.ci/run

install: build   ## into PREFIX (/usr/local)
	cmake --install build/release --prefix $(PREFIX)

clean:           ## remove build/release and the other builds of the presets
	rm -rf build/release build/debug build/asan build/tsan build/fuzz build/tidy build/asan-all build/tsan-all build/ci build/deb
