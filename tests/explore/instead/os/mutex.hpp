// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Stands for src/os/mutex.hpp in the explored build: the scheduler decides when a thread gets the mutex.
#pragma once

#include <cstdint>

#define PINFOLD_THREAD_ATTRIBUTE(x)
#define PINFOLD_GUARDED_BY(m)
#define PINFOLD_REQUIRES(m)
#define PINFOLD_EXCLUDES(m)
#define PINFOLD_SAYS_HELD(m)

namespace pinfold::explore {
void lock_word(std::uint32_t& held) noexcept;
void unlock_word(std::uint32_t& held) noexcept;
}  // namespace pinfold::explore

namespace pinfold::os {

class mutex {
 public:
  mutex() noexcept = default;
  mutex(const mutex&) = delete;
  mutex& operator=(const mutex&) = delete;

  void lock() noexcept { explore::lock_word(held_); }
  void unlock() noexcept { explore::unlock_word(held_); }
  void says_held() const noexcept {}

 private:
  std::uint32_t held_ = 0;
};

}  // namespace pinfold::os

#include "os/mutex_scope.hpp"
