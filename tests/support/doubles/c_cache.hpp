// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache with the members of `pinfold::cache` that goes through the C interface, over a registrar of C functions: the
/// conformance, model and fault tests run over both.
#pragma once

#include "support/doubles/c_cache_base.hpp"

#include <pinfold/cache.hpp>

#include <span>

namespace pinfold::testing {

/// The functions of a table over a registrar in C++.
template <registrar R>
struct c_calls {
  using registration_type = typename R::registration_type;
  static_assert(sizeof(registration_type) <= sizeof(pinfold_registration));

  static range memory_of(const pinfold_open_request& what) {
    EXPECT_EQ(what.argument, restoring_in_c ? nullptr : argument_in_c()) << "each request passes it";
    const auto begin = reinterpret_cast<std::uintptr_t>(what.address);
    return {begin, begin + what.bytes};
  }

  static int open(void* self, const pinfold_open_request* what, pinfold_registration* made, pinfold_error* failure) {
    auto got = static_cast<R*>(self)->open(memory_of(*what), static_cast<access_flags>(what->access));
    if (!got) return failed_in_c(got.error(), failure);
    std::memcpy(made, &*got, sizeof *got);
    return PINFOLD_OK;
  }
  static int close(void* self, const pinfold_registration* made, pinfold_error* failure) {
    registration_type of;
    std::memcpy(static_cast<void*>(&of), made, sizeof of);
    auto done = static_cast<R*>(self)->close(of);
    return done ? PINFOLD_OK : failed_in_c(done.error(), failure);
  }
  static void open_many(void* self, const pinfold_open_request* what, std::size_t count, pinfold_registration* made,
                        int* codes, pinfold_error* failures) {
    for (std::size_t i = 0; i < count; ++i) codes[i] = open(self, &what[i], &made[i], &failures[i]);
  }

  static pinfold_registrar table(const R& over) {
    const registrar_limits limits = over.limits();
    pinfold_registrar calls{};
    calls.size = sizeof calls;
    calls.name = R::name;
    calls.granularity = limits.granularity;
    calls.max_bytes = limits.max_bytes;
    calls.access = static_cast<std::uint32_t>(limits.supported);
    calls.open = open;
    calls.close = close;
    if constexpr (group_registrar<R>) calls.open_many = open_many;
    return calls;
  }
};

template <registrar R>
class c_cache : public c_cache_base<R> {
  using base = c_cache_base<R>;
  using base::cache_, base::options_, base::over_;

 public:
  using lease = typename base::lease;

  explicit c_cache(R over, const cache_options& options = {}) : base(std::move(over), options) {
    const auto table = c_calls<R>::table(*over_);
    EXPECT_EQ(pinfold_create(&table, over_.get(), &options_, &cache_), PINFOLD_OK) << pinfold_last_error()->message;
  }

  result<lease> acquire(const void* address, std::size_t bytes, access_flags need = local_access,
                        acquire_options how = {}) {
    pinfold_acquire_options options{};
    options.size = sizeof options;
    if (how.persistent) options.flags |= PINFOLD_PERSISTENT;
    if (how.bypass) options.flags |= PINFOLD_BYPASS;
    options.argument = argument_in_c();
    const auto got = pinfold_acquire_with(cache_, address, bytes, static_cast<std::uint32_t>(need), &options);
    return base::leased(got);
  }
  std::optional<lease> find(const void* address, std::size_t bytes, access_flags need = local_access) {
    const auto got = pinfold_find(cache_, address, bytes, static_cast<std::uint32_t>(need));
    return base::found(got);
  }
  result<std::vector<lease>> acquire_batch(std::span<const range> ranges, access_flags need = local_access,
                                           const batch_options& how = {}) {
    std::vector<pinfold_range> asked;
    for (const auto& one : ranges) asked.push_back({one.begin, one.size()});
    std::vector<pinfold_lease> got(ranges.size());
    pinfold_batch_options options{};
    options.size = sizeof options;
    options.workers = how.workers;
    options.argument = argument_in_c();
    if (pinfold_acquire_batch(cache_, asked.data(), asked.size(), static_cast<std::uint32_t>(need), &options,
                              got.data()) != PINFOLD_OK)
      return tl::unexpected(from_c(*pinfold_last_error()));
    std::vector<lease> held;
    for (const auto& one : got) held.emplace_back(one);
    return held;
  }
  void invalidate(const void* address, std::size_t bytes) {
    EXPECT_EQ(pinfold_invalidate(cache_, address, bytes), PINFOLD_OK);
  }
  void unpersist(const void* address, std::size_t bytes) {
    EXPECT_EQ(pinfold_unpersist(cache_, address, bytes), PINFOLD_OK);
  }
};

}  // namespace pinfold::testing
