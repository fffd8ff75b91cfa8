// SPDX-License-Identifier: BSD-3-Clause
// `pinfold perf rma`: hands over to a program that links with libfabric, or with libfabric and MPI.
#include "cli/failure.hpp"
#include "commands.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <unistd.h>

namespace tool {
namespace {

namespace fs = std::filesystem;

// The program that replaces this one unblocks them: before its main(), a library's handler would run.
void block_interrupts(int how) {
  sigset_t all{};
  ::sigemptyset(&all);
  for (const int one : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&all, one);
  ::pthread_sigmask(how, &all, nullptr);
}

// Runs the program beside this one, or where `cmake --install` puts it. Returns when there is none.
void become(const char* program, char** arguments) {
  block_interrupts(SIG_BLOCK);
  std::error_code unknown;
  const auto own = fs::read_symlink("/proc/self/exe", unknown).parent_path();
  for (const auto& place : {own, own.parent_path() / "libexec" / "pinfold"}) {
    ::execv((place / program).c_str(), arguments);
    if (errno != ENOENT)
      throw failure(fmt::format("{}: {}", (place / program).string(), std::generic_category().message(errno)));
  }
  block_interrupts(SIG_UNBLOCK);
}

}  // namespace

void hand_over_rma(int argc, char** argv) {
  const std::span given(argv, static_cast<std::size_t>(argc));
  if (given.size() < 3 || std::string_view(given[1]) != "perf" || std::string_view(given[2]) != "rma") return;
  if (std::ranges::any_of(given, [](const char* one) { return std::string_view(one) == "--mpi"; })) {
    become("pinfold-rma-mpi", argv + 2);
    throw failure("unsupported: built without MPI, so pinfold-rma-mpi is missing (Debian: libopenmpi-dev)");
  }
  become("pinfold-rma", argv + 2);
  throw failure("unsupported: built without libfabric, so pinfold-rma is missing (Debian: libfabric-dev)");
}

// For --help only: `hand_over_rma` comes first.
void add_perf_rma(CLI::App& perf, action&) {
  perf.add_subcommand("rma", "Puts and gets between processes and hosts over libfabric, with verified bytes");
}

}  // namespace tool
