// SPDX-License-Identifier: BSD-3-Clause
#include "perf/local/io_rounds.hpp"

#include "cli/failure.hpp"
#include "peer/message.hpp"
#include "perf/local/paged_memory.hpp"

#include <algorithm>
#include <cstring>
#include <fmt/format.h>

namespace tool {
namespace {

using clock = std::chrono::steady_clock;

constexpr pinfold::error wrong_bytes{pinfold::errc::driver_error, pinfold::native_kind::none, 0,
                                     "a read returned wrong bytes"};

std::uint64_t since(clock::time_point start) {
  return static_cast<std::uint64_t>(std::chrono::nanoseconds(clock::now() - start).count());
}

}  // namespace

block_file::block_file(const scratch_file& file, uring& ring, std::size_t block, std::size_t bytes)
    : file_(file.descriptor()), block_(block), generations_(bytes / block) {
  const auto memory =
      need(paged_memory::map(block, pinfold::page_kind::plain), "no memory for the content of the file");
  for (std::size_t i = 0; i < blocks(); ++i) {
    fill(memory.bytes(), seed(i));
    need(ring.perform({true, file_, memory.bytes(), offset(i), std::nullopt}),
         fmt::format("--dir {}: cannot fill the file", file.directory()));
  }
}

std::uint64_t block_file::seed(std::size_t number) const noexcept {
  return seed_for(block_, number, generations_[number]);
}

bool block_file::is_content(std::size_t number, std::span<const std::byte> bytes) const noexcept {
  return holds(bytes, seed(number));
}

void block_file::renew(std::size_t number, std::span<std::byte> bytes) noexcept {
  ++generations_[number];
  fill(bytes, seed(number));
}

bool io_rounds::play() {
  draw();
  const auto start = clock::now();
  const bool all_begun = begin_all();
  const bool all_finished = finish_all();
  done_.seconds += static_cast<double>(since(start)) * 1e-9;
  check_all();
  return all_begun && all_finished;
}

// Buffers are wiped before a read, so that only this read can have brought the right bytes.
void io_rounds::draw() {
  std::uniform_int_distribution<std::size_t> any_block(0, file_.blocks() - 1);
  std::bernoulli_distribution writes(how_.write_share);
  for (std::size_t i = 0; i < under_way_.size(); ++i) {
    one_io drawn{.write = writes(random_), .buffer = next_buffer_++ % how_.buffers, .start = {}};
    const auto same = [&](const one_io& other) { return other.block == drawn.block; };
    do drawn.block = any_block(random_);
    while (std::any_of(under_way_.begin(), under_way_.begin() + static_cast<std::ptrdiff_t>(i), same));
    const auto bytes = subject_.buffer(drawn.buffer);
    if (drawn.write) file_.renew(drawn.block, bytes);
    if (!drawn.write) std::memset(bytes.data(), 0xa5, bytes.size());
    under_way_[i] = drawn;
  }
}

bool io_rounds::begin_all() {
  for (std::size_t i = 0; i < under_way_.size(); ++i) {
    auto& one = under_way_[i];
    one.start = clock::now();
    const auto registered = subject_.begin(one.buffer, pinfold::local_access);
    if (!registered) return count(registered.error()), false;
    const auto ready = ring_.prepare(
        {one.write, file_.descriptor(), subject_.buffer(one.buffer), file_.offset(one.block), *registered}, i);
    if (!ready) {
      static_cast<void>(subject_.end(one.buffer));
      return count(ready.error()), false;
    }
    one.begun = true;
  }
  return true;
}

bool io_rounds::finish_all() {
  if (const auto begun = ring_.submit(); !begun) return count(begun.error()), false;
  const auto begun = std::ranges::count(under_way_, true, &one_io::begun);
  for (std::ptrdiff_t i = 0; i < begun; ++i) {
    const auto seen = ring_.wait();
    if (!seen) return count(seen.error()), false;
    finish(under_way_.at(seen->tag), seen->answer);
  }
  return true;
}

void io_rounds::finish(one_io& one, int answer) {
  const auto ended = subject_.end(one.buffer);
  done_.samples.push_back(since(one.start));
  const auto moved = checked(answer, subject_.buffer(one.buffer).size());
  if (!moved) return count(moved.error());
  if (!ended) return count(ended.error());
  one.arrived = true;
}

void io_rounds::check_all() {
  for (const auto& one : under_way_) {
    if (!one.arrived || one.write) continue;
    const auto bytes = subject_.buffer(one.buffer);
    done_.bytes_checked += bytes.size();
    if (!file_.is_content(one.block, bytes)) count(wrong_bytes);
  }
}

void io_rounds::count(const pinfold::error& why) {
  ++done_.errors;
  if (!done_.first) done_.first = why;
}

}  // namespace tool
