// SPDX-License-Identifier: BSD-3-Clause
#include "core/budget.hpp"

#include <utility>

namespace pinfold::core {

namespace {

// A portion is the free room, divided by this and by the number of shards.
constexpr std::size_t portions = 8;

void raise(std::atomic<std::size_t>& highest, std::size_t now) noexcept {
  auto known = highest.load(std::memory_order_relaxed);
  while (known < now && !highest.compare_exchange_weak(known, now, std::memory_order_relaxed)) {
  }
}

}  // namespace

budget::budget(std::size_t max_bytes, std::size_t max_count, std::size_t shares, node::membership* node)
    : max_bytes_(max_bytes),
      max_count_(max_count),
      count_(shares),
      node_(node),
      shares_(std::make_unique<share[]>(shares)),
      free_bytes_(max_bytes),
      free_count_(max_count),
      tight_(node != nullptr),
      gathered_(node != nullptr) {
  for (auto& one : std::span(shares_.get(), count_)) one.home_ = this;
}

// Gives room that no cache uses to other processes.
budget::~budget() {
  if (node_ != nullptr) node_->trim();
}

// Draws the missing room, and also a portion while the budget is not tight.
bool budget::draw(share& by, std::size_t bytes, std::size_t count) noexcept {
  PINFOLD_ASSERT(by.home_ == this, "a share draws from its own budget");
  const std::size_t more_bytes = bytes - std::min(bytes, by.spare_bytes_);
  const std::size_t more_count = count - std::min(count, by.spare_count_);
  os::scoped_lock guard(mutex_);
  by.refusal_ = share::refusal::own_limit;
  const bool insists = std::exchange(by.insists_, false);  // once, whatever the result
  if (owed_bytes_.load(std::memory_order_relaxed) != 0 || more_bytes > free_bytes_ || more_count > free_count_)
    return false;
  if (node_ != nullptr && !draw_from_node(by, more_bytes, insists)) return false;
  const bool tight = tight_.load(std::memory_order_relaxed);
  const std::size_t parts = count_ == 1 ? 1 : portions * count_;
  const std::size_t portion_bytes = tight ? 0 : (free_bytes_ - more_bytes) / parts;
  const std::size_t portion_count = tight ? 0 : (free_count_ - more_count) / parts;
  free_bytes_ -= more_bytes + portion_bytes;
  free_count_ -= more_count + portion_count;
  by.spare_bytes_ += more_bytes + portion_bytes;
  by.spare_count_ += more_count + portion_count;
  PINFOLD_ASSERT(free_bytes_ <= max_bytes_ && free_count_ <= max_count_, "no more is drawn than was free");
  if (count_ > 1 && gathered_.load(std::memory_order_relaxed)) {  // what is not free is in use
    raise(peak_bytes_, max_bytes_ - free_bytes_);
    raise(peak_count_, max_count_ - free_count_);
  }
  return true;
}

bool budget::draw_from_node(share& by, std::size_t bytes, bool insists) noexcept {
  by.refusal_ = share::refusal::gives_way;
  if (!insists && (node_->crowds_others() || node_->whose_turn(bytes, nullptr) == node::turn::another)) return false;
  by.refusal_ = share::refusal::node_full;
  return node_->take(bytes);
}

void budget::put(std::size_t bytes, std::size_t count) noexcept {
  os::scoped_lock guard(mutex_);
  const auto owed = owed_bytes_.load(std::memory_order_relaxed);
  const auto paid = std::min(owed, bytes);
  if (paid > 0) owed_bytes_.store(owed - paid, std::memory_order_relaxed);
  free_bytes_ += bytes - paid;
  free_count_ += count;
  PINFOLD_ASSERT(free_bytes_ <= max_bytes_ && free_count_ <= max_count_, "no more is free than the limit");
  if (node_ != nullptr) return node_->give(bytes - paid);
  if (!gathered_.load(std::memory_order_relaxed) || free_bytes_ < max_bytes_ / 2 || free_count_ < max_count_ / 2)
    return;
  gathered_.store(false, std::memory_order_relaxed);
  tight_.store(false, std::memory_order_relaxed);
}

void budget::tighten() noexcept {
  os::scoped_lock guard(mutex_);
  tight_.store(true, std::memory_order_relaxed);
}

void budget::share::charge(std::size_t bytes) noexcept {
  const auto own = std::min(bytes, spare_bytes_);
  spare_bytes_ -= own;
  use(bytes, 0);
  os::scoped_lock guard(home_->mutex_);
  auto taken = std::min(bytes - own, home_->free_bytes_);
  if (home_->node_ != nullptr && !home_->node_->take(taken)) taken = 0;
  home_->free_bytes_ -= taken;
  home_->owed_bytes_.store(home_->owed_bytes_.load(std::memory_order_relaxed) + (bytes - own - taken),
                           std::memory_order_relaxed);
  raise(home_->peak_bytes_, home_->bytes_now());
}

std::size_t budget::bytes_now() const noexcept {
  std::size_t sum = 0;
  for (const auto& one : std::span(shares_.get(), count_)) sum += one.bytes_now();
  return sum;
}

std::size_t budget::count_now() const noexcept {
  std::size_t sum = 0;
  for (const auto& one : std::span(shares_.get(), count_)) sum += one.count_now();
  return sum;
}

// The sums may count both an entry that closes in one shard and the entry that opens in another. So they are capped:
// the registered amount never exceeds the limits, except for owed bytes.
void budget::note_peak() const noexcept {
  const auto most = max_bytes_ + std::min(owed_bytes_.load(std::memory_order_relaxed), SIZE_MAX - max_bytes_);
  raise(peak_bytes_, std::min(bytes_now(), most));
  raise(peak_count_, std::min(count_now(), max_count_));
}

std::size_t budget::peak_bytes() const noexcept {
  note_peak();
  return peak_bytes_.load(std::memory_order_relaxed);
}

std::size_t budget::peak_count() const noexcept {
  note_peak();
  return peak_count_.load(std::memory_order_relaxed);
}

}  // namespace pinfold::core
