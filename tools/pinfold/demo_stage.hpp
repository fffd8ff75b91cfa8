// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What the parts of `pinfold demo` share: peers, one cache over all of them, and the book of what was checked.
#pragma once

#include "message.hpp"
#include "peer_process.hpp"
#include "reader.hpp"

#include <pinfold/events.hpp>
#include <pinfold/registrars/memfd.hpp>
#include <pinfold/statistics.hpp>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tool {

using memfd_lease = memfd_cache::lease;

/// The stage forks the peers first, so it has to be made before the process has a second thread.
class demo_stage {
 public:
  static constexpr std::size_t peer_count = 2;
  static constexpr std::size_t budget = std::size_t{40} << 20;

  explicit demo_stage(pinfold::memfd_via via);

  [[nodiscard]] peer_process& peer(std::size_t number) { return peers_.at(number); }
  [[nodiscard]] memfd_cache& cache() noexcept { return cache_; }
  [[nodiscard]] pinfold::statistics counters() const noexcept { return cache_.statistics(); }

  /// How many events of this kind the cache has told so far.
  [[nodiscard]] std::size_t told(pinfold::event_kind kind) const noexcept {
    return told_->at(static_cast<std::size_t>(kind));
  }

  /// An importer like the cache's, for those who do without the cache.
  [[nodiscard]] pinfold::memfd_importer importer() const { return pinfold::memfd_importer({.via = via_}); }

  /// A new message in buffer `buffer` of a peer. Throws `failure`.
  [[nodiscard]] message provide(std::size_t peer, std::uint32_t buffer, std::size_t bytes, std::uint64_t where = 0);

  /// A buffer that the peer frees. Throws `failure`.
  void take_back(std::size_t peer, std::uint32_t buffer);

  /// A lease on the message from `offset` on. Throws `failure`.
  [[nodiscard]] memfd_lease acquire(const message& wanted, std::size_t offset = 0);

  /// Checks every byte behind the lease, which begins `offset` bytes into the message. Throws `failure`.
  void check(const memfd_lease& lease, const message& expected, std::size_t offset = 0);

  /// Checks bytes that were copied already. Throws `failure`.
  void check(std::span<const std::byte> bytes, const message& expected, std::size_t offset = 0);

  /// Acquires the message, checks every byte, releases. Throws `failure`.
  void read_and_check(const message& wanted, std::size_t offset = 0);

  /// How many bytes were checked since the last call.
  [[nodiscard]] std::uint64_t take_checked() noexcept { return std::exchange(checked_, 0); }

 private:
  using tally = std::array<std::atomic<std::size_t>, 8>;  // by event_kind

  // Counts; what failed is for the user's eyes too.
  [[nodiscard]] pinfold::event_sink sink() const;

  pinfold::memfd_via via_;
  std::shared_ptr<tally> told_ = std::make_shared<tally>();
  std::vector<peer_process> peers_;  // before the cache: peers are forked first
  memfd_cache cache_;
  std::uint64_t checked_ = 0;
};

/// Throws `failure` unless it holds: the demo does not claim what did not happen.
void require(bool holds, std::string_view claim);

/// Prints what happened, and how many bytes proved it.
void print_ok(std::string_view title, const std::string& story, std::uint64_t bytes_checked);

/// The parts. They throw `failure` when a byte is wrong or something promised did not happen.
void show_messages(demo_stage& stage);
void show_scenarios(demo_stage& stage);

/// Needs no peers. Where there is no io_uring, it says why and does nothing.
void show_local();

}  // namespace tool
