// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Several ways to register the same memory, tried in order: for device memory dma-buf, peer memory, host staging.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/error.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

namespace pinfold {

/// A step that refused to register the memory, and why.
struct refused_step {
  const char* step = "";  ///< its name
  error why{};            ///< with the driver's own code
};

/// What a step made.
template <class Registration>
struct opened_by_step {
  Registration made{};           ///< what the device needs
  void* staged = nullptr;        ///< the memory that the device uses instead of the caller's; null: the caller's own
  std::size_t staged_bytes = 0;  ///< how many, if the memory is staged
};

/// One way to register memory. Its functions run on many threads at once, and must not throw.
template <class Registration>
struct fallback_step {
  const char* name;           ///< static text, shown in the list of refusals
  registrar_limits limits{};  ///< requests beyond them are refused without a call

  /// Registers exactly the range, as `open` of a registrar does.
  std::function<result<opened_by_step<Registration>>(const range&, access_flags)> open{};
  /// Undoes that, or changes nothing.
  std::function<result<void>(const opened_by_step<Registration>&)> close{};

  /// Whether the next step is tried after `out_of_resources` and `already_mapped`. By default it is not: the cache then
  /// closes idle registrations and tries again, from the first step.
  bool next_when_full = false;

  std::function<void(const opened_by_step<Registration>&)> invalidated{};  ///< as of an `informed_registrar`, or empty
  std::function<bool(const opened_by_step<Registration>&)> may_keep{};     ///< as of a `borrowing_registrar`, or empty
};

/// Returns a step that registers with a registrar, which it takes over. Throws `std::bad_alloc`.
template <registrar R>
[[nodiscard]] fallback_step<typename R::registration_type> as_step(const char* name, R with) {
  using made_type = typename R::registration_type;
  const auto own = std::make_shared<R>(std::move(with));
  using opened_type = opened_by_step<made_type>;
  fallback_step<made_type> step{
      .name = name,
      .limits = own->limits(),
      .open = [own](const range& memory, access_flags access) -> result<opened_type> {
        return own->open(memory, access).map([](const made_type& made) { return opened_type{made}; });
      },
      .close = [own](const opened_type& one) { return own->close(one.made); }};
  if constexpr (informed_registrar<R>) step.invalidated = [own](const opened_type& one) { own->invalidated(one.made); };
  if constexpr (borrowing_registrar<R>)
    step.may_keep = [own](const opened_type& one) { return own->may_keep(one.made); };
  return step;
}

/// Where staged memory comes from.
struct staging_memory {
  /// Returns host memory for so many bytes. Runs on any thread; must not throw.
  std::function<result<void*>(std::size_t bytes)> allocate;
  /// Frees it. Must not throw.
  std::function<void(void* memory, std::size_t bytes)> free;
};

/// Returns a step that registers host memory of the same length in place of the caller's. The program copies the bytes
/// between both, before and after the device moves them. Throws `std::bad_alloc`.
template <registrar R>
[[nodiscard]] fallback_step<typename R::registration_type> staging_step(const char* name, R with, staging_memory from) {
  using made_type = typename R::registration_type;
  struct both {
    R with;
    staging_memory from;
  };
  const auto own = std::make_shared<both>(both{std::move(with), std::move(from)});
  return {.name = name,
          .limits = own->with.limits(),
          .open = [own](const range& memory, access_flags access) -> result<opened_by_step<made_type>> {
            const auto room = own->from.allocate(memory.size());
            if (!room) return tl::unexpected(room.error());
            const auto begin = reinterpret_cast<std::uintptr_t>(*room);
            const auto made = own->with.open({begin, begin + memory.size()}, access);
            if (made) return opened_by_step<made_type>{*made, *room, memory.size()};
            own->from.free(*room, memory.size());
            return tl::unexpected(made.error());
          },
          .close = [own](const opened_by_step<made_type>& one) -> result<void> {
            auto closed = own->with.close(one.made);
            if (closed) own->from.free(one.staged, one.staged_bytes);
            return closed;
          }};
}

/// The largest number of steps of one registrar.
inline constexpr std::size_t most_fallback_steps = 8;

namespace detail {

/// The part of a fallback registrar's registration beside the step's own.
struct fallback_details {
  range memory;
  void* staged = nullptr;
  std::size_t staged_bytes = 0;
  const char* served_by = "";
  std::array<refused_step, most_fallback_steps> refused{};
};

}  // namespace detail

/// The registration that a step made, with the number of that step and the reasons why those before it refused. All
/// that it points to lives as long as the registration.
template <class Registration>
struct fallback_registration : Registration {
  const detail::fallback_details* about;  ///< read by the members below
  std::uint32_t step;                     ///< the number of the step that served, from 0

