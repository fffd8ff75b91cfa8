// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Makes pages present before a driver pins them.
#pragma once

#include <pinfold/error.hpp>
#include <pinfold/range.hpp>

#include <cstdint>

namespace pinfold::os {

/// The access for which pages are made present.
enum class page_use : std::uint8_t {
  read,   ///< as a read does: memory that was never written may share the page of zeros
  write,  ///< as a write does: a private page of its own
};

/// Advises the kernel to back the memory with transparent huge pages. Has no effect on a kernel without them, or on
/// memory whose pages have a size of their own (hugetlb).
void advise_huge_pages(const range& memory) noexcept;

/// Makes all pages that the range touches present, and changes no byte. Any thread; several threads may do so at once,
/// even with the same memory. Works in steps of 16 MiB, so that calls that change mappings wait only for one step.
///
/// Errors, each with its errno: `invalid_range` if a part is not mapped, or if touching it would raise SIGBUS or
/// SIGSEGV (the end of a file, a full file system, no free huge page); `out_of_resources` if there is no memory;
/// `unsupported` if the mapping does not allow the access, or has no pages of memory; `driver_error` for broken memory
/// and any other failure. Pages that are present by then stay.
[[nodiscard]] result<void> prefault(const range& memory, page_use use) noexcept;

/// As `prefault` on kernels before Linux 5.14: one system call for each page. The kernel touches the pages, so that no
/// signal is raised.
[[nodiscard]] result<void> touch_pages(const range& memory, page_use use) noexcept;

}  // namespace pinfold::os
