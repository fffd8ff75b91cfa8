// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the threads of a schedule do: one public operation each, on a cache in one of a few states; and what must hold
/// afterwards.
#pragma once

#include "world.hpp"

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace pinfold::explore {

enum class operation : std::uint8_t {
  acquire,
  persist,  // a persistent acquire
  release,  // of a lease that another thread acquired
  find,
  event,
  invalidate,
  evict,
  flush,
  progress,
  quiesce,
  restore,
  unpersist,
  ticket,
  batch,
  merge,  // an acquire that overlaps, in a cache that merges
  destroy,
  beside,     // an acquire by another cache of the process, over a driver that refuses overlaps
  set,        // an acquire from the cache and from another one
  fork,       // perhaps with a lease; the child uses what it inherited, and a cache of its own
  late,       // an acquire with a handle that was made first
  retire,     // by the exporter
  drop_peer,  // by the importer
  count
};
inline constexpr auto operations = static_cast<std::size_t>(operation::count);
inline constexpr auto import_operations =
    std::array{operation::acquire, operation::release,  operation::find,     operation::invalidate, operation::evict,
               operation::flush,   operation::progress, operation::quiesce,  operation::destroy,    operation::fork,
               operation::late,    operation::retire,   operation::drop_peer};
inline constexpr auto local_operations = static_cast<std::size_t>(operation::late);  ///< the first of all
[[nodiscard]] const char* name_of(operation one) noexcept;

/// What the cache has when the threads begin.
enum class before : std::uint8_t { nothing, cached, persistent, remembered, count };

struct scenario {
  std::vector<operation> threads;
  bool imports = false;
  before with = before::cached;
  static constexpr std::uint64_t several_shards = 1;
  std::uint64_t choices = 0;  ///< of options and ranges; 0: plain ones; 1: the same with several shards

  [[nodiscard]] std::string text() const;
};

/// Runs the scenario's threads under the scheduler, and checks the world.
void play(const scenario& what);

}  // namespace pinfold::explore
