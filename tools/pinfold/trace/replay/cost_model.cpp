// SPDX-License-Identifier: BSD-3-Clause
#include "trace/replay/cost_model.hpp"

#include <array>

namespace tool {
namespace {

// The measured models are lines through the tables in docs/operate/tuning.md.
constexpr std::array models{
    cost_model{"uring", "io_uring, pages of 4 KiB: pinfold perf register", 630, 12.5, 450, 4.6},
    cost_model{"uring-huge", "io_uring, huge pages: pinfold perf register", 1450, 0.85, 470, 0.01},
    cost_model{"memfd", "another process's memory, including the close: pinfold perf import, uncached minus floor",
               4700, 45, 0, 0},
    cost_model{"handle", "100 us for any size, as to open a remote GPU's handle; assumed, not measured", 100'000, 0, 0,
               0},
};

}  // namespace

std::span<const cost_model> all_cost_models() noexcept { return models; }

}  // namespace tool
