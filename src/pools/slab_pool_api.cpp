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

namespace {

result<void> check_process(const slab_pool& of) noexcept {
  if (of.is_of_this_process()) return {};
  return fail(errc::closed, "the pool belongs to the process that this one was forked from");
}

}  // namespace

void slab_pool_closer::operator()(std::shared_ptr<slab_pool>* closing) const noexcept {
  if (!(*closing)->is_of_this_process()) return;
  if ((*closing)->end()) slab_pool::keep_for_good(*closing);
  delete closing;
}

slab_pool_handle make_slab_pool(slab_driver driver, pool_options options, bool synchronized) {
  auto core = std::make_shared<slab_pool>(std::move(driver), std::move(options), synchronized);
  return slab_pool_handle(new std::shared_ptr<slab_pool>(std::move(core)));
}

result<slab_grant> allocate(slab_pool& from, std::size_t bytes, std::size_t alignment) noexcept {
  if (auto here = check_process(from); !here) return tl::unexpected(here.error());
  return from.allocate(bytes, alignment);
}
result<void> deallocate(slab_pool& to, void* data, std::size_t bytes) noexcept {
  return to.is_of_this_process() ? to.deallocate(data, bytes) : result<void>();  // destructors run in a child, too
}
bool resize(slab_pool& in, void* data, std::size_t bytes, std::size_t wanted) noexcept {
  return in.is_of_this_process() && in.resize(data, bytes, wanted);
}
result<registration> registration_of(slab_pool& in, const void* data) noexcept {
  if (auto here = check_process(in); !here) return tl::unexpected(here.error());
  if (auto found = in.registration_of(data)) return *found;
  return fail(errc::invalid_range, "the memory does not belong to this pool");
}
result<slab_pin> hold_slab(const std::shared_ptr<slab_pool>& of, const void* data) noexcept {
  if (auto here = check_process(*of); !here) return tl::unexpected(here.error());
  slab* const on = of->lease(data);
  if (on == nullptr) return fail(errc::invalid_range, "the memory does not belong to this pool");
  return slab_pin{of, on};
}
void release(slab_pin& held) noexcept {
  slab& on = *std::exchange(held.on, nullptr);
  if (held.pool->is_of_this_process() && held.pool->release(on)) slab_pool::keep_for_good(held.pool);
  held.pool.reset();
}
const registration& registration_of(const slab_pin& held) noexcept { return held.on->object; }
std::size_t trim(slab_pool& what) noexcept { return what.is_of_this_process() ? what.trim() : 0; }
pool_usage usage_of(const slab_pool& of) noexcept { return of.is_of_this_process() ? of.usage() : pool_usage(); }
std::vector<slab_info> slabs_of(const slab_pool& of) {
  return of.is_of_this_process() ? of.slabs() : std::vector<slab_info>();
}

}  // namespace detail

}  // namespace pinfold
