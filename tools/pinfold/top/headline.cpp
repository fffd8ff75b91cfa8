// SPDX-License-Identifier: BSD-3-Clause
#include "top/headline.hpp"

#include "top/figures.hpp"

#include <cstddef>
#include <fmt/format.h>
#include <string_view>

namespace tool::top {
namespace {

std::string counted(std::size_t number, std::string_view one, std::string_view more) {
  return fmt::format("{} {}", number, number == 1 ? one : more);
}

}  // namespace

std::string headline_of(const sample& taken) {
  using enum pinfold::observation::process_state;
  std::size_t caches = 0;
  for (const auto& one : taken.processes) caches += one.held.running;
  std::string states;
  for (const auto state : {stopped, ended, unknown}) {
    std::size_t count = 0;
    for (const auto& one : taken.processes) count += one.page.state == state ? 1 : 0;
    if (count > 0) states += fmt::format("{}{} {}", states.empty() ? " (" : ", ", count, name_of(state));
  }
  if (!states.empty()) states += ")";
  auto text =
      counted(taken.processes.size(), "process", "processes") + states + ", " + counted(caches, "cache", "caches");
  if (!taken.unreadable.empty()) text += "; " + counted(taken.unreadable.size(), "page", "pages") + " unreadable";
  return text;
}

std::string nothing_text(const sampler& from, const sample& taken, const wanted& what) {
  if (!taken.processes.empty()) return fmt::format("Nothing matches '{}'.", what.text);
  return fmt::format("No statistics page in {}: PINFOLD_STATS=on lets a process publish one.", from.directory());
}

}  // namespace tool::top
