// SPDX-License-Identifier: BSD-3-Clause
#include "cuda/driver.hpp"

#include "cuda/only.hpp"
#include "os/this_process.hpp"

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <new>

namespace pinfold::cuda {

namespace {

constexpr auto default_library = "libcuda.so.1";

void* symbol_for(void* library, const entry_point& wanted) noexcept {
  void* found = ::dlsym(library, wanted.symbol);
  return found == nullptr && wanted.older != nullptr ? ::dlsym(library, wanted.older) : found;
}

/// Never unloaded: the driver has threads of its own.
struct loaded {
  driver_table table{};
  std::string words;     ///< the dynamic linker's message, or the missing entry point
  result<void> outcome;  // last: `load` also sets the other members

  loaded() noexcept : outcome(load()) {}

  result<void> load() noexcept try {
    const char* chosen = ::secure_getenv("PINFOLD_CUDA_LIBRARY");
    const char* name = chosen != nullptr && *chosen != '\0' ? chosen : default_library;
    void* library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
      words = ::dlerror();  // NOLINT(concurrency-mt-unsafe): each thread has its own
      return fail(errc::unsupported, name == chosen ? "cannot load the CUDA driver (PINFOLD_CUDA_LIBRARY)"
                                                    : "cannot load the CUDA driver (libcuda.so.1)");
    }
    if (auto found = find_entry_points(library); !found) return found;
    return start();
  } catch (const std::bad_alloc&) {
    return fail(errc::out_of_resources, "no memory to load the CUDA driver");
  }

  result<void> find_entry_points(void* library) {
    for (const entry_point& one : entry_points) {
      void* const address = symbol_for(library, one);
      if (address == nullptr && one.wanted == need::required) {
        words = std::string("missing symbol ") + one.symbol;
        return fail(errc::unsupported, "the CUDA driver is too old: an entry point is missing");
      }
      std::memcpy(reinterpret_cast<std::byte*>(&table) + one.offset, static_cast<const void*>(&address),
                  sizeof address);
    }
    return {};
  }

  result<void> start() const noexcept {
    const status answer = table.init(0);
    if (answer == status::no_device) return fail_cuda(answer, "the CUDA driver has no device");
    return checked(answer, "cannot initialize the CUDA driver", errc::unsupported);
  }
};

// Returns null in the child of a process that had begun to load the driver: the child does not have the loading thread,
// and a loaded driver does not work there.
const loaded* library() noexcept {
  static constinit std::atomic<std::uint64_t> process{0};
  const auto here = os::this_process();
  std::uint64_t begun = 0;
  if (!process.compare_exchange_strong(begun, here, std::memory_order_seq_cst) && begun != here) return nullptr;
  return &only<loaded>();
}

constexpr auto of_the_parent = "the CUDA driver does not survive fork(2)";

}  // namespace

result<const driver_table*> driver() noexcept {
  const loaded* const there = library();
  if (there == nullptr) return fail(errc::unsupported, of_the_parent);
  if (!there->outcome) return tl::unexpected(there->outcome.error());
  return &there->table;
}

std::string driver_text() {
  const loaded* const found = library();
  if (found == nullptr) return of_the_parent;
  const loaded& there = *found;
  if (!there.outcome) return describe(there.outcome.error()) + (there.words.empty() ? "" : ": " + there.words);
  int version = 0;
  if (there.table.driver_get_version(&version) != status::success) return "a CUDA driver of unknown version";
  return "CUDA " + std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace pinfold::cuda
