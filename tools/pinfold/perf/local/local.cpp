// SPDX-License-Identifier: BSD-3-Clause
#include "perf/local/local.hpp"

#include "cli/scratch_file.hpp"
#include "cli/sizes.hpp"
#include "perf/local/uring.hpp"

#include <algorithm>
#include <fmt/format.h>

namespace tool {

void add_failure(json& row, const pinfold::error& why) {
  const bool limits = why == pinfold::errc::out_of_resources || why == pinfold::errc::too_large ||
                      why == pinfold::errc::over_budget || why == pinfold::errc::larger_than_budget;
  row[limits ? "skipped" : "error"] = pinfold::describe(why);
  row["errors"] = limits ? 0 : 1;
  if (!limits) report_error(row.at("subject").get<std::string>(), why);
}

void add_pages(CLI::App& command, std::optional<pinfold::page_kind>& into) {
  const auto choose = [&into](const std::string& name) {
    for (const auto kind : {pinfold::page_kind::plain, pinfold::page_kind::thp, pinfold::page_kind::hugetlb}) {
      if (name == pages_name(kind)) into = kind;
    }
  };
  command.add_option_function<std::string>("--pages", choose, "pages of the buffers")
      ->check(CLI::IsMember({"4k", "thp", "hugetlb"}));
}

void add_slots(CLI::App& command, std::optional<unsigned>& into) {
  command
      .add_option("--slots", into,
                  "size of the ring's buffer table; 0: the kernel's maximum, 16384 [1024, or more if more buffers are "
                  "registered at a time]")
      ->check(CLI::Range(0, 1 << 20));
}

unsigned slots_for(std::size_t registrations) noexcept {
  constexpr std::size_t most = 1 << 20;  // more than any kernel permits
  return std::max(default_slots, static_cast<unsigned>(std::min(registrations, most)));
}

void add_directory(CLI::App& command, std::string& into) {
  command.add_option("--dir", into, "directory of the temporary file [$TMPDIR, or /var/tmp]");
}

void check_block(const char* what, std::size_t size, std::size_t most) {
  constexpr std::size_t block = 4096;
  if (size % block != 0) throw usage_failure(fmt::format("{} {}: not a multiple of 4 KiB", what, size_text(size)));
  if (size > most) throw usage_failure(fmt::format("{} {}: the maximum is {}", what, size_text(size), size_text(most)));
}

const char* direct_text(bool direct) noexcept {
  return direct ? "O_DIRECT" : "buffered: the file system does not allow O_DIRECT";
}

}  // namespace tool
