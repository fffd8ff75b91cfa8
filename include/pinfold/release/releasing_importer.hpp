// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// An importer that lets memory go when its exporter asks for it.
#pragma once

#include <pinfold/detail/or_error.hpp>
#include <pinfold/importer.hpp>
#include <pinfold/release/listener.hpp>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

namespace pinfold {

/// An importer over another, whose mappings a `release_listener` knows: it asks the exporter before each open, and
/// tells it after the last close. Attach the cache over it to the same listener. Thread-safe. `open` also returns the
/// errors of `release_listener::begin_open`.
template <importer I>
class releasing_importer {
 public:
  static constexpr const char* name = I::name;                     ///< of the importer below
  static constexpr bool allows_duplicates = I::allows_duplicates;  ///< of the importer below
  using handle_type = typename I::handle_type;                     ///< of the importer below
  using registration_type = typename I::registration_type;         ///< of the importer below

  /// Takes over the importer. Throws `std::bad_alloc`.
  releasing_importer(I below, const release_listener& listener)
      : state_(std::make_unique<state>(std::move(below), listener)) {}

  /// Returns the handle's allocation.
  [[nodiscard]] result<range> check(const handle_type& handle) const noexcept {
    if (!state_) return fail(errc::closed, "the importer was moved from");
    return state_->below.check(handle);
  }

  /// Returns whether the importer below could open the handle now. Does not ask the exporter whether it takes part in
  /// the release protocol, nor whether it retires the memory. Errors: of the importer below, and `closed` (moved from).
  [[nodiscard]] result<void> can_open(const handle_type& handle) const noexcept
    requires can_open_importer<I>
  {
    if (!state_) return fail(errc::closed, "the importer was moved from");
    return state_->below.can_open(handle);
  }

  /// Opens the memory of the handle, once the exporter has admitted it. If this process, or the host, has no descriptor
  /// left, first ends the listener's connections to exporters whose memory is not open here.
  [[nodiscard]] result<imported<registration_type>> open(peer_id peer, const handle_type& handle) noexcept {
    const auto where = check(handle);
    if (!where) return tl::unexpected(where.error());
    auto made = state_->admit_and_open(peer, handle, *where);
    const bool none_left = !made && made.error() == errc::out_of_resources &&
                           (made.error().native == EMFILE || made.error().native == ENFILE);
    if (none_left && state_->listener.drop_idle()) made = state_->admit_and_open(peer, handle, *where);
    return made;
  }

  /// Closes the mapping.
  [[nodiscard]] result<void> close(const registration_type& mapping) noexcept {
    if (!state_) return fail(errc::closed, "the importer was moved from");
    return state_->close(mapping);
  }

  /// As the importer below: a listener without a thread does not see exporters end.
  void tell_ends(std::function<void(peer_id peer, range where, const handle_type& handle)> to)
    requires end_telling_importer<I>
  {
    if (state_) state_->below.tell_ends(std::move(to));
  }

  /// Returns the importer below.
  [[nodiscard]] I& below() noexcept { return state_->below; }
  /// As above.
  [[nodiscard]] const I& below() const noexcept { return state_->below; }

 private:
  using key = std::array<std::byte, sizeof(registration_type)>;
  struct counted {
    release_id id;
    std::uint64_t number;
  };
  using counted_map = std::map<key, counted>;
  static constexpr const char* no_memory = "no memory for the importer's own records";

  static key key_of(const registration_type& mapping) noexcept {
    key made;
    std::memcpy(made.data(), &mapping, sizeof mapping);
    return made;
  }

  struct state {
    state(I importer, const release_listener& to) : below(std::move(importer)), listener(to) {}
    state(const state&) = delete;
    state& operator=(const state&) = delete;
    ~state() {
      {
        const I ended(std::move(below));
      }  // closes what is still open
      for (const auto& [mapping, one] : open_mappings) listener.closed(one.id, one.number);
    }

    result<imported<registration_type>> admit_and_open(peer_id peer, const handle_type& handle,
                                                       const range& where) noexcept {
      const release_id id{handle.exporter, handle.serial};
      const auto number = listener.begin_open({id, peer, where, handle.start_time, handle.pid});
      if (!number) return tl::unexpected(number.error());
      auto made = open(peer, handle, {id, *number});
      if (!made) listener.closed(id, *number);
      return made;
    }

    result<imported<registration_type>> open(peer_id peer, const handle_type& handle, counted as) noexcept {
      // Allocated before the open, which could otherwise not be undone.
      auto node = detail::or_error(no_memory, no_memory, [&]() -> result<typename counted_map::node_type> {
        counted_map made;
        made.emplace(key{}, as);
        return made.extract(made.begin());
      });
      if (!node) return fail_errno(errc::out_of_resources, ENOMEM, no_memory);
      auto opened = below.open(peer, handle);
      if (!opened) return opened;
      node->key() = key_of(opened->registration);
      const std::scoped_lock guard(mutex);
      open_mappings.insert(std::move(*node));
      return opened;
    }

    result<void> close(const registration_type& mapping) noexcept {
      typename counted_map::node_type ended;
      {  // before the close, after which another open may get the same address
        const std::scoped_lock guard(mutex);
        ended = open_mappings.extract(key_of(mapping));
      }
      auto closed = below.close(mapping);
      if (ended.empty()) return closed;
      if (closed) {
        listener.closed(ended.mapped().id, ended.mapped().number);
      } else {
        const std::scoped_lock guard(mutex);
        open_mappings.insert(std::move(ended));
      }
      return closed;
    }

    I below;
    release_listener listener;
    std::mutex mutex;
    counted_map open_mappings;
  };

  std::unique_ptr<state> state_;
};

}  // namespace pinfold
