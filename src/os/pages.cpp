// SPDX-License-Identifier: BSD-3-Clause
#include "os/procmap.hpp"

#include <pinfold/detail/pages.hpp>

#include <algorithm>
#include <optional>

namespace pinfold::detail {

namespace {

std::size_t larger_page(std::size_t granularity, const std::optional<procmap>& found) noexcept {
  return found ? std::max<std::size_t>(granularity, found->page_bytes) : granularity;
}

}  // namespace

range rounded_out(const range& exact, std::size_t granularity) noexcept {
  if (granularity <= 1) return exact;
  const own_maps maps;
  const auto first = mapping_at(maps, exact.begin);
  const auto last = first && exact.end <= first->end ? first : mapping_at(maps, exact.end - 1);
  return {aligned_out(exact, larger_page(granularity, first)).begin,
          aligned_out(exact, larger_page(granularity, last)).end};
}

bool same_mapping(std::uintptr_t a, std::uintptr_t b) noexcept {
  const auto found = mapping_at(own_maps(), a);
  return found && found->begin <= b && b < found->end;
}

}  // namespace pinfold::detail
