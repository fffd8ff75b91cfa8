// SPDX-License-Identifier: BSD-3-Clause
// Makes the process's filter and its parts. Separate from registered_filter.cpp, which the thread sanitizer must
// ignore: here it has to see that a thread which finds them finds them constructed.
#include "invalidation/registered_filter.hpp"

#include "os/check.hpp"
#include "os/wiped_pages.hpp"

#include <new>

namespace pinfold::invalidation {

std::atomic<registered_filter*> registered_filter::made{nullptr};

registered_filter& registered_filter::here() {
  if (auto* here = os::wiped_object(made)) return *here;
  throw std::bad_alloc();
}

// Makes the counters of 4 GiB of the address space, when memory there is first registered. They are never freed.
bool registered_filter::make_part(std::size_t number) noexcept {
  PINFOLD_ASSERT(number < part_count, "memory beyond the parts needs no counters");
  return os::wiped_object(parts_[number].in) != nullptr;
}

}  // namespace pinfold::invalidation
