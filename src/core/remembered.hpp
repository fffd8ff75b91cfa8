// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The registrations that `quiesce` closed, for `restore`.
#pragma once

#include "core/gone_ranges.hpp"
#include "invalidation/registered_filter.hpp"

#include <pinfold/access.hpp>
#include <pinfold/detail/engine.hpp>
#include <pinfold/importer.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace pinfold::core {

/// A registration to make again, and how much it was used.
struct remembered {
  peer_id peer;
  range where;  ///< what the entry covered
  access_flags access;
  bool persistent;
  bool visited;           ///< hit since the hand of the eviction clock last passed
  std::uint64_t hits;     ///< as `entry_info::hits` counts them
  std::uint32_t age;      ///< time since the open, in ticks
  std::size_t token = 0;  ///< the position of its token among all tokens
};

/// A registration that a thread is making again.
struct restored_now {
  remembered what{};
  alignas(std::max_align_t) std::array<std::byte, max_handle_bytes> token;
  detail::said_meanwhile meanwhile;
  restored_now* next = nullptr;  ///< links the registrations that are being made
};

/// A call that withdraws memory: it visits the shards because the memory is gone, or need not be kept any more. Until
/// it ends, threads that restore such registrations take it into account; at its end, it is applied to the lists.
struct withdrawal {
  enum class of : bool { gone, unpersisted };
  of what;
  peer_id peer;
  range where;
  withdrawal* next = nullptr;  ///< links the withdrawals that have not ended
};

/// A list of registrations with their tokens. Listed memory counts as registered, so that events on it are posted, also
/// those that come before the memory goes. Not thread-safe.
class remembered_list {
 public:
  /// `token_bytes`: of the driver's table. `registered`: the filter to count in; null for imports.
  explicit remembered_list(std::size_t token_bytes, invalidation::registered_filter* registered) noexcept
      : token_bytes_(token_bytes), registered_(registered) {}
  remembered_list(const remembered_list&) = delete;
  remembered_list& operator=(const remembered_list&) = delete;
  ~remembered_list() {
    for (const remembered& one : all_) uncount(one);
  }
  void swap(remembered_list& other) noexcept;

  [[nodiscard]] std::size_t size() const noexcept { return all_.size(); }
  [[nodiscard]] std::size_t room() const noexcept { return all_.capacity() - all_.size(); }

  /// Makes room for `more`. Throws `std::bad_alloc`.
  void reserve(std::size_t more);
  /// Adds one. Requires room. Copies the token.
  void add(const remembered& one, const std::byte* token) noexcept;
  /// Sorts the list by use, and adds registrations that only `older` has, as least used. Returns false, and adds
  /// nothing, without memory for that.
  [[nodiscard]] bool complete(const remembered_list& older) noexcept;

  /// Removes registrations that touch the peer's memory in `gone`.
  void forget(peer_id peer, const range& gone) noexcept;
  void forget(const gone_ranges& gone) noexcept;
  /// Removes registrations that were only noted as gone: from now on `size` counts those that can be taken.
  void forget_noted() noexcept;
  /// Ends the persistence of registrations that touch the memory.
  void unpersist(peer_id peer, const range& where) noexcept;
  void unpersist(const gone_ranges& where) noexcept;
  /// Applies the call to the list.
  void apply(const withdrawal& call) noexcept;
  /// Takes the most used registration out of the list; it stays counted until `uncount`. Returns false if there is
  /// none.
  [[nodiscard]] bool take_hottest(restored_now& into) noexcept;
  void uncount(const remembered& one) const noexcept {
    if (registered_ != nullptr) registered_->remove(one.where);
  }

 private:
  [[nodiscard]] const std::byte* token_of(const remembered& one) const noexcept {
    return tokens_.data() + one.token * token_bytes_;
  }
  [[nodiscard]] bool has_room_for(const remembered_list& older) noexcept;
  template <class Goes>
  void erase_if(Goes&& goes) noexcept;

  std::size_t token_bytes_;
  invalidation::registered_filter* registered_;
  std::vector<remembered> all_;  // those used most come last
  std::vector<std::byte> tokens_;
  gone_ranges gone_;
};

/// The registrations that a `quiesce` lists and closes, and the memory that is withdrawn meanwhile.
struct being_closed {
  remembered_list list;  ///< used by the thread that calls `quiesce`
  // Guarded by the mutex of `quiesced`.
  gone_ranges gone{};
  gone_ranges unpersisted{};
  bool lost = false;  ///< there was no memory to note every withdrawal
  being_closed* next = nullptr;

  /// Notes the withdrawal, or sets `lost`.
  void note(const withdrawal& call) noexcept;
  /// Applies the noted withdrawals to the list. Returns false if any was `lost`.
  [[nodiscard]] bool apply() noexcept;
};

}  // namespace pinfold::core
