// SPDX-License-Identifier: BSD-3-Clause
// Over the parts of pinfold's hooks that are not about libc.
#include "cuda/patch.h"

#include "monitors/hooks/image.hpp"
#include "monitors/hooks/patch.hpp"
#include "monitors/hooks/text_lock.hpp"
#include "monitors/hooks/x86_64.hpp"

#include <array>
#include <dlfcn.h>
#include <span>

namespace {

using namespace pinfold;
using namespace pinfold::monitors;

constexpr std::size_t most = 8;

std::uintptr_t number(const void* address) noexcept { return reinterpret_cast<std::uintptr_t>(address); }

x86_64::text code_of(const void* function) noexcept {
  Dl_info library{};
  if (::dladdr(function, &library) == 0) return {};
  return loaded_image(number(library.dli_fbase)).code_around(number(function)).text;
}

struct change {
  word_change word;
  std::uintptr_t original = 0;
};

// The path of a call: entry -> jump on the page -> replacement -> the first instructions, on the page -> the rest.
result<change> prepare(const entry_patch& wanted, const x86_64::text& code, code_page& page) noexcept {
  const auto entry = number(wanted.entry);
  if (entry < code.at || entry + x86_64::jump_size > code.end())
    return fail(errc::unsupported, "a function is outside its library's code");
  if (entry % sizeof(std::uint64_t) + x86_64::jump_size > sizeof(std::uint64_t))
    return fail(errc::unsupported, "a function is not aligned, so it cannot be changed atomically");
  if (!page.has_room(x86_64::far_jump_size + x86_64::code::most))
    return fail(errc::out_of_resources, "no room for a changed function");
  const auto stub = page.next();
  page.append(x86_64::shortest_jump(stub, number(wanted.replacement)));
  const auto original = page.next();
  const auto moved = x86_64::moved(code.from(entry), original, x86_64::jump_size);
  if (!moved) return tl::unexpected(moved.error());
  page.append(*moved);
  return change{word_change::of(entry, x86_64::jump(entry, stub)), original};
}

result<void> put_in(const word_change& word) noexcept {
  const auto at = number(word.at);
  const writable_text text({at, at + sizeof(std::uint64_t)});
  if (!text.made()) return text.made();
  if (word.make()) return {};
  return fail(errc::unsupported, "another library is changing the same function");
}

void take_out(const word_change& word) noexcept {
  const auto at = number(word.at);
  const writable_text text({at, at + sizeof(std::uint64_t)});
  if (text.made()) static_cast<void>(word.undo());
}

// All or none. A function that another library has changed meanwhile stays as that library left it.
result<void> put_in_all(std::span<const change> changes) noexcept {
  for (std::size_t i = 0; i < changes.size(); ++i) {
    auto done = put_in(changes[i].word);
    if (done) continue;
    while (i > 0) take_out(changes[--i].word);
    return done;
  }
  return {};
}

result<void> patch(std::span<const entry_patch> wanted) noexcept {
  if (wanted.empty() || wanted.size() > most) return fail(errc::invalid_argument, "a wrong number of functions");
  const auto code = code_of(wanted.front().entry);
  if (code.bytes.empty()) return fail(errc::unsupported, "a function is in no loaded library");
  const text_lock alone;
  auto page = code_page::make({code.at, code.end()});
  if (!page) return tl::unexpected(page.error());
  std::array<change, most> changes;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto prepared = prepare(wanted[i], code, *page);
    if (!prepared) return tl::unexpected(prepared.error());
    changes[i] = *prepared;
  }
  if (auto executable = page->make_executable(); !executable) return executable;
  for (std::size_t i = 0; i < wanted.size(); ++i) *wanted[i].original = reinterpret_cast<void*>(changes[i].original);
  all_processors_see_code();
  const auto put = put_in_all(std::span(changes).first(wanted.size()));
  all_processors_see_code();
  return put;
}

}  // namespace

const char* patch_entries(const entry_patch* patches, std::size_t count) {
  const auto done = patch({patches, count});
  return done ? nullptr : done.error().message;
}
