// SPDX-License-Identifier: BSD-3-Clause
#include "run/loadable.hpp"

#include "cli/child_program.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <span>
#include <string_view>

namespace tool {
namespace {

constexpr std::string_view load_word = "--loadable";  // the tool's own argument for its child
constexpr std::chrono::seconds longest{20};

}  // namespace

// In a process of its own: the client's libraries, which the adapter needs, patch the process when they are loaded.
std::string why_not_loadable(const std::string& file) {
  const auto seen = run_program("/proc/self/exe", {std::string(load_word), file}, longest);
  return seen.status == 0 ? seen.output : "the program that loads the adapter " + ending_of(seen.status);
}

void answer_whether_loadable(int argc, char** argv) {
  const std::span given(argv, static_cast<std::size_t>(argc));
  if (given.size() != 3 || given[1] != load_word) return;
  end_with_parent();
  // NOLINTNEXTLINE(concurrency-mt-unsafe): no other thread asks the loader
  const char* const refused = ::dlopen(given[2], RTLD_NOW | RTLD_LOCAL) == nullptr ? ::dlerror() : "";
  const bool written = std::fputs(refused, stdout) >= 0 && std::fflush(stdout) == 0;
  std::_Exit(written ? 0 : 1);  // skips the destructors of the loaded libraries
}

}  // namespace tool
