// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache of imported memory in a process of its own that takes part in the release protocol and obeys a test.
#pragma once

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include "support/host/pattern.hpp"
#include "support/processes/child_process.hpp"

#include <cstdint>
#include <optional>

namespace pinfold::testing {

using release_cache = import_cache<releasing_importer<memfd_importer>>;

/// An importer in a child process, with one lease at a time. Not thread-safe.
class importer_peer {
 public:
  explicit importer_peer(cache_options options = {})
      : child_([&options](line& parent) { return serve(parent, options); }) {}

  /// Acquires, compares the bytes with the pattern, and releases.
  [[nodiscard]] bool reads(const memfd_handle& handle, std::uint32_t seed) {
    return ask({verb::read, handle, seed}).done;
  }
  [[nodiscard]] bool finds(const memfd_handle& handle) { return ask({verb::find, handle}).done; }
  /// Returns the error of an acquire, or nothing where it succeeded.
  [[nodiscard]] std::optional<errc> acquire_error(const memfd_handle& handle) {
    const answer got = ask({verb::acquire, handle});
    return got.done ? std::nullopt : std::optional(got.failure.code);
  }
  /// Acquires and keeps the lease.
  [[nodiscard]] bool lease(const memfd_handle& handle) { return ask({verb::lease, handle}).done; }
  [[nodiscard]] bool lease_holds(std::uint32_t seed) { return ask({verb::check, {}, seed}).done; }
  void release() { static_cast<void>(ask({verb::release, {}})); }
  [[nodiscard]] std::size_t open_mappings() { return ask({verb::count, {}}).count; }
  [[nodiscard]] child_process& process() noexcept { return child_; }

 private:
  enum class verb : std::uint8_t { read, find, acquire, lease, check, release, count };
  struct command {
    verb what;
    memfd_handle handle;
    std::uint32_t seed = 0;
  };
  struct answer {
    bool done = false;
    error failure{};  // the message is a literal, at the same address in both processes
    std::size_t count = 0;
  };
  struct shop {
    release_listener listener = release_listener::create().value();
    release_cache cache;
    release_listener::attachment attached;
    std::optional<release_cache::lease> held;
    explicit shop(const cache_options& options)
        : cache(releasing_importer<memfd_importer>(memfd_importer(), listener), options),
          attached(listener.attach(cache).value()) {}
  };

  static int serve(line& parent, const cache_options& options) {
    shop all(options);
    while (const auto next = parent.receive<command>()) {
      if (!parent.send(obey(all, *next))) return 3;
    }
    return 0;
  }

  static answer obey(shop& all, const command& order) {
    const memfd_handle& handle = order.handle;
    switch (order.what) {
      case verb::find: return {.done = all.cache.find(peer_of(handle), handle, handle.base, handle.size).has_value()};
      case verb::check: return {.done = holds_pattern(all.held->data(), all.held->registration().bytes, order.seed)};
      case verb::release: all.held.reset(); return {.done = true};
      case verb::count: return {.done = true, .count = all.listener.statistics().mappings};
      default: break;
    }
    auto got = all.cache.acquire(peer_of(handle), handle, handle.base, handle.size);
    if (!got) return {.failure = got.error()};
    if (order.what == verb::read) return {.done = holds_pattern(got->data(), handle.size, order.seed)};
    if (order.what == verb::lease) all.held.emplace(std::move(*got));
    return {.done = true};
  }

  static peer_id peer_of(const memfd_handle& handle) noexcept {
    return peer_id{static_cast<std::uint64_t>(handle.pid)};
  }

  answer ask(const command& order) { return child_.ask<answer>(order); }

  child_process child_;
};

}  // namespace pinfold::testing
