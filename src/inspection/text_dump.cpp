// SPDX-License-Identifier: BSD-3-Clause
#include "inspection/text_dump.hpp"

#include "os/size_limit.hpp"

#include <pinfold/statistics.hpp>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

namespace pinfold::inspection {

namespace {

constexpr std::size_t longest_line = 1000;

std::uint32_t now_in(std::uint32_t ticks_per_second) noexcept {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return static_cast<std::uint32_t>(now.tv_sec * ticks_per_second + now.tv_nsec * ticks_per_second / 1'000'000'000);
}

template <std::size_t N>
void add_flags(text<N>& to, const seen_entry& of) noexcept {
  const std::pair<bool, std::string_view> flags[] = {
      {of.persistent, "persistent"}, {of.bypass, "bypass"}, {of.unshared, "unshared"}, {of.doomed, "doomed"},
      {of.in_driver, "in_driver"},   {of.stale, "stale"},   {of.hittable, "hittable"},
  };
  char between = '=';
  to << " flags";
  for (const auto& [set, name] : flags) {
    if (!set) continue;
    to << between << name;
    between = ',';
  }
  if (between == '=') to << "=-";
}

const char* outcome_text(walk::outcome of) noexcept {
  switch (of) {
    case walk::outcome::done: return "done";
    case walk::outcome::not_a_table: return "not_a_table";
    case walk::outcome::other_version: return "other_version";
    case walk::outcome::unfinished: break;
  }
  return "unfinished";
}

}  // namespace

std::string_view access_letters(std::uint8_t access, text<8>& into) noexcept {
  constexpr std::string_view letters = "rwRWA";
  into.clear();
  for (std::size_t bit = 0; bit < letters.size(); ++bit)
    if ((access >> bit & 1U) != 0) into << letters[bit];
  if (into.view().empty()) into << '-';
  return into.view();
}

void text_dump::write(int to, std::uintptr_t table, int signal) noexcept {
  to_ = to;
  process_ = static_cast<int>(::syscall(SYS_getpid));
  out_.clear();
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  out_ << "dump process=" << process_ << " thread=" << ::syscall(SYS_gettid) << " signal=" << signal
       << " time=" << std::int64_t{now.tv_sec} << '\n';
  memory own(0);
  if (own.failure() != 0) {
    out_ << "dump_end outcome=unreadable errno=" << own.failure() << '\n';
  } else {
    const auto outcome = walk_.over(own, table, *this);
    begin_line();
    out_ << "dump_end outcome=" << outcome_text(outcome) << '\n';
  }
  flush();
}

void text_dump::cache(const seen_cache& found) noexcept {
  const auto& about = found.about;
  ticks_per_second_ = found.ticks_per_second;
  begin_line();
  add_name("cache name", about.name);
  add_name(" registrar", about.registrar);
  out_ << " imports=" << int{about.imports} << " ended=" << (found.ended ? 1 : 0)
       << " of_parent=" << (found.of_parent ? 1 : 0) << " retain=" << int{about.retain} << " bytes=" << found.bytes
       << " max_bytes=" << about.max_bytes << " count=" << found.count << " max_count=" << about.max_count
       << " shards=" << about.shard_count << " locked_shards=" << found.locked_shards << '\n';
  begin_line();
  out_ << "counters";
  found.for_each_counter([&](std::string_view name, std::uint64_t value) {
    begin_line();
    out_ << ' ' << name.substr(0, 64) << '=' << value;
  });
  begin_line();
  out_ << "\nremembered cold=" << found.closed[0] << " invalidated=" << found.closed[1] << " access=" << found.closed[2]
       << " extent=" << found.closed[3] << " evicted=" << found.closed[4] << '\n';
}

void text_dump::entry(const seen_entry& found) noexcept {
  begin_line();
  text<8> letters;
  const auto state = static_cast<entry_state>(found.state);
  const bool opening = state == entry_state::opening;
  const auto passed = static_cast<std::int32_t>(now_in(ticks_per_second_) - found.opened_at);
  const auto age_ms = opening ? 0 : std::int64_t{std::max(passed, 0)} * 1000 / ticks_per_second_;
  // Signal 0 is not delivered: the kernel only checks whether the thread exists.
  const bool lives = ::syscall(SYS_tgkill, process_, found.owner, 0) == 0;
  out_ << "entry " << hex{found.begin} << '-' << hex{found.end} << " bytes=" << found.bytes
       << " state=" << name_of(state) << " access=" << access_letters(found.access, letters)
       << " leases=" << std::max<std::int64_t>(0, found.pins + (opening ? 1 : 0)) << " hits=" << found.hits
       << " age_ms=" << age_ms << " owner=" << found.owner << " owner_lives=" << (lives ? 1 : 0);
  if (found.peer != 0 || found.data != found.begin) out_ << " peer=" << found.peer << " data=" << hex{found.data};
  add_flags(out_, found);
  out_ << '\n';
}

void text_dump::end(bool complete) noexcept {
  begin_line();
  out_ << "cache_end complete=" << (complete ? 1 : 0) << '\n';
}

void text_dump::begin_line() noexcept {
  if (out_.room() < longest_line) flush();
}

// Adds the name in quotes. Replaces characters that could end the name or the line.
void text_dump::add_name(std::string_view key, std::string_view name) noexcept {
  out_ << key << "=\"";
  for (const char one : name) out_ << (one < ' ' || one == '"' || one == '\\' || one == '\x7f' ? '?' : one);
  out_ << '"';
}

void text_dump::flush() noexcept {
  auto left = out_.view();
  while (!left.empty()) {
    const auto written = os::to_the_program([&] { return ::syscall(SYS_write, to_, left.data(), left.size()); });
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    left.remove_prefix(static_cast<std::size_t>(written));
  }
  out_.clear();
}

}  // namespace pinfold::inspection
