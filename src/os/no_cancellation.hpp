// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Keeps a thread from being cancelled.
#pragma once

#include <pthread.h>

namespace pinfold::detail {

/// While one exists, the calling thread is not cancelled (pthread_cancel(3)). Cancellation unwinds the stack, and would
/// end the process at the first function that is noexcept. A request to cancel stays pending and takes effect at the
/// thread's next cancellation point after the guard. About 10 ns.
class no_cancellation {
 public:
  no_cancellation() noexcept { ::pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~no_cancellation() { ::pthread_setcancelstate(before_, nullptr); }
  no_cancellation(const no_cancellation&) = delete;
  no_cancellation& operator=(const no_cancellation&) = delete;

 private:
  int before_ = PTHREAD_CANCEL_ENABLE;
};

}  // namespace pinfold::detail
