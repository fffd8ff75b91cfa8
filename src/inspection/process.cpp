// SPDX-License-Identifier: BSD-3-Clause
#include "inspection/process.hpp"

#include <charconv>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

namespace pinfold::inspection {

namespace {

std::string proc(int process) { return "/proc/" + std::to_string(process); }

std::int32_t last_number(std::string_view line) noexcept {
  const auto last = line.substr(line.find_last_of(" \t") + 1);
  std::int32_t number = 0;
  std::from_chars(last.data(), last.data() + last.size(), number);
  return number;
}

struct thread_status {
  std::int32_t id = 0;  ///< in the innermost namespace
  bool stopped = false;
  bool ended = false;
};

thread_status status_of(const std::filesystem::path& thread) {
  std::ifstream lines(thread / "status");
  thread_status found;
  for (std::string line; std::getline(lines, line);) {
    const std::string_view one(line);
    if (one.starts_with("State:")) {
      found.stopped = one.find("(stopped)") < one.size() || one.find("tracing") < one.size();
      found.ended = one.find("(zombie)") < one.size() || one.find("(dead)") < one.size();
    }
    if (one.starts_with("Pid:") || one.starts_with("NSpid:")) found.id = last_number(one);
  }
  return found;
}

}  // namespace

threads threads_of(int process) {
  threads found{{}, true};
  std::error_code none;
  for (std::filesystem::directory_iterator each(proc(process) + "/task", none), end; !none && each != end;
       each.increment(none)) {
    const auto one = status_of(each->path());
    if (one.id == 0 || one.ended) continue;
    found.ids.insert(one.id);
    found.all_stopped = found.all_stopped && one.stopped;
  }
  found.all_stopped = found.all_stopped && !found.ids.empty();
  return found;
}

int thread_that_runs(int process) {
  if (!status_of(proc(process)).ended) return process;
  std::error_code none;
  for (std::filesystem::directory_iterator each(proc(process) + "/task", none), end; !none && each != end;
       each.increment(none)) {
    if (!status_of(each->path()).ended) return last_number(each->path().filename().string());
  }
  return process;
}

std::string command_of(int process) {
  std::ifstream file(proc(process) + "/comm");
  std::string name;
  std::getline(file, name);
  return name;
}

}  // namespace pinfold::inspection
