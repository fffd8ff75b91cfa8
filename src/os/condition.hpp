// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A condition variable that a forked child can destroy.
#pragma once

#include "os/this_process.hpp"

#include <condition_variable>
#include <cstdint>
#include <memory>

namespace pinfold::os {

/// A condition variable whose destructor does nothing in a forked child: pthread_cond_destroy(3) would wait there for
/// ever for waiting threads of the parent.
class condition {
 public:
  condition() noexcept { std::construct_at(&real_); }
  condition(const condition&) = delete;
  condition& operator=(const condition&) = delete;
  ~condition() {
    if (os::this_process() == process_) std::destroy_at(&real_);
  }

  [[nodiscard]] std::condition_variable* operator->() noexcept { return &real_; }

 private:
  const std::uint64_t process_ = os::this_process();
  union {
    std::condition_variable real_;
  };
};

}  // namespace pinfold::os
