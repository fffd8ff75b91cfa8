// SPDX-License-Identifier: BSD-3-Clause
#include "index/range_node_pool.hpp"

#include "os/check.hpp"

#include <new>

namespace pinfold::index {

namespace {

constexpr std::size_t smallest_chunk = 4096;
constexpr std::size_t largest_chunk = 65536;
constexpr std::align_val_t alignment{64};

}  // namespace

range_node_pool::chunk::~chunk() { ::operator delete(units_, alignment); }

range_node_pool::~range_node_pool() {
  while (chunks_ != nullptr) ::operator delete(std::exchange(chunks_, chunks_->next), alignment);
}

range_node_pool::chunk range_node_pool::make_chunk(std::size_t bytes) noexcept {
  return {::operator new(bytes, alignment, std::nothrow), bytes / unit};
}

std::size_t range_node_pool::next_chunk() const noexcept { return std::clamp(bytes_, smallest_chunk, largest_chunk); }

void range_node_pool::adopt(chunk made) noexcept {
  PINFOLD_ASSERT(made && made.count_ > 1, "the chunk has memory for its head and a node");
  while (fresh_units_ >= 2) inners_.push(take_fresh(2));
  if (fresh_units_ == 1) leaves_.push(take_fresh(1));
  auto* first = static_cast<std::byte*>(std::exchange(made.units_, nullptr));
  chunks_ = new (first) head{chunks_};
  fresh_ = first + unit;
  fresh_units_ = made.count_ - 1;
  bytes_ += made.count_ * unit;
}

range_leaf* range_node_pool::take_leaf(peer_id of) noexcept {
  PINFOLD_INVARIANT(has(1, 0), "the caller checks has() before it takes a node");
  if (leaves_.size == 0 && fresh_units_ == 0) {
    auto* pair = static_cast<std::byte*>(inners_.pop());
    leaves_.push(pair + unit);
    leaves_.push(pair);
  }
  bytes_out_ += sizeof(range_leaf);
  return new (leaves_.size > 0 ? leaves_.pop() : take_fresh(1)) range_leaf(of);
}

range_inner* range_node_pool::take_inner(void* first, std::uint64_t max_end) noexcept {
  PINFOLD_INVARIANT(has(0, 1), "the caller checks has() before it takes a node");
  bytes_out_ += sizeof(range_inner);
  return new (inners_.size > 0 ? inners_.pop() : take_fresh(2)) range_inner(first, max_end);
}

void range_node_pool::put(range_leaf* done) noexcept {
  PINFOLD_ASSERT(bytes_out_ >= sizeof(range_leaf), "the pool gets back no more than it gave out");
  bytes_out_ -= sizeof(range_leaf);
  leaves_.push(done);
}

void range_node_pool::put(range_inner* done) noexcept {
  PINFOLD_ASSERT(bytes_out_ >= sizeof(range_inner), "the pool gets back no more than it gave out");
  bytes_out_ -= sizeof(range_inner);
  inners_.push(done);
}

void* range_node_pool::take_fresh(std::size_t units) noexcept {
  PINFOLD_ASSERT(units <= fresh_units_, "so many units were never used");
  fresh_units_ -= units;
  return std::exchange(fresh_, fresh_ + units * unit);
}

void range_node_pool::free_list::push(void* node) noexcept {
  first = new (node) free_node{first};
  ++size;
}

void* range_node_pool::free_list::pop() noexcept {
  PINFOLD_ASSERT(size > 0 && first != nullptr, "the list has as many nodes as it counts");
  --size;
  return std::exchange(first, first->next);
}

}  // namespace pinfold::index
