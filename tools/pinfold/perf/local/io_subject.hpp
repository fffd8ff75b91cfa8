// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The subjects of `pinfold perf io`: buffers registered with io_uring.
#pragma once

#include "perf/buffer_subject.hpp"
#include "perf/local/uring.hpp"

#include <pinfold/options.hpp>
#include <pinfold/pools/options.hpp>

#include <array>
#include <cstddef>
#include <memory>
#include <string_view>

namespace tool {

using io_subject = buffer_subject<pinfold::io_uring_registrar>;

inline constexpr std::array io_subjects{"unregistered", "per-io", "pinfold", "pool"};

/// The number and kind of the buffers.
struct io_buffers {
  std::size_t count;
  std::size_t size;
  pinfold::page_kind pages;
  pinfold::cache_options cache;
};

/// Makes the subject of that name. Returns `unsupported` or `out_of_resources` where its buffers are not available.
[[nodiscard]] pinfold::result<std::unique_ptr<io_subject>> make_io_subject(std::string_view name, uring& ring,
                                                                           const io_buffers& buffers);

}  // namespace tool
