// SPDX-License-Identifier: BSD-3-Clause
#include "cli/settings.hpp"

#include "cli/failure.hpp"

#include <pinfold/settings.hpp>

#include <fmt/format.h>
#include <utility>

namespace tool {
namespace {

using outcome = tl::expected<pinfold::cache_options, pinfold::settings_error>;

pinfold::cache_options checked(outcome options) {
  if (!options) {
    throw usage_failure(fmt::format("{}: {}", options.error().where, pinfold::describe(options.error().cause)));
  }
  return *std::move(options);
}

// A flag is read as the setting of the same meaning, so both accept the same words.
void apply(pinfold::cache_options& options, const char* flag, const char* setting,
           const std::optional<std::string>& value) {
  if (!value) return;
  const auto text = fmt::format("{}={}", setting, *value);
  auto changed = pinfold::options_from_text(text, flag, options);
  if (!changed) throw usage_failure(fmt::format("{} {}: {}", flag, *value, changed.error().cause.message));
  options = *std::move(changed);
}

}  // namespace

pinfold::cache_options options_of_environment() { return checked(pinfold::options_from_environment()); }

void check_environment() { static_cast<void>(options_of_environment()); }

pinfold::monitor_choice monitors_named(const std::string& word) {
  pinfold::cache_options options;
  apply(options, "--monitors", "PINFOLD_MONITOR", word);
  return options.monitor;
}

void cache_flags::add_to(CLI::App& command) {
  auto* keep = command.add_flag_callback("--retain", [this] { retain_ = true; }, "keep unused registrations");
  command.add_flag_callback(
             "--no-retain", [this] { retain_ = false; }, "close registrations at their last release")
      ->excludes(keep);
  command.add_option("--max-bytes", max_bytes_, "budget: maximum bytes registered at any time, e.g. 64M or unlimited")
      ->size();
  command.add_option("--max-count", max_count_, "budget: maximum registrations open at any time, or unlimited");
  command.add_option("--when-full", when_full_,
                     "when the budget is used up and no registration is idle: fail, wait or bypass");
}

pinfold::cache_options cache_flags::resolve() const {
  auto options = options_of_environment();
  options.retain = retain_.value_or(options.retain);
  apply(options, "--max-bytes", "PINFOLD_MAX_BYTES", max_bytes_);
  apply(options, "--max-count", "PINFOLD_MAX_COUNT", max_count_);
  apply(options, "--when-full", "PINFOLD_WHEN_FULL", when_full_);
  return options;
}

void add_via(CLI::App& command, pinfold::memfd_via& into, const std::vector<std::string>& names) {
  const auto choose = [&into](const std::string& name) {
    for (const auto choice : {pinfold::memfd_via::automatic, pinfold::memfd_via::pidfd, pinfold::memfd_via::scm}) {
      if (name == name_of(choice)) into = choice;
    }
  };
  command.add_option_function<std::string>("--via", choose, "how descriptors are fetched from the peers")
      ->check(CLI::IsMember(names))
      ->default_str(name_of(into));
}

const char* name_of(pinfold::when_full choice) noexcept {
  switch (choice) {
    case pinfold::when_full::fail: return "fail";
    case pinfold::when_full::wait: return "wait";
    case pinfold::when_full::bypass: return "bypass";
  }
  return "unknown";
}

const char* name_of(pinfold::memfd_via choice) noexcept {
  switch (choice) {
    case pinfold::memfd_via::automatic: return "auto";
    case pinfold::memfd_via::pidfd: return "pidfd";
    case pinfold::memfd_via::scm: return "scm";
  }
  return "unknown";
}

}  // namespace tool
