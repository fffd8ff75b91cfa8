// SPDX-License-Identifier: BSD-3-Clause
// The ring of events. Written on any thread and in signal handlers.
#include "observation/clock.hpp"
#include "observation/page.hpp"
#include "observation/words.hpp"

#include <cerrno>
#include <execinfo.h>
#include <unistd.h>

namespace pinfold::observation {

// Calls backtrace(3) once, because its first call loads a library, which allocates.
void page::prepare_stacks() noexcept {
  std::array<void*, 1> frame{};
  static_cast<void>(::backtrace(frame.data(), 1));
}

void page::add_event(event_id kind, std::uint32_t cache, const event_details& what) noexcept {
  const auto number = add(header().events_written);
  auto& to = *reinterpret_cast<event_record*>(memory_ + events_from + number % most_events * sizeof(event_record));
  event_record made{};
  made.mark = number + 1;
  made.time = now_ns();
  made.begin = what.where.begin;
  made.end = what.where.end;
  made.value = what.value;
  made.kind = static_cast<std::uint32_t>(kind);
  made.cache = cache;
  made.thread = ::gettid();
  made.native = what.native;
  made.stack = what.stack;
  made.check = check_of(made);
  write_marked(to, number, [&] {
    set(to.time, made.time);
    set(to.begin, made.begin);
    set(to.end, made.end);
    set(to.value, made.value);
    set(to.kind, made.kind);
    set(to.cache, made.cache);
    set(to.thread, made.thread);
    set(to.native, made.native);
    set(to.stack, made.stack);
    set(to.check, made.check);
  });
}

void page::add_gone(const range& where, gone_source from) noexcept {
  const int before = errno;
  event_details what{where};
  what.native = static_cast<std::int32_t>(from);
  const bool by_caller = from == gone_source::program || from == gone_source::hooks;
  if (by_caller && now_ns() < get(header().stacks_until)) what.stack = take_stack();
  add_event(event_id::gone, 0, what);
  errno = before;
}

// Returns the number of the stack plus 1.
std::uint32_t page::take_stack() noexcept {
  constexpr int own_frames = 4;  // of the page and the event log; a compiler may omit some
  std::array<void*, deepest_stack + own_frames> frames{};
  const int depth = ::backtrace(frames.data(), static_cast<int>(frames.size()));
  const auto number = add(header().stacks_written);
  auto& to = *reinterpret_cast<stack_record*>(memory_ + stacks_from + number % most_stacks * sizeof(stack_record));
  write_marked(to, number, [&] {
    std::uint64_t count = 0;
    for (int i = 1; i < depth && count < deepest_stack; ++i)
      set(to.frames[count++], reinterpret_cast<std::uint64_t>(frames[static_cast<std::size_t>(i)]));
    set(to.depth, count);
  });
  return static_cast<std::uint32_t>(number + 1);
}

}  // namespace pinfold::observation
