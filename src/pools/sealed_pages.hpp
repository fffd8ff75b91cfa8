// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Maps memory that can no longer be unmapped, replaced, punched or truncated.
#pragma once

#include "pools/pages.hpp"

namespace pinfold::pools {

/// Maps a memfd of its own, and seals the file and the mapping. The mapping is never removed.
class sealed_mapper : public mapper {
 public:
  using mapper::mapper;
  ~sealed_mapper() override { close_file(); }

 private:
  [[nodiscard]] result<range> obtain(std::size_t bytes, page_kind kind) noexcept override;
  [[nodiscard]] result<void> finish(const range& memory) noexcept override;
  [[nodiscard]] result<range> map_file(std::size_t bytes, page_kind kind) const noexcept;
  void close_file() noexcept;

  int file_ = -1;
};

}  // namespace pinfold::pools
