// SPDX-License-Identifier: BSD-3-Clause
#include "c/options.hpp"

#include "c/cache.hpp"
#include "c/callbacks.hpp"
#include "c/event.hpp"
#include "c/failure.hpp"
#include "c/structure.hpp"
#include "c/text.hpp"

#include <pinfold/node_budget.hpp>
#include <pinfold/settings.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <string>
#include <utility>

namespace pinfold::c {

namespace {

using std::chrono::milliseconds;

constexpr std::uint32_t cache_flags = 2 * PINFOLD_PUBLISH_STATISTICS - 1;
constexpr std::size_t options_size_in_0_2 = offsetof(pinfold_options, merge);
constexpr std::uint32_t all_monitors = PINFOLD_MONITOR_MANUAL | PINFOLD_MONITOR_HOOKS | PINFOLD_MONITOR_USERFAULTFD |
                                       PINFOLD_MONITOR_BPF | PINFOLD_MONITOR_NONE;

constexpr std::uint32_t flag_if(bool set, std::uint32_t flag) noexcept { return set ? flag : 0; }

pinfold_options options_in_c(const cache_options& from) noexcept {
  pinfold_options to{};
  to.size = sizeof to;
  copy_text(from.name, to.name, sizeof to.name);
  to.flags = flag_if(!from.retain, PINFOLD_NO_RETAIN) | flag_if(from.strict, PINFOLD_STRICT) |
             flag_if(from.allocator_hints, PINFOLD_ALLOCATOR_HINTS) | flag_if(from.program_data, PINFOLD_PROGRAM_DATA) |
             flag_if(from.closes == close_policy::deferred, PINFOLD_DEFERRED_CLOSES) |
             flag_if(from.reaper, PINFOLD_REAPER) | flag_if(from.entry_statistics, PINFOLD_ENTRY_STATISTICS) |
             flag_if(from.statistics_at_exit, PINFOLD_STATISTICS_AT_EXIT) |
             flag_if(from.trace_requests, PINFOLD_TRACE_REQUESTS) | flag_if(from.serial, PINFOLD_SERIAL) |
             flag_if(from.publish_statistics, PINFOLD_PUBLISH_STATISTICS);
  to.monitor = static_cast<std::uint32_t>(from.monitor);
  to.full = static_cast<std::uint32_t>(from.full);
  to.audit_one_in = from.audit_one_in;
  to.max_bytes = from.max_bytes;
  to.max_count = from.max_count;
  to.merge = static_cast<std::uint32_t>(from.merge);
  to.merge_limit = from.merge_limit;
  to.shards = from.shards;
  if (from.node_budget != nullptr) copy_text(from.node_budget->name(), to.node_budget, sizeof to.node_budget);
  to.idle_timeout_ms = static_cast<std::uint64_t>(from.idle_timeout.count());
  to.full_timeout_ms = static_cast<std::uint64_t>(from.full_timeout.count());
  to.conflict_timeout_ms = static_cast<std::uint64_t>(from.conflict_timeout.count());
  to.wait_timeout_ms = static_cast<std::uint64_t>(from.wait_timeout.count());
  to.drain_timeout_ms = static_cast<std::uint64_t>(from.drain_timeout.count());
  return to;
}

// The application's sink. The engine owns it, and may call it after the end of its cache.
struct c_sink {
  c_sink(const pinfold_options& from, const pinfold_cache* of)
      : sink(from.sink), self(from.sink_self), finished(from.sink_finished), cache(of), was_made(of->made) {}
  c_sink(const c_sink&) = delete;
  c_sink& operator=(const c_sink&) = delete;
  ~c_sink() {
    pinfold_error thrown{};
    if (finished == nullptr || !*was_made) return;  // without a cache the application still owns `self`
    static_cast<void>(called(cache, thrown, [&] { return finished(self), PINFOLD_OK; }));
  }

