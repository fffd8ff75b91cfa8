// SPDX-License-Identifier: BSD-3-Clause
// `pinfold watch`: the events of one process as they happen.
#include "cli/failure.hpp"
#include "cli/output.hpp"
#include "cli/page_failure.hpp"
#include "cli/page_folder.hpp"
#include "commands.hpp"
#include "watch/lines.hpp"
#include "watch/symbols.hpp"

#include <pinfold/error.hpp>
#include <pinfold/observation/reader.hpp>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace tool {
namespace {

using namespace std::chrono_literals;
using pinfold::observation::driver_call;
using pinfold::observation::event_id;
using pinfold::observation::event_reader;
using pinfold::observation::event_record;
using std::chrono::steady_clock;

struct watch_command {
  std::size_t process = 0;
  std::vector<std::string> kinds;
  std::size_t limit = 0;  // 0: none
  double seconds = 0;     // 0: without end
  bool stacks = false;
  bool oldest = false;
  bool as_json = false;
};

std::int64_t now_ns(clockid_t which) {
  timespec now{};
  ::clock_gettime(which, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

std::string page_of(std::size_t process, const page_folder& in) {
  auto found = pinfold::observation::find_page(in.path, static_cast<int>(process), in.owner);
  if (!found && found.error() == pinfold::errc::invalid_handle) throw failure(no_page(process, in.path));
  return need(std::move(found), in.path);
}

std::optional<driver_call> failed_call(const event_record& one) {
  switch (static_cast<event_id>(one.kind)) {
    case event_id::open_failed: return driver_call::open;
    case event_id::close_failed: return driver_call::close;
    case event_id::not_kept: return driver_call::monitor;
    case event_id::request_failed: return driver_call::acquire;
    default: return std::nullopt;
  }
}

/// Reads the events of one page and prints those that are wanted.
class watcher {
 public:
  explicit watcher(const watch_command& command)
      : command_(command),
        folder_(find_page_folder({command.process})),
        path_(page_of(command.process, folder_)),
        reader_(need(event_reader::open(path_, command.oldest, folder_.owner), path_)) {
    if (command_.stacks) names_.emplace(static_cast<pid_t>(command_.process));
  }

  void run() {
    read_caches();
    if (killed_ && !command_.oldest) throw failure(how_it_ended() + "; --oldest shows its last events");
    if (command_.seconds > 0)
      end_ = steady_clock::now() +
             std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(command_.seconds));
    while (true) {
      if (command_.stacks) ask_for_stacks();
      const bool last = killed_ || has_ended();  // before the events: what it wrote until then is read
      print_new();
      if (last && !done_) fmt::print(stderr, "pinfold watch: {}\n", how_it_ended());
      if (done_ || last || is_over()) return;
      std::this_thread::sleep_for(between_looks);
    }
  }

 private:
  static constexpr std::size_t most_names = 1024;
  static constexpr auto between_looks = 50ms;
  static constexpr auto between_requests = 1s;
  static constexpr auto stacks_for = 3s;  // the process stops taking them soon after the last reader has gone

  void ask_for_stacks() {
    if (steady_clock::now() - asked_at_ < between_requests) return;
    asked_at_ = steady_clock::now();
    need(reader_.want_stacks(stacks_for), path_);
  }

  // A page that is no longer there belongs to a program that exited.
  [[nodiscard]] std::string how_it_ended() const {
    return fmt::format("process {} {}", command_.process,
                       killed_ ? "was killed, or crashed, or executed another program" : "exited");
  }

  [[nodiscard]] bool is_over() const { return steady_clock::now() >= end_; }

  [[nodiscard]] bool has_ended() { return steady_clock::now() - looked_at_ >= 500ms && !read_caches(); }

  // Returns whether the process runs.
  bool read_caches() {
    looked_at_ = steady_clock::now();
    read_since_ = true;
    auto page = pinfold::observation::read_page(path_, folder_.owner);
    if (!page) return false;
    if (caches_.size() > most_names) caches_.clear();  // the process writes the page, and may number caches at will
    for (auto& one : page->caches) caches_[one.number] = std::move(one);
    killed_ = page->state == pinfold::observation::process_state::ended;
    return !killed_;
  }

  void print_new() {
    const auto lost = reader_.lost();
    const auto events = need(reader_.read(), path_);
    if (reader_.lost() != lost) say_lost(reader_.lost() - lost);
    read_since_ = false;
    if (std::ranges::any_of(events, [](const auto& one) { return failed_call(one.record).has_value(); })) read_caches();
    for (const auto& one : events) {
      if (done_ || (names_ && is_over())) break;  // names may take long
      if (!is_wanted(one)) continue;
      print(one);
      done_ = ++printed_ == command_.limit;
    }
    if (std::ferror(stdout) != 0) throw failure("standard output cannot be written");
  }

  void say_lost(std::uint64_t count) const {
    if (command_.as_json)
      fmt::print("{{\"lost\":{}}}\n", count);
    else
      fmt::print("{} events were overwritten before they were read\n", count);
  }

  [[nodiscard]] bool is_wanted(const pinfold::observation::page_event& one) const {
    const auto* const name = name_of(static_cast<pinfold::observation::event_id>(one.record.kind));
    return command_.kinds.empty() || std::ranges::find(command_.kinds, name) != command_.kinds.end();
  }

  void print(const pinfold::observation::page_event& one) {
    const auto age = now_ns(CLOCK_MONOTONIC) - static_cast<std::int64_t>(one.record.time);
    const watch::shown_event shown{one, name_of_cache(one.record.cache),
                                   names_ ? names_->name(one.stack) : std::vector<std::string>{},
                                   now_ns(CLOCK_REALTIME) - age, reason_of(one.record)};
    fmt::print("{}", command_.as_json ? as_json(shown) : as_text(shown));
  }

  [[nodiscard]] std::string name_of_cache(std::uint32_t number) {
    if (number == 0) return "";
    // Once for all events that were read before: the process may make up numbers.
    if (!caches_.contains(number) && !read_since_) read_caches();
    const auto found = caches_.find(number);
    return found != caches_.end() ? found->second.name : fmt::format("cache {}", number);
  }

  // The page has the reasons of the last eight failures of each cache. The reason of an earlier one, whose event was
  // read late, is that of another failure of the same call with the same native code.
  [[nodiscard]] std::string reason_of(const event_record& one) const {
    const auto cache = caches_.find(one.cache);
    const auto call = failed_call(one);
    if (!call || cache == caches_.end()) return "";
    const auto is_like_it = [&](const pinfold::observation::error_record& failed) {
      return failed.call == static_cast<std::uint32_t>(*call) && failed.native == one.native;
    };
    const auto is_it = [&](const pinfold::observation::error_record& failed) {
      constexpr std::uint64_t second = 1'000'000'000;  // it was written before the event
      return is_like_it(failed) && failed.begin == one.begin && failed.end == one.end &&
             one.time - failed.time < second;
    };
    const auto& errors = cache->second.errors;
    auto found = std::find_if(errors.rbegin(), errors.rend(), is_it);
    if (found == errors.rend() && one.native != 0) found = std::find_if(errors.rbegin(), errors.rend(), is_like_it);
    return found == errors.rend() ? "" : pinfold::describe(error_of(*found));
  }

  const watch_command& command_;
  const page_folder folder_;
  const std::string path_;
  event_reader reader_;
  std::optional<watch::symbols> names_;
  std::map<std::uint32_t, pinfold::observation::cache_snapshot> caches_;
  steady_clock::time_point end_ = steady_clock::time_point::max();
  steady_clock::time_point asked_at_{};
  steady_clock::time_point looked_at_{};
  std::size_t printed_ = 0;
  bool done_ = false;
  bool read_since_ = false;  // the page, since the last events
  bool killed_ = false;      // as its page says
};

}  // namespace

void add_watch(CLI::App& app, action& chosen) {
  constexpr std::size_t most_processes = 4194304;  // PID_MAX_LIMIT
  constexpr double longest = 86400;
  auto command = std::make_shared<watch_command>();
  auto* own = app.add_subcommand("watch", "Shows live what happens in the caches of a process, and what causes it");
  own->add_option("process", command->process, "the id of the process")
      ->required()
      ->check(CLI::Range(std::size_t{1}, most_processes));
  own->add_flag("--stacks", command->stacks, "show the call stacks of threads that unmap registered memory");
  own->add_option("--kind", command->kinds, "show only events of these kinds, with commas between them")
      ->delimiter(',')
      ->check(CLI::IsMember(watch::kinds()));
  own->add_flag("--oldest", command->oldest, "begin with the oldest event on the page, not with the next");
  own->add_option("--limit", command->limit, "end after this many events; 0: never")->capture_default_str();
  own->add_option("--seconds", command->seconds, "end after this time")->check(CLI::Range(0.0, longest))->duration(1s);
  own->add_flag("--json", command->as_json, "print a line of JSON for each event");
  own->footer(
      "A process publishes with PINFOLD_STATS=on in its environment, or with cache_options::publish_statistics. The "
      "page of a killed process can be read too, with --oldest. The command ends when the process does.\n"
      "`gone` is memory that a monitor saw go; `invalidated` and `evicted` are registrations; `replaced` is a stale "
      "import that was not handed out. With --stacks the process takes the stack of each unmap that touches "
      "registered memory, for as long as the command runs.");
  own->callback([command, &chosen] {
    chosen = [command] {
      watcher(*command).run();
      return success;
    };
  });
}

}  // namespace tool
