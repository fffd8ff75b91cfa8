// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Common parts of `pinfold demo`: the peers, one cache over all of them, and the count of checked bytes.
#pragma once

#include "peer/host_target.hpp"
#include "peer/message.hpp"
#include "peer/peer_process.hpp"

#include <pinfold/events.hpp>
#include <pinfold/importers/memfd.hpp>
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

inline constexpr std::size_t kib = 1024;

using memfd_lease = memfd_cache::lease;

/// The peers and the cache. The constructor forks the peers first, so call it before the process has a second thread.
class demo_stage {
 public:
  static constexpr std::size_t peer_count = 2;
  static constexpr std::size_t budget = std::size_t{40} << 20;

  explicit demo_stage(pinfold::memfd_via via);

  [[nodiscard]] peer_process& peer(std::size_t number) { return peers_.at(number); }
  [[nodiscard]] memfd_cache& cache() noexcept { return cache_; }
  [[nodiscard]] pinfold::statistics counters() const noexcept { return cache_.statistics(); }

  /// Returns how many events of this kind the cache has reported so far.
  [[nodiscard]] std::size_t told(pinfold::event_kind kind) const noexcept {
    return told_->at(static_cast<std::size_t>(kind));
  }

  /// Returns an importer like the cache's, for the parts that work without the cache.
  [[nodiscard]] pinfold::memfd_importer importer() const { return pinfold::memfd_importer({.via = via_}); }

  /// Makes a peer provide a new message in buffer `buffer`. Throws `failure`.
  [[nodiscard]] message provide(std::size_t peer, std::uint32_t buffer, std::size_t bytes, std::uint64_t where = 0);

  /// Makes the peer free a buffer. Throws `failure`.
  void take_back(std::size_t peer, std::uint32_t buffer);

  /// Returns a lease on the message from `offset` on. Throws `failure`.
  [[nodiscard]] memfd_lease acquire(const message& wanted, std::size_t offset = 0);

  /// Checks every byte behind the lease, which begins `offset` bytes into the message. Throws `failure`.
  void check(const memfd_lease& lease, const message& expected, std::size_t offset = 0);

  /// Checks bytes that were already copied. Throws `failure`.
  void check(std::span<const std::byte> bytes, const message& expected, std::size_t offset = 0);

  /// Acquires the message, checks every byte, releases. Throws `failure`.
  void read_and_check(const message& wanted, std::size_t offset = 0);

  /// Returns how many bytes were checked since the last call.
  [[nodiscard]] std::uint64_t take_checked() noexcept { return std::exchange(checked_, 0); }

 private:
  using tally = std::array<std::atomic<std::size_t>, 8>;  // by event_kind

  // Returns a sink that counts events, and also prints failures.
  [[nodiscard]] pinfold::event_sink sink() const;

  pinfold::memfd_via via_;
  std::shared_ptr<tally> told_ = std::make_shared<tally>();
  std::vector<peer_process> peers_;  // before the cache: peers are forked first
  memfd_cache cache_;
  std::uint64_t checked_ = 0;
};

/// Throws `failure` unless `holds`: the demo does not claim what did not happen.
void require(bool holds, std::string_view claim);

/// Prints the story, and the number of bytes that proved it.
void print_ok(std::string_view title, const std::string& story, std::uint64_t bytes_checked);

/// The parts. They throw `failure` when a byte is wrong or a promised event did not happen.
void show_messages(demo_stage& stage);
void show_scenarios(demo_stage& stage);

/// Needs no peers. Without io_uring it says why and does nothing.
void show_local();

/// Shows GPU memory instead, over the emulation of the CUDA driver at the path `library`; if it is empty,
/// PINFOLD_CUDA_LIBRARY must be set. Call it before this process has a second thread or a CUDA driver.
void show_cuda(const std::string& library);

}  // namespace tool
