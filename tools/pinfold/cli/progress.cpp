// SPDX-License-Identifier: BSD-3-Clause
#include "cli/progress.hpp"

#include "cli/interrupted_output.hpp"

#include <algorithm>
#include <cstdio>
#include <fmt/format.h>
#include <unistd.h>

namespace tool {
namespace {

constexpr std::size_t width = 40;
constexpr std::chrono::seconds time_limit{2};
constexpr std::chrono::milliseconds between_drawings{100};

bool is_terminal() noexcept { return ::isatty(STDERR_FILENO) == 1; }

}  // namespace

progress_bar::progress_bar(std::size_t steps) noexcept
    : steps_(std::max<std::size_t>(steps, 1)), terminal_(is_terminal()), start_(std::chrono::steady_clock::now()) {}

progress_bar::~progress_bar() {
  if (drawn_) std::fputs(wipe_line, stderr);
}

void progress_bar::step(std::size_t count) {
  done_ = std::min(done_ + count, steps_);
  const auto now = clock::now();
  const auto elapsed = now - start_;
  if (!terminal_ || elapsed < time_limit || now - drawn_at_ < between_drawings) return;
  drawn_at_ = now;
  const auto filled = width * done_ / steps_;
  fmt::print(stderr, "{}[{:#<{}}{:.<{}}] {:3} %  {} s", wipe_line, "", filled, "", width - filled, 100 * done_ / steps_,
             std::chrono::duration_cast<std::chrono::seconds>(elapsed).count());
  std::fflush(stderr);
  drawn_ = true;
}

row_count::row_count() noexcept : terminal_(is_terminal()), start_(std::chrono::steady_clock::now()) {}

row_count::~row_count() {
  if (drawn_) std::fputs(wipe_line, stderr);
}

void row_count::step() {
  ++done_;
  const auto elapsed = std::chrono::steady_clock::now() - start_;
  if (!terminal_ || elapsed < time_limit) return;
  fmt::print(stderr, "{}{} rows measured  {} s", wipe_line, done_,
             std::chrono::duration_cast<std::chrono::seconds>(elapsed).count());
  std::fflush(stderr);
  drawn_ = true;
}

}  // namespace tool
