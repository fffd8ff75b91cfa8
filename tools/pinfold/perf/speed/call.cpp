// SPDX-License-Identifier: BSD-3-Clause
#include "perf/speed/call.hpp"

#include "perf/speed/subjects.hpp"

#include <memory>
#include <new>

namespace {

using cache = pinfold::cache<pinfold::null_registrar>;
static_assert(sizeof(cache::lease) == 16 && alignof(cache::lease) <= alignof(void*));

}  // namespace

void* pinfold_call_create(std::size_t max_count) {
  const bench::setup how{.most = max_count};
  return new cache(pinfold::null_registrar(), tool::options_for(how));
}

void pinfold_call_destroy(void* of) { delete static_cast<cache*>(of); }

int pinfold_call_acquire(void* from, void* address, std::size_t bytes, void* lease) {
  auto acquired = static_cast<cache*>(from)->acquire(address, bytes);
  if (!acquired) return -1;
  new (lease) cache::lease(*std::move(acquired));
  return 0;
}

// Returns the handle by value, as a program gives it to a device.
std::uint64_t pinfold_call_key(const void* lease) {
  return static_cast<const cache::lease*>(lease)->registration().key;
}

void pinfold_call_release(void* lease) { std::destroy_at(static_cast<cache::lease*>(lease)); }
