// SPDX-License-Identifier: BSD-3-Clause
#include "watch/symbols.hpp"

#include "cli/printable.hpp"

#include <chrono>
#include <cstdlib>
#include <cxxabi.h>
#include <elfutils/libdwfl.h>
#include <fmt/format.h>
#include <string_view>
#include <utility>

namespace tool::watch {

namespace {

using std::chrono::steady_clock;

std::string demangled(const char* name) {
  int status = 0;
  const std::unique_ptr<char, decltype(&std::free)> plain(abi::__cxa_demangle(name, nullptr, nullptr, &status),
                                                          &std::free);
  return status == 0 && plain ? plain.get() : name;
}

std::string_view file_in(std::string_view path) { return path.substr(path.rfind('/') + 1); }

struct named_frame {
  std::string text;
  bool of_library = false;
};

}  // namespace

struct symbols::state {
  pid_t process;
  Dwfl_Callbacks callbacks{};
  std::unique_ptr<Dwfl, decltype(&dwfl_end)> mapped{nullptr, &dwfl_end};
  steady_clock::time_point read_at{};

  explicit state(pid_t of) : process(of) {
    callbacks.find_elf = dwfl_linux_proc_find_elf;
    callbacks.find_debuginfo = dwfl_standard_find_debuginfo;
    read();
  }

  void read() {
    read_at = steady_clock::now();
    mapped.reset(dwfl_begin(&callbacks));
    if (!mapped) return;
    dwfl_report_begin(mapped.get());
    static_cast<void>(dwfl_linux_proc_report(mapped.get(), process));
    static_cast<void>(dwfl_report_end(mapped.get(), nullptr, nullptr));
  }

  // The process may have loaded a library since.
  [[nodiscard]] Dwfl_Module* module_of(std::uint64_t address) {
    auto* found = mapped ? dwfl_addrmodule(mapped.get(), address) : nullptr;
    if (found == nullptr && steady_clock::now() - read_at > std::chrono::seconds(1)) {
      read();
      found = mapped ? dwfl_addrmodule(mapped.get(), address) : nullptr;
    }
    return found;
  }

  // A return address may lie behind the end of its function: the call is before it.
  [[nodiscard]] named_frame name(std::uint64_t return_address) {
    const auto call = return_address - 1;
    auto* const within = module_of(call);
    if (within == nullptr) return {fmt::format("{:#x}", return_address)};
    const char* const path = dwfl_module_info(within, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr);
    const auto file = file_in(path != nullptr ? path : "?");
    GElf_Off offset = 0;
    GElf_Sym symbol{};
    const char* const mangled = dwfl_module_addrinfo(within, call, &offset, &symbol, nullptr, nullptr, nullptr);
    if (mangled == nullptr) return {fmt::format("{:#x} in {}", return_address, file)};
    const auto function = demangled(mangled);
    auto text = fmt::format("{}+{:#x} in {}", function, offset + 1, file);
    if (auto* const line = dwfl_module_getsrc(within, call); line != nullptr) {
      int number = 0;
      const char* const source = dwfl_lineinfo(line, nullptr, &number, nullptr, nullptr, nullptr);
      if (source != nullptr) text += fmt::format(" ({}:{})", file_in(source), number);
    }
    const bool own = file.starts_with("libpinfold") || function.starts_with("pinfold::monitors::") ||
                     function.starts_with("pinfold::invalidation::") || function.starts_with("pinfold::observation::");
    return {std::move(text), own};
  }
};

symbols::symbols(pid_t process) : state_(std::make_unique<state>(process)) {}
symbols::~symbols() = default;

std::vector<std::string> symbols::name(const std::vector<std::uint64_t>& return_addresses) {
  std::vector<std::string> all;
  bool in_library = true;
  for (const auto one : return_addresses) {
    auto frame = state_->name(one);
    in_library = in_library && frame.of_library;
    if (!in_library) all.push_back(printable(std::move(frame.text)));
  }
  return all;
}

}  // namespace tool::watch
