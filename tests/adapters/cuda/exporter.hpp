// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A process that allocates device memory and exports it by CUDA IPC.
#pragma once

#include "adapters/cuda/client.hpp"
#include "support/processes/child_process.hpp"

namespace client {

struct order {
  bool frees;  ///< `pointer`, or else allocates
  device_pointer pointer;
  std::size_t bytes;
  unsigned char fill;  ///< the value of all bytes
};

struct exported {
  device_pointer pointer = 0;
  ipc_handle handle{};
  result failed = 0;
};

class exporter {
 public:
  /// Forks: to be made before this process calls cuInit.
  exporter() : process_(serve) {}

  exported allocate(std::size_t bytes, unsigned char fill) {
    return process_.ask<exported>(order{false, 0, bytes, fill});
  }
  void free(const exported& gone) { process_.ask<exported>(order{true, gone.pointer, 0, 0}); }

 private:
  static exported obey(const functions& cuda, const order& wanted) {
    exported made{.pointer = wanted.pointer};
    if (wanted.frees) {
      made.failed = cuda.cuMemFree_v2(wanted.pointer);
      return made;
    }
    made.failed = cuda.cuMemAlloc_v2(&made.pointer, wanted.bytes);
    if (made.failed == 0) made.failed = cuda.cuMemsetD8_v2(made.pointer, wanted.fill, wanted.bytes);
    if (made.failed == 0) made.failed = cuda.cuIpcGetMemHandle(&made.handle, made.pointer);
    return made;
  }

  static int serve(pinfold::testing::line& talk) {
    const functions cuda = find();
    context own = nullptr;
    if (cuda.cuInit(0) != 0 || cuda.cuDevicePrimaryCtxRetain(&own, 0) != 0 || cuda.cuCtxSetCurrent(own) != 0) return 1;
    while (const auto wanted = talk.receive<order>())
      if (!talk.send(obey(cuda, *wanted))) return 1;
    return 0;
  }

  pinfold::testing::child_process process_;
};

}  // namespace client
