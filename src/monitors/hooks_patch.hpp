// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Changes to code while threads run it.
#pragma once

#include "monitors/hooks_x86_64.hpp"

namespace pinfold::monitors {

/// A page for new code in reach of the old. Written first, then executable, and never both; never unmapped once it is
/// executable, as a thread may always be in it.
class code_page {
 public:
  code_page() noexcept = default;
  /// `out_of_resources` when no page within reach of a jump is free.
  [[nodiscard]] static result<code_page> make(const range& near) noexcept;
  code_page(code_page&& other) noexcept;
  code_page& operator=(code_page&&) = delete;
  ~code_page();

  static constexpr std::size_t size = 4096;
  [[nodiscard]] bool reached_from(const range& text) const noexcept;
  [[nodiscard]] bool has_room(std::size_t bytes) const noexcept { return at_ != 0 && used_ + bytes <= size; }

  /// Where the next code will stand, and putting it there.
  [[nodiscard]] std::uintptr_t next() const noexcept { return at_ + used_; }
  void append(const x86_64::code& more) noexcept;

  /// `not_permitted` where the system does not let a process make code.
  [[nodiscard]] result<void> make_executable() noexcept;

 private:
  std::uintptr_t at_ = 0;
  std::size_t used_ = 0;
  bool kept_ = false;
};

/// Text that can be written while it lives, and is executable all the time.
class writable_text {
 public:
  explicit writable_text(const range& text) noexcept;
  writable_text(const writable_text&) = delete;
  writable_text& operator=(const writable_text&) = delete;
  ~writable_text();

  /// `not_permitted` where the system does not let a process change its code.
  [[nodiscard]] const result<void>& made() const noexcept { return made_; }

 private:
  range pages_;
  result<void> made_;
};

/// The aligned word that an instruction's first bytes lie in, as it is and as it shall be.
struct word_change {
  std::uint64_t* at = nullptr;
  std::uint64_t before = 0;
  std::uint64_t after = 0;

  /// `instruction` at `address`, in one word.
  [[nodiscard]] static word_change of(std::uintptr_t address, const x86_64::code& instruction) noexcept;
  [[nodiscard]] std::uint64_t now() const noexcept;
  /// In one store that each processor sees whole. False when somebody else has changed the word.
  [[nodiscard]] bool make() const noexcept { return exchange(before, after); }
  [[nodiscard]] bool undo() const noexcept { return exchange(after, before); }

 private:
  [[nodiscard]] bool exchange(std::uint64_t from, std::uint64_t to) const noexcept;
};

/// Writes to bytes that nothing runs yet: the instruction at `at`, breakpoints to the rest of them.
void write_unused(const range& pad, std::uintptr_t at, const x86_64::code& instruction) noexcept;

/// No processor goes on with code that it has read before, where the kernel can see to that (Linux 4.16).
void all_processors_see_code() noexcept;

}  // namespace pinfold::monitors
