// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The setting of a hazard test: a cache over a device, an event of registered memory, and the bytes that arrive.
#pragma once

#include "core/shard_map.hpp"
#include "support/hazards/memory_attacks.hpp"

#include <pinfold/cache.hpp>

#include <array>
#include <concepts>
#include <cstring>
#include <new>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <utility>
#include <vector>

namespace pinfold::testing {

/// How the cache learns of an event, and how it is configured.
struct watch_case {
  const char* name;    ///< for the test
  const char* column;  ///< in the documentation's table; null where another case has the column
  monitor_choice monitor;
  bool strict = false;
  bool announces = false;  ///< the application calls `invalidate` before the event
};

inline void PrintTo(const watch_case& who, std::ostream* to) { *to << who.name; }

inline const std::vector<watch_case>& all_watch_cases() {
  static const std::vector<watch_case> list{
      {"unannounced", "unannounced", monitor_choice::manual},
      {"none", nullptr, monitor_choice::none},
      {"manual", "`manual`", monitor_choice::manual, false, true},
      // Hooks alone: the application answers for the events that they do not see, and says nothing.
      {"hooks", "`hooks`", monitor_choice::hooks | monitor_choice::manual},
      {"userfaultfd", "`userfaultfd`", monitor_choice::userfaultfd},
      {"strict_userfaultfd", nullptr, monitor_choice::userfaultfd, true},
      {"hooks_and_userfaultfd", nullptr, monitor_choice::hooks | monitor_choice::userfaultfd},
      {"bpf", "`bpf`", monitor_choice::bpf},
      {"automatic", "`automatic`", monitor_choice::automatic},
      {"strict_automatic", nullptr, monitor_choice::automatic, true},
  };
  return list;
}

/// The result of the look-up and the transfer after an event.
enum class answer : int {
  unknown_here,      ///< this system has no such event, or does not permit it
  fresh,             ///< the old registration, and it is right
  registered_again,  ///< the kept registration is not used, and the new one is right
  not_kept,          ///< registered anew for each lease
  refused,           ///< no lease, or the device refused it: no wrong bytes were sent
  stale,             ///< old bytes were sent
};

[[nodiscard]] inline const char* words(answer what) {
  static constexpr std::array names{"unknown here", "fresh", "again", "not kept", "refused", "**stale**"};
  return names.at(static_cast<std::size_t>(what));
}

/// What an event needs: the content before it, and the content after. The device chooses the destination.
class stage {
 public:
  stage() = default;
  stage(const stage&) = delete;
  stage& operator=(const stage&) = delete;
  virtual ~stage() = default;

  /// Makes the cache allocate this thread's memory now, and not later on top of the heap that an event is about.
  virtual void warm_up() = 0;

  /// Fills the memory with old content, registers it, and gives the lease back.
  void before(const target& at) {
    std::memset(at.data, 'A', at.bytes);
    before_untouched(at);
  }
  virtual void before_untouched(const target& at) = 0;

  /// Fills the memory with new content, registers it again, and sends it.
  [[nodiscard]] answer after(const target& at) {
    std::memset(at.data, 'B', at.bytes);
    return send(at);
  }
  /// Sends the memory without new content: nothing may be sent at all.
  [[nodiscard]] virtual answer send(const target& at) = 0;
};

/// A device: makes registrars, and sends registered memory. `send` returns how many of the bytes that arrived equal the
/// given one; nothing when the device refused.
template <class D>
concept sending_device = std::default_initializable<D> && requires(D& device, const target& at) {
  requires registrar<decltype(device.registrar())>;
  {
    device.send(at, typename decltype(device.registrar())::registration_type{}, 'B')
  } -> std::same_as<std::optional<std::size_t>>;
};

template <sending_device Device>
class stage_on : public stage {
 public:
  explicit stage_on(const watch_case& who) : announces_(who.announces), cache_(device_.registrar(), options(who)) {
    warm_up();
  }

  /// Returns for example "hooks+userfaultfd", or "none" and the reasons.
  [[nodiscard]] std::string monitors() const {
    const auto text = cache_.monitors();
    return text.substr(0, text.find(" ("));
  }

  // Makes every shard allocate the memory that it needs for its first entry, however many shards there are.
  void warm_up() override {
    constexpr std::size_t cell = core::shard_map::smallest_cell;
    constexpr std::size_t bytes = 512 * cell;
    void* some = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (some == MAP_FAILED) throw std::bad_alloc();
    const core::shard_map map(core::shard_map::most_shards);
    core::shard_set seen = 0;
    for (std::size_t at = 0; at < bytes && seen != map.all(); at += cell) {
      auto* const memory = static_cast<std::byte*>(some) + at;
      const auto begin = reinterpret_cast<std::uintptr_t>(memory);
      const auto shard = core::shard_set{1} << map.shard_of({begin, begin + 4096});
      if ((seen & shard) == 0) static_cast<void>(cache_.acquire(memory, 4096));
      seen |= shard;
    }
    static_cast<void>(cache_.flush());
    ::munmap(some, bytes);
  }

  void before_untouched(const target& at) override {
    {
      const auto held = cache_.acquire(at.data, at.bytes);
      refused_ = !held;
      no_room_ = !held && held.error().code == errc::out_of_resources;  // the limit of an ordinary user
    }
    kept_ = cache_.statistics().open > 0;
    if (announces_) cache_.invalidate(at.data, at.bytes);
  }

  [[nodiscard]] answer send(const target& at) override {
    if (no_room_) return answer::unknown_here;
    if (refused_) return answer::refused;
    const auto hits = cache_.statistics().hits;
    const auto held = cache_.acquire(at.data, at.bytes);
    if (!held) return answer::refused;
    const bool hit = cache_.statistics().hits > hits;
    const auto arrived = device_.send(at, held->registration(), 'B');
    if (!arrived) return answer::refused;
    if (*arrived != at.bytes) return answer::stale;
    return hit ? answer::fresh : kept_ ? answer::registered_again : answer::not_kept;
  }

 private:
  static cache_options options(const watch_case& who) {
    cache_options made;
    made.monitor = who.monitor;
    made.strict = who.strict;
    made.program_data = true;  // nothing truncates the test's libraries
    return made;
  }

  bool announces_;
  bool refused_ = false, no_room_ = false, kept_ = false;
  Device device_;
  pinfold::cache<decltype(std::declval<Device&>().registrar())> cache_;
};

}  // namespace pinfold::testing
