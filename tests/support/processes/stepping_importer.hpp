// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// A cache of imported memory in a process of its own that takes part in the release protocol, and may stop at a step.
#pragma once

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include "support/host/pattern.hpp"
#include "support/processes/release_stop.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <thread>
#include <utility>

namespace pinfold::testing {

/// A memfd importer that stops around its calls of the driver.
class stopping_importer {
 public:
  static constexpr const char* name = memfd_importer::name;
  static constexpr bool allows_duplicates = memfd_importer::allows_duplicates;
  using handle_type = memfd_importer::handle_type;
  using registration_type = memfd_importer::registration_type;

  [[nodiscard]] result<range> check(const memfd_handle& handle) const noexcept { return below_.check(handle); }
  [[nodiscard]] result<imported<registration_type>> open(peer_id peer, const memfd_handle& handle) noexcept {
    stop_at(driver_opening);
    auto opened = below_.open(peer, handle);
    stop_at(driver_opened);
    return opened;
  }
  [[nodiscard]] result<void> close(const registration_type& mapping) noexcept {
    stop_at(driver_closing);
    return below_.close(mapping);
  }

 private:
  memfd_importer below_{{.access = memfd_access::read_write}};
};

/// What an importer says after an order.
struct stepping_answer {
  bool done = false;
  bool right = true;  ///< every byte that was read under a lease
  error failure{};    ///< the message is a literal, at the same address in both processes
  std::size_t mappings = 0;
  footprint open{};
};

/// An importer in a child process, with one lease at a time. Not thread-safe.
class stepping_importer {
 public:
  stepping_importer() : child_([](line& parent) { return serve(parent); }) {
    limit_waits(child_.talk(), std::chrono::seconds(100));
  }

  stepping_answer stop_at(stop_order order) { return ask({.what = verb::arm, .stop = order}); }
  /// Acquires, compares all bytes, and releases.
  stepping_answer read(const memfd_handle& handle, std::uint32_t seed) {
    return ask({.what = verb::read, .handle = handle, .seed = seed});
  }
  /// Acquires, compares all bytes, and keeps the lease.
  stepping_answer lease(const memfd_handle& handle, std::uint32_t seed) {
    return ask({.what = verb::lease, .handle = handle, .seed = seed});
  }
  /// Compares all bytes under the lease.
  stepping_answer check(std::uint32_t seed) { return ask({.what = verb::check, .seed = seed}); }
  stepping_answer find(const memfd_handle& handle) { return ask({.what = verb::find, .handle = handle}); }
  stepping_answer release() { return ask({.what = verb::release}); }
  stepping_answer look() { return ask({.what = verb::look}); }
  /// The same orders without waiting for the answer, which `answer` returns.
  bool order_read(const memfd_handle& handle, std::uint32_t seed) {
    return order({.what = verb::read, .handle = handle, .seed = seed});
  }
  bool order_drop(const memfd_handle& handle) { return order({.what = verb::drop, .handle = handle}); }
  std::optional<stepping_answer> answer() { return child_.talk().receive<stepping_answer>(); }
  [[nodiscard]] child_process& process() noexcept { return child_; }

 private:
  using cache = import_cache<releasing_importer<stopping_importer>>;
  enum class verb : std::uint8_t { arm, read, lease, check, find, release, drop, look };
  struct command {
    verb what;
    memfd_handle handle{};
    std::uint32_t seed = 0;
    stop_order stop{};
  };
  struct shop {
    release_listener listener = release_listener::create().value();
    cache all{releasing_importer<stopping_importer>(stopping_importer(), listener)};
    release_listener::attachment attached = listener.attach(all).value();
    std::optional<cache::lease> held;
  };

  static int serve(line& parent) {
    shop mine;
    while (const auto next = parent.receive<command>()) {
      stepping_answer said = obey(mine, *next);
      said.mappings = mine.listener.statistics().mappings;
      said.open = footprint::here();
      if (!parent.send(said)) return 3;
    }
    return 0;
  }

  static stepping_answer obey(shop& mine, const command& order) {
    const memfd_handle& handle = order.handle;
    const peer_id peer{handle.exporter};
    switch (order.what) {
      case verb::arm: arm(order.stop); return {.done = true};
      case verb::look: return {.done = true};
      case verb::find: return {.done = mine.all.find(peer, handle, handle.base, handle.size).has_value()};
      case verb::check:
        return {.done = true, .right = holds_pattern(mine.held->data(), handle_bytes(mine), order.seed)};
      case verb::release: mine.held.reset(); return {.done = true};
      case verb::drop: return {.done = mine.all.drop_peer(peer).has_value()};
      default: break;
    }
    auto got = mine.all.acquire(peer, handle, handle.base, handle.size);
    if (!got) return {.failure = got.error()};
    const bool right = holds_pattern(got->data(), handle.size, order.seed);
    if (order.what == verb::lease) mine.held.emplace(std::move(*got));
    return {.done = true, .right = right};
  }

  static std::size_t handle_bytes(const shop& mine) { return mine.held->registration().bytes; }

  bool order(const command& what) { return child_.talk().send(what); }
  stepping_answer ask(const command& what) { return child_.ask<stepping_answer>(what); }

  child_process child_;
};

}  // namespace pinfold::testing
