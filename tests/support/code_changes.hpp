// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// What other libraries do to hooked functions, done by a test. Call it in a child: the changes stay.
#pragma once

#include "monitors/hooks/find.hpp"
#include "monitors/hooks/patch.hpp"
#include "support/hooked.hpp"
#include "support/in_child.hpp"

#include <atomic>
#include <cstring>
#include <memory>
#include <vector>

namespace pinfold::testing {

using monitors::events::function;
inline constexpr range everything{0, UINTPTR_MAX};

inline std::uintptr_t entry_of(function which) {
  return (*monitors::find_functions())[static_cast<std::size_t>(which)].entry;
}

inline bool supported() { return hooks_here().has_value(); }

// Runs the body in a child, since its changes to libc stay.
template <class F>
void in_child(F&& body) {
  if (!supported()) GTEST_SKIP() << describe(hooks_here().error());
  run_in_child(std::forward<F>(body));
}

inline monitors::word_change change(std::uintptr_t at, const monitors::x86_64::code& instruction) {
  return monitors::word_change::of(at, instruction);
}

inline void write(const monitors::word_change& change) {
  const auto at = reinterpret_cast<std::uintptr_t>(change.at);
  const monitors::writable_text text({at, at + 8});
  ASSERT_TRUE(text.made());
  ASSERT_TRUE(change.make());
}

/// Another library that hooks a function by a jump at its entry. It counts the calls, and goes on with the original.
class other_library {
 public:
  explicit other_library(function which) {
    const auto found = (*monitors::find_functions())[static_cast<std::size_t>(which)];
    const range text{found.segment.at, found.segment.end()};
    auto made = monitors::code_page::make(text);
    page_ = std::make_unique<monitors::code_page>(std::move(*made));
    const auto stub = page_->next();
    // `lock incq` on the counter, an aligned word behind this code; then a jump over that word
    const monitors::x86_64::code count{{0xF0, 0x48, 0xFF, 0x05, 8, 0, 0, 0, 0xEB, 14}, 24};
    counter_ = reinterpret_cast<std::atomic<std::uint64_t>*>(stub + 16);
    page_->append(count);
    page_->append(*monitors::x86_64::moved(found.segment.from(found.entry), page_->next()));
    // The counter lies among the code, so the page has to be writable and executable. In a test it may be both.
    EXPECT_TRUE(page_->make_executable());
    EXPECT_EQ(::mprotect(reinterpret_cast<void*>(stub), hooked_page, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
    change_ = change(found.entry, monitors::x86_64::jump(found.entry, stub));
    write(change_);
  }
  void leave() {
    std::swap(change_.before, change_.after);
    write(change_);
  }
  [[nodiscard]] std::uint64_t calls() const { return counter_->load(); }
  [[nodiscard]] bool in_place() const { return change_.now() == change_.after; }

 private:
  std::unique_ptr<monitors::code_page> page_;
  std::atomic<std::uint64_t>* counter_ = nullptr;
  monitors::word_change change_;
};

// Writes as a library does that changes a function: libc's mprotect, the bytes, mprotect again. The hooks see the first
// mprotect.
inline void write_as_libraries_do(std::uintptr_t at, const std::vector<std::uint8_t>& bytes) {
  const auto first = at & ~(hooked_page - 1);
  auto* const start = reinterpret_cast<void*>(first);
  const auto size = at + bytes.size() - first;
  ASSERT_EQ(::mprotect(start, size, PROT_READ | PROT_WRITE | PROT_EXEC), 0);
  std::memcpy(reinterpret_cast<void*>(at), bytes.data(), bytes.size());
  ASSERT_EQ(::mprotect(start, size, PROT_READ | PROT_EXEC), 0);
}

inline std::vector<std::uint8_t> code_at(std::uintptr_t at, std::size_t size) {
  const auto* const bytes = reinterpret_cast<const std::uint8_t*>(at);
  return {bytes, bytes + size};
}

}  // namespace pinfold::testing
