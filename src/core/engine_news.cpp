// SPDX-License-Identifier: BSD-3-Clause
// Invalidations from monitors: read from the board, and processed before any entry is handed out. An event may concern
// a million entries, and a request for other memory does not wait for all of them: until all are marked, every hit
// takes the mutex, looks at the pending invalidations, and marks a few entries.
#include "core/engine.hpp"
#include "os/backing.hpp"

namespace pinfold::detail {

// Processes every event from before this call, as far as it concerns the request, before it returns. A later event is
// concurrent with the request.
void engine::catch_up_with_news(const request& what) noexcept {
  const auto known = what_happened();
  while (deal_with_some(what.wanted, known)) {
  }
}

void engine::catch_up_with_everything() noexcept {
  if (view_.current()) return;
  const auto known = what_happened();
  bool left = true;
  while (left) {
    const bool more = deal_with_some({}, known);
    core::scoped_lock guard(mutex_);
    left = more || (!news_.empty() && unfinished_since_ == core::deadline{});
  }
}

// Returns how far events have come. Puts the kernel's events onto the board first, so that only the board has to be
// read.
engine::happened engine::what_happened() const noexcept {
  const auto kernels = monitors_ != nullptr ? monitors_->drain() : 0;
  return {board_.generation().load(std::memory_order_acquire), kernels};
}

// Processes some of the pending invalidations. Returns true when the caller has to call it again.
bool engine::deal_with_some(const range& wanted, const happened& known) noexcept {
  core::leased_notices still_held;
  bool more = false;
  {
    core::scoped_lock guard(mutex_);
    marked_entries marked;
    const auto read = read_news(known.on_board);
    const bool clear = mark_where(wanted, marked);
    mark_some(marked);
    settle_retired();
    still_held.note(marked.all());
    if (read == reading::done && news_.empty()) say_seen(known);
    more = read == reading::more || !clear;
  }
  tell(still_held);
  return more;
}

engine::reading engine::read_news(std::uint64_t target) noexcept {
  while (static_cast<std::int64_t>(target - cursor_) > 0) {
    if (news_.full()) {
      news_.widen();
      return reading::more;
    }
    range gone;
    switch (board_.read(cursor_, gone)) {
      case watch::news::nothing: return reading::done;
      case watch::news::everything: news_.add({0, UINTPTR_MAX}); break;
      case watch::news::unfinished:
        news_.add({0, UINTPTR_MAX});
        if (!given_up()) return reading::unfinished;
        break;
      case watch::news::one:
        unfinished_since_ = {};
        if (!gone.empty()) news_.add(gone);
    }
  }
  return reading::done;
}

// Returns true when a reserved place on the board stayed unpublished for too long, and moves past it. Until the place
// is published, no kept entry can be trusted. A writer that died (a vfork child, killed between two instructions) must
// not make that last for ever.
bool engine::given_up() noexcept {
  constexpr std::chrono::seconds longest{10};
  const auto now = std::chrono::steady_clock::now();
  if (unfinished_since_ == core::deadline{}) unfinished_since_ = now;
  if (now - unfinished_since_ < longest) return false;
  unfinished_since_ = {};
  ++cursor_;
  return true;
}

// Marks the affected entries that could serve a request there. Returns false when `marked` has no room for all.
bool engine::mark_where(const range& wanted, marked_entries& marked) noexcept {
  if (wanted.empty() || news_.empty()) return true;
  return index_.find_overlap({}, wanted, [&](entry& one) {
    mutex_is_held();
    if (!one.findable() || one.hot()->is(record::stale) || !news_.affects(one)) return false;
    if (marked.full()) return true;
    mark_stale(one);
    marked.add(&one);
    return false;
  }) == nullptr;
}

void engine::mark_some(marked_entries& marked) noexcept {
  news_.finish([&](core::news::item& known) {
    mutex_is_held();
    marked.grow(mark_next({}, known.left, marked.rest(), known.era));
    return known.left.empty();
  });
}

// Lets hits succeed again without a look at the pending invalidations. The marks come before this store, so a thread
// that reads the new value sees them. The value is the sum of two earlier values: it equals the sum of the present ones
// only if neither has changed.
void engine::say_seen(const happened& known) noexcept {
  view_.seen.store(cursor_ + known.in_kernel, std::memory_order_release);
  if (news_.restart()) index_.for_each([](entry& one) { one.set_era(0); });
}

// Marks an opening entry whose memory went away during the open: what the driver opened may be the old memory.
void engine::doom_if_in_news(entry& opening) noexcept {
  const auto known = what_happened();
  while (read_news(known.on_board) == reading::more) {
  }
  if (news_.affects(opening)) mark_stale(opening);
}

bool engine::is_of_a_file(const request& what, const range& extent) const noexcept {
  const auto behind = backing_of(extent, what.file);
  return behind > backing::program || (behind == backing::program && !options_.program_data);
}

request engine::for_one_lease(request what) noexcept {
  what.unshared = true;
  what.persistent = false;
  return what;
}

error engine::cannot_be_noted() noexcept {
  return {errc::out_of_resources, native_kind::none, 0, "no memory to note what is registered"};
}

void engine::tell(const core::leased_notices& notices) noexcept {
  for (const auto& one : notices.all()) {
    event what{event_kind::invalidated_while_leased, severity::warning};
    what.peer = one.peer;
    what.where = one.where;
    what.leases = one.leases;
    what.owner = one.owner;
    tell(what);
  }
}

}  // namespace pinfold::detail