  void (*const sink)(void* self, const pinfold_event* event);
  void* const self;
  void (*const finished)(void* self);
  const pinfold_cache* const cache;
  const std::shared_ptr<const std::atomic<bool>> was_made;
};

// Years count as for ever.
milliseconds time_of(std::uint64_t count) noexcept {
  constexpr std::uint64_t most = std::uint64_t{1} << 40U;
  return milliseconds(static_cast<milliseconds::rep>(std::min(count, most)));
}

result<void> check(const pinfold_options& from) noexcept {
  if (std::memchr(from.name, 0, sizeof from.name) == nullptr)
    return fail(errc::invalid_argument, "the name does not end with a 0");
  if (std::memchr(from.node_budget, 0, sizeof from.node_budget) == nullptr)
    return fail(errc::invalid_argument, "`node_budget` does not end with a 0");
  if ((from.flags & ~cache_flags) != 0) return fail(errc::invalid_argument, "the options have an unknown flag");
  if ((from.monitor & ~all_monitors) != 0) return fail(errc::invalid_argument, "the options have an unknown monitor");
  if (from.full > PINFOLD_FULL_BYPASS) return fail(errc::invalid_argument, "`full` is not a PINFOLD_FULL_ number");
  if (from.merge > PINFOLD_MERGE_OVERLAPS)
    return fail(errc::invalid_argument, "`merge` is not a PINFOLD_MERGE_ number");
  if (from.shards > most_shards) return fail(errc::invalid_argument, "a cache has at most 64 `shards`");
  return {};
}

cache_options without_sink(const pinfold_options& from) {
  const auto has = [&](std::uint32_t flag) { return (from.flags & flag) != 0; };
  cache_options to;
  to.name = from.name;
  to.retain = !has(PINFOLD_NO_RETAIN);
  to.max_bytes = from.max_bytes;
  to.max_count = from.max_count;
  to.full = static_cast<when_full>(from.full);
  to.monitor = static_cast<monitor_choice>(from.monitor);
  to.strict = has(PINFOLD_STRICT);
  to.allocator_hints = has(PINFOLD_ALLOCATOR_HINTS);
  to.program_data = has(PINFOLD_PROGRAM_DATA);
  to.closes = has(PINFOLD_DEFERRED_CLOSES) ? close_policy::deferred : close_policy::immediate;
  to.reaper = has(PINFOLD_REAPER);
  to.merge = static_cast<merge_policy>(from.merge);
  to.merge_limit = from.merge_limit;
  to.shards = from.shards;
  to.serial = has(PINFOLD_SERIAL);
  to.idle_timeout = time_of(from.idle_timeout_ms);
  to.full_timeout = time_of(from.full_timeout_ms);
  to.conflict_timeout = time_of(from.conflict_timeout_ms);
  to.wait_timeout = time_of(from.wait_timeout_ms);
  to.drain_timeout = time_of(from.drain_timeout_ms);
  to.entry_statistics = has(PINFOLD_ENTRY_STATISTICS);
  to.statistics_at_exit = has(PINFOLD_STATISTICS_AT_EXIT);
  to.audit_one_in = from.audit_one_in;
  to.trace_requests = has(PINFOLD_TRACE_REQUESTS);
  to.publish_statistics = has(PINFOLD_PUBLISH_STATISTICS);
  return to;
}

result<pinfold_options> read_options(const pinfold_options* given) noexcept {
  pinfold_options known = options_in_c(cache_options{});
  if (!read(given, known, options_size_in_0_2))
    return fail(errc::invalid_argument, "the options have a wrong size or unknown members");
  if (auto right = check(known); !right) return tl::unexpected(right.error());
  return known;
}

// Opens the node's budget that the options name, if any.
result<cache_options> with_node_budget(cache_options to, const pinfold_options& from) {
  if (*from.node_budget == '\0') return to;
  auto opened = node_budget::open_text(from.node_budget);
  if (!opened) return tl::unexpected(opened.error());
  to.node_budget = *std::move(opened);
  return to;
}

// Changes the caller's options by `change`, which returns the new options, or an error.
template <class Change>
int change_options(pinfold_options* options, Change&& change) noexcept {
  int refused = PINFOLD_OK;
  const int code = guarded([&]() -> result<void> {
    auto known = read_options(options);
    if (!known) return tl::unexpected(known.error());
    auto before = with_node_budget(without_sink(*known), *known);
    if (!before) return tl::unexpected(before.error());
    auto changed = change(*std::move(before));
    if (!changed) {
      refused = refuse_at(changed.error().where, changed.error().cause);
      return {};
    }
    if (changed->name.size() >= sizeof known->name) return fail(errc::invalid_argument, "the name is too long");
    pinfold_options fresh = options_in_c(*changed);
    fresh.sink = known->sink;
    fresh.sink_self = known->sink_self;
    fresh.sink_finished = known->sink_finished;
    static_cast<void>(write(fresh, options, options_size_in_0_2));
    return {};
  });
  return code == PINFOLD_OK ? refused : code;
}

}  // namespace

result<cache_options> as_cpp(const pinfold_options* given, const pinfold_cache* cache) {
  if (given == nullptr) return cache_options{};
  auto known = read_options(given);
  if (!known) return tl::unexpected(known.error());
  auto converted = with_node_budget(without_sink(*known), *known);
  if (!converted || known->sink == nullptr) return converted;
  converted->sink = [to = std::make_shared<c_sink>(*known, cache)](const event& what) {
    const callback inside(to->cache);
    send(what, to->sink, to->self);
  };
  return converted;
}

}  // namespace pinfold::c

extern "C" {

int pinfold_options_init(pinfold_options* options, size_t size) {
  using namespace pinfold;
  if (options == nullptr || size < c::options_size_in_0_2 || size > c::longest_structure)
    return c::refuse(errc::invalid_argument, "the options are null, or of another size than any version's");
  return c::guarded([&]() -> result<void> {
    const auto defaults = c::options_in_c(cache_options{});
    std::memset(static_cast<void*>(options), 0, size);
    std::memcpy(options, &defaults, std::min(size, sizeof defaults));
    options->size = size;
    return {};
  });
}

int pinfold_options_from_environment(pinfold_options* options) {
  return pinfold::c::change_options(
      options, [](pinfold::cache_options base) { return pinfold::options_from_environment(std::move(base)); });
}

int pinfold_options_from_text(pinfold_options* options, const char* text) {
  if (text == nullptr) return pinfold::c::refuse(pinfold::errc::invalid_argument, "the text is null");
  return pinfold::c::change_options(options, [text](pinfold::cache_options base) {
    return pinfold::options_from_text(text, "text", std::move(base));
  });
}

}  // extern "C"
