// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/rounds.hpp"

#include "cli/failure.hpp"
#include "cli/sizes.hpp"
#include "peer/message.hpp"

#include <algorithm>
#include <thread>

namespace tool {

std::optional<std::size_t> first_wrong(std::span<const std::byte> bytes, std::uint64_t seed) noexcept {
  if (holds(bytes, seed)) return std::nullopt;
  constexpr std::size_t step = 8;
  for (std::size_t at = 0;; at += step) {
    const auto piece = bytes.subspan(at, std::min(step, bytes.size() - at));
    if (holds(piece, seed, at)) continue;
    const auto word = word_at(seed, at);
    const auto* right = reinterpret_cast<const std::byte*>(&word);
    return at +
           static_cast<std::size_t>(std::ranges::mismatch(piece, std::span(right, piece.size())).in1 - piece.begin());
  }
}

rma_rounds::rma_rounds(fabric_end& end, rma_peers& peers, const rma_options& options, rma_window& window)
    : end_(end), peers_(peers), options_(options), window_(window) {
  const auto all = peers_.all_gather(window.invitation(), options.time_limit(), [this] { end_.progress(); });
  targets_ = targets_of(all[next()], options.buffers);
  constexpr std::uint64_t far = 0x55550000;  // providers may choose consecutive keys
  if (options.spoil == "key") targets_.front().key ^= far;
}

// Calls this rank's provider meanwhile, since other ranks' transfers may need it.
void rma_rounds::meet(std::chrono::nanoseconds longer) {
  static_cast<void>(peers_.all_gather("", options_.time_limit() + longer, [this] { end_.progress(); }));
}

rma_outcome rma_rounds::play(const rma_round& round) {
  constexpr int slower = 10;  // how many times longer than this rank another rank may take
  ++generation_;
  const auto begin = clock::now();
  if (options_.remap) round.with.remap();
  fill(round);
  meet(slower * (clock::now() - begin));
  rma_outcome came{.seconds = transfer(round)};
  meet(slower * (clock::now() - begin));
  came.wrong = verify(round);
  return came;
}

// The source of a put is the sender's buffer; the source of a get is the window of the rank that it reads from.
void rma_rounds::fill(const rma_round& round) {
  for (std::size_t i = 0; i < round.count; ++i)
    tool::fill(round.put ? round.with.buffer(i) : window_.slot(i), seed_for(peers_.rank(), i, generation_));
}

std::size_t rma_rounds::verify(const rma_round& round) {
  std::size_t wrong = 0;
  for (std::size_t i = 0; i < round.count; ++i) {
    const auto bytes = round.put ? window_.slot(i) : round.with.buffer(i);
    if (round.spoil && i == 0) bytes[bytes.size() / 2] ^= std::byte{1};
    const auto where = first_wrong(bytes, seed_for(round.put ? before() : next(), i, generation_));
    if (where && wrong++ == 0) report(round, i, *where);
  }
  return wrong;
}

void rma_rounds::report(const rma_round& round, std::size_t number, std::size_t byte) const {
  fmt::print(stderr, "pinfold: rank {}: {} of {}, {}: buffer {} does not hold what rank {} {}, from byte {} on\n",
             peers_.rank(), round.put ? "put" : "get", size_text(window_.slot(number).size()), round.name, number,
             round.put ? before() : next(), round.put ? "sent" : "has", byte);
}

double rma_rounds::transfer(const rma_round& round) {
  transfers_.assign(round.count, {});
  const auto begin = clock::now();
  looked_ = begin;
  std::size_t posted = 0;
  for (std::size_t done = 0; done < round.count;) {
    while (posted < round.count && posted - done < options_.depth && post(round, posted)) ++posted;
    if (const auto* one = end_.poll()) {
      need(round.with.end(one->number), "cannot close a registration");
      ++done;
      idle_ = 0;
    } else {
      wait(round);
    }
  }
  return std::chrono::duration<double>(clock::now() - begin).count();
}

// Returns false when the provider is busy: the caller tries again, and the buffer stays registered.
bool rma_rounds::post(const rma_round& round, std::size_t number) {
  auto& one = transfers_[number];
  if (one.data == nullptr) {
    const auto bytes = round.with.buffer(number);
    const auto access = round.put ? pinfold::access_flags::local_read : pinfold::access_flags::local_write;
    const auto registered = need(round.with.begin(number, access), "cannot register a buffer");
    one = {
        .data = bytes.data(), .bytes = bytes.size(), .desc = registered ? registered->desc : nullptr, .number = number};
  }
  return round.put ? end_.put(one, targets_[number]) : end_.get(one, targets_[number]);
}

// Some providers never complete an operation that a peer refuses, and some do not notice that a peer is gone.
void rma_rounds::wait(const rma_round& round) {
  constexpr unsigned polls = 256;
  if (++idle_ == 1) heard_ = clock::now();
  if (idle_ % polls == 0) {
    const auto now = clock::now();
    if (now - heard_ > options_.time_limit())
      throw failure(fmt::format("timed_out: no {} to rank {} was completed for {} s; the provider reports no reason",
                                round.put ? "put" : "get", next(), options_.timeout));
    if (now - looked_ > std::chrono::milliseconds(20)) peers_.look(), looked_ = now;
  }
  std::this_thread::yield();
}

}  // namespace tool
