// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Which process this is: a child of fork(2) is another one, although its memory looks the same.
#pragma once

#include <atomic>
#include <cstdint>

namespace pinfold::core {

/// A word in a page that the kernel wipes in a child (MADV_WIPEONFORK; where that is missing a fork handler does it).
/// What was made while it had a value may be used as long as it has that value: a cache compares it on every hit.
/// Never 0 in a process that called this. Throws `std::bad_alloc` when there is no page to be had.
[[nodiscard]] const std::atomic<std::uint64_t>& process_word();

/// Its value now; 0 in a child that has not called it.
[[nodiscard]] std::uint64_t this_process() noexcept;

}  // namespace pinfold::core
