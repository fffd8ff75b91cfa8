// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Asks a cache for memory, and checks that its leases are on the current memory.
#pragma once

#include "run.hpp"

#include <cstring>
#include <utility>

namespace pinfold::testing::hazard_fuzz {

using lease_type = cache_and_device::cache_type::lease;

/// Leases that a thread keeps across steps, with their caches.
class held_leases {
 public:
  void keep(std::shared_ptr<cache_and_device> of, lease_type held) {
    auto& one = all_[next_++ % all_.size()];
    one.held = {};  // the lease goes before its cache can
    one = {std::move(of), std::move(held)};
  }
  void release_one(std::size_t number) {
    auto& one = all_[number % all_.size()];
    one.held = {};
    one.of.reset();
  }
  [[nodiscard]] bool any() const {
    return std::any_of(all_.begin(), all_.end(), [](const auto& one) { return static_cast<bool>(one.held); });
  }

 private:
  struct pair {
    std::shared_ptr<cache_and_device> of;
    lease_type held;  // declared after its cache, so destroyed first
  };
  std::array<pair, 4> all_;
  std::size_t next_ = 0;
};

/// Fills memory with bytes that it has never held before.
inline void fill(std::byte* at, std::size_t bytes, std::uint64_t value) {
  for (std::size_t i = 0; i + sizeof value <= bytes; i += sizeof value) {
    std::memcpy(at + i, &value, sizeof value);
    value += 0x0001'0001'0001'0001U;
  }
}

/// The look-ups of one thread in one step.
class look_up {
 public:
  look_up(run& in, const occasion& when, choices& random, held_leases& held)
      : in_(in), when_(when), random_(random), held_(held) {}

  /// Makes any look-up of that part of a slot, which the thread must own.
  void any(slot& of, const part& where, const std::shared_ptr<cache_and_device>& by) {
    if (by == nullptr) return;
    switch (random_.below(8)) {
      case 0: return find(of, where, by);
      case 1: return batch(of, where, *by);
      default: return acquire(of, where, by);
    }
  }

  void acquire(slot& of, const part& where, const std::shared_ptr<cache_and_device>& by) {
    const bool fill_before = can_be_sent(of, where, *by) && random_.one_in(2);
    if (fill_before) fill(of.at(where.begin), window(where), random_.number());
    const int file = of.kind() == memory_kind::sealed_memfd ? of.file() : -1;
    const auto need = random_.one_in(8) ? access_flags::local_read : local_access;
    auto got = by->cache().acquire(of.at(where.begin), where.size(), need, {.file = file});
    if (!got) return count(in_.done.refused);
    check(of, where, *by, *got, {"acquire", "stamp", by->monitors()}, fill_before);
    if (random_.one_in(6)) held_.keep(by, std::move(*got));
  }

  void find(slot& of, const part& where, const std::shared_ptr<cache_and_device>& by) {
    const auto got = by->cache().find(of.at(where.begin), where.size());
    if (!got) return;
    count(in_.done.found);
    check(of, where, *by, *got, {"find", "stamp", by->monitors()}, false);
  }

  /// Acquires as a batch the part, its first page again, and its second half.
  void batch(slot& of, const part& where, cache_and_device& by) {
    const part first{where.begin, std::min(where.end, where.begin + page_bytes)};
    const part rest{where.begin + where.size() / 2 / page_bytes * page_bytes, where.end};
    const std::array parts{where, first, rest};
    std::array<range, 3> ranges{};
    for (std::size_t i = 0; i < parts.size(); ++i) ranges[i] = {of.base() + parts[i].begin, of.base() + parts[i].end};
    const auto got = by.cache().acquire_batch(ranges, local_access, {.workers = random_.one_in(8) ? 2U : 1U});
    if (!got) return count(in_.done.refused);
    for (std::size_t i = 0; i < parts.size(); ++i)
      check(of, parts[i], by, (*got)[i], {"batch", "stamp", by.monitors()}, false);
  }

 private:
  static constexpr std::size_t most_sent = 4 * page_bytes;

  static std::size_t window(const part& where) { return std::min(where.size(), most_sent); }

  static bool can_be_sent(const slot& of, const part& where, const cache_and_device& by) {
    return by.has_device() && of.is_as_it_should_be(where);
  }

  void check(slot& of, const part& where, cache_and_device& by, const lease_type& held, wrong_lease what, bool filled) {
    count(in_.done.leases);
    if (of.went_after(held.registration().stamp, where)) return in_.found.add(when_, what, of, where);
    if (!can_be_sent(of, where, by)) return;
    if (!filled) fill(of.at(where.begin), window(where), random_.number());
    const auto answer = by.send(of.at(where.begin), window(where), held.registration());
    if (answer == cache_and_device::answer::refused) return count(in_.done.not_sent);
    count(in_.done.sent);
    what.oracle = "bytes";
    if (answer == cache_and_device::answer::wrong) in_.found.add(when_, what, of, where);
  }

  run& in_;
  occasion when_;
  choices& random_;
  held_leases& held_;
};

}  // namespace pinfold::testing::hazard_fuzz
