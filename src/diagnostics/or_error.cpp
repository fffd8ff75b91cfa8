// SPDX-License-Identifier: BSD-3-Clause
#include "os/no_cancellation.hpp"

#include <pinfold/detail/or_error.hpp>

#include <new>

namespace pinfold::detail {

result<void> call_or_error(void* context, void (*step)(void*), const char* no_memory, const char* no_thread) noexcept {
  const no_cancellation guard;  // the callers are noexcept
  try {
    step(context);
    return {};
  } catch (const std::bad_alloc&) {
    return fail(errc::out_of_resources, no_memory);
  } catch (...) {  // a function of the application may throw anything
    return fail(errc::out_of_resources, no_thread);
  }
}

void throw_bad_alloc() { throw std::bad_alloc(); }

}  // namespace pinfold::detail
