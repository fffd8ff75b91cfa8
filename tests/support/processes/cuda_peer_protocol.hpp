// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// The messages between a test and the process with its GPU memory.
#pragma once

#include <pinfold/importers/cuda_ipc.hpp>

#include <cstddef>
#include <cstdint>

namespace pinfold::testing {

struct cuda_order {
  enum class verb : std::uint8_t {
    allocate,          ///< by cuMemAlloc
    map_segments,      ///< `count` of `bytes` each, side by side
    replace_segment,   ///< the segment at `address`, by fresh memory
    unmap_segment,     ///< the segment at `address`
    map_segment,       ///< a fresh segment at `address`, in the range of an earlier `map_segments`
    share_segments,    ///< the range at `address`; answers with segment number `count`, and their number as address
    allocate_pooled,   ///< from a pool that can be shared
    allocate_private,  ///< from the default pool
    allocate_managed,
    free,  ///< the memory at `address`, of any kind
    write,
    write_later,  ///< in stream order (delayed where the driver is the emulation), and records the event
    check,
    share,
    record,  ///< the event of the memory that was shared last
    reset_device,
  };
  verb what{};
  std::uint32_t seed = 0;
  std::uint32_t count = 1;
  std::size_t bytes = 0;
  std::uint64_t address = 0;
  std::size_t at_least = 1;  ///< bytes, for `share`
};

struct cuda_answer {
  bool done = false;
  error failure{};  ///< the message pointer is not valid in another program
  std::uint64_t address = 0;
  cuda_shared shared{};
};

}  // namespace pinfold::testing
