// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Where something happens to registered memory: a cache over a device, and the bytes that arrive.
#pragma once

#include "support/memory_attacks.hpp"

#include <pinfold/cache.hpp>

#include <array>
#include <concepts>
#include <cstring>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pinfold::testing {

/// Who tells the cache, and how it is asked.
struct watch_case {
  const char* name;    ///< for the test
  const char* column;  ///< of the table in the documentation; null where it is another's
  monitor_choice monitor;
  bool strict = false;
  bool announces = false;  ///< the application calls `invalidate` before it happens
};

inline void PrintTo(const watch_case& who, std::ostream* to) { *to << who.name; }

inline const std::vector<watch_case>& all_watch_cases() {
  static const std::vector<watch_case> list{
      {"nobody_tells", "nobody tells", monitor_choice::explicit_},
      {"none", nullptr, monitor_choice::none},
      {"explicit", "`explicit`", monitor_choice::explicit_, false, true},
      // Of the hooks alone: the events that they do not see are the application's, which says nothing.
      {"hooks", "`hooks`", monitor_choice::hooks | monitor_choice::explicit_},
      {"userfaultfd", "`userfaultfd`", monitor_choice::userfaultfd},
      {"strict_userfaultfd", nullptr, monitor_choice::userfaultfd, true},
      {"hooks_and_userfaultfd", nullptr, monitor_choice::hooks | monitor_choice::userfaultfd},
      {"bpf", "`bpf`", monitor_choice::bpf},
      {"automatic", "`automatic`", monitor_choice::automatic},
      {"strict_automatic", nullptr, monitor_choice::automatic, true},
  };
  return list;
}

/// What came of asking the cache again.
enum class answer : int {
  unknown_here,      ///< this system does not do such a thing, or may not be asked to
  fresh,             ///< the registration of before, and it is right
  registered_again,  ///< what was kept is not used, and the new one is right
  not_kept,          ///< registered for each lease
  refused,           ///< no lease, or the device refused it: nothing wrong was sent
  stale,             ///< bytes of before were sent
};

[[nodiscard]] inline const char* words(answer what) {
  static constexpr std::array names{"unknown here", "fresh", "again", "not kept", "refused", "**stale**"};
  return names.at(static_cast<std::size_t>(what));
}

/// What events need of it: the content before, and after. Where it is sent to is the device's.
class stage {
 public:
  stage() = default;
  stage(const stage&) = delete;
  stage& operator=(const stage&) = delete;
  virtual ~stage() = default;

  /// What the cache allocates for this thread, it allocates now, and not on top of the heap that an event is about.
  virtual void warm_up() = 0;

  /// Fills it with what is old, registers it, and gives the lease back.
  void before(const target& at) {
    std::memset(at.data, 'A', at.bytes);
    before_untouched(at);
  }
  virtual void before_untouched(const target& at) = 0;

  /// Fills it with what is new, registers it again, and sends it.
  [[nodiscard]] answer after(const target& at) {
    std::memset(at.data, 'B', at.bytes);
    return send(at);
  }
  /// Without a new content: nothing may be sent at all.
  [[nodiscard]] virtual answer send(const target& at) = 0;
};

/// A device: makes registrars, and sends what is registered. `send` returns how many bytes arrived that are that one;
/// nothing when the device refused.
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

  /// "hooks+userfaultfd", or "none" and the reasons.
  [[nodiscard]] std::string monitors() const {
    const auto text = cache_.monitors();
    return text.substr(0, text.find(" ("));
  }

  void warm_up() override {
    alignas(4096) static std::array<std::byte, 8192> some{};
    static_cast<void>(cache_.acquire(some));
    static_cast<void>(cache_.flush());
  }

  void before_untouched(const target& at) override {
    {
      const auto held = cache_.acquire(at.data, at.bytes);
      refused_ = !held;
      no_room_ = !held && held.error().code == errc::out_of_resources;  // an ordinary user's limit
    }
    kept_ = cache_.statistics().open_now > 0;
    if (announces_) cache_.invalidate(at.data, at.bytes);
  }

  [[nodiscard]] answer send(const target& at) override {
    if (no_room_) return answer::unknown_here;
    if (refused_) return answer::refused;
    const auto hits = cache_.statistics().hits;
    const auto held = cache_.acquire(at.data, at.bytes);
    if (!held) return answer::refused;
    const bool hit = cache_.statistics().hits > hits;
    const auto arrived = device_.send(at, held->handle(), 'B');
    if (!arrived) return answer::refused;
    if (*arrived != at.bytes) return answer::stale;
    return hit ? answer::fresh : kept_ ? answer::registered_again : answer::not_kept;
  }

 private:
  static cache_options options(const watch_case& who) {
    cache_options made;
    made.monitor = who.monitor;
    made.strict = who.strict;
    made.program_data = true;  // nobody truncates the test's libraries
    return made;
  }

  bool announces_;
  bool refused_ = false, no_room_ = false, kept_ = false;
  Device device_;
  pinfold::cache<decltype(std::declval<Device&>().registrar())> cache_;
};

}  // namespace pinfold::testing
