// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Changes code while threads run it.
#pragma once

#include "monitors/hooks/x86_64.hpp"

namespace pinfold::monitors {

/// A page for new code within reach of the old: first writable, then executable, never both. Never unmapped once it is
/// executable, because a thread may be running it.
class code_page {
 public:
  code_page() noexcept = default;
  /// `out_of_resources` if no page within reach of a jump is free.
  [[nodiscard]] static result<code_page> make(const range& near) noexcept;
  code_page(code_page&& other) noexcept;
  code_page& operator=(code_page&&) = delete;
  ~code_page();

  static constexpr std::size_t size = 4096;
  [[nodiscard]] bool reached_from(const range& text) const noexcept;
  [[nodiscard]] bool has_room(std::size_t bytes) const noexcept { return at_ != 0 && used_ + bytes <= size; }

  /// Returns the address at which `append` puts the next code.
  [[nodiscard]] std::uintptr_t next() const noexcept { return at_ + used_; }
  void append(const x86_64::code& more) noexcept;

  /// `not_permitted` if the system forbids the process to make code.
  [[nodiscard]] result<void> make_executable() noexcept;

 private:
  std::uintptr_t at_ = 0;
  std::size_t used_ = 0;
  bool kept_ = false;
};

/// Makes text writable while this object lives; the text stays executable.
class writable_text {
 public:
  explicit writable_text(const range& text) noexcept;
  writable_text(const writable_text&) = delete;
  writable_text& operator=(const writable_text&) = delete;
  ~writable_text();

  /// `not_permitted` if the system forbids the process to change its code.
  [[nodiscard]] const result<void>& made() const noexcept { return made_; }

 private:
  range pages_;
  result<void> made_;
};

/// The aligned word that contains an instruction's first bytes, before and after the change.
struct word_change {
  std::uint64_t* at = nullptr;
  std::uint64_t before = 0;
  std::uint64_t after = 0;

  /// Returns the change that puts `instruction`, which fits into one word, at `address`.
  [[nodiscard]] static word_change of(std::uintptr_t address, const x86_64::code& instruction) noexcept;
  [[nodiscard]] std::uint64_t now() const noexcept;
  /// Changes the word in one store, which each processor sees whole. Returns false if another library has changed the
  /// word.
  [[nodiscard]] bool make() const noexcept { return exchange(before, after); }
  [[nodiscard]] bool undo() const noexcept { return exchange(after, before); }

 private:
  [[nodiscard]] bool exchange(std::uint64_t from, std::uint64_t to) const noexcept;
};

/// Writes to bytes that no thread runs yet: the instruction at `at`, and breakpoints elsewhere.
void write_unused(const range& pad, std::uintptr_t at, const x86_64::code& instruction) noexcept;

/// Makes all processors drop code that they have already read, if the kernel can do that (Linux 4.16).
void all_processors_see_code() noexcept;

}  // namespace pinfold::monitors
