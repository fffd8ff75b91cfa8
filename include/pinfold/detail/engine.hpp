// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The seam between the typed fronts and the one compiled engine. Not for users; it may change in any release.
#pragma once

#include <pinfold/detail/record.hpp>
#include <pinfold/error.hpp>
#include <pinfold/importer.hpp>
#include <pinfold/options.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>
#include <pinfold/rights.hpp>
#include <pinfold/statistics.hpp>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pinfold::detail {

class engine;
struct hit_view;

/// A registrar's own object, as bytes.
struct alignas(std::max_align_t) registration {
  std::array<std::byte, std::max(max_mapping_bytes, max_registration_bytes)> bytes{};
};

/// What a look-up asks for. The token lies behind the pointer, as many bytes as the driver table says.
struct request {
  peer_id peer{};
  range wanted{};
  const void* token = nullptr;  ///< may be null when the table says that tokens have no bytes
  rights need = rights::none;
  bool persistent = false;  ///< never evicted, until it is told to go
  bool unshared = false;    ///< for this lease only: neither looked up nor indexed
  bool unbudgeted = false;  ///< outside the budget
  int file = -1;            ///< what is mapped there, where the caller says so
};

/// What a driver is asked to open: `extent` with `access`, or what the token stands for.
struct open_request {
  peer_id peer;
  range extent;
  const void* token;
  rights access;
};

/// What a driver opened, type-erased.
struct opened {
  range covered;
  void* data;
  std::size_t bytes;
  registration object;
};

/// A registrar, type-erased. All calls may come on many threads at once, never with a lock of the engine held.
struct driver {
  void* self;
  const char* name;
  std::size_t token_bytes;   ///< 0 for memory of this process
  std::size_t object_bytes;  ///< of the registrar's object
  bool allows_duplicates;
  result<range> (*check)(const void* self, const request& what) noexcept;  ///< validates; what to register for it
  result<opened> (*open)(void* self, const open_request& what) noexcept;
  result<void> (*close)(void* self, const registration& object) noexcept;
  /// Opens several with fewer calls of the driver; as many results as requests. Null where the driver cannot.
  void (*open_many)(void* self, std::span<const open_request> what, std::span<result<opened>> made) noexcept = nullptr;
};

/// A pin and the local address of what was asked for.
struct grant {
  pin held = 0;
  void* data = nullptr;
};

/// Destroys the engine as R42 says; its memory goes with the last lease.
struct PINFOLD_EXPORT engine_closer {
  void operator()(engine* closing) const noexcept;
};
using engine_handle = std::unique_ptr<engine, engine_closer>;

// A null engine is that of a cache that was moved from: each of these functions answers as for a cache that is closed.

/// Whether registrations of local memory may be kept: somebody tells of memory that goes.
[[nodiscard]] PINFOLD_EXPORT bool keeps(const engine* on) noexcept;
[[nodiscard]] PINFOLD_EXPORT std::string monitors_of(const engine* on);

/// `closed` for a cache that was moved from, and in a child of fork(2) for the parent's cache.
[[nodiscard]] PINFOLD_EXPORT result<void> usable(const engine* on) noexcept;
/// Throws the `std::logic_error` that a cache which was moved from answers with where it has no other answer.
[[noreturn]] PINFOLD_EXPORT void throw_moved_from();

/// What hits in this engine's cache have to compare with.
[[nodiscard]] PINFOLD_EXPORT const hit_view& hits_of(const engine* on) noexcept;

// Every function here may be called on any thread.
/// Throws `std::bad_alloc`, `std::system_error` when the reaper's thread cannot start, and `std::invalid_argument` for
/// a driver whose object and token do not fit into a record: the concepts refuse such types before. `backend`, which
/// the driver's `self` may belong to, is kept until no thread is in the driver any more: perhaps after the engine's
/// end.
[[nodiscard]] PINFOLD_EXPORT engine_handle make_engine(const driver& table, cache_options options,
                                                       std::shared_ptr<void> backend = {});
/// A lease on what is live already, without a lock and without a write that threads share; nothing when that cannot be
/// had, which does not say that there is no entry. `guess_hit` (detail/hit.hpp) is worth a try before.
[[nodiscard]] PINFOLD_EXPORT grant look_up(engine* on, std::uintptr_t begin, std::uintptr_t end, rights need) noexcept;
[[nodiscard]] PINFOLD_EXPORT grant look_up(engine* on, peer_id peer, range wanted, const void* token) noexcept;
/// The same for any request, guess included: nothing for those that a hit must not answer.
[[nodiscard]] PINFOLD_EXPORT grant look_up(engine* on, const request& what) noexcept;
[[nodiscard]] PINFOLD_EXPORT result<grant> acquire(engine* on, const request& what) noexcept;
/// Acquires a group of at most `most_in_group`; as many results as requests.
inline constexpr std::size_t most_in_group = 64;
PINFOLD_EXPORT void acquire_group(engine* on, std::span<const request> what, std::span<result<grant>> granted) noexcept;
/// As `acquire` for what is live already, whatever it takes to see that; counted apart, and no driver is called.
[[nodiscard]] PINFOLD_EXPORT grant find(engine* on, const request& what) noexcept;
/// Does what is due after `unpin` said so.
PINFOLD_EXPORT result<void> settle(const record* unpinned) noexcept;
PINFOLD_EXPORT void invalidate(engine* on, peer_id peer, range gone) noexcept;
PINFOLD_EXPORT void unpersist(engine* on, peer_id peer, range where) noexcept;
PINFOLD_EXPORT result<void> drop_peer(engine* on, peer_id peer) noexcept;
PINFOLD_EXPORT result<void> flush(engine* on) noexcept;
PINFOLD_EXPORT result<void> quiesce(engine* on) noexcept;
PINFOLD_EXPORT result<void> progress(engine* on) noexcept;
[[nodiscard]] PINFOLD_EXPORT statistics read_statistics(const engine* on) noexcept;
[[nodiscard]] PINFOLD_EXPORT std::vector<entry_info> dump(const engine* on);

}  // namespace pinfold::detail
