// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The interface between the typed cache templates and the one compiled engine. Not for users; it may change in any
/// release.
#pragma once

#include <pinfold/access.hpp>
#include <pinfold/detail/record.hpp>
#include <pinfold/error.hpp>
#include <pinfold/importer.hpp>
#include <pinfold/options.hpp>
#include <pinfold/peer.hpp>
#include <pinfold/range.hpp>
#include <pinfold/registrar.hpp>
#include <pinfold/statistics.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace pinfold::detail {

class engine;
struct hit_view;

/// A registrar's own object, as bytes.
struct alignas(std::max_align_t) registration {
  std::array<std::byte, std::max(max_imported_registration_bytes, max_registration_bytes)> bytes{};
};

/// Withdrawals of memory while `restore` registers it again. Set before a withdrawal visits the shards, and read under
/// their mutexes.
struct said_meanwhile {
  std::atomic<bool> withdrawn{false};    ///< no registration is made, or kept, for the request
  std::atomic<bool> unpersisted{false};  ///< the request makes no registration persistent
};

/// The request of a look-up. `token` points to as many bytes as the driver table says.
struct request {
  peer_id peer{};
  range wanted{};
  const void* token = nullptr;  ///< may be null if the table says that tokens have no bytes
  access_flags need = access_flags::none;
  bool persistent = false;                    ///< neither evicted nor flushed until `unpersist` or an invalidation
  bool unshared = false;                      ///< for this lease only: neither looked up nor findable
  bool unbudgeted = false;                    ///< outside the budget
  int file = -1;                              ///< the descriptor of the file that is mapped there; -1: unknown
  void* argument = nullptr;                   ///< passed on to the driver's open
  const said_meanwhile* meanwhile = nullptr;  ///< of a request that `restore` makes; else null
  bool free_room_only = false;                ///< evicts nothing: refused with `over_budget` instead
  std::uint64_t events_before = 0;            ///< the log's generation before the engine asked what is mapped there
};

/// The request to a driver: open `extent` with `access`, or the allocation that the token names.
struct open_request {
  peer_id peer;
  range extent;
  const void* token;
  access_flags access;
  void* argument;  ///< of the request
};

/// The result of a driver's open, type-erased.
struct opened {
  range covered;
  void* data;
  std::size_t bytes;
  registration object;
  bool for_one_lease = false;  ///< serves no other request
};

/// A registrar, type-erased. The engine makes these calls on many threads at once, and holds no lock of its own during
/// any of them but `invalidated`.
struct driver {
  void* self;
  const char* name;
  std::size_t token_bytes;   ///< 0 for memory of this process
  std::size_t object_bytes;  ///< the size of the registrar's object
  bool allows_duplicates;
  result<range> (*check)(const void* self, const request& what) noexcept;  ///< validates; returns the range to open
  result<opened> (*open)(void* self, const open_request& what) noexcept;
  result<void> (*close)(void* self, const registration& object) noexcept;
  /// Opens several ranges with fewer driver calls; as many results as requests. Null if the driver cannot.
  void (*open_many)(void* self, std::span<const open_request> what, std::span<result<opened>> made) noexcept = nullptr;
  bool cancellation_points = true;  ///< whether `check` or `open` may be a cancellation point
  /// Called under the shard's mutex when a registration's memory is gone, before any later `open` there. May be null.
  void (*invalidated)(void* self, const registration& object) noexcept = nullptr;
  /// Makes the importer call `to`, on a thread of the library, for each mapping whose exporter ends. May be null.
  void (*tell_ends)(void* self, std::function<void(peer_id, range, const void* token)> to) = nullptr;
  bool exclusive_in_process = false;  ///< whether `open` fails with `already_mapped` because of other caches
};

/// A pin, and the local address of the requested memory.
struct grant {
  pin held = 0;
  void* data = nullptr;
};

/// Shuts the engine down (R42); the end of the last lease frees its memory.
struct PINFOLD_EXPORT engine_closer {
  void operator()(engine* closing) const noexcept;
};
using engine_handle = std::unique_ptr<engine, engine_closer>;

/// Lets threads of the library call an engine after the call that started them has returned. Keeps the engine's memory.
/// Move-only; one thread at a time may move or destroy it. In a child of fork(2) it does nothing.
class PINFOLD_EXPORT background_use {
 public:
  background_use() noexcept = default;
  background_use(background_use&& other) noexcept;
  background_use& operator=(background_use&& other) noexcept;
  ~background_use();

  /// Errors: those of `usable`.
  [[nodiscard]] static result<background_use> begin(engine* on) noexcept;

  /// A call in progress. The cache's destructor first stops new ones, and then waits for those in progress, at most
  /// `drain_timeout`. Calls that take longer find the cache `closed`, and the back end lives until they end. A call
  /// must not wait for anything but the engine.
  class PINFOLD_EXPORT call {
   public:
    explicit call(const background_use& by) noexcept;
    call(const call&) = delete;
    call& operator=(const call&) = delete;
    ~call();
    /// Returns the engine; null if the cache has ended or is ending, in a child of fork(2), and without a cache.
    [[nodiscard]] engine* on() const noexcept { return on_; }

