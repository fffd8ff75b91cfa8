// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks/install.hpp"

#include "monitors/hooks/events.hpp"
#include "monitors/hooks/guard.hpp"
#include "monitors/hooks/patch.hpp"
#include "monitors/hooks/path.hpp"
#include "monitors/hooks/text_lock.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <optional>

namespace pinfold::monitors::jumps {

namespace {

/// One of our jumps at one function. It outlives every monitor, and a child of fork(2) inherits it with the changed
/// code.
struct entry_jump {
  std::uintptr_t entry = 0;
  x86_64::way_in way;
  std::uintptr_t stub = 0;
  std::uintptr_t original = 0;
  word_change change;
  bool made = false;  // written last

  [[nodiscard]] range text() const noexcept {
    const auto word = reinterpret_cast<std::uintptr_t>(change.at);
    const auto end = word + sizeof(std::uint64_t);
    return way.pad.empty() ? range{word, end} : range{std::min(word, way.pad.begin), std::max(end, way.pad.end)};
  }
};

// Each layer has one jump for each function. Where another library covers a jump, the next goes on top of that
// library's, in a layer with replacements of its own, because the other library may continue with the older jump.
using layer = std::array<entry_jump, events::functions>;
std::array<layer, events::layers> all_layers{};

// Usually one page, because the dynamic linker lies beside libc.
struct new_pages {
  static constexpr std::size_t most = 4;
  std::array<std::optional<code_page>, most> pages;
};

constexpr std::size_t room = 104;  // a mark, a stub, and a moved instruction with its jump

bool is_ours(std::uintptr_t stub) noexcept {
  const auto has = [&](const entry_jump& one) { return one.made && one.stub == stub; };
  return std::any_of(all_layers.begin(), all_layers.end(),
                     [&](const layer& in) { return std::any_of(in.begin(), in.end(), has); });
}

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
  return fail(errc::out_of_resources, "no page near the code is free");
}

result<entry_jump> make_one(const found_function& found, std::uintptr_t replacement, std::span<const range> taken,
                            new_pages& fresh) noexcept {
  const auto way = x86_64::find_way_in(found.segment, found.entry, taken, left_over);
  if (!way) return tl::unexpected(way.error());
  const auto page = page_for(fresh, found.segment);
  if (!page) return tl::unexpected(page.error());
  entry_jump made;
  made.entry = found.entry;
  made.way = *way;
  (*page)->append(stub_mark(way->at));
  made.stub = (*page)->next();
  (*page)->append(x86_64::shortest_jump(made.stub, replacement));
  made.original = (*page)->next();
  const auto moved = x86_64::moved(found.segment.from(way->at), made.original);
  if (!moved) return tl::unexpected(moved.error());
  (*page)->append(*moved);
  made.change = word_change::of(
      way->at, way->pad.empty() ? x86_64::jump(way->at, made.stub) : x86_64::short_jump(way->at, way->hop));
  return made;
}

// A child of fork(2) may find this half done; no code has been changed yet then.
void keep(std::size_t in, std::size_t which, const entry_jump& one) noexcept {
  entry_jump& kept = all_layers[in][which];
  PINFOLD_ASSERT(!kept.made, "a jump that threads may run is not replaced");
  std::atomic_signal_fence(std::memory_order_seq_cst);
  events::set_original(in, static_cast<events::function>(which), one.original);
  kept = one;
  std::atomic_signal_fence(std::memory_order_seq_cst);
  kept.made = true;
}

/// The jumps to install: an old one where the entry is as it was before that jump, else a new one.
struct plan {
  static constexpr std::size_t most = events::functions * copies_of_libc;
  struct step {
    std::size_t in = 0;
    std::size_t which = 0;
    entry_jump jump;
    bool fresh = false;
  };
  std::array<step, most> steps;
  std::size_t count = 0;
  std::array<range, most + events::functions * events::layers> taken{};  // pads, also those of all earlier jumps
  std::size_t pads = 0;

