// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The ways to have a buffer registered for an I/O that are compared with each other.
#pragma once

#include "paged_memory.hpp"
#include "uring.hpp"

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

/// What the buffers are to be.
struct io_buffers {
  std::size_t count;
  std::size_t size;
  pinfold::page_kind pages;
  pinfold::cache_options cache;
};

/// One way, with its buffers. For one thread.
class io_subject {
 public:
  io_subject() = default;
  io_subject(const io_subject&) = delete;
  io_subject& operator=(const io_subject&) = delete;
  virtual ~io_subject() = default;

  [[nodiscard]] virtual std::span<std::byte> buffer(std::size_t number) noexcept = 0;

  /// Before the buffer's I/O: its index in the ring's table; none where it is not registered.
  [[nodiscard]] virtual pinfold::result<std::optional<std::uint32_t>> begin(std::size_t number) noexcept = 0;

  /// Behind the buffer's I/O.
  [[nodiscard]] virtual pinfold::result<void> end(std::size_t number) noexcept = 0;
};

/// The subject of that name. `unsupported` and `out_of_resources` where its buffers cannot be had.
[[nodiscard]] pinfold::result<std::unique_ptr<io_subject>> make_io_subject(std::string_view name, uring& ring,
                                                                           const io_buffers& buffers);

}  // namespace tool
