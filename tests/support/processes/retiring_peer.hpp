// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// An exporter in a process of its own that retires one buffer at a time, and may stop at a step.
#pragma once

#include <pinfold/importers/memfd.hpp>

#include "support/host/pattern.hpp"
#include "support/processes/release_stop.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <sys/mman.h>

namespace pinfold::testing {

inline constexpr std::size_t retired_bytes = 16384;

/// What an exporter says of its retirement.
struct retiring_report {
  bool done = false;  ///< the order was carried out
  retire_state state = retire_state::asking;
  std::size_t let_go = 0;
  std::size_t died = 0;
  std::size_t holders = 0;
  release_holder first{}, second{};  ///< of `holders`, by peer
  release_statistics counts{};
  footprint open{};
  memfd_handle handle{};

  [[nodiscard]] bool all_let_go() const noexcept { return done && holders == 0 && state == retire_state::freed; }
  [[nodiscard]] const release_holder* holder(pid_t pid) const noexcept {
    if (holders > 0 && first.pid == pid) return &first;
    return holders > 1 && second.pid == pid ? &second : nullptr;
  }
};

/// An exporter in a child process. It overwrites retired memory, through a mapping that outlives it, as soon as a
/// report says that all importers let it go. Not thread-safe.
class retiring_peer {
 public:
  retiring_peer() : child_([](line& parent) { return serve(parent); }) {
    limit_waits(child_.talk(), std::chrono::seconds(100));
  }

  /// Allocates a buffer with that pattern, at `where` or anywhere.
  retiring_report allocate(std::uint32_t seed, std::uint64_t where = 0) {
    return ask({.what = verb::allocate, .seed = seed, .where = where});
  }
  retiring_report stop_at(stop_order order) { return ask({.what = verb::arm, .stop = order}); }
  retiring_report begin(std::chrono::milliseconds timeout) { return ask({.what = verb::begin, .time = timeout}); }
  /// Waits for the end of the retirement, for at most `timeout`.
  retiring_report wait(std::chrono::milliseconds timeout) { return ask({.what = verb::wait, .time = timeout}); }
  retiring_report look() { return ask({.what = verb::look}); }
  /// The same orders without waiting for the answer, which `answer` returns.
  bool order_begin(std::chrono::milliseconds timeout) { return order({.what = verb::begin, .time = timeout}); }
  bool order_end() { return order({.what = verb::end}); }
  std::optional<retiring_report> answer() { return child_.talk().receive<retiring_report>(); }
  [[nodiscard]] child_process& process() noexcept { return child_; }

 private:
  enum class verb : std::uint8_t { allocate, arm, begin, wait, look, end };
  struct command {
    verb what;
    std::uint32_t seed = 0;
    std::uint64_t where = 0;
    std::chrono::milliseconds time{};
    stop_order stop{};
  };

  /// Memory that stays mapped here after it is freed.
  class poison {
   public:
    explicit poison(const memfd_buffer& of)
        : at_(::mmap(nullptr, retired_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, of.descriptor(), 0)) {}
    poison(const poison&) = delete;
    poison& operator=(const poison&) = delete;
    ~poison() { ::munmap(at_, retired_bytes); }
    void spread() { std::memset(at_, 0, retired_bytes); }

   private:
    void* at_;
  };

  struct shop {
    std::optional<memfd_exporter> exporter =
        memfd_exporter::create({.access = memfd_access::read_write, .release = true}).value();
    memfd_buffer buffer;
    retirement ticket;
    std::unique_ptr<poison> after;
  };

  static int serve(line& parent) {
    shop all;
    while (const auto next = parent.receive<command>()) {
      retiring_report said = obey(all, *next);
      said.open = footprint::here();
      if (all.exporter) said.counts = all.exporter->retirements();
      if (!parent.send(said)) return 3;
    }
    return 0;
  }

  static retiring_report obey(shop& all, const command& order) {
    switch (order.what) {
      case verb::allocate: return allocated(all, order);
      case verb::arm: arm(order.stop); return {.done = true};
      case verb::look: return {.done = true};
      case verb::end: all.exporter.reset(); return waited(all, std::chrono::milliseconds{0});
      case verb::begin: break;
      case verb::wait: return waited(all, order.time);
    }
    all.after = std::make_unique<poison>(all.buffer);
    auto begun = all.exporter->begin_retire(std::move(all.buffer), order.time);
    if (!begun) return {};
    all.ticket = std::move(*begun);
    return {.done = true};
  }

  static retiring_report allocated(shop& all, const command& order) {
    auto made = all.exporter->allocate(retired_bytes, reinterpret_cast<void*>(order.where));
    if (!made) return {};
    all.buffer = std::move(*made);
    write_pattern(all.buffer.data(), retired_bytes, order.seed);
    return {.done = true, .handle = all.buffer.handle()};
  }

  static retiring_report waited(shop& all, std::chrono::milliseconds time) {
    const auto seen = all.ticket.wait(time);
    if (!seen) return {};
    retiring_report said{.done = true, .state = seen->state, .let_go = seen->let_go, .died = seen->died};
    said.holders = seen->holders.size();
    if (said.holders > 0) said.first = seen->holders[0];
    if (said.holders > 1) said.second = seen->holders[1];
    if (said.all_let_go() && all.after) {
      all.after->spread();
      all.after.reset();
    }
    return said;
  }

  bool order(const command& what) { return child_.talk().send(what); }
  retiring_report ask(const command& what) { return child_.ask<retiring_report>(what); }

  child_process child_;
};

}  // namespace pinfold::testing
