// SPDX-License-Identifier: BSD-3-Clause
#include "observation/cache_page.hpp"

#include "observation/clock.hpp"
#include "observation/text.hpp"
#include "observation/words.hpp"
#include "os/size_limit.hpp"

#include <pinfold/observation/reader.hpp>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <string>

namespace pinfold::observation {

namespace {

constexpr std::chrono::nanoseconds slow = std::chrono::milliseconds(100);

std::uint64_t count_of(std::chrono::nanoseconds took) noexcept {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(took.count(), 0));
}

// Prints once in a process: its other caches fail in the same way.
void print_once(const error& why) {
  static constinit std::atomic<bool> printed{false};
  if (printed.exchange(true, std::memory_order_seq_cst)) return;
  const auto folder = page_directory();
  const auto text = describe(why);
  os::to_the_program(
      [&] { return std::fprintf(stderr, "pinfold: no statistics page in %s: %s\n", folder.c_str(), text.c_str()); });
}

// Replaces the fastest of the recorded slow calls. Two threads at once may lose one of their calls.
void keep_if_slow(std::array<slow_call, most_slow_calls>& all, const range& where, std::uint64_t took) noexcept {
  slow_call* fastest = &all[0];
  for (auto& one : all)
    if (get(one.duration) < get(fastest->duration)) fastest = &one;
  auto before = get(fastest->duration);
  if (before >= took) return;
  if (!std::atomic_ref(fastest->duration).compare_exchange_strong(before, took, std::memory_order_relaxed)) return;
  set(fastest->time, now_ns());
  set(fastest->begin, std::uint64_t{where.begin});
  set(fastest->end, std::uint64_t{where.end});
}

}  // namespace

std::unique_ptr<cache_page> cache_page::make(const cache_description& of) {
  const auto on = page::here();
  if (!on) return print_once(on.error()), nullptr;
  cache_slot* const at = (*on)->take_slot();
  std::unique_ptr<cache_page> made(new cache_page(**on, at));
  if (at == nullptr) return made;
  at->number = made->number_;
  at->shards = static_cast<std::uint32_t>(of.shards);
  at->max_bytes = of.max_bytes;
  at->max_count = of.max_count;
  at->made_at = now_ns();
  at->driver_serial = of.serial ? 1 : 0;
  put(at->name, of.name);
  put(at->kind, of.kind);
  put(at->monitors, of.monitors);
  return made;
}

cache_page::cache_page(page& on, cache_slot* at) noexcept : page_(on), slot_(at), number_(on.next_number()) {
  if (slot_ == nullptr) page_.count_unlisted(true);
}

cache_page::~cache_page() { slot_ != nullptr ? page_.give_back(slot_) : page_.count_unlisted(false); }

void cache_page::start(const counter_source& from) noexcept {
  if (slot_ == nullptr) return;
  const auto started = page_.list(*slot_, from);
  listed_ = started.has_value();
  if (!started) print_once(started.error());
}

void cache_page::stop() noexcept {
  if (listed_) page_.unlist(*slot_);
  listed_ = false;
}

void cache_page::missed(std::uint64_t bytes, nanoseconds took) noexcept {
  if (slot_ != nullptr) record(slot_->misses[size_class_of(bytes)], count_of(took));
}

void cache_page::acquire_failed(const range& wanted, const error& why) noexcept {
  failed(driver_call::acquire, wanted, why);
  add_event(event_id::request_failed, {wanted, 0, why.native});
}

void cache_page::waited(nanoseconds took) noexcept {
  if (slot_ != nullptr) record(slot_->waits, count_of(took));
}

void cache_page::called(std::array<histogram, size_classes>& to, std::array<slow_call, most_slow_calls>& slowest,
                        const range& where, nanoseconds took) noexcept {
  record(to[size_class_of(where.size())], count_of(took));
  keep_if_slow(slowest, where, count_of(took));
  if (took >= slow) add_event(event_id::slow_call, {where, count_of(took)});
}

void cache_page::opened(const range& where, nanoseconds took, const error* failure) noexcept {
  if (slot_ != nullptr) called(slot_->opens, slot_->slowest_opens, where, took);
  if (failure == nullptr) return;
  failed(driver_call::open, where, *failure);
  add_event(event_id::open_failed, {where, count_of(took), failure->native});
}

void cache_page::closed(const range& where, nanoseconds took, const error* failure) noexcept {
  if (slot_ != nullptr) called(slot_->closes, slot_->slowest_closes, where, took);
  if (failure == nullptr) return;
  failed(driver_call::close, where, *failure);
  add_event(event_id::close_failed, {where, count_of(took), failure->native});
}

void cache_page::evicted(nanoseconds age, std::uint64_t hits) noexcept {
  if (slot_ == nullptr) return;
  record(slot_->age_at_eviction, count_of(age));
  record(slot_->hits_of_evicted, std::min<std::uint64_t>(hits, UINT64_MAX / 128) * 128);
}

void cache_page::evicted_idle(nanoseconds idle) noexcept {
  if (slot_ != nullptr) record(slot_->idle_at_eviction, count_of(idle));
}

void cache_page::failed(driver_call call, const range& where, const error& why) noexcept {
  if (slot_ == nullptr) return;
  const auto number = add(slot_->errors_written);
  auto& to = slot_->errors[number % most_errors];
  write_marked(to, number, [&] {
    set(to.time, now_ns());
    set(to.begin, std::uint64_t{where.begin});
    set(to.end, std::uint64_t{where.end});
    set(to.call, static_cast<std::uint32_t>(call));
    set(to.code, static_cast<std::uint32_t>(why.code));
    set(to.native_kind, static_cast<std::uint32_t>(why.kind));
    set(to.native, why.native);
    const std::string_view text(why.message);
    for (std::size_t i = 0; i < to.message.size(); ++i)
      set(to.message[i], i < std::min(text.size(), to.message.size() - 1) ? text[i] : '\0');
  });
}

void cache_page::add_event(event_id kind, const event_details& what) noexcept { page_.add_event(kind, number_, what); }

}  // namespace pinfold::observation
