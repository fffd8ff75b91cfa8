// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Whether the pages behind a registration are still those that were registered: asked of the kernel, page by page.
#pragma once

#include <pinfold/range.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_map>

namespace pinfold::core {

/// Remembers a fingerprint of the page frames that a registration had when it was made. That is exact as long as the
/// registrar pins pages, for a frame that is pinned is not used again. About 0.3 us and 5.5 ns a page. Thread-safe.
class page_audit {
 public:
  /// Checks one in `one_in`. Nothing where this process may not see page frames: that takes CAP_SYS_ADMIN.
  [[nodiscard]] static std::optional<std::uint32_t> possible(std::uint32_t one_in) noexcept;
  explicit page_audit(std::uint32_t one_in) noexcept;
  page_audit(const page_audit&) = delete;
  page_audit& operator=(const page_audit&) = delete;
  ~page_audit();

  /// What `of` stands for was registered just now. Allocates; forgets what `of` stood for before.
  void note(const void* of, const range& memory) noexcept;

  /// Whether it is time for a check.
  [[nodiscard]] bool due() noexcept { return counted_.fetch_add(1, std::memory_order_relaxed) % one_in_ == 0; }

  /// False when other pages are there now, or none. True also where it was never noted.
  [[nodiscard]] bool same(const void* of, const range& memory) noexcept;

 private:
  /// Nothing when a page is not there.
  [[nodiscard]] std::optional<std::uint64_t> fingerprint(const range& memory) const noexcept;

  const std::uint32_t one_in_;
  const int pagemap_;
  std::atomic<std::uint64_t> counted_{0};
  std::mutex mutex_;
  std::unordered_map<const void*, std::uint64_t> noted_;
};

}  // namespace pinfold::core
