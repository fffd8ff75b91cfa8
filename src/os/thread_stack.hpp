// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The stack of a thread.
#pragma once

#include <cstddef>
#include <pthread.h>
#include <span>

namespace pinfold::os {

/// Returns the calling thread's stack. It grows downwards, so the used part is at the end.
[[nodiscard]] inline std::span<std::byte> stack_of_this_thread() noexcept {
  pthread_attr_t attributes;
  void* low = nullptr;
  std::size_t bytes = 0;
  ::pthread_getattr_np(::pthread_self(), &attributes);
  ::pthread_attr_getstack(&attributes, &low, &bytes);
  ::pthread_attr_destroy(&attributes);
  return {static_cast<std::byte*>(low), bytes};
}

}  // namespace pinfold::os
