// SPDX-License-Identifier: BSD-3-Clause
#include "run/loadable.hpp"

#include "cli/child_program.hpp"

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <dlfcn.h>
#include <fmt/format.h>
#include <span>
#include <string_view>

namespace tool {
namespace {

constexpr std::string_view load_word = "--loadable";  // the tool's own argument for its child
constexpr std::chrono::seconds longest{20};

// In a process of its own: the client's libraries, which the adapter needs, patch the process when they are loaded.
std::string answer_of_child(const std::string& client, const std::string& file) {
  const auto seen = run_program("/proc/self/exe", {std::string(load_word), client, file}, longest);
  return seen.status == 0 ? seen.output : "the program that loads the adapter " + ending_of(seen.status);
}

// Returns the library that the program brings, and the adapter does not load; null if it loads all.
const char* library_of(std::string_view client) {
  if (client == "ucx") return "libucp.so.0";
  if (client == "verbs") return "libibverbs.so.1";
  return client == "cuda" ? "libcuda.so.1" : nullptr;
}

// As adapters/ucx/ucx.c decides it.
std::string why_ucx_is_not_replaced(void* libucp) {
  unsigned major = 0, minor = 0, release = 0;
  auto* const ask = reinterpret_cast<void (*)(unsigned*, unsigned*, unsigned*)>(::dlsym(libucp, "ucp_get_version"));
  if (ask != nullptr) ask(&major, &minor, &release);
  if (major == 1 && (minor == 12 || minor == 13)) return {};
  return fmt::format(
      "UCX {}.{}.{} keeps its own cache, and all calls pass through; the adapter replaces that of 1.12 "
      "and 1.13",
      major, minor, release);
}

// NOLINTBEGIN(concurrency-mt-unsafe): no other thread asks the loader
std::string why_not_loaded(std::string_view client, const char* adapter) {
  if (::dlopen(adapter, RTLD_NOW | RTLD_LOCAL) == nullptr) return ::dlerror();
  const char* const name = library_of(client);
  void* const library = name != nullptr ? ::dlopen(name, RTLD_NOW | RTLD_LOCAL) : nullptr;
  if (name != nullptr && library == nullptr) return std::string("cannot load its client: ") + ::dlerror();
  return client == "ucx" ? why_ucx_is_not_replaced(library) : "";
}
// NOLINTEND(concurrency-mt-unsafe)

}  // namespace

std::string why_not_loadable(const std::string& file) { return answer_of_child("", file); }

std::string why_not_usable(const std::string& client, const std::string& file) { return answer_of_child(client, file); }

void answer_whether_loadable(int argc, char** argv) {
  const std::span given(argv, static_cast<std::size_t>(argc));
  if (given.size() != 4 || given[1] != load_word) return;
  end_with_parent();
  const bool written = std::fputs(why_not_loaded(given[2], given[3]).c_str(), stdout) >= 0 && std::fflush(stdout) == 0;
  std::_Exit(written ? 0 : 1);  // skips the destructors of the loaded libraries
}

}  // namespace tool