  /// Returns the name of the step that served; "" if there is no registration.
  [[nodiscard]] const char* served_by() const noexcept { return about == nullptr ? "" : about->served_by; }
  /// Returns the steps before it, in order, each with the reason why it refused.
  [[nodiscard]] std::span<const refused_step> refusals() const noexcept {
    if (about == nullptr) return {};
    return std::span(about->refused).first(step);
  }
  /// Returns whether the device uses other memory than the caller's.
  [[nodiscard]] bool staged() const noexcept { return about != nullptr && about->staged != nullptr; }
  /// Returns where the device finds the byte at `address`, which must be inside the registration: there itself, or in
  /// the staged memory. All leases on a registration share its staged memory; acquire with `bypass` for memory of one
  /// lease alone.
  [[nodiscard]] void* address_for(const void* address) const noexcept {
    if (!staged()) return const_cast<void*>(address);
    return static_cast<std::byte*>(about->staged) + (reinterpret_cast<std::uintptr_t>(address) - about->memory.begin);
  }
};

/// A registrar that tries a list of steps in order, until one does not refuse. Thread-safe as its steps are.
///
/// `open` errors: those of `check_request`, and if every step refused, the error of the last one; the listener is
/// called for each. `out_of_resources` and `already_mapped` of a step end the list, because the cache can help
/// (`fallback_step::next_when_full`). `close` errors: those of the step that served.
///
/// No monitor sees device memory go: tell the cache (`invalidate`), or do not keep the registration (`bypass`).
template <class Registration>
  requires std::is_class_v<Registration> && std::is_trivially_copyable_v<Registration>
class fallback_registrar {
 public:
  static constexpr const char* name = "fallback";  ///< shown in events and dumps
  /// What the step made, and how it came to it.
  using registration_type = fallback_registration<Registration>;
  /// Called for each refusal, on the thread that opens, without a lock. Must not throw.
  using listener = std::function<void(const refused_step&, const range& memory)>;

  static_assert(sizeof(registration_type) <= max_registration_bytes, "the step's registration is too large");

  /// Makes a registrar. Errors: `invalid_argument` (no step, more than `most_fallback_steps`, or one without a name,
  /// `open` or `close`).
  [[nodiscard]] static result<fallback_registrar> create(std::vector<fallback_step<Registration>> steps,
                                                         listener told = {}) noexcept {
    const bool complete = std::all_of(steps.begin(), steps.end(),
                                      [](const auto& one) { return one.name != nullptr && one.open && one.close; });
    if (steps.empty() || steps.size() > most_fallback_steps || !complete)
      return fail(errc::invalid_argument, "a fallback needs 1 to 8 steps, each with a name, open and close");
    return fallback_registrar(std::move(steps), std::move(told));
  }

  /// Returns what at least one step can do.
  [[nodiscard]] registrar_limits limits() const noexcept { return limits_; }

  /// Registers with the first step that does not refuse.
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    if (steps_.empty()) return fail(errc::closed, "this registrar was moved from");
    if (auto fit = check_request(limits(), memory, access); !fit) return tl::unexpected(fit.error());
    // Before the first step: nothing may fail once a step has opened.
    std::unique_ptr<detail::fallback_details> about(new (std::nothrow) detail::fallback_details{.memory = memory});
    if (!about) return fail_errno(errc::out_of_resources, ENOMEM, "no memory for the registration");
    for (std::uint32_t i = 0;; ++i) {
      const auto made = try_step(steps_[i], memory, access);
      if (made) return registration_of(*made, i, std::move(about));
      about->refused[i] = {steps_[i].name, made.error()};
      if (told_) told_(about->refused[i], memory);
      if (i + 1 == steps_.size() || ends_list(steps_[i], made.error())) return tl::unexpected(made.error());
    }
  }

  /// Closes with the step that opened.
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept {
    if (registration.step >= steps_.size()) return fail(errc::closed, "this registrar was moved from");
    if (registration.about == nullptr) return fail(errc::invalid_argument, "the registration is empty");
    auto closed = steps_[registration.step].close(made_by_step(registration));
    if (closed) delete registration.about;
    return closed;
  }

  /// Returns whether the cache may keep the registration: the step that served decides.
  [[nodiscard]] bool may_keep(const registration_type& registration) const noexcept {
    const auto* step = step_of(registration);
    return step == nullptr || !step->may_keep || step->may_keep(made_by_step(registration));
  }

  /// Tells the step that served that the memory is gone.
  void invalidated(const registration_type& registration) noexcept {
    const auto* step = step_of(registration);
    if (step != nullptr && step->invalidated) step->invalidated(made_by_step(registration));
  }

 private:
  using step_type = fallback_step<Registration>;
  using opened_type = opened_by_step<Registration>;

  fallback_registrar(std::vector<step_type> steps, listener told) noexcept
      : limits_(limits_of(steps)), steps_(std::move(steps)), told_(std::move(told)) {}

  static opened_type made_by_step(const registration_type& registration) noexcept {
    return {registration, registration.about->staged, registration.about->staged_bytes};
  }
  const step_type* step_of(const registration_type& registration) const noexcept {
    return registration.step < steps_.size() && registration.about != nullptr ? &steps_[registration.step] : nullptr;
  }

  static registrar_limits limits_of(const std::vector<step_type>& steps) noexcept {
    registrar_limits all{.granularity = 1, .max_bytes = 0, .supported = access_flags::none};
    for (const auto& step : steps) {
      all.granularity = std::max(all.granularity, step.limits.granularity);
      all.max_bytes = std::max(all.max_bytes, step.limits.max_bytes);
      all.supported = all.supported | step.limits.supported;
    }
    return all;
  }

  static result<opened_type> try_step(const step_type& step, const range& memory, access_flags access) noexcept {
    if (auto fit = check_request(step.limits, memory, access); !fit) return tl::unexpected(fit.error());
    return step.open(memory, access);
  }

  static bool ends_list(const step_type& step, const error& why) noexcept {
    return !step.next_when_full && (why == errc::out_of_resources || why == errc::already_mapped);
  }

  registration_type registration_of(const opened_type& made, std::uint32_t step,
                                    std::unique_ptr<detail::fallback_details> about) const noexcept {
    about->staged = made.staged;
    about->staged_bytes = made.staged_bytes;
    about->served_by = steps_[step].name;
    return {made.made, about.release(), step};
  }

  registrar_limits limits_;
  std::vector<step_type> steps_;
  listener told_;
};

}  // namespace pinfold
