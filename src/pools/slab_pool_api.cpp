// SPDX-License-Identifier: BSD-3-Clause
// The core's interface for the typed pools.
#include "pools/slab_pool.hpp"

#include <utility>

namespace pinfold {

const char* name_of(page_kind kind) noexcept {
  switch (kind) {
    case page_kind::best: return "best";
    case page_kind::hugetlb: return "hugetlb";
    case page_kind::thp: return "thp";
    case page_kind::plain: return "plain";
  }
  return "unknown";
}

namespace detail {

void slab_pool_closer::operator()(std::shared_ptr<slab_pool>* closing) const noexcept {
  if ((*closing)->end()) slab_pool::keep_for_good(*closing);
  delete closing;
}

slab_pool_handle make_slab_pool(slab_driver driver, pool_options options, bool synchronized) {
  auto core = std::make_shared<slab_pool>(std::move(driver), std::move(options), synchronized);
  return slab_pool_handle(new std::shared_ptr<slab_pool>(std::move(core)));
}

result<slab_grant> allocate(slab_pool& from, std::size_t bytes, std::size_t alignment) noexcept {
  return from.allocate(bytes, alignment);
}
result<void> deallocate(slab_pool& to, void* data, std::size_t bytes) noexcept { return to.deallocate(data, bytes); }
bool resize(slab_pool& in, void* data, std::size_t bytes, std::size_t wanted) noexcept {
  return in.resize(data, bytes, wanted);
}
std::optional<registration> registration_of(slab_pool& in, const void* data) noexcept {
  return in.registration_of(data);
}
result<slab_pin> hold_slab(const std::shared_ptr<slab_pool>& of, const void* data) noexcept {
  slab* const on = of->lease(data);
  if (on == nullptr) return fail(errc::invalid_range, "the memory does not belong to this pool");
  return slab_pin{of, on};
}
void release(slab_pin& held) noexcept {
  if (held.pool->release(*std::exchange(held.on, nullptr))) slab_pool::keep_for_good(held.pool);
  held.pool.reset();
}
const registration& registration_of(const slab_pin& held) noexcept { return held.on->object; }
std::size_t trim(slab_pool& what) noexcept { return what.trim(); }
pool_usage usage_of(const slab_pool& of) noexcept { return of.usage(); }
std::vector<slab_info> slabs_of(const slab_pool& of) { return of.slabs(); }

}  // namespace detail

}  // namespace pinfold
