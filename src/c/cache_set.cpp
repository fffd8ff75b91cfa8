// SPDX-License-Identifier: BSD-3-Clause
// Acquires from several caches: the order of detail::set_plan, over the calls of the C interface.
#include "c/cache.hpp"
#include "c/failure.hpp"
#include "c/structure.hpp"

#include <pinfold/cache_set.h>
#include <pinfold/detail/set_plan.hpp>

#include <algorithm>
#include <span>
#include <vector>

namespace pinfold::c {

namespace {

static_assert(static_cast<int>(set_policy::near_first) == PINFOLD_SET_NEAR_FIRST &&
              static_cast<int>(set_policy::fixed_order) == PINFOLD_SET_FIXED_ORDER);

error error_of(const pinfold_error& failure) noexcept {
  return {static_cast<errc>(-1 - failure.code), static_cast<native_kind>(failure.native_kind), failure.native,
          failure.message};
}

// One acquire, which chooses among the caches.
struct cache_choices {
  std::span<pinfold_cache* const> caches;
  const void* address;
  std::size_t bytes;
  std::uint32_t access;
  pinfold_acquire_options each;
  std::vector<pinfold_lease> leases;
  std::vector<error> why;
  std::vector<char> failed;  // each thread writes its own element

  void keep(std::size_t choice, pinfold_lease got) noexcept {
    leases[choice] = got;
    if (got.pin != 0) return;
    why[choice] = error_of(*pinfold_last_error());
    failed[choice] = 1;
  }

  [[nodiscard]] detail::set_calls calls() noexcept {
    return {this,
            [](void* self, std::size_t choice) {
              auto& own = *static_cast<cache_choices*>(self);
              own.leases[choice] = pinfold_find(own.caches[choice], own.address, own.bytes, own.access);
              return own.leases[choice].pin != 0;
            },
            [](void* self, std::size_t choice) {
              auto& own = *static_cast<cache_choices*>(self);
              own.keep(choice, pinfold_acquire_with(own.caches[choice], own.address, own.bytes, own.access, &own.each));
            },
            [](void* self, std::size_t choice) -> const error* {
              auto& own = *static_cast<cache_choices*>(self);
              return own.failed[choice] != 0 ? &own.why[choice] : nullptr;
            }};
  }

  cache_choices(std::span<pinfold_cache* const> of, const void* at, std::size_t size, std::uint32_t flags,
                void* argument)
      : caches(of),
        address(at),
        bytes(size),
        access(flags),
        each{.size = sizeof each, .flags = 0, .file = -1, .argument = argument},
        leases(of.size()),
        why(of.size()),
        failed(of.size()) {}
  cache_choices(const cache_choices&) = delete;
  cache_choices& operator=(const cache_choices&) = delete;
  // Releases the leases that the caller did not get.
  ~cache_choices() { static_cast<void>(pinfold_release_batch(leases.data(), leases.size())); }

  void hand_out(pinfold_lease* to, pinfold_error* failures) noexcept {
    std::copy(leases.begin(), leases.end(), to);
    for (std::size_t i = 0; i < caches.size() && failures != nullptr; ++i)
      failures[i] = failed[i] != 0 ? as_c(why[i]) : pinfold_error{};
    leases.clear();
  }
};

result<set_options> read_options(const pinfold_set_options* given, pinfold_set_options& known) noexcept {
  if (given != nullptr && !read(given, known))
    return fail(errc::invalid_argument, "the options have a wrong size or unknown members");
  if (known.policy > PINFOLD_SET_FIXED_ORDER) return fail(errc::invalid_argument, "the set has no such policy");
  set_options how;
  how.policy = static_cast<set_policy>(known.policy);
  how.required = known.required == 0 ? every_member : known.required;
  how.near_margin = known.near_margin;
  return how;
}

result<void> acquire_set(std::span<pinfold_cache* const> caches, const void* address, std::size_t bytes,
                         std::uint32_t access, const pinfold_set_options* options, pinfold_lease* leases,
                         pinfold_error* failures) {
  pinfold_set_options known{};
  const auto how = read_options(options, known);
  if (!how) return tl::unexpected(how.error());
  std::vector<std::uint32_t> distances(caches.size());
  if (known.distances != nullptr) distances.assign(known.distances, known.distances + caches.size());
  auto plan = detail::plan_set(*how, caches.size(), distances);
  if (!plan) return tl::unexpected(plan.error());
  // Another thread would not know that it works for a callback, and could wait for that callback.
  if (callback::any()) plan->parallel = false;
  cache_choices asked(caches, address, bytes, access, known.argument);
  if (auto got = detail::ask_members(*plan, asked.calls()); !got) return got;
  asked.hand_out(leases, failures);
  return {};
}

// A request for the memory makes a cache process its monitors' events.
bool any_stale(std::span<pinfold_cache* const> caches, const pinfold_lease* leases, const void* address,
               std::size_t bytes, std::uint32_t access) noexcept {
  bool stale = false;
  for (std::size_t i = 0; i < caches.size(); ++i)
    if (leases[i].pin != 0) {
      static_cast<void>(pinfold_release(pinfold_find(caches[i], address, bytes, access)));
      stale = stale || pinfold_is_stale(leases[i]) != 0;
    }
  return stale;
}

bool all_there(pinfold_cache* const* caches, std::size_t count) noexcept {
  return caches != nullptr && count > 0 && std::find(caches, caches + count, nullptr) == caches + count;
}

}  // namespace

}  // namespace pinfold::c

extern "C" {

int pinfold_acquire_set(pinfold_cache* const* caches, size_t count, const void* address, size_t bytes, uint32_t access,
                        const pinfold_set_options* options, pinfold_lease* leases, pinfold_error* failures) {
  using namespace pinfold;
  if (leases == nullptr) return c::refuse(errc::invalid_argument, "there is no place for the leases");
  if (!c::all_there(caches, count)) return c::refuse(errc::invalid_argument, "a set needs caches, none of them null");
  std::fill_n(leases, count, pinfold_lease{});
  if (failures != nullptr) std::fill_n(failures, count, pinfold_error{});
  return c::guarded([&] { return c::acquire_set({caches, count}, address, bytes, access, options, leases, failures); });
}

pinfold_lease pinfold_acquire_late(pinfold_cache* const* caches, size_t count, size_t which, const void* address,
                                   size_t bytes, uint32_t access, const pinfold_lease* leases) {
  using namespace pinfold;
  if (!c::all_there(caches, count) || which >= count || leases == nullptr) {
    c::refuse(errc::invalid_argument, "the set has no such cache, or there are no leases");
    return {};
  }
  const pinfold_lease late = pinfold_acquire(caches[which], address, bytes, access);
  if (late.pin == 0 || !c::any_stale({caches, count}, leases, address, bytes, access)) return late;
  static_cast<void>(pinfold_invalidate(caches[which], address, bytes));  // may be of the earlier memory as well
  static_cast<void>(pinfold_release(late));
  c::refuse(errc::stale_handle, "the memory was replaced since the set acquired it");
  return {};
}

}  // extern "C"
