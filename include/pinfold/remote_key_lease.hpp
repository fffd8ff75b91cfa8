// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A lease on memory that peers can reach, until the key is withdrawn.
#pragma once

#include <pinfold/detail/or_error.hpp>
#include <pinfold/lease.hpp>
#include <pinfold/remote_key.hpp>

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace pinfold {

/// How peers reach memory, if not by the key of its registration. `verbs_window::access` makes one.
struct remote_access {
  std::optional<std::uint64_t> key{};  ///< the key; by default `rkey` or `key` of the registration
  /// Makes the device refuse the key, and returns when it does. May be called again after an error. Must not throw.
  std::function<result<void>()> withdraw{};
};

namespace detail {

template <class Registration>
inline constexpr bool has_key = requires(const Registration& made) { made.rkey; } ||
                                requires(const Registration& made) { std::uint64_t{made.key}; };

template <class Registration>
[[nodiscard]] std::uint64_t key_in(const Registration& made) noexcept {
  if constexpr (requires { made.rkey; }) return made.rkey;
  if constexpr (!requires { made.rkey; } && requires { std::uint64_t{made.key}; }) return made.key;
  return 0;
}

template <class Registration>
[[nodiscard]] std::uint64_t address_in(const Registration& made, const void* local) noexcept {
  if constexpr (requires { made.address_for(local); }) local = made.address_for(local);  // it may be staged
  if constexpr (requires { std::uint64_t{made.peer_address(local)}; }) return made.peer_address(local);
  return reinterpret_cast<std::uintptr_t>(local);
}

}  // namespace detail

/// A lease on local memory together with the key that peers use. Move-only; the rules of `lease` apply. The end of the
/// object withdraws the key, then releases the lease.
///
/// **Withdrawal.** When `withdraw` has returned, no reader of the table takes the token for current, and the device
/// refuses the key if there is a `remote_access::withdraw`. Local use of the lease goes on. Without that function the
/// device accepts the key until the registration is closed: then only peers that read the table are kept out.
template <registrar R>
class [[nodiscard]] remote_key_lease {
 public:
  /// Holds nothing.
  remote_key_lease() noexcept = default;
  remote_key_lease(remote_key_lease&& other) noexcept
      : held_(std::move(other.held_)),
        table_(std::move(other.table_)),
        token_(std::exchange(other.token_, {})),
        device_(std::exchange(other.device_, {})) {
    other.table_.reset();
  }
  remote_key_lease& operator=(remote_key_lease&& other) noexcept {
    remote_key_lease taken(std::move(other));
    std::swap(held_, taken.held_);
    std::swap(table_, taken.table_);
    std::swap(token_, taken.token_);
    std::swap(device_, taken.device_);
    return *this;
  }
  /// Withdraws the key, then releases the lease. Call `withdraw` before to learn whether the device refused to.
  ~remote_key_lease() { static_cast<void>(withdraw()); }

  /// Makes a token for the first `length` bytes of the lease, which it takes over. On an error the lease is released,
  /// after the key was withdrawn at the device.
  ///
  /// Errors: `closed` (the lease is empty, or its cache is gone), `stale_handle` (the memory was replaced),
  /// `invalid_range` (more than the registration covers, or no bytes), `out_of_resources` (the table is full).
  [[nodiscard]] static result<remote_key_lease> create(lease<R> held, std::uint64_t length, remote_key_table table,
                                                       remote_access device = {}) noexcept {
    remote_key_lease made;
    made.held_ = std::move(held);
    made.device_ = std::move(device.withdraw);
    if (made.held_.closed()) return fail(errc::closed, "the lease is empty, or its cache is gone");
    if (made.held_.stale()) return fail(errc::stale_handle, "the memory was replaced since it was acquired");
    const auto begin = reinterpret_cast<std::uintptr_t>(made.held_.data());
    const auto memory = range::of(begin, length);
    if (!memory || !made.held_.covered().contains(*memory))
      return fail(errc::invalid_range, "the lease does not cover so many bytes");
    const auto keys = made.held_.registration();
    if (!device.key && !detail::has_key<typename R::registration_type>)
      return fail(errc::invalid_argument, "the registration has no key for peers, and none was given");
    const auto token =
        table.issue(detail::address_in(keys, made.held_.data()), length, device.key.value_or(detail::key_in(keys)));
    if (!token) return tl::unexpected(token.error());
    made.token_ = *token;
    made.table_ = std::move(table);
    return made;
  }

  /// Returns what peers need; a token of generation 0 if the object holds nothing. It stays the same after `withdraw`.
  [[nodiscard]] const remote_key_token& token() const noexcept { return token_; }
  /// Returns the lease, for local use.
  [[nodiscard]] const lease<R>& local() const noexcept { return held_; }
  /// Returns whether the key is valid for peers.
  [[nodiscard]] bool valid() const noexcept { return table_ && table_->valid(token_); }

  /// Makes the key useless for peers, first in the table, then at the device. Local use goes on. After an error of the
  /// device, the table says that the key is withdrawn, and a further call asks the device again. Does nothing if the
  /// key was withdrawn before. Also returns `closed` in a child of fork, where it does nothing.
  result<void> withdraw() noexcept {
    if (table_)
      if (auto done = table_->withdraw(token_); !done && done.error() != errc::stale_handle) return done;
    if (!device_) return {};
    auto done = device_();
    if (done) device_ = nullptr;
    return done;
  }

  /// Withdraws the key if the memory was replaced under the lease, so that no peer writes to pages that are gone.
  /// Returns whether the key is still valid. The cache notices replaced memory in every request, and in `progress()`.
  result<bool> withdraw_if_stale() noexcept {
    if (!held_.stale()) return valid();
    if (auto done = withdraw(); !done) return tl::unexpected(done.error());
    return false;
  }

  /// Withdraws the key and returns the lease, for local use alone. After an error the object still has both.
  [[nodiscard]] result<lease<R>> end() noexcept {
    if (auto done = withdraw(); !done) return tl::unexpected(done.error());
    return std::move(held_);
  }

 private:
  // The window of `device_` is bound to the registration: it has to go first.
  lease<R> held_{};
  std::optional<remote_key_table> table_{};
  remote_key_token token_{};
  std::function<result<void>()> device_{};
};

}  // namespace pinfold
