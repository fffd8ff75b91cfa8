// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The ways to register a buffer for an I/O that the tool compares.
#pragma once

#include "perf/local/paged_memory.hpp"
#include "perf/local/uring.hpp"

#include <pinfold/options.hpp>
#include <pinfold/pools/options.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string_view>

namespace tool {

inline constexpr std::array io_subjects{"unregistered", "per-io", "pinfold", "pool"};

/// The number and kind of the buffers.
struct io_buffers {
  std::size_t count;
  std::size_t size;
  pinfold::page_kind pages;
  pinfold::cache_options cache;
};

/// One of these ways, with its buffers. For one thread.
class io_subject {
 public:
  io_subject() = default;
  io_subject(const io_subject&) = delete;
  io_subject& operator=(const io_subject&) = delete;
  virtual ~io_subject() = default;

  [[nodiscard]] virtual std::span<std::byte> buffer(std::size_t number) noexcept = 0;

  /// Runs before the buffer's I/O. Returns the index in the ring's table; none where the buffer is not registered.
  [[nodiscard]] virtual pinfold::result<std::optional<std::uint32_t>> begin(std::size_t number) noexcept = 0;

  /// Runs after the buffer's I/O.
  [[nodiscard]] virtual pinfold::result<void> end(std::size_t number) noexcept = 0;
};

/// Makes the subject of that name. Returns `unsupported` or `out_of_resources` where its buffers are not available.
[[nodiscard]] pinfold::result<std::unique_ptr<io_subject>> make_io_subject(std::string_view name, uring& ring,
                                                                           const io_buffers& buffers);

}  // namespace tool
