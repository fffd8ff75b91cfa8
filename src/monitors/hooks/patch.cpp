// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/patch.hpp"

#include "invalidation/own_code.hpp"
#include "monitors/hooks/plain.hpp"
#include "monitors/hooks/system_call.hpp"
#include "os/check.hpp"

#include <cerrno>
#include <cstring>
#include <linux/membarrier.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <utility>

namespace pinfold::monitors {

namespace {

constexpr std::uintptr_t page_mask = code_page::size - 1;

void* pointer(std::uintptr_t at) noexcept { return reinterpret_cast<void*>(at); }

// Kernels before 4.17 do not know MAP_FIXED_NOREPLACE and treat `wanted` as a hint.
std::uintptr_t page_at(std::uintptr_t wanted) noexcept {
  void* const got = ::mmap(pointer(wanted), code_page::size, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  if (got == MAP_FAILED) return 0;
  if (got == pointer(wanted)) return wanted;
  ::munmap(got, code_page::size);
  return 0;
}

}  // namespace

result<code_page> code_page::make(const range& near) noexcept {
  PINFOLD_ASSERT(near.begin < near.end, "the page is near some code");
  constexpr std::uintptr_t step = 1U << 16U;
  constexpr std::uintptr_t farthest = std::uintptr_t{1} << 30U;
  const auto middle = near.begin & ~(step - 1);
  code_page made;
  for (std::uintptr_t away = step; away < farthest && made.at_ == 0; away += step) {
    if (away < middle) made.at_ = page_at(middle - away);
    if (made.at_ == 0) made.at_ = page_at(middle + away);
  }
  if (made.at_ == 0) return fail(errc::out_of_resources, "no page near the code is free");
  return made;
}

code_page::code_page(code_page&& other) noexcept
    : at_(std::exchange(other.at_, 0)), used_(other.used_), kept_(other.kept_) {}

code_page::~code_page() {
  if (at_ != 0 && !kept_) ::munmap(pointer(at_), size);
}

bool code_page::reached_from(const range& text) const noexcept {
  return x86_64::reaches(text.begin, at_) && x86_64::reaches(text.end, at_ + size) &&
         x86_64::reaches(text.begin, at_ + size) && x86_64::reaches(text.end, at_);
}

void code_page::append(const x86_64::code& more) noexcept {
  PINFOLD_ASSERT(!kept_ && has_room(more.size), "code goes to a page that is writable, and has room");
  std::memcpy(pointer(next()), more.bytes.data(), more.size);
  used_ += more.size;
}

result<void> code_page::make_executable() noexcept {
  if (at_ == 0) return {};
  PINFOLD_ASSERT(!kept_, "a page becomes executable once");
  if (::mprotect(pointer(at_), size, PROT_READ | PROT_EXEC) != 0)
    return fail_errno(errc::not_permitted, errno, "the system does not allow this process to create code");
  kept_ = true;
  invalidation::note_own_code({at_, at_ + size});
  return {};
}

namespace {

// Not through libc's function, which is hooked: the hook reports other libraries' changes.
int protect(const range& pages, int protection) noexcept {
  const auto answer = system_call(SYS_mprotect, pages.begin, pages.size(), static_cast<unsigned long>(protection));
  return static_cast<int>(-answer);
}

}  // namespace

writable_text::writable_text(const range& text) noexcept
    : pages_{text.begin & ~page_mask, (text.end + page_mask) & ~page_mask} {
  if (const auto failed = protect(pages_, PROT_READ | PROT_WRITE | PROT_EXEC); failed != 0)
    made_ = fail_errno(errc::not_permitted, failed, "the system does not allow this process to change code");
}

// Restores the protection after a failure, too, because the failed call may have changed some pages.
writable_text::~writable_text() { static_cast<void>(protect(pages_, PROT_READ | PROT_EXEC)); }

word_change word_change::of(std::uintptr_t address, const x86_64::code& instruction) noexcept {
  word_change made;
  const auto offset = address % sizeof made.before;
  PINFOLD_ASSERT(offset + instruction.size <= sizeof made.before, "the instruction fits into the word");
  made.at = reinterpret_cast<std::uint64_t*>(address - offset);
  made.before = made.now();
  made.after = made.before;
  std::memcpy(reinterpret_cast<std::uint8_t*>(&made.after) + offset, instruction.bytes.data(), instruction.size);
  return made;
}

PINFOLD_PLAIN std::uint64_t word_change::now() const noexcept { return __atomic_load_n(at, __ATOMIC_SEQ_CST); }

PINFOLD_PLAIN bool word_change::exchange(std::uint64_t from, std::uint64_t to) const noexcept {
  PINFOLD_ASSERT(at != nullptr, "a change is made to a word");
  return __atomic_compare_exchange_n(at, &from, to, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

PINFOLD_PLAIN void write_unused(const range& pad, std::uintptr_t at, const x86_64::code& instruction) noexcept {
  PINFOLD_ASSERT(pad.begin <= at && at + instruction.size <= pad.end, "the instruction fits into the unused bytes");
  constexpr std::uint8_t breakpoint = 0xCC;
  auto* const bytes = reinterpret_cast<volatile std::uint8_t*>(pad.begin);  // volatile prevents memcpy
  const auto* const wanted = &instruction.bytes[0];
  const auto before = at - pad.begin;
  for (std::size_t i = 0; i < pad.end - pad.begin; ++i)
    bytes[i] = i >= before && i - before < instruction.size ? wanted[i - before] : breakpoint;
}

void all_processors_see_code() noexcept {
  static_cast<void>(system_call(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_SYNC_CORE));
  static_cast<void>(system_call(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED_SYNC_CORE));
}

}  // namespace pinfold::monitors
