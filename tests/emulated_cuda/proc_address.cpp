// SPDX-License-Identifier: BSD-3-Clause
// cuGetProcAddress, by which the CUDA runtime finds the driver's functions: it returns the exported entries.
#include "calls.hpp"

#include <dlfcn.h>
#include <string>

namespace emulated_cuda {

namespace {

constexpr int cuda_11 = 11000;

/// CUdriverProcAddressQueryResult
enum class query_result : int { success = 0, symbol_not_found = 1 };

void* exported(const std::string& name) {
  Dl_info self{};
  if (::dladdr(reinterpret_cast<const void*>(&the_driver), &self) == 0) return nullptr;
  void* const library = ::dlopen(self.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
  if (library == nullptr) return nullptr;
  void* const found = ::dlsym(library, name.c_str());
  ::dlclose(library);
  return found;
}

// Names that have two versions here are of CUDA 11 where that is asked for; others of the newest that there is.
void* entry_of(const std::string& name, int version) {
  void* const plain = exported(name);
  void* const second = exported(name + "_v2");
  return second == nullptr || (plain != nullptr && version < cuda_11) ? plain : second;
}

}  // namespace

EMULATED_CUDA_EXPORT status cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                                std::uint64_t /*flags*/, query_result* result) noexcept try {
  if (symbol == nullptr || function == nullptr) return status::invalid_value;
  *function = entry_of(symbol, version);
  if (result != nullptr) *result = *function != nullptr ? query_result::success : query_result::symbol_not_found;
  return *function != nullptr ? status::success : status::not_found;
} catch (const std::bad_alloc&) {
  return status::out_of_memory;
}

EMULATED_CUDA_EXPORT status cuGetProcAddress(const char* symbol, void** function, int version,
                                             std::uint64_t flags) noexcept {
  return cuGetProcAddress_v2(symbol, function, version, flags, nullptr);
}

}  // namespace emulated_cuda
