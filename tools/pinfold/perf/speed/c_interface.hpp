// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// pinfold through its C interface, over a registrar in C that does nothing.
#pragma once

#include "cli/settings.hpp"

#include <pinfold/pinfold.h>

#include "bench/subject.hpp"

#include <cstdint>
#include <new>

namespace tool {

class c_subject {
 public:
  static constexpr const char* name = "pinfold-c";

  c_subject(const bench::region_set& /*regions*/, const bench::setup& how) {
    pinfold_options options;
    if (pinfold_options_init(&options, sizeof options) != PINFOLD_OK) throw std::bad_alloc();
    options.monitor = static_cast<std::uint32_t>(monitors_named(how.monitors));
    options.max_count = how.most;
    options.full = PINFOLD_FULL_WAIT;
    pinfold_registrar calls{};
    calls.size = sizeof calls;
    calls.name = "nothing";
    calls.granularity = 1;
    calls.open = [](void*, const pinfold_open_request* what, pinfold_registration* made, pinfold_error*) -> int {
      made->words[0] = reinterpret_cast<std::uintptr_t>(what->address);
      return PINFOLD_OK;
    };
    calls.close = [](void*, const pinfold_registration*, pinfold_error*) -> int { return PINFOLD_OK; };
    if (pinfold_create(&calls, nullptr, &options, &cache_) != PINFOLD_OK) throw std::bad_alloc();
  }
  c_subject(const c_subject&) = delete;
  c_subject& operator=(const c_subject&) = delete;
  ~c_subject() { pinfold_destroy(cache_); }

  class c_user {
   public:
    using held = pinfold_lease;

    explicit c_user(pinfold_cache* cache) noexcept : cache_(cache) {}

    [[nodiscard]] held get(const bench::request& wanted) noexcept {
      return pinfold_acquire(cache_, reinterpret_cast<const void*>(wanted.address), wanted.bytes, access);
    }
    [[nodiscard]] std::uint64_t key(const held& made) const noexcept {
      const auto* of = static_cast<const pinfold_registration*>(pinfold_registration_of(made));
      return of == nullptr ? 0 : of->words[0];
    }
    void put(held& made) noexcept { pinfold_release(made); }

   private:
    static constexpr std::uint32_t access = PINFOLD_LOCAL_READ | PINFOLD_LOCAL_WRITE;

    pinfold_cache* cache_;
  };

  [[nodiscard]] c_user user() noexcept { return c_user(cache_); }

 private:
  pinfold_cache* cache_ = nullptr;
};

}  // namespace tool
