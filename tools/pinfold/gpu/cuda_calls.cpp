// SPDX-License-Identifier: BSD-3-Clause
#include "gpu/cuda_calls.hpp"

#include <array>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>

namespace tool {
namespace {

using pinfold::errc;

constexpr int out_of_memory = 2;

struct entry {
  const char* symbol;
  bool required = true;
};

// In the order of `cuda_calls`.
constexpr std::array entries{
    entry{"cuInit"},
    entry{"cuDeviceGet"},
    entry{"cuDevicePrimaryCtxRetain"},
    entry{"cuCtxSetCurrent"},
    entry{"cuCtxSynchronize"},
    entry{"cuMemGetInfo_v2"},
    entry{"cuMemAlloc_v2"},
    entry{"cuMemFree_v2"},
    entry{"cuMemcpyDtoH_v2"},
    entry{"cuMemcpyHtoD_v2"},
    entry{"cuMemcpyDtoD_v2"},
    entry{"cuMemsetD8_v2"},
    entry{"cuMemGetAllocationGranularity", false},
    entry{"cuMemAddressReserve", false},
    entry{"cuMemAddressFree", false},
    entry{"cuMemCreate", false},
    entry{"cuMemRelease", false},
    entry{"cuMemMap", false},
    entry{"cuMemUnmap", false},
    entry{"cuMemSetAccess", false},
};
static_assert(entries.size() * sizeof(void*) == sizeof(cuda_calls));

pinfold::result<cuda_calls> load() noexcept {
  const char* const chosen = ::secure_getenv("PINFOLD_CUDA_LIBRARY");
  const char* const name = chosen != nullptr && *chosen != '\0' ? chosen : "libcuda.so.1";
  void* const library = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return pinfold::fail(errc::unsupported, "cannot load the CUDA driver");
  cuda_calls found{};
  std::size_t offset = 0;
  for (const auto& [symbol, required] : entries) {
    void* const address = ::dlsym(library, symbol);
    if (address == nullptr && required) return pinfold::fail(errc::unsupported, "the CUDA driver is too old");
    std::memcpy(reinterpret_cast<std::byte*>(&found) + offset, static_cast<const void*>(&address), sizeof address);
    offset += sizeof address;
  }
  const auto started = cuda_answer(found.init(0), "cannot initialize the CUDA driver");
  if (!started) return tl::unexpected(started.error());
  return found;
}

}  // namespace

pinfold::result<const cuda_calls*> load_cuda_calls() noexcept {
  static const auto once = load();
  if (!once) return tl::unexpected(once.error());
  return &*once;
}

pinfold::result<void> cuda_answer(int answer, const char* attempt) noexcept {
  if (answer == 0) return {};
  const auto code = answer == out_of_memory ? errc::out_of_resources : errc::driver_error;
  return tl::unexpected(pinfold::error{code, pinfold::native_kind::cuda, answer, attempt});
}

}  // namespace tool
