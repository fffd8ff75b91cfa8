// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache of the C interface: an engine with any registrar or importer behind it.
#pragma once

#include "c/failure.hpp"

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/hit.hpp>
#include <pinfold/importer.hpp>
#include <pinfold/pinfold.h>
#include <pinfold/registrar.hpp>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

namespace pinfold::c {

/// A registrar or importer, and the calls that the C interface makes besides those of the driver table.
struct back_end {
  detail::driver table{};
  std::shared_ptr<void> owner;                                      ///< of `table.self`
  registrar_limits (*limits)(const void* self) noexcept = nullptr;  ///< null for importers
  /// Null unless the registrar identifies memory: returns whether the address still holds the registered memory.
  bool (*still_is)(const void* self, const void* registration, const range& wanted) noexcept = nullptr;
  /// Null for registrars: returns the range of the handle's memory in its exporter.
  result<range> (*allocation)(const void* self, const void* handle) noexcept = nullptr;
  /// Null unless the importer can check whether it could open a handle.
  result<void> (*can_open)(const void* self, const void* handle) noexcept = nullptr;
  /// Null unless the importer has windows; so is the next member.
  result<void*> (*add_window)(void* self, const memory_window& window) noexcept = nullptr;
  result<void> (*remove_window)(void* self, const memory_window& window) noexcept = nullptr;
  void (*used_by)(void* self, const pinfold_cache* cache) noexcept = nullptr;  ///< called before the first other call
  /// Null unless exporters may request memory back. Returns an object that attaches the cache to the listener's thread;
  /// may throw.
  std::function<result<std::shared_ptr<void>>(pinfold_cache* cache)> attach;
  const void* listener = nullptr;  ///< null unless it answers through a function of the application
};

/// While it lives, marks that this thread is in a callback of the cache, or of the listener of caches.
class callback {
 public:
  explicit callback(const void* of) noexcept;
  callback(const callback&) = delete;
  callback& operator=(const callback&) = delete;
  ~callback();

  /// Returns whether this thread is in a callback of the cache. Does not read the cache, which may have ended.
  [[nodiscard]] static bool of(const pinfold_cache* cache) noexcept;
  /// Returns whether this thread is in a callback of the cache, or of its listener.
  [[nodiscard]] static bool must_not_wait_for(const pinfold_cache& cache) noexcept;
  /// Returns whether this thread is in the callback of the listener.
  [[nodiscard]] static bool of_listener(const void* listener) noexcept;
  /// Returns whether this thread is in a callback of any cache.
  [[nodiscard]] static bool any() noexcept;

 private:
  const void* of_;
  const callback* outer_;
};

/// Makes a cache, and stores it in `*made`. Exported for the libraries of other registrars.
PINFOLD_EXPORT int create(back_end behind, const pinfold_options* options, pinfold_cache** made) noexcept;

}  // namespace pinfold::c

struct pinfold_cache {
  // Callbacks and late calls may read these while another thread destroys the cache.
  std::atomic<const pinfold::detail::hit_view*> hits;  ///< after the cache's end a view that is never current
  std::atomic<bool> hits_at_once{false};               ///< local memory that monitors see: a hit needs no other check
  std::atomic<bool> ending{false};
  std::atomic<pinfold::detail::engine*> running{nullptr};                                ///< null after the end
  std::atomic<std::size_t> streams{0};                                                   ///< of chunks
  std::shared_ptr<std::atomic<bool>> made = std::make_shared<std::atomic<bool>>(false);  ///< the application has it
  bool local = false;
  bool keeps = false;  ///< whether a monitor reports memory that goes away
  pinfold::detail::engine_handle engine;
  pinfold::c::back_end behind;
  std::shared_ptr<void> attached;  ///< ends before the engine: until then the listener's thread may use the cache

  [[nodiscard]] pinfold::detail::engine* on() const noexcept { return running.load(std::memory_order_acquire); }

  explicit pinfold_cache(pinfold::c::back_end of)
      : hits(&pinfold::detail::hits_of(nullptr)), local(of.table.token_bytes == 0), behind(std::move(of)) {}
};

namespace pinfold::c {

enum class kind : std::uint8_t { any, local, imported };

/// Returns why a call must be refused: no cache, a cache that was destroyed or belongs to the parent of this process,
/// or one of another kind.
[[nodiscard]] result<void> usable(const pinfold_cache* cache, kind wanted) noexcept;

/// As `usable`; also refuses calls from a callback of the cache, which could wait for their own callback, and calls
/// while the cache is being destroyed.
[[nodiscard]] result<void> may_wait(const pinfold_cache* cache, kind wanted) noexcept;

}  // namespace pinfold::c
