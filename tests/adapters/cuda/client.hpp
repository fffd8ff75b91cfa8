// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The CUDA driver as a program finds it: by links, by dlsym, by cuGetProcAddress, or through a plug-in that links it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace client {

using result = int;
using device_pointer = std::uint64_t;
struct context_object;
using context = context_object*;
struct ipc_handle {
  std::array<char, 64> bytes;
};

// f(<exported symbol>, <name for cuGetProcAddress>, <version of CUDA>, <arguments>)
#define CLIENT_FUNCTIONS(f)                                                                                           \
  f(cuInit, "cuInit", 12000, (unsigned))                                                                              \
      f(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 12000, (client::context*, int))                         \
          f(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 12000, (int)) f(                                   \
              cuCtxSetCurrent, "cuCtxSetCurrent", 12000, (client::context)) f(cuMemAlloc_v2, "cuMemAlloc", 12000,     \
                                                                              (client::device_pointer*, std::size_t)) \
              f(cuMemFree_v2, "cuMemFree", 12000, (client::device_pointer)) f(                                        \
                  cuMemsetD8_v2, "cuMemsetD8", 12000, (client::device_pointer, unsigned char, std::size_t))           \
                  f(cuMemcpyDtoH_v2, "cuMemcpyDtoH", 12000, (void*, client::device_pointer, std::size_t)) f(          \
                      cuIpcGetMemHandle, "cuIpcGetMemHandle", 12000, (client::ipc_handle*, client::device_pointer))   \
                      f(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010,                                               \
                        (client::device_pointer*, client::ipc_handle, unsigned))                                      \
                          f(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 12000,                                       \
                            (client::device_pointer*, client::ipc_handle, unsigned))                                  \
                              f(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 12000, (client::device_pointer))          \
                                  f(cuMemHostRegister_v2, "cuMemHostRegister", 12000, (void*, std::size_t, unsigned)) \
                                      f(cuMemHostUnregister, "cuMemHostUnregister", 12000, (void*))                   \
                                          f(cuCtxCreate_v2, "cuCtxCreate", 12000, (client::context*, unsigned, int))  \
                                              f(cuCtxDestroy_v2, "cuCtxDestroy", 12000, (client::context))

struct functions {
#define CLIENT_MEMBER(symbol, name, version, arguments) result(*symbol) arguments = nullptr;
  CLIENT_FUNCTIONS(CLIENT_MEMBER)
#undef CLIENT_MEMBER
};

/// Returns the functions; throws where one is missing.
functions find();

}  // namespace client
