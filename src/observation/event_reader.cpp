// SPDX-License-Identifier: BSD-3-Clause
#include "observation/clock.hpp"
#include "observation/page_source.hpp"
#include "os/no_cancellation.hpp"
#include "os/size_limit.hpp"

#include <pinfold/observation/reader.hpp>

#include <algorithm>
#include <cstddef>
#include <unistd.h>
#include <utility>

namespace pinfold::observation {

struct event_reader::state {
  page_source from;
  page_source to;  ///< opened for writing when stacks are wanted
  std::string path;
  page_header layout;
  std::uint64_t next = 0;
  std::uint64_t lost = 0;

  [[nodiscard]] result<std::uint64_t> written() const noexcept {
    std::uint64_t found = 0;
    auto got = from.read(offsetof(page_header, events_written), found);
    return got ? result<std::uint64_t>(found) : tl::unexpected(got.error());
  }
  [[nodiscard]] result<event_record> record(std::uint64_t number) const noexcept {
    event_record found{};
    auto got = from.read(layout.events_from + number % layout.events * layout.event_bytes, found);
    return got ? result<event_record>(found) : tl::unexpected(got.error());
  }
  [[nodiscard]] result<std::vector<std::uint64_t>> stack(std::uint32_t number_plus_1) const {
    std::vector<std::uint64_t> frames;
    if (number_plus_1 == 0) return frames;
    stack_record found{};
    const auto number = number_plus_1 - 1U;
    auto got = from.read(layout.stacks_from + number % layout.stacks * layout.stack_bytes, found);
    if (!got) return tl::unexpected(got.error());
    if (static_cast<std::uint32_t>(found.mark) != number_plus_1) return frames;  // a later stack has replaced it
    frames.assign(found.frames.begin(), found.frames.begin() + static_cast<std::ptrdiff_t>(std::min<std::uint64_t>(
                                                                   found.depth, deepest_stack)));
    return frames;
  }
};

event_reader::event_reader(std::unique_ptr<state> with) noexcept : state_(std::move(with)) {}
event_reader::event_reader(event_reader&&) noexcept = default;
event_reader& event_reader::operator=(event_reader&&) noexcept = default;
event_reader::~event_reader() = default;

result<event_reader> event_reader::open(const std::string& path, bool from_oldest, std::optional<std::uint32_t> owner) {
  const detail::no_cancellation guard;
  auto made = std::make_unique<state>();
  auto from = page_source::open(path, false, owner);
  if (!from) return tl::unexpected(from.error());
  made->from = *std::move(from);
  const auto header = made->from.header();
  if (!header) return tl::unexpected(header.error());
  made->layout = *header;
  made->path = path;
  const auto written = header->events_written;
  made->next = !from_oldest ? written : written > header->events ? written - header->events : 0;
  return event_reader(std::move(made));
}

// Stops at an event that its writer has not finished. Later calls wait for the event, until the ring has advanced by
// half its length.
result<std::vector<page_event>> event_reader::read() {
  const detail::no_cancellation guard;
  std::vector<page_event> found;
  const auto written = state_->written();
  if (!written) return tl::unexpected(written.error());
  auto& next = state_->next;
  if (*written < next) next = *written;  // a counter that decreases is damaged: start again from it
  const std::uint64_t ring = state_->layout.events;
  if (*written - next > ring) {
    state_->lost += *written - next - ring;
    next = *written - ring;
  }
  for (; next < *written; ++next) {
    auto one = state_->record(next);
    if (!one) return tl::unexpected(one.error());
    const bool whole = one->mark == next + 1 && one->check == check_of(*one);
    if (!whole && one->mark <= next && *written - next < ring / 2) break;
    if (!whole) {
      ++state_->lost;
      continue;
    }
    auto frames = state_->stack(one->stack);
    if (!frames) return tl::unexpected(frames.error());
    found.push_back({next, *one, *std::move(frames)});
  }
  return found;
}

std::uint64_t event_reader::lost() const noexcept { return state_->lost; }

result<void> event_reader::want_stacks(std::chrono::nanoseconds how_long) noexcept {
  const detail::no_cancellation guard;
  if (!state_->to.file()) {
    auto to = page_source::open(state_->path, true);
    if (!to) return tl::unexpected(to.error());
    if (!to->is_same_file(state_->from)) return fail(errc::invalid_handle, "another file has the page's name now");
    state_->to = *std::move(to);
  }
  const auto until = now_ns() + static_cast<std::uint64_t>(std::max<std::int64_t>(how_long.count(), 0));
  const auto put = os::within_size_limit(
      [&] { return ::pwrite(state_->to.file().number(), &until, sizeof until, offsetof(page_header, stacks_until)); });
  if (put != sizeof until) return os::fail_system("cannot ask for call stacks");
  return {};
}

}  // namespace pinfold::observation
