// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache of the C interface: an engine with any registrar or importer behind it.
#pragma once

#include "c/failure.hpp"

#include <pinfold/detail/engine.hpp>
#include <pinfold/detail/hit.hpp>
#include <pinfold/pinfold.h>
#include <pinfold/registrar.hpp>

#include <cstddef>
#include <memory>

namespace pinfold::c {

/// A registrar or importer, and what the C interface asks of it beside the driver table.
struct back_end {
  detail::driver table{};
  std::shared_ptr<void> owner;                                      ///< of `table.self`
  registrar_limits (*limits)(const void* self) noexcept = nullptr;  ///< null for importers
  /// Null unless the registrar identifies memory: returns whether the address still holds what was registered.
  bool (*still_is)(const void* self, const void* registration, const range& wanted) noexcept = nullptr;
  void (*used_by)(void* self, const pinfold_cache* cache) noexcept = nullptr;  ///< told before the first call
};

/// Marks that this thread is in a callback of the cache, while it lives.
class callback {
 public:
  explicit callback(const pinfold_cache* of) noexcept;
  callback(const callback&) = delete;
  callback& operator=(const callback&) = delete;
  ~callback();

  /// Returns whether this thread is in a callback of the cache.
  [[nodiscard]] static bool of(const pinfold_cache* cache) noexcept;

 private:
  const pinfold_cache* cache_;
  const callback* outer_;
};

/// Makes a cache, and stores it in `*made`. Exported for the libraries of other registrars.
PINFOLD_EXPORT int create(back_end behind, const pinfold_options* options, pinfold_cache** made) noexcept;

}  // namespace pinfold::c

struct pinfold_cache {
  const pinfold::detail::hit_view* hits;  ///< after the end those that are never current
  bool hits_at_once = false;              ///< local memory that monitors see: a hit needs no other question
  bool local = false;
  bool keeps = false;                     ///< whether a monitor reports memory that goes
  pinfold::detail::engine_handle engine;  ///< null after the end
  pinfold::c::back_end behind;

  explicit pinfold_cache(pinfold::c::back_end of) noexcept
      : hits(&pinfold::detail::hits_of(nullptr)), local(of.table.token_bytes == 0), behind(std::move(of)) {}
};

namespace pinfold::c {

enum class kind : std::uint8_t { any, local, imported };

/// Returns why a call must be refused: no cache, one that was destroyed, or one of another kind.
[[nodiscard]] result<void> usable(const pinfold_cache* cache, kind wanted) noexcept;

/// As `usable`; also refuses calls from a callback of the cache, which could wait for the call that it is in.
[[nodiscard]] result<void> may_wait(const pinfold_cache* cache, kind wanted) noexcept;

}  // namespace pinfold::c
