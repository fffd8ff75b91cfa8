// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// pinfold as a C program would call it: functions that are not inlined, and opaque pointers.
#pragma once

#include "bench/subject.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

// Declared as in C; a lease lies in the caller's memory.
extern "C" {
void* pinfold_call_create(std::size_t max_count);
void pinfold_call_destroy(void* cache);
int pinfold_call_acquire(void* cache, void* address, std::size_t bytes, void* lease);
std::uint64_t pinfold_call_key(const void* lease);
void pinfold_call_release(void* lease);
}

namespace tool {

class call_subject {
 public:
  static constexpr const char* name = "pinfold-call";

  call_subject(const bench::region_set& /*regions*/, const bench::setup& how) : cache_(pinfold_call_create(how.most)) {}
  call_subject(const call_subject&) = delete;
  call_subject& operator=(const call_subject&) = delete;
  ~call_subject() { pinfold_call_destroy(cache_); }

  class calling_user {
   public:
    struct alignas(void*) held {
      std::byte lease[16];
      bool ok;
    };

    explicit calling_user(void* cache) noexcept : cache_(cache) {}

    [[nodiscard]] held get(const bench::request& wanted) noexcept {
      held made;
      made.ok = pinfold_call_acquire(cache_, reinterpret_cast<void*>(wanted.address), wanted.bytes, made.lease) == 0;
      return made;
    }
    [[nodiscard]] std::uint64_t key(const held& made) const noexcept {
      return made.ok ? pinfold_call_key(made.lease) : 0;
    }
    void put(held& made) noexcept {
      if (made.ok) pinfold_call_release(made.lease);
    }

   private:
    void* cache_;
  };

  [[nodiscard]] calling_user user() noexcept { return calling_user(cache_); }

 private:
  void* cache_;
};

}  // namespace tool
