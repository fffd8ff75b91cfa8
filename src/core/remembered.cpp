// SPDX-License-Identifier: BSD-3-Clause
#include "core/remembered.hpp"

#include "os/check.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <span>
#include <tuple>
#include <utility>

namespace pinfold::core {

namespace {

auto place_of(const remembered& one) noexcept { return std::tuple(one.peer, one.where.begin, one.where.end); }

bool used_less(const remembered& one, const remembered& other) noexcept {
  return std::tuple(one.hits, one.visited, other.age) < std::tuple(other.hits, other.visited, one.age);
}

}  // namespace

void remembered_list::swap(remembered_list& other) noexcept {
  PINFOLD_ASSERT(token_bytes_ == other.token_bytes_, "both lists are of one driver");
  std::swap(all_, other.all_);
  std::swap(tokens_, other.tokens_);
  std::swap(gone_, other.gone_);
}

template <class Goes>
void remembered_list::erase_if(Goes&& goes) noexcept {
  std::erase_if(all_, [&](const remembered& one) {
    const bool erased = goes(one);
    if (erased) uncount(one);
    return erased;
  });
}

void remembered_list::reserve(std::size_t more) {
  all_.reserve(all_.size() + more);
  tokens_.reserve(tokens_.size() + more * token_bytes_);
}

void remembered_list::add(const remembered& one, const std::byte* token) noexcept {
  PINFOLD_ASSERT(room() > 0 && tokens_.capacity() - tokens_.size() >= token_bytes_, "the caller has made room");
  all_.push_back(one);
  if (registered_ != nullptr) registered_->add(one.where);  // prepared when it was registered
  if (token_bytes_ == 0) return;
  all_.back().token = tokens_.size() / token_bytes_;
  tokens_.insert(tokens_.end(), token, token + token_bytes_);
}

bool remembered_list::has_room_for(const remembered_list& older) noexcept try {
  reserve(older.size());
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

bool remembered_list::complete(const remembered_list& older) noexcept {
  const bool both = has_room_for(older);
  const auto own = static_cast<std::ptrdiff_t>(all_.size());
  const auto by_place = [](const remembered& one, const remembered& other) { return place_of(one) < place_of(other); };
  std::sort(all_.begin(), all_.end(), by_place);
  for (const remembered& one : both ? std::span(older.all_) : std::span<const remembered>()) {
    const auto [first, last] = std::equal_range(all_.begin(), all_.begin() + own, one, by_place);
    const auto newer = [&](const remembered& other) { return contains_all(other.access, one.access); };
    if (!older.gone_.touches(one.peer, one.where) && std::none_of(first, last, newer)) add(one, older.token_of(one));
  }
  std::rotate(all_.begin(), all_.begin() + own, all_.end());
  std::sort(all_.end() - own, all_.end(), used_less);
  return both;
}

// With many ranges to forget, a walk through a long list for each would take too long: notes the ranges, until there
// are more notes than registrations.
void remembered_list::forget(peer_id peer, const range& gone) noexcept {
  if (all_.empty()) return;
  try {
    gone_.add(peer, gone);
  } catch (const std::bad_alloc&) {
    return erase_if([&](const remembered& one) { return one.peer == peer && one.where.overlaps(gone); });
  }
  if (gone_.size() > all_.size()) forget_noted();
}

void remembered_list::forget_noted() noexcept {
  if (gone_.size() > 0) forget(gone_);
  gone_.clear();
}

void remembered_list::forget(const gone_ranges& gone) noexcept {
  erase_if([&](const remembered& one) { return gone.touches(one.peer, one.where); });
}

void remembered_list::unpersist(peer_id peer, const range& where) noexcept {
  for (remembered& one : all_)
    if (one.peer == peer && one.where.overlaps(where)) one.persistent = false;
}

void remembered_list::unpersist(const gone_ranges& where) noexcept {
  for (remembered& one : all_)
    if (where.touches(one.peer, one.where)) one.persistent = false;
}

void remembered_list::apply(const withdrawal& call) noexcept {
  call.what == withdrawal::of::gone ? forget(call.peer, call.where) : unpersist(call.peer, call.where);
}

void being_closed::note(const withdrawal& call) noexcept try {
  (call.what == withdrawal::of::gone ? gone : unpersisted).add(call.peer, call.where);
} catch (const std::bad_alloc&) {
  lost = true;
}

bool being_closed::apply() noexcept {
  list.forget(gone);
  list.unpersist(unpersisted);
  return !lost;
}

bool remembered_list::take_hottest(restored_now& into) noexcept {
  for (; !all_.empty() && gone_.touches(all_.back().peer, all_.back().where); all_.pop_back()) uncount(all_.back());
  if (all_.empty()) return false;
  into.what = all_.back();
  if (token_bytes_ > 0) std::memcpy(into.token.data(), token_of(into.what), token_bytes_);
  into.meanwhile.withdrawn.store(false, std::memory_order_relaxed);
  into.meanwhile.unpersisted.store(false, std::memory_order_relaxed);
  all_.pop_back();
  return true;
}

}  // namespace pinfold::core