  void take(const entry_jump& one) noexcept {
    if (one.way.pad.empty()) return;
    PINFOLD_ASSERT(pads < taken.size(), "the list has room for the pads of all jumps");
    taken[pads++] = one.way.pad;
  }
};

std::uintptr_t target_of(std::uintptr_t jump) noexcept {
  return x86_64::jump_target(reinterpret_cast<const std::uint8_t*>(jump), jump);
}

// Returns whether the jump's pad is ours or free. Another copy of the library takes a left-over pad, and leaves it
// behind again.
bool has_pad(const entry_jump& one) noexcept {
  const auto hop = one.way.hop;
  return hop == 0 || target_of(hop) == one.stub || target_of(hop) == 0 || left_over(hop, one.way.at);
}

// Returns whether the entry still leads there: a jump behind another copy's short jump works only while that short jump
// leads to it.
bool leads_to(std::uintptr_t entry, const x86_64::way_in& way) noexcept {
  constexpr std::uintptr_t endbr64 = 4;
  return way.at - entry <= endbr64 ||
         x86_64::jump_target(reinterpret_cast<const std::uint8_t*>(entry), entry) == way.at;
}

std::optional<std::size_t> layer_to_use_again(std::size_t which, std::uintptr_t entry) noexcept {
  for (std::size_t in = 0; in < all_layers.size(); ++in) {
    const entry_jump& one = all_layers[in][which];
    if (one.made && one.entry == entry && one.change.now() == one.change.before && leads_to(entry, one.way) &&
        has_pad(one))
      return in;
  }
  return std::nullopt;
}

std::optional<std::size_t> free_layer(std::size_t which, const plan& so_far) noexcept {
  for (std::size_t in = 0; in < all_layers.size(); ++in) {
    const auto promised = [&](const plan::step& one) { return one.in == in && one.which == which; };
    if (!all_layers[in][which].made &&
        std::none_of(so_far.steps.begin(), so_far.steps.begin() + static_cast<std::ptrdiff_t>(so_far.count), promised))
      return in;
  }
  return std::nullopt;
}

// Adds a step for a function. The plan is not in use yet, so the caller can drop it on an error.
result<void> add_step(plan& to, std::size_t which, const found_function& found, new_pages& fresh) noexcept {
  if (found.entry == 0 || path_to_us(found.entry, is_ours)) return {};
  PINFOLD_ASSERT(to.count < plan::most, "a plan has room for every function of every copy");
  plan::step& next = to.steps[to.count];
  next.which = which;
  if (const auto known = layer_to_use_again(which, found.entry)) {
    next.in = *known;
    next.jump = all_layers[*known][which];
  } else {
    const auto in = free_layer(which, to);
    if (!in) return fail(errc::unsupported, "other libraries have overwritten the hook of a libc function too often");
    auto made = make_one(found, events::replacements(*in)[which], std::span(to.taken).first(to.pads), fresh);
    if (!made) return tl::unexpected(made.error());
    next.in = *in;
    next.jump = *made;
    next.fresh = true;
    to.take(next.jump);
  }
  ++to.count;
  return {};
}

result<void> put_in(const entry_jump& one) noexcept {
  PINFOLD_ASSERT(one.change.at != nullptr && one.stub != 0, "a jump that is put in was made");
  const writable_text text(one.text());
  if (!text.made()) return text.made();
  if (const auto hop = one.way.hop; hop != 0 && target_of(hop) != one.stub) {
    const auto jump = x86_64::jump(hop, one.stub);
    if (target_of(hop) == 0)
      write_unused(one.way.pad, hop, jump);
    else if (!word_change::of(hop, jump).make())  // left over: a thread may be running it now
      return fail(errc::unsupported, "another library is changing the same libc function");
    all_processors_see_code();
  }
  if (one.change.make()) return {};
  return fail(errc::unsupported, "another library is changing the same libc function");
}

// Removes a jump if no library has changed it. If our short jump leads to a later library's jump, calls continue
// through both.
void take_out(const entry_jump& one) noexcept {
  const bool in_place = one.change.now() == one.change.after;
  if (!in_place || (one.way.hop != 0 && target_of(one.way.hop) != one.stub)) return;
  const writable_text text(one.text());
  if (text.made()) static_cast<void>(one.change.undo());
}

result<void> put_in_all(const plan& wanted) noexcept {
  result<void> done;
  std::size_t put = 0;
  while (put < wanted.count && done) {
    done = put_in(wanted.steps[put].jump);
    if (done) ++put;
  }
  while (!done && put > 0) take_out(wanted.steps[--put].jump);
  return done;
}

result<void> no_change_by_others(const code_lock::exclusive& change) noexcept {
  if (change.held() && !guard::writable()) return {};
  return fail(errc::closed, "another library is changing the code of libc");
}

}  // namespace

result<void> install(std::span<const found_functions> found, const text_lock& /*alone*/, code_lock& code) noexcept {
  PINFOLD_ASSERT(found.size() <= copies_of_libc, "no more copies are hooked than are found");
  new_pages fresh;
  plan wanted;
  for (const auto& in : all_layers)
    for (const auto& one : in)
      if (one.made) wanted.take(one);
  for (const auto& copy : found)
    for (std::size_t i = copy.size(); i-- > 0;)
      if (auto added = add_step(wanted, i, copy[i], fresh); !added) return added;
  for (auto& page : fresh.pages)
    if (page)
      if (auto made = page->make_executable(); !made) return made;
  for (std::size_t i = 0; i < wanted.count; ++i)
    if (const auto& one = wanted.steps[i]; one.fresh) keep(one.in, one.which, one.jump);
  all_processors_see_code();
  const code_lock::exclusive change(code);
  if (auto possible = no_change_by_others(change); !possible) return possible;
  const auto done = put_in_all(wanted);
  all_processors_see_code();
  if (!done) return done;
  return lead_to_us(found) ? done : fail(errc::unsupported, "another library is changing the same libc function");
}

// The newest goes first, because it lies on top of the others.
void remove(code_lock& code) noexcept {
  const text_lock alone;
  const code_lock::exclusive change(code);
  const bool possible = no_change_by_others(change).has_value();
  guard::forget_all();
  if (!possible) return;
  for (auto in = all_layers.rbegin(); in != all_layers.rend(); ++in)
    for (const auto& one : *in)
      if (one.made) take_out(one);
  all_processors_see_code();
}

bool lead_to_us(std::span<const found_functions> found) noexcept {
  std::size_t number = 0;
  for (const auto& copy : found) {
    for (const auto& function : copy) {
      if (function.entry == 0) continue;
      const auto path = path_to_us(function.entry, is_ours);
      if (!path) return false;
      guard::keep(number++, *path);
    }
  }
  return true;
}

}  // namespace pinfold::monitors::jumps
