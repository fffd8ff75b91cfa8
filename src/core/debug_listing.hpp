// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Lists the engines of this copy of the library for readers of the process's memory.
#pragma once

#include "core/shard.hpp"
#include "debugging/table.hpp"

#include <pinfold/options.hpp>

#include <cstdint>
#include <memory>

namespace pinfold::core {

/// An engine's place in the list that `debugging::table` points to. Engines do not wait for readers: a reader copies
/// what it finds, and checks the copy.
class debug_listing {
 public:
  struct facts {
    const void* engine;
    const std::atomic<std::uint64_t>& process_now;
    std::uint64_t process;
    std::uint32_t cache_number;
    std::uint64_t hits_before;
    std::uint64_t finds_before;
    const detail::driver& driver;
    const cache_options& options;
  };

  /// Lists an engine. Throws `std::bad_alloc`.
  debug_listing(const facts& about, const shards& parts);
  ~debug_listing();
  debug_listing(const debug_listing&) = delete;
  debug_listing& operator=(const debug_listing&) = delete;

  /// Publishes that the cache was destroyed, and leases keep the engine.
  void say_ended() noexcept { place_->ended.store(1, std::memory_order_relaxed); }

 private:
  std::unique_ptr<debugging::shard[]> shards_;
  debugging::cache* const place_;
};

}  // namespace pinfold::core
