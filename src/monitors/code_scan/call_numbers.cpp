// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/code_scan/call_numbers.hpp"

#include "os/check.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <utility>

namespace pinfold::monitors::code_scan {

namespace {

struct named_call {
  std::uint32_t number;
  const char* name;
};

// Numbers of x86-64. io_uring's own MADVISE does the same as the system call.
constexpr std::array dangerous{
    named_call{9, "mmap"},
    named_call{10, "mprotect"},
    named_call{11, "munmap"},
    named_call{12, "brk"},
    named_call{25, "mremap"},
    named_call{28, "madvise"},
    named_call{30, "shmat"},
    named_call{67, "shmdt"},
    named_call{216, "remap_file_pages"},
    named_call{329, "pkey_mprotect"},
    named_call{425, "io_uring_setup"},
    named_call{426, "io_uring_enter"},
    named_call{440, "process_madvise"},
};

// The newest system call examined: file_setattr of Linux 6.17.
constexpr std::uint32_t last_known = 469;

const named_call* find(std::uint32_t number) noexcept {
  const auto* found =
      std::find_if(dangerous.begin(), dangerous.end(), [&](const named_call& one) { return one.number == number; });
  return found == dangerous.end() ? nullptr : found;
}

/// Searches backwards from an instruction for the instructions that may have set a register.
class search {
 public:
  search(const code_bytes& code, const std::vector<instruction>& all, const std::vector<std::uintptr_t>& entered_at)
      : code_(code), all_(all), entered_at_(entered_at) {
    for (std::size_t i = 0; i < all.size(); ++i)
      if (all[i].next == flow::jump || all[i].next == flow::branch) sources_.emplace(all[i].target, i);
  }

  call_numbers run(std::size_t index) {
    before(index, rax);
    for (std::size_t done = 0; done < work_.size() && !found_.unknown; ++done) {
      if (done == most_steps) found_.unknown = true;
      const auto [at, which] = work_[done];
      examine(at, which);
    }
    return std::move(found_);
  }

 private:
  static constexpr std::size_t most_steps = 20'000;

  void examine(std::size_t index, general_register which) {
    const auto did = effect_on(which, code_.from(all_[index].at));
    switch (did.what) {
      case effect::kind::none: return before(index, which);
      case effect::kind::copy: return before(index, did.source);
      case effect::kind::constant: return add(did.value);
      case effect::kind::unknown: found_.unknown = true;
    }
  }

  void add(std::uint32_t value) {
    auto& values = found_.values;
    if (std::find(values.begin(), values.end(), value) == values.end()) values.push_back(value);
  }

  // Visits all instructions that may run directly before this one.
  void before(std::size_t index, general_register which) {
    const auto [first, last] = sources_.equal_range(all_[index].at);
    const bool falls_in = index > 0 && (all_[index - 1].next == flow::next || all_[index - 1].next == flow::branch);
    const bool is_reached = falls_in || first != last || all_[index].is_fill;
    // entered by the function's caller, from a part of another function that was moved away, or through a table
    const bool is_entered = index == 0 || std::binary_search(entered_at_.begin(), entered_at_.end(), all_[index].at);
    if (is_entered || !is_reached) found_.unknown = true;
    if (falls_in) visit(index - 1, which);
    for (auto one = first; one != last; ++one) visit(one->second, which);
  }

  void visit(std::size_t index, general_register which) {
    if (seen_.emplace(index, which).second) work_.emplace_back(index, which);
  }

  const code_bytes& code_;
  const std::vector<instruction>& all_;
  const std::vector<std::uintptr_t>& entered_at_;
  std::multimap<std::uintptr_t, std::size_t> sources_;
  std::set<std::pair<std::size_t, general_register>> seen_;
  std::vector<std::pair<std::size_t, general_register>> work_;
  call_numbers found_;
};

}  // namespace

call_numbers numbers_at(const code_bytes& code, const std::vector<instruction>& all, std::size_t index,
                        const std::vector<std::uintptr_t>& entered_at) {
  PINFOLD_ASSERT(index < all.size() && all[index].at >= code.at && all[index].end() <= code.end(),
                 "the instruction is one of the function");
  PINFOLD_ASSERT(std::is_sorted(entered_at.begin(), entered_at.end()), "the addresses that are jumped to are sorted");
  return search(code, all, entered_at).run(index);
}

bool is_dangerous(std::uint32_t number) noexcept { return number > last_known || find(number) != nullptr; }

const char* name_of_call(std::uint32_t number) noexcept {
  const auto* known = find(number);
  return known != nullptr ? known->name : "a system call";
}

}  // namespace pinfold::monitors::code_scan
