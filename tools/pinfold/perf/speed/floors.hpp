// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Lower bounds for any cache: the same loop with the least work that a hit must do.
#pragma once

#include "bench/subject.hpp"

#include <atomic>
#include <cstdint>
#include <vector>

namespace tool {

/// A comparison of the range and two uncontended atomic additions: one to hold, one to release.
class atomics_floor {
 public:
  static constexpr const char* name = "floor-atomics";

  atomics_floor(const bench::region_set& regions, const bench::setup& /*how*/) noexcept
      : begin_(regions[0].address), end_(regions[regions.count() - 1].address + bench::region_bytes) {}

  class user_type {
   public:
    using held = std::uint64_t;

    explicit user_type(atomics_floor& on) noexcept : on_(&on) {}
    [[nodiscard]] held get(const bench::request& wanted) noexcept {
      if (wanted.address < on_->begin_ || wanted.address + wanted.bytes > on_->end_) return 0;
      on_->pins_.fetch_add(1, std::memory_order_acquire);
      return on_->begin_;
    }
    [[nodiscard]] std::uint64_t key(held of) const noexcept { return of; }
    void put(held& /*of*/) noexcept { on_->pins_.fetch_sub(1, std::memory_order_release); }

   private:
    atomics_floor* on_;
  };

  [[nodiscard]] user_type user() noexcept { return user_type(*this); }

 private:
  std::uintptr_t begin_;
  std::uintptr_t end_;
  std::atomic<std::uint64_t> pins_{0};
};

/// A load from the region's record of 64 bytes, on which all later loads depend, and a store to it. A cache whose
/// entries do not fit into the CPU's caches waits as long for memory.
class record_floor {
 public:
  static constexpr const char* name = "floor-record";

  record_floor(const bench::region_set& regions, const bench::setup& /*how*/)
      : regions_(regions), records_(regions.count()) {
    for (auto& one : records_) one.key = 1;
  }

  class user_type {
   public:
    struct held {
      std::uint64_t key;
    };

    explicit user_type(record_floor& on) noexcept : regions_(on.regions_), records_(on.records_.data()) {}
    [[nodiscard]] held get(const bench::request& wanted) noexcept {
      auto& found = records_[regions_.index_of(wanted.address + carried_)];
      const auto key = found.key;
      found.uses = key;
      carried_ = key - 1;  // adds 0, which the compiler does not know: the next address needs this load
      return {key};
    }
    [[nodiscard]] std::uint64_t key(const held& of) const noexcept { return of.key; }
    void put(held& /*of*/) noexcept {}

   private:
    friend class record_floor;
    struct alignas(64) record {
      std::uint64_t key = 0;
      std::uint64_t uses = 0;
    };
    bench::region_set regions_;
    record* records_;
    std::uint64_t carried_ = 0;
  };

  [[nodiscard]] user_type user() noexcept { return user_type(*this); }

 private:
  bench::region_set regions_;
  std::vector<user_type::record> records_;
};

}  // namespace tool