   private:
    engine* on_;
  };

 private:
  explicit background_use(engine* on) noexcept : on_(on) {}
  engine* on_ = nullptr;
};

// A moved-from cache has a null engine: each of these functions treats it like a closed cache.

/// Returns whether the engine may keep registrations of local memory, because a monitor reports memory that goes away.
[[nodiscard]] PINFOLD_EXPORT bool keeps(const engine* on) noexcept;
[[nodiscard]] PINFOLD_EXPORT std::string monitors_of(const engine* on);

/// Returns `closed` for a moved-from cache, and in a child of fork(2) for the parent's cache.
[[nodiscard]] PINFOLD_EXPORT result<void> usable(const engine* on) noexcept;
/// Throws the `std::logic_error` of a moved-from cache, for members that have no other way to report it.
[[noreturn]] PINFOLD_EXPORT void throw_moved_from();

/// Returns the values that a hit in this engine's cache compares with.
[[nodiscard]] PINFOLD_EXPORT const hit_view& hits_of(const engine* on) noexcept;

// Every function here may be called on any thread.
/// Makes an engine. Throws `std::bad_alloc`; `std::system_error` if the reaper's thread cannot start; and
/// `std::invalid_argument` if the driver's object and token do not fit into a record, though the concepts already
/// refuse such types. The engine keeps `backend`, which may own the driver's `self`, until no thread is in the driver
/// any more. This may be after the engine's end.
[[nodiscard]] PINFOLD_EXPORT engine_handle make_engine(const driver& table, cache_options options,
                                                       std::shared_ptr<void> backend = {});
/// Pins a live entry, without a lock and without a write to shared memory. Returns an empty grant if that is not
/// possible; there may be a live entry nevertheless. Try `hinted_hit` (detail/hit.hpp) first.
[[nodiscard]] PINFOLD_EXPORT grant look_up(engine* on, std::uintptr_t begin, std::uintptr_t end,
                                           access_flags need) noexcept;
[[nodiscard]] PINFOLD_EXPORT grant look_up(engine* on, peer_id peer, range wanted, const void* token) noexcept;
/// Looks up any request, `hinted_hit` included. Returns an empty grant for requests that a hit must not serve.
[[nodiscard]] PINFOLD_EXPORT grant look_up(engine* on, const request& what) noexcept;
[[nodiscard]] PINFOLD_EXPORT result<grant> acquire(engine* on, const request& what) noexcept;
/// As above, on a thread of the library: the application may discard the memory at any time meanwhile.
[[nodiscard]] PINFOLD_EXPORT result<grant> acquire_in_background(engine* on, const request& what) noexcept;
/// Acquires a group of at most `most_in_group` requests; as many results as requests.
inline constexpr std::size_t most_in_group = 64;
PINFOLD_EXPORT void acquire_group(engine* on, std::span<const request> what, std::span<result<grant>> granted) noexcept;
/// Pins a live entry as `acquire` does, under the mutex if necessary. Never calls the driver, and has counters of its
/// own.
[[nodiscard]] PINFOLD_EXPORT grant find(engine* on, const request& what) noexcept;
/// Finishes a release for which `unpin` returned a record: wakes waiters, and closes the entry if that is due.
PINFOLD_EXPORT result<void> finish_release(const record* unpinned) noexcept;
/// Returns another pin on the record that `held` pins, counted in the entry.
[[nodiscard]] PINFOLD_EXPORT pin pin_again(pin held) noexcept;
PINFOLD_EXPORT void invalidate(engine* on, peer_id peer, range gone) noexcept;
/// Marks the registrations there that earlier events have made stale, so that their leases read as `stale()`.
PINFOLD_EXPORT void mark_stale(engine* on, range where) noexcept;
/// Returns whether a lease of this cache is on a registration that touches the memory.
[[nodiscard]] PINFOLD_EXPORT bool is_leased(const engine* on, const range& memory) noexcept;
PINFOLD_EXPORT void unpersist(engine* on, peer_id peer, range where) noexcept;
PINFOLD_EXPORT result<void> drop_peer(engine* on, peer_id peer) noexcept;
PINFOLD_EXPORT result<void> flush(engine* on) noexcept;
PINFOLD_EXPORT result<void> quiesce(engine* on) noexcept;
PINFOLD_EXPORT result<void> progress(engine* on) noexcept;
/// Closes up to `most` registrations without a pin, in the order of eviction. Returns how many.
PINFOLD_EXPORT std::size_t evict(engine* on, std::size_t most) noexcept;
/// Options of a cache that background work needs.
struct engine_limits {
  std::size_t max_bytes = 0;
  std::size_t max_count = 0;
  std::chrono::milliseconds wait_timeout{};
};
[[nodiscard]] PINFOLD_EXPORT engine_limits limits_of(const engine* on) noexcept;
/// Returns a number that no child of this process has.
[[nodiscard]] PINFOLD_EXPORT std::uint64_t this_process() noexcept;
[[nodiscard]] PINFOLD_EXPORT statistics read_statistics(const engine* on) noexcept;
[[nodiscard]] PINFOLD_EXPORT std::vector<entry_info> dump(const engine* on);

}  // namespace pinfold::detail
