// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Reports every call of another registrar to a callback.
#pragma once

#include <pinfold/registrar.hpp>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>

namespace pinfold {

/// One call of a registrar: the open or the close of one range.
struct traced_call {
  /// The two calls.
  enum class kind : std::uint8_t { open, close };
  kind what;                      ///< the call
  range memory;                   ///< the range that is opened or closed
  access_flags access;            ///< for `open`
  std::chrono::nanoseconds took;  ///< of the call
  const error* failure;           ///< null when it succeeded; valid during the callback
  std::size_t together = 1;       ///< number of ranges in the same call of the registrar; each is reported
};

namespace detail {

/// A registration with its range; usable in place of the registrar's own type.
template <class Inner>
struct traced_registration : Inner {
  range traced;
};

/// Types of registration that leave room in an entry for the range.
template <class Inner>
concept traceable =
    std::is_class_v<Inner> && !std::is_final_v<Inner> && sizeof(traced_registration<Inner>) <= max_registration_bytes;

template <class Inner>
struct traced_type {
  using type = Inner;
};
template <traceable Inner>
struct traced_type<Inner> {
  using type = traced_registration<Inner>;
};

}  // namespace detail

/// A registrar around another registrar. The callback runs on the thread that makes the call, without a lock, possibly
/// on several threads at once; it must not throw.
///
/// The adapter stores the range beside the registration, to report it at the close. If both need more than
/// `max_registration_bytes`, the range reported at a close is empty.
template <registrar R>
class trace_registrar {
 public:
  static constexpr const char* name = R::name;  ///< the inner registrar's
  /// The inner registrar's, with the range if there is room.
  using registration_type = typename detail::traced_type<typename R::registration_type>::type;
  using listener = std::function<void(const traced_call&)>;  ///< the callback

  /// Takes over the inner registrar.
  trace_registrar(R inner, listener told) : inner_(std::move(inner)), told_(std::move(told)) {}

  /// Returns the inner registrar's limits.
  [[nodiscard]] registrar_limits limits() const noexcept { return inner_.limits(); }

  /// Calls the inner registrar's `open`.
  [[nodiscard]] result<registration_type> open(range memory, access_flags access) noexcept {
    const auto start = clock::now();
    const auto made = inner_.open(memory, access);
    tell({traced_call::kind::open, memory, access, clock::now() - start, made ? nullptr : &made.error()});
    return with_range(made, memory);
  }

  /// Calls the inner registrar's `open_many`, so that the trace shows the real cost of a batch.
  void open_many(std::span<const range> memory, access_flags access, std::span<result<registration_type>> made) noexcept
    requires group_registrar<R>
  {
    for (std::size_t first = 0; first < memory.size(); first += most_together) {
      const auto count = std::min(memory.size() - first, most_together);
      open_together(memory.subspan(first, count), access, made.subspan(first, count));
    }
  }

  static constexpr bool exclusive_in_process = is_exclusive_in_process<R>;  ///< as of the inner registrar

  /// Calls the inner registrar's `invalidated`.
  void invalidated(const registration_type& registration) noexcept
    requires informed_registrar<R>
  {
    inner_.invalidated(registration);
  }
  /// Returns the inner registrar's `may_keep`.
  [[nodiscard]] bool may_keep(const registration_type& registration) const noexcept
    requires borrowing_registrar<R>
  {
    return inner_.may_keep(registration);
  }
  /// Returns the inner registrar's `still_is`.
  [[nodiscard]] bool still_is(const registration_type& registration, range memory) const noexcept
    requires identifying_registrar<R>
  {
    return inner_.still_is(registration, memory);
  }

  /// Calls the inner registrar's `close`.
  [[nodiscard]] result<void> close(const registration_type& registration) noexcept {
    const auto start = clock::now();
    const auto closed = inner_.close(registration);
    tell({traced_call::kind::close, range_of(registration), access_flags::none, clock::now() - start,
          closed ? nullptr : &closed.error()});
    return closed;
  }

 private:
  using clock = std::chrono::steady_clock;
  using inner_type = typename R::registration_type;
  static constexpr std::size_t most_together = 64;

  void tell(const traced_call& call) const noexcept {
    if (told_) told_(call);
  }

  void open_together(std::span<const range> memory, access_flags access,
                     std::span<result<registration_type>> made) noexcept {
    std::array<result<inner_type>, most_together> answers;
    const auto start = clock::now();
    inner_.open_many(memory, access, std::span(answers).first(memory.size()));
    const auto took = clock::now() - start;
    for (std::size_t i = 0; i < memory.size(); ++i) {
      tell({traced_call::kind::open, memory[i], access, took, answers[i] ? nullptr : &answers[i].error(),
            memory.size()});
      made[i] = with_range(answers[i], memory[i]);
    }
  }

  static result<registration_type> with_range(const result<inner_type>& made, const range& memory) noexcept {
    if (!made) return tl::unexpected(made.error());
    if constexpr (detail::traceable<inner_type>) return registration_type{*made, memory};
    if constexpr (!detail::traceable<inner_type>) return *made;
  }

  static range range_of(const registration_type& made) noexcept {
    if constexpr (detail::traceable<inner_type>) return made.traced;
    return {};
  }

  R inner_;
  listener told_;
};

}  // namespace pinfold
