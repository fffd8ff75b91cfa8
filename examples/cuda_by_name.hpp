// SPDX-License-Identifier: BSD-3-Clause
// A substitute for <cuda.h>, which your program includes instead: the few driver calls of cuda_ipc_pair.cpp, under
// their own names, looked up in the library that pinfold loads. So the example can be built and tested without CUDA.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <dlfcn.h>

using CUdevice = int;
using CUdeviceptr = unsigned long long;
using CUcontext = struct CUctx_st*;
enum CUresult { CUDA_SUCCESS = 0, CUDA_ERROR_NOT_FOUND = 500 };

template <class... Parameters>
CUresult cuda_by_name(const char* name, Parameters... arguments) {
  const char* other = std::getenv("PINFOLD_CUDA_LIBRARY");
  void* library = dlopen(other != nullptr ? other : "libcuda.so.1", RTLD_NOW);
  void* found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) return CUDA_ERROR_NOT_FOUND;
  return reinterpret_cast<CUresult (*)(Parameters...)>(found)(arguments...);
}

inline CUresult cuInit(unsigned flags) { return cuda_by_name("cuInit", flags); }
inline CUresult cuDeviceGet(CUdevice* made, int ordinal) { return cuda_by_name("cuDeviceGet", made, ordinal); }
inline CUresult cuDevicePrimaryCtxRetain(CUcontext* retained, CUdevice device) {
  return cuda_by_name("cuDevicePrimaryCtxRetain", retained, device);
}
inline CUresult cuCtxSetCurrent(CUcontext context) { return cuda_by_name("cuCtxSetCurrent", context); }
inline CUresult cuCtxSynchronize() { return cuda_by_name("cuCtxSynchronize"); }
inline CUresult cuMemAlloc(CUdeviceptr* made, std::size_t bytes) { return cuda_by_name("cuMemAlloc_v2", made, bytes); }
inline CUresult cuMemsetD8(CUdeviceptr at, unsigned char value, std::size_t bytes) {
  return cuda_by_name("cuMemsetD8_v2", at, value, bytes);
}
inline CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, std::size_t bytes) {
  return cuda_by_name("cuMemcpyDtoH_v2", to, from, bytes);
}
