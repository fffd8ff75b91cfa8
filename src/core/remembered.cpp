// SPDX-License-Identifier: BSD-3-Clause
#include "core/remembered.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <new>
#include <tuple>

namespace pinfold::core {

namespace {

auto place_of(const remembered& one) noexcept { return std::tuple(one.peer, one.where.begin, one.where.end); }

bool used_less(const remembered& one, const remembered& other) noexcept {
  return std::tuple(one.hits, one.visited, other.age) < std::tuple(other.hits, other.visited, one.age);
}

}  // namespace

std::size_t remembered_list::bytes() const noexcept {
  std::size_t sum = 0;
  for (const remembered& one : all_) sum += one.where.size();
  return sum;
}

void remembered_list::reserve(std::size_t more) {
  all_.reserve(all_.size() + more);
  tokens_.reserve(tokens_.size() + more * token_bytes_);
}

void remembered_list::add(const remembered& one, const std::byte* token) noexcept {
  all_.push_back(one);
  if (token_bytes_ == 0) return;
  all_.back().token = tokens_.size() / token_bytes_;
  tokens_.insert(tokens_.end(), token, token + token_bytes_);
}

void remembered_list::complete(const remembered_list& older) {
  reserve(older.size());
  const auto own = static_cast<std::ptrdiff_t>(all_.size());
  const auto by_place = [](const remembered& one, const remembered& other) { return place_of(one) < place_of(other); };
  std::sort(all_.begin(), all_.end(), by_place);
  for (const remembered& one : older.all_) {
    const auto [first, last] = std::equal_range(all_.begin(), all_.begin() + own, one, by_place);
    const auto newer = [&](const remembered& other) { return contains_all(other.access, one.access); };
    if (!older.is_gone(one) && std::none_of(first, last, newer)) add(one, older.token_of(one));
  }
  std::rotate(all_.begin(), all_.begin() + own, all_.end());
  std::sort(all_.end() - own, all_.end(), used_less);
}

// With much to forget and much to restore, a walk through the list for each would take too long.
void remembered_list::forget(peer_id peer, const range& gone) noexcept {
  if (all_.empty()) return;
  try {
    note_gone(peer, gone);
  } catch (const std::bad_alloc&) {
    std::erase_if(all_, [&](const remembered& one) { return one.peer == peer && one.where.overlaps(gone); });
  }
}

void remembered_list::note_gone(peer_id peer, range gone) {
  auto next = gone_.upper_bound({peer, gone.begin});
  if (next != gone_.begin() && std::prev(next)->first.first == peer && std::prev(next)->second >= gone.begin) --next;
  const auto first = next;
  for (; next != gone_.end() && next->first.first == peer && next->first.second <= gone.end; ++next) {
    gone.begin = std::min(gone.begin, next->first.second);
    gone.end = std::max(gone.end, next->second);
  }
  const auto after = gone_.erase(first, next);
  gone_.emplace_hint(after, std::pair(peer, gone.begin), gone.end);
}

bool remembered_list::is_gone(const remembered& one) const noexcept {
  const auto after = gone_.lower_bound({one.peer, one.where.end});
  return after != gone_.begin() && std::prev(after)->first.first == one.peer &&
         std::prev(after)->second > one.where.begin;
}

bool remembered_list::take_hottest(restored_now& into) noexcept {
  while (!all_.empty() && is_gone(all_.back())) all_.pop_back();
  if (all_.empty()) return false;
  into.what = all_.back();
  if (token_bytes_ > 0) std::memcpy(into.token.data(), token_of(into.what), token_bytes_);
  into.withdrawn.store(false, std::memory_order_relaxed);
  all_.pop_back();
  return true;
}

}  // namespace pinfold::core
