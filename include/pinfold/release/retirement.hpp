// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The retirement of exported memory: what became of it, and a ticket to wait for it.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/export.hpp>
#include <pinfold/release/message.hpp>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace pinfold::release {
class retirements;
struct retired;
}  // namespace pinfold::release

namespace pinfold {

/// 4 GiB: an importer that never lets go must not take all memory.
inline constexpr std::size_t default_limbo_bytes = std::size_t{4} << 30U;

/// An importer that still counts as one that has the memory open.
struct release_holder {
  std::uint64_t peer = 0;                       ///< number of the connection, or as the caller numbers its peers
  std::int32_t pid = 0;                         ///< in the exporter's PID namespace; 0 if unknown
  release_state state = release_state::silent;  ///< `leased`, or `silent` if it has not answered
  bool lost = false;                            ///< its connection broke, but its process still runs
};

/// What became of the memory.
enum class retire_state : std::uint8_t {
  asking,       ///< importers hold it, or it is being freed; the deadline has not passed
  limbo,        ///< importers hold it, or it is being freed; the deadline has passed
  freed,        ///< freed after every importer let it go or died
  over_budget,  ///< freed although importers held it, to keep `limbo_bytes`
  abandoned,    ///< freed by the end of the exporter, although importers may have held it
};

/// A report on one retirement.
struct retire_report {
  retire_state state = retire_state::asking;  ///< what became of the memory
  std::size_t let_go = 0;                     ///< importers that let it go since the retirement began
  std::size_t died = 0;                       ///< importers that ended since the retirement began
  std::vector<release_holder> holders;        ///< importers that did not let it go (before it was freed)
  bool free_failed = false;                   ///< whether freeing failed, as `failure` says
  error failure{};                            ///< of the driver, when the memory was freed

  /// Returns whether no importer holds the memory any more.
  [[nodiscard]] bool all_let_go() const noexcept { return holders.empty() && state == retire_state::freed; }
};

/// Counts of an exporter's retirements.
struct release_statistics {
  std::size_t limbo_bytes = 0;          ///< bytes kept alive after their deadline
  std::size_t limbo_buffers = 0;        ///< buffers kept alive after their deadline
  std::uint64_t retirements = 0;        ///< retirements begun
  std::uint64_t freed = 0;              ///< buffers freed with no holder left
  std::uint64_t freed_over_budget = 0;  ///< buffers freed although importers held them
  std::uint64_t importers_died = 0;     ///< importers that ended while they held memory
};

/// A ticket for one retirement. Move-only; dropping it changes nothing: the retirement goes on. It may outlive the
/// exporter. Every member may be called on any thread, except that a move must not run at the same time.
class PINFOLD_EXPORT retirement {
 public:
  retirement() noexcept;
  retirement(retirement&&) noexcept;
  retirement& operator=(retirement&&) noexcept;
  ~retirement();

  /// Returns what is known now, without waiting. Errors: `closed` (empty ticket), `unsupported` (in a forked
  /// child), `out_of_resources`.
  [[nodiscard]] result<retire_report> report() const noexcept;

  /// Waits until the memory is freed, for at most `timeout` (24 h), and returns the report. The report says how freeing
  /// went only once that is known: a slow `free` can outlast the wait. Errors: as `report`.
  [[nodiscard]] result<retire_report> wait(std::chrono::milliseconds timeout) const noexcept;

  /// Makes the ticket of a retirement. For exporters.
  retirement(std::shared_ptr<release::retirements> in, std::shared_ptr<release::retired> what) noexcept;

 private:
  std::shared_ptr<release::retirements> in_;
  std::shared_ptr<release::retired> what_;
};

}  // namespace pinfold
