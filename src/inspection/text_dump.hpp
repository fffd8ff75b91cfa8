// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Writes the caches of this process as lines of text. docs/operate/dump.md describes them.
#pragma once

#include "inspection/text.hpp"
#include "inspection/walk.hpp"

#include <cstdint>

namespace pinfold::inspection {

/// Returns the access as letters: `r` and `w` for the device on behalf of this process, `R`, `W` and `A` (atomic) for
/// peers; `-` for none.
[[nodiscard]] std::string_view access_letters(std::uint8_t access, text<8>& into) noexcept;

/// Writes a dump to a descriptor. For signal handlers: takes no lock, allocates nothing, has no cancellation point. Too
/// large for signal stacks. One thread at a time.
class text_dump final : public visitor {
 public:
  /// Writes the caches of `table`.
  void write(int to, std::uintptr_t table, int signal) noexcept;

  void cache(const seen_cache& found) noexcept override;
  void entry(const seen_entry& found) noexcept override;
  void end(bool complete) noexcept override;

 private:
  void begin_line() noexcept;
  void add_name(std::string_view key, std::string_view name) noexcept;
  void flush() noexcept;

  int to_ = -1;
  int process_ = 0;
  std::uint32_t ticks_per_second_ = 1;
  text<4096> out_;
  walk walk_;
};

}  // namespace pinfold::inspection
