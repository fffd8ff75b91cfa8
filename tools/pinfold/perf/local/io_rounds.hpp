// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Random reads and writes of a file, in rounds of several at a time, with every byte checked between the rounds.
#pragma once

#include "cli/scratch_file.hpp"
#include "perf/local/io_subject.hpp"
#include "perf/local/uring.hpp"
#include "perf/measure.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

namespace tool {

/// A file in blocks. Each write gives its block new content, so that a read shows whether the last write arrived.
class block_file {
 public:
  /// Writes every block once. Throws `failure`.
  block_file(const scratch_file& file, uring& ring, std::size_t block, std::size_t bytes);

  [[nodiscard]] int descriptor() const noexcept { return file_; }
  [[nodiscard]] std::size_t blocks() const noexcept { return generations_.size(); }
  [[nodiscard]] std::uint64_t offset(std::size_t number) const noexcept { return number * block_; }

  /// Returns whether the bytes are the block's current content.
  [[nodiscard]] bool is_content(std::size_t number, std::span<const std::byte> bytes) const noexcept;

  /// Fills `bytes` with the block's next content, to be written.
  void renew(std::size_t number, std::span<std::byte> bytes) noexcept;

 private:
  [[nodiscard]] std::uint64_t seed(std::size_t number) const noexcept;

  int file_;
  std::size_t block_;
  std::vector<std::uint32_t> generations_;  // of each block's content
};

/// The result of the rounds of one measurement.
struct io_tally {
  nanoseconds samples;  ///< of each I/O: its registration, the I/O, and giving the registration back
  double seconds = 0;   ///< the time in which I/O was under way
  std::uint64_t errors = 0;
  std::uint64_t bytes_checked = 0;
  std::optional<pinfold::error> first;  ///< of the errors
};

/// One subject's I/O on a file.
class io_rounds {
 public:
  struct shape {
    unsigned depth;      ///< I/Os at a time
    double write_share;  ///< 0 to 1
    std::size_t buffers;
  };

  io_rounds(uring& ring, block_file& file, io_subject& subject, const shape& how, std::uint64_t seed)
      : ring_(ring), file_(file), subject_(subject), how_(how), random_(seed), under_way_(how.depth) {}

  /// Plays one round of `depth` I/Os. Returns false when it cannot go on: the ring is broken, or no buffer can be
  /// registered.
  [[nodiscard]] bool play();

  [[nodiscard]] io_tally take() noexcept { return std::move(done_); }

 private:
  struct one_io {
    bool write = false;
    bool begun = false;
    std::size_t block = 0;
    std::size_t buffer = 0;
    std::chrono::steady_clock::time_point start;
    bool arrived = false;
  };

  void draw();  // chooses the I/Os of this round, each on a block of its own
  [[nodiscard]] bool begin_all();
  [[nodiscard]] bool finish_all();
  void finish(one_io& one, int answer);
  void check_all();
  void count(const pinfold::error& why);

  uring& ring_;
  block_file& file_;
  io_subject& subject_;
  shape how_;
  std::mt19937_64 random_;
  std::vector<one_io> under_way_;
  std::size_t next_buffer_ = 0;
  io_tally done_;
};

}  // namespace tool
