// SPDX-License-Identifier: BSD-3-Clause
#include "core/page_audit.hpp"

#include "os/check.hpp"
#include "os/page_bytes.hpp"

#include <algorithm>
#include <array>
#include <fcntl.h>
#include <new>
#include <unistd.h>

namespace pinfold::core {

namespace {

// /proc/pid/pagemap (Documentation/admin-guide/mm/pagemap.rst): one word per page, with the frame in the lower bits,
// which reads as 0 without the privilege.
constexpr std::uint64_t present = std::uint64_t{1} << 63U;
constexpr std::uint64_t frame = (std::uint64_t{1} << 55U) - 1;

os::file open_pagemap() noexcept { return os::file(::open("/proc/thread-self/pagemap", O_RDONLY | O_CLOEXEC)); }

// FNV-1a over words, and a final mix: enough to distinguish frames that were not chosen to collide.
std::uint64_t mixed(std::uint64_t so_far, std::uint64_t word) noexcept {
  so_far = (so_far ^ word) * 0x100000001b3ULL;
  return so_far ^ so_far >> 29U;
}

}  // namespace

std::optional<std::uint32_t> page_audit::possible(std::uint32_t one_in) noexcept {
  if (one_in == 0) return std::nullopt;
  const os::file pagemap = open_pagemap();
  if (!pagemap) return std::nullopt;
  std::uint64_t here = 0;
  const auto at = reinterpret_cast<std::uintptr_t>(&here) / os::page_bytes() * sizeof here;
  const bool seen =
      ::pread(pagemap.number(), &here, sizeof here, static_cast<off_t>(at)) == sizeof here && (here & frame) != 0;
  return seen ? std::optional(one_in) : std::nullopt;
}

page_audit::page_audit(std::uint32_t one_in) noexcept : one_in_(one_in), pagemap_(open_pagemap()) {}

std::optional<std::uint64_t> page_audit::fingerprint(const range& memory) const noexcept {
  PINFOLD_ASSERT(memory.begin < memory.end, "a registration has a page at least");
  std::array<std::uint64_t, 512> words;
  const auto last = (memory.end - 1) / os::page_bytes();
  std::uint64_t made = 0xcbf29ce484222325ULL;
  for (auto page = memory.begin / os::page_bytes(); page <= last;) {
    const auto count = std::min<std::size_t>(words.size(), last - page + 1);
    const auto bytes = static_cast<ssize_t>(count * sizeof words[0]);
    if (::pread(pagemap_.number(), words.data(), static_cast<std::size_t>(bytes),
                static_cast<off_t>(page * sizeof words[0])) != bytes)
      return std::nullopt;
    for (std::size_t i = 0; i < count; ++i) {
      if ((words[i] & present) == 0) return std::nullopt;
      made = mixed(made, words[i] & frame);
    }
    page += count;
  }
  return made;
}

void page_audit::note(const void* of, const range& memory) noexcept try {
  const auto now = fingerprint(memory);
  const std::lock_guard guard(mutex_);
  if (now) {
    noted_[of] = *now;
  } else {
    noted_.erase(of);  // the registrar does not pin pages: there is nothing to compare with
  }
} catch (const std::bad_alloc&) {  // this registration is not audited, nor compared with an earlier one's pages
  const std::lock_guard guard(mutex_);
  noted_.erase(of);
}

bool page_audit::same(const void* of, const range& memory) noexcept {
  std::uint64_t then = 0;
  {
    const std::lock_guard guard(mutex_);
    const auto found = noted_.find(of);
    if (found == noted_.end()) return true;
    then = found->second;
  }
  return fingerprint(memory) == then;
}

}  // namespace pinfold::core
