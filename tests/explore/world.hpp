// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The program's memory, a device that knows which generation of it each registration has, and what must hold. One
/// thread runs at a time, so nothing here is locked.
#pragma once

#include "scheduler.hpp"

#include <pinfold/cache.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

namespace pinfold::explore {

inline constexpr std::size_t pages = 6;
inline constexpr std::uintptr_t page_bytes = 4096;

/// Returns where a page is: the last two lie in another cell of addresses, mostly in another shard.
constexpr std::uintptr_t address_of(std::size_t page) {
  constexpr std::uintptr_t base = std::uintptr_t{1} << 40U;
  constexpr std::uintptr_t cell = std::uintptr_t{2} << 20U;
  constexpr std::size_t first_of_other_cell = 4;
  return base + page * page_bytes + (page < first_of_other_cell ? 0 : cell);
}

template <class Do>
void for_each_page(const range& where, Do&& act) {
  for (std::size_t page = 0; page < pages; ++page)
    if (where.overlaps({address_of(page), address_of(page) + page_bytes})) act(page);
}

struct world {
  using by_page = std::array<unsigned, pages>;
  struct registration {
    range where;
    by_page generation{};
    unsigned leases = 0;
  };

  by_page generation{};    ///< of the memory that is there
  by_page said{};          ///< what the cache was told: a later lease has at least this generation
  by_page announced{};     ///< the same of every cache of the process
  by_page gone_at{};       ///< when the last invalidation began
  by_page asked_at{};      ///< when the last request for it ended
  by_page unpersisted{};   ///< when the last call of `unpersist` began
  by_page persisted_at{};  ///< when the last persistent request for it ended
  unsigned clock = 0;
  std::map<std::uint64_t, registration> open;
  std::uint64_t last = 0;
  bool ending = false;
  bool ended = false;
  bool inherited = false;         ///< this is a child's copy: no driver may be called any more
  bool slow = false;              ///< the device takes longer than some time-outs
  bool refuses_overlaps = false;  ///< with `already_mapped`
  std::size_t capacity = SIZE_MAX;
  unsigned failing_closes = 0;

  void replace(const range& where) {
    ++clock;
    for_each_page(where, [&](std::size_t page) { ++generation[page], gone_at[page] = clock; });
  }
  static void was_told(by_page& known, const range& where, const by_page& then) {
    for_each_page(where, [&](std::size_t page) { known[page] = std::max(known[page], then[page]); });
  }
  void note(by_page& when, const range& where) {
    ++clock;
    for_each_page(where, [&](std::size_t page) { when[page] = clock; });
  }
  [[nodiscard]] result<void> admits(const range& where) const {
    if (open.size() >= capacity) return fail_errno(errc::out_of_resources, 12, "the device is full");
    for (const auto& [key, one] : open)
      if (refuses_overlaps && one.where.overlaps(where))
        return fail_errno(errc::already_mapped, 22, "the device has registered some of it already");
    return {};
  }
  void work() const {
    point("driver");
    if (slow) std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }

  /// Checks a lease of a request that began when the cache had been told `known`.
  registration& check(std::uint64_t key, const range& wanted, const by_page& known) {
    const auto found = open.find(key);
    if (found == open.end()) all_threads.fail("a lease on a registration that is closed");
    if (!found->second.where.contains(wanted)) all_threads.fail("a lease does not cover the request");
    for_each_page(wanted, [&](std::size_t page) {
      if (found->second.generation[page] < known[page])
        all_threads.fail("a stale lease: page %zu has generation %u, the cache was told of %u before the request", page,
                         found->second.generation[page], known[page]);
    });
    return found->second;
  }
};

class truthful_registrar {
 public:
  static constexpr const char* name = "truthful";
  static constexpr bool exclusive_in_process = true;
  struct registration_type {
    std::uint64_t key;
  };

  explicit truthful_registrar(std::shared_ptr<world> in) : world_(std::move(in)) {}

  [[nodiscard]] registrar_limits limits() const noexcept {
    return {.granularity = page_bytes, .supported = static_cast<access_flags>(31)};
  }
  [[nodiscard]] result<registration_type> open(range memory, access_flags /*access*/) noexcept {
    if (world_->inherited) all_threads.fail("the parent's driver is asked to open");
    if (world_->ended) all_threads.fail("the driver is asked to open after the destructor returned");
    point("driver");
    if (auto admitted = world_->admits(memory); !admitted) return tl::unexpected(admitted.error());
    const auto key = ++world_->last;
    world_->open[key] = {memory, world_->generation, 0};
    world_->work();
    return registration_type{key};
  }
  [[nodiscard]] result<void> close(const registration_type& made) noexcept {
    if (world_->inherited) all_threads.fail("the parent's driver is asked to close");
    world_->work();
    const auto found = world_->open.find(made.key);
    if (found == world_->open.end()) all_threads.fail("closed twice");
    // A close that outlives the destructor is not tried again, so none fails from then on.
    if (world_->failing_closes > 0 && !world_->ending) {
      --world_->failing_closes;
      return fail_errno(errc::driver_error, 5, "the close fails");
    }
    if (found->second.leases > 0 && !world_->ending) all_threads.fail("closed under a lease");
    world_->open.erase(found);
    return {};
  }

 private:
  std::shared_ptr<world> world_;
};

}  // namespace pinfold::explore
