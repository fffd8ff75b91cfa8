// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks_install.hpp"

#include "monitors/hooks_events.hpp"
#include "monitors/hooks_find.hpp"
#include "monitors/hooks_patch.hpp"

#include <algorithm>
#include <optional>

namespace pinfold::monitors::jumps {

namespace {

/// One function's. It outlives every monitor, and a child of fork(2) has it as it has the changed code.
struct entry_jump {
  std::uintptr_t entry = 0;
  x86_64::way_in way;
  std::uintptr_t stub = 0;
  std::uintptr_t original = 0;
  word_change change;
  bool put = false;   // our jump may be reached: it is in place, or under another's
  bool made = false;  // the last to be written

  [[nodiscard]] range text() const noexcept {
    const auto word = reinterpret_cast<std::uintptr_t>(change.at);
    return {word, std::max(word + sizeof(std::uint64_t), way.pad.end)};
  }
};

std::array<entry_jump, events::functions> jumps_of{};

// Mostly one, as the dynamic linker lies beside libc.
struct new_pages {
  static constexpr std::size_t most = 4;
  std::array<std::optional<code_page>, most> pages;
};

constexpr std::size_t room = 64;  // a stub and a moved instruction with its jump

result<code_page*> page_for(new_pages& fresh, const x86_64::text& segment) noexcept {
  const range text{segment.at, segment.end()};
  for (auto& page : fresh.pages) {
    if (page && page->reached_from(text) && page->has_room(room)) return &*page;
    if (page) continue;
    auto made = code_page::make(text);
    if (!made) return tl::unexpected(made.error());
    page.emplace(std::move(*made));
    if (page->reached_from(text)) return &*page;
    break;
  }
  return fail(errc::out_of_resources, "there is no free page near libc's code");
}

result<void> make_one(entry_jump& one, const found_function& found, std::uintptr_t replacement,
                      std::span<const range> taken, new_pages& fresh) noexcept {
  const auto way = x86_64::find_way_in(found.segment, found.entry, taken);
  if (!way) return tl::unexpected(way.error());
  const auto page = page_for(fresh, found.segment);
  if (!page) return tl::unexpected(page.error());
  entry_jump made;
  made.entry = found.entry;
  made.way = *way;
  made.stub = (*page)->next();
  (*page)->append(x86_64::far_jump(replacement));
  made.original = (*page)->next();
  const auto moved = x86_64::moved(found.segment.from(way->at), made.original);
  if (!moved) return tl::unexpected(moved.error());
  (*page)->append(*moved);
  made.change = word_change::of(
      way->at, way->pad.empty() ? x86_64::jump(way->at, made.stub) : x86_64::short_jump(way->at, way->pad.begin));
  one = made;
  return {};
}

bool leads_away(const entry_jump& one) noexcept {
  constexpr std::size_t longest_instruction = 15;
  const auto* now = reinterpret_cast<const std::uint8_t*>(one.way.at);
  return x86_64::leads_away({{now, longest_instruction}, one.way.at});
}

// Our jump, or what may lead to us by way of another's.
bool is_in_place(const entry_jump& one) noexcept {
  const auto now = one.change.now();
  return now == one.change.after || (one.put && now != one.change.before && leads_away(one));
}

using plan = std::array<entry_jump, events::functions>;

// Nothing of this is in use yet: it can be thrown away.
result<void> make_missing(plan& wanted, const found_functions& found, new_pages& fresh) noexcept {
  const auto replacements = events::replacements();
  std::array<range, events::functions> taken{};
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    entry_jump& one = wanted[i];
    const bool good = one.made && (one.change.now() == one.change.before || is_in_place(one));
    if (found[i].entry != 0 && !good) {
      // to go over a jump that leads to ours would make a circle
      if (one.made && one.put) return fail(errc::unsupported, "another library has changed a libc function over ours");
      if (auto made = make_one(one, found[i], replacements[i], taken, fresh); !made) return made;
    }
    one.made = false;
    taken[i] = one.way.pad;
  }
  for (auto& page : fresh.pages)
    if (page)
      if (auto made = page->make_executable(); !made) return made;
  return {};
}

result<void> put_in(entry_jump& one) noexcept {
  const writable_text text(one.text());
  if (!text.made()) return text.made();
  if (!one.way.pad.empty()) {
    write_unused(one.way.pad, x86_64::jump(one.way.pad.begin, one.stub));
    all_processors_see_code();
  }
  one.put = one.change.make();
  if (!one.put) return fail(errc::unsupported, "another library changes the same libc function now");
  return {};
}

void take_out(entry_jump& one) noexcept {
  const auto now = one.change.now();
  if (now == one.change.after) {
    const writable_text text({reinterpret_cast<std::uintptr_t>(one.change.at), one.way.at + 1});
    if (text.made() && one.change.undo()) one.put = false;
  } else if (now == one.change.before) {
    one.put = false;
  }
}

// A child of fork(2) may see half of this: then nothing has been changed yet.
void keep(events::function which, const entry_jump& one) noexcept {
  entry_jump& kept = jumps_of[static_cast<std::size_t>(which)];
  kept.made = false;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  events::set_original(which, one.original);
  kept = one;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  kept.made = true;
}

result<void> put_in_all() noexcept {
  std::array<bool, events::functions> put{};
  result<void> done;
  for (std::size_t i = 0; i < jumps_of.size() && done; ++i) {
    entry_jump& one = jumps_of[i];
    if (!one.made || one.change.now() != one.change.before) continue;  // none, or in place, or covered
    done = put_in(one);
    put[i] = done.has_value();
  }
  for (std::size_t i = 0; i < jumps_of.size() && !done; ++i)
    if (put[i]) take_out(jumps_of[i]);
  return done;
}

}  // namespace

result<void> install(const found_functions& found) noexcept {
  new_pages fresh;
  plan wanted = jumps_of;
  if (auto made = make_missing(wanted, found, fresh); !made) return made;
  for (std::size_t i = 0; i < wanted.size(); ++i)
    if (found[i].entry != 0) keep(static_cast<events::function>(i), wanted[i]);
  all_processors_see_code();
  const auto done = put_in_all();
  all_processors_see_code();
  return done;
}

void remove() noexcept {
  for (auto& one : jumps_of)
    if (one.made) take_out(one);
  all_processors_see_code();
}

bool in_place() noexcept {
  return std::all_of(jumps_of.begin(), jumps_of.end(),
                     [](const entry_jump& one) { return !one.made || is_in_place(one); });
}

}  // namespace pinfold::monitors::jumps
