// SPDX-License-Identifier: BSD-3-Clause
#include "perf/rma/star.hpp"

#include "cli/failure.hpp"

#include <algorithm>
#include <fmt/ranges.h>
#include <poll.h>
#include <utility>

namespace tool {
namespace {

// Joins the messages for rank 0 to hand on. They may contain any bytes, so this is no text format.
std::string joined(const per_rank& all) {
  std::string text;
  for (const auto& one : all) text += fmt::format("{}:{}", one.size(), one);
  return text;
}

per_rank parted(std::string_view text, std::size_t ranks) {
  per_rank all;
  while (!text.empty()) {
    const auto colon = text.find(':');
    std::size_t bytes = 0;
    for (const char digit : text.substr(0, std::min<std::size_t>(colon, 8)))
      bytes = bytes * 10 + static_cast<std::size_t>(digit - '0');
    if (colon == std::string_view::npos || bytes > text.size() - colon - 1)
      throw failure("rank 0 sent a malformed message");
    all.emplace_back(text.substr(colon + 1, bytes));
    text.remove_prefix(colon + 1 + bytes);
  }
  if (all.size() != ranks) throw failure("rank 0 sent a malformed message");
  return all;
}

}  // namespace

star_peers::star_peers(place where, std::vector<rma_link> links)
    : where_(std::move(where)), links_(std::move(links)), said_(links_.size()) {}

// A message that arrived before the other side ended still counts.
void star_peers::pump() {
  for (std::size_t i = 0; i < links_.size(); ++i) {
    auto& link = links_[i];
    if (!link.ended()) link.pump();
    while (!said_[i].here) {
      auto message = link.take();
      if (!message) break;
      if (message->word == rma_word::failure)
        throw failure(where_.rank == 0 ? fmt::format("rank {}: {}", i + 1, message->text) : message->text);
      said_[i] = {true, std::move(message->text)};
    }
    if (!said_[i].here && link.ended()) throw failure(fmt::format("peer_gone: rank {} has ended", rank_at(i)));
  }
}

// No rank ends between two all-gathers.
void star_peers::look() {
  pump();
  for (std::size_t i = 0; i < links_.size(); ++i)
    if (links_[i].ended()) throw failure(fmt::format("peer_gone: rank {} has ended", rank_at(i)));
}

void star_peers::begin(std::string own) {
  own_ = std::move(own);
  handed_on_ = false;
  if (where_.rank != 0) links_.front().send(rma_word::data, own_);
}

void star_peers::hand_on() {
  per_rank all{own_};
  for (const auto& one : said_) all.push_back(one.text);
  own_ = joined(all);
  for (auto& link : links_) link.send(rma_word::data, own_);
  handed_on_ = true;
}

bool star_peers::complete() {
  pump();
  if (!std::ranges::all_of(said_, &word::here)) return false;
  if (where_.rank == 0 && !handed_on_) hand_on();
  for (auto& link : links_) link.pump();
  return std::ranges::all_of(links_, [](const auto& link) { return link.sent() || link.ended(); });
}

per_rank star_peers::take() {
  auto all = parted(where_.rank == 0 ? own_ : said_.front().text, where_.ranks);
  std::ranges::fill(said_, word{});
  return all;
}

std::string star_peers::missing() const {
  std::vector<std::size_t> silent;
  for (std::size_t i = 0; i < links_.size(); ++i)
    if (!said_[i].here) silent.push_back(rank_at(i));
  return fmt::format("rank {}", fmt::join(silent, ", "));
}

void star_peers::give_up(std::string_view why) noexcept try {
  constexpr int wait_limit_ms = 200;  // for the messages queued before
  const auto text = where_.rank == 0 ? fmt::format("rank 0: {}", why) : std::string(why);
  for (auto& link : links_) {
    if (link.ended()) continue;
    link.send(rma_word::failure, text);
    link.pump();
    if (pollfd room{link.number(), POLLOUT, 0}; !link.sent() && ::poll(&room, 1, wait_limit_ms) > 0) link.pump();
  }
} catch (const std::exception&) {
  return;  // the other ranks see the socket close
}

}  // namespace tool
