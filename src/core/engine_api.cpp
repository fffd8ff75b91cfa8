// SPDX-License-Identifier: BSD-3-Clause
// The functions by which caches call the engine.
#include "core/engine.hpp"
#include "invalidation/background_open.hpp"
#include "monitors/selection/selection.hpp"
#include "observation/environment.hpp"
#include "os/backing.hpp"
#include "os/no_cancellation.hpp"
#include "os/size_limit.hpp"

#include <pinfold/cache_base.hpp>
#include <pinfold/dump_on_signal.hpp>
#include <pinfold/trace_file.hpp>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

namespace pinfold::detail {

namespace {

// In a child of fork(2) the parent's registrations are neither used nor torn down (R37), and its mutex may be held by a
// thread that the child does not have.
bool here(const engine* on) noexcept { return on != nullptr && on->here(); }

error closed_here(const engine* on) noexcept {
  return {errc::closed, native_kind::none, 0,
          on == nullptr ? "this cache was moved from" : "this cache belongs to the parent process"};
}

static_assert(token_offset(imported_object_offset, sizeof(registration)) + max_handle_bytes <= index::largest_stride);

// Once for the process, as the environment does not change. Threads do not wait for the thread that does it, which a
// child of fork(2) may not have.
void dump_on_signal_if_wanted() {
  static std::atomic<bool> begun{false};
  if (begun.exchange(true, std::memory_order_seq_cst)) return;
  const auto done = dump_on_signal_by_environment();
  if (done) return;
  const auto why = describe(done.error());
  os::to_the_program([&] {
    return std::fprintf(stderr, "pinfold: PINFOLD_DUMP_SIGNAL=%s: %s; no signal causes a dump\n",
                        ::secure_getenv("PINFOLD_DUMP_SIGNAL"), why.c_str());
  });
}

bool fits_in_record(const driver& table) noexcept {
  return table.object_bytes <= sizeof(registration) && table.token_bytes <= max_handle_bytes;
}

}  // namespace

// Every function that may wait or call a driver, a monitor or a sink first disables cancellation (`no_cancellation`):
// it is noexcept, or calls functions that are. The exceptions: `look_up`, and `acquire` if a plain miss meets no
// cancellation point.

void engine_closer::operator()(engine* closing) const noexcept {
  const no_cancellation guard;
  if (closing->here()) engine::shut_down(closing);
}

engine_handle make_engine(const driver& table, cache_options options, std::shared_ptr<void> backend) {
  const no_cancellation guard;
  if (!fits_in_record(table)) throw std::invalid_argument("pinfold: the driver's handle or object type is too large");
  dump_on_signal_if_wanted();
  auto with = traced_by_environment(std::move(options));
  with.publish_statistics = with.publish_statistics || observation::wanted_by_environment();
  if (table.token_bytes > 0) {
    engine_handle made(engine::make(table, std::move(with), {}, std::move(backend)));
    made->watch_exporters();
    return made;
  }
  auto chosen = monitors::choose(with.monitor, with.retain && with.allocator_hints);
  with.strict = with.strict || chosen.strict;
  return engine_handle(engine::make(table, std::move(with),
                                    {chosen.set, chosen.keeps, std::move(chosen.text), std::move(chosen.hints)},
                                    std::move(backend)));
}

bool keeps(const engine* on) noexcept { return on != nullptr && on->keeps(); }
std::string monitors_of(const engine* on) { return on == nullptr ? "none: the cache was moved from" : on->monitors(); }
result<void> usable(const engine* on) noexcept { return here(on) ? result<void>{} : tl::unexpected(closed_here(on)); }
void throw_moved_from() { throw std::logic_error("pinfold: this cache was moved from"); }

const hit_view& hits_of(const engine* on) noexcept { return on == nullptr ? engine::no_hits() : on->inline_view(); }

grant look_up(engine* on, std::uintptr_t begin, std::uintptr_t end, access_flags need) noexcept {
  return on == nullptr ? grant{} : on->look_up(begin, end, need);
}
grant look_up(engine* on, peer_id peer, range wanted, const void* token) noexcept {
  return on == nullptr ? grant{} : on->look_up(peer, wanted, token);
}
grant look_up(engine* on, const request& what) noexcept { return on == nullptr ? grant{} : on->look_up(what); }
result<grant> acquire(engine* on, const request& what) noexcept {
  if (!here(on)) [[unlikely]]
    return tl::unexpected(closed_here(on));
  const bool unguarded = on->meets_no_cancellation_point() && what.file < 0;
  result<grant> granted;
  if (unguarded && on->plain_miss(what, granted)) [[likely]]
    return granted;
  const no_cancellation guard;
  if (unguarded) {
    granted = on->acquire_generally(what);
  } else if (const auto right = what.file < 0 ? result<void>{} : check_file(what.wanted, what.file); !right) {
    granted = tl::unexpected(right.error());
  } else {
    granted = on->acquire(what);
  }
  return granted;
}
result<grant> acquire_in_background(engine* on, const request& what) noexcept {
  const invalidation::background_open now;
  return acquire(on, what);
}
void acquire_group(engine* on, std::span<const request> what, std::span<result<grant>> granted) noexcept {
  const no_cancellation guard;
  if (here(on)) return on->acquire_group(what, granted);
  for (auto& one : granted) one = tl::unexpected(closed_here(on));
}
grant find(engine* on, const request& what) noexcept {
  const no_cancellation guard;
  return here(on) ? on->find(what) : grant{};
}
result<void> finish_release(const record* unpinned) noexcept {
  const no_cancellation guard;
  return engine::finish_release(unpinned, asked_by::acquire, engine::by_lease);
}
pin pin_again(pin held) noexcept {
  const no_cancellation guard;
  return engine::pin_again(held);
}
void invalidate(engine* on, peer_id peer, range gone) noexcept {
  const no_cancellation guard;
  if (here(on)) on->invalidate(peer, gone);
}
void mark_stale(engine* on, range where) noexcept {
  const no_cancellation guard;
  if (here(on)) on->mark_stale(where);
}
bool is_leased(const engine* on, const range& memory) noexcept {
  const no_cancellation guard;
  return here(on) && on->is_leased({}, memory);
}
void unpersist(engine* on, peer_id peer, range where) noexcept {
  const no_cancellation guard;
  if (here(on)) on->unpersist(peer, where);
}
result<void> drop_peer(engine* on, peer_id peer) noexcept {
  const no_cancellation guard;
  return here(on) ? on->drop(peer, {0, UINTPTR_MAX}) : tl::unexpected(closed_here(on));
}
result<void> flush(engine* on) noexcept {
  const no_cancellation guard;
  return here(on) ? on->flush() : tl::unexpected(closed_here(on));
}
result<void> quiesce(engine* on) noexcept {
  const no_cancellation guard;
  return here(on) ? on->quiesce() : tl::unexpected(closed_here(on));
}
result<void> progress(engine* on) noexcept {
  const no_cancellation guard;
  return here(on) ? on->progress() : tl::unexpected(closed_here(on));
}
std::size_t evict(engine* on, std::size_t most) noexcept {
  const no_cancellation guard;
  return here(on) ? on->evict(most) : 0;
}
engine_limits limits_of(const engine* on) noexcept {
  if (on == nullptr) return {};
  const auto& options = on->options();
  return {options.max_bytes, options.max_count, options.wait_timeout};
}
std::uint64_t this_process() noexcept { return invalidation::event_log::here().process(); }
statistics read_statistics(const engine* on) noexcept { return on == nullptr ? statistics{} : on->read_statistics(); }
std::vector<entry_info> dump(const engine* on) { return here(on) ? on->dump() : std::vector<entry_info>{}; }

}  // namespace pinfold::detail

namespace pinfold {

bool close_idle_in_process(const char* registrar, const range& memory) noexcept {
  const detail::no_cancellation guard;
  return registrar != nullptr && !memory.empty() && core::neighbour::close_idle(registrar, memory, nullptr);
}

}  // namespace pinfold
