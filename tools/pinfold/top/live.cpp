// SPDX-License-Identifier: BSD-3-Clause
#include "top/live.hpp"

#include "cli/failure.hpp"
#include "top/detail.hpp"
#include "top/entries.hpp"
#include "top/headline.hpp"
#include "top/screen.hpp"
#include "top/table.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <fmt/format.h>
#include <optional>
#include <utility>
#include <vector>

namespace tool::top {
namespace {

using clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr std::string_view keys_of_table = " q quit  Up/Down select  Enter open  s/S sort  / filter  e ended  p pause";
constexpr std::string_view keys_of_detail =
    " Esc back  Up/Down PgUp/PgDn scroll  d read entries again  p pause  q quit";

class live_table {
 public:
  live_table(sampler& from, const live_options& options) : from_(from), options_(options) {}

  int run() {
    refresh();
    while (true) {
      draw();
      const auto got = screen_.wait(paused_ ? 1h : std::chrono::ceil<std::chrono::milliseconds>(next_ - clock::now()));
      if (got.what == key::end) return got.signal;
      if (got.what == key::letter && got.letter == 'q' && !typing_) return 0;
      if (got.what != key::none) take(got);
      if (!paused_ && clock::now() >= next_) refresh();
    }
  }

 private:
  // --- what there is to see
  void refresh() {
    try {
      taken_ = from_.take();
      problem_.clear();
    } catch (const failure& why) {
      problem_ = why.what();
    }
    next_ = clock::now() + options_.interval;
    arrange();
    if (opened_ && clock::now() >= next_entries_) read_entries();
  }

  void arrange() {
    shown_ = taken_;
    filter(shown_, options_.what);
    sort(shown_, options_.order);
  }

  [[nodiscard]] std::optional<std::pair<const process_sample*, const cache_sample*>> found(const cache_key& key) const {
    for (const auto& process : taken_.processes)
      for (const auto& cache : process.caches)
        if (cache_key{process.page.path, cache.page.number} == key) return std::pair(&process, &cache);
    return std::nullopt;
  }

  // A process with many entries must not be read all the time.
  void read_entries() {
    const auto cache = found(*opened_);
    if (!cache) return;
    entries_ = entries_of(*cache->first, *cache->second);
    next_entries_ = clock::now() + std::max<clock::duration>(2s, 50 * entries_.reading);
  }

  // --- keys
  void take(const input& got) {
    if (typing_) return take_in_filter(got);
    if (got.what == key::letter && got.letter == 'p') {
      paused_ = !paused_;
      next_ = clock::now();
      return;
    }
    opened_ ? take_in_detail(got) : take_in_table(got);
  }

  void take_in_filter(const input& got) {
    auto& text = options_.what.text;
    if (got.what == key::letter) text += got.letter;
    if (got.what == key::backspace && !text.empty()) text.pop_back();
    if (got.what == key::escape) text.clear();
    if (got.what == key::escape || got.what == key::enter) typing_ = false;
    arrange();
  }

  void take_in_detail(const input& got) {
    const auto page = static_cast<std::ptrdiff_t>(room());
    switch (got.what) {
      case key::up: return scroll(-1);
      case key::down: return scroll(1);
      case key::page_up: return scroll(-page);
      case key::page_down: return scroll(page);
      case key::first: return scroll(-static_cast<std::ptrdiff_t>(top_));
      case key::last: return scroll(PTRDIFF_MAX / 2);
      case key::escape:
      case key::backspace: opened_.reset(); return;
      case key::letter:
        if (got.letter == 'd') read_entries();
        if (got.letter == 'k') scroll(-1);
        if (got.letter == 'j') scroll(1);
        if (got.letter == ' ') scroll(page);
        return;
      default: return;
    }
  }

  void take_in_table(const input& got) {
    const auto page = static_cast<std::ptrdiff_t>(std::max<std::size_t>(room() / lines_of_cache_, 1));
    switch (got.what) {
      case key::up: return select(-1);
      case key::down: return select(1);
      case key::page_up: return select(-page);
      case key::page_down: return select(page);
      case key::first: return select(-PTRDIFF_MAX / 2);
      case key::last: return select(PTRDIFF_MAX / 2);
      case key::enter: return open();
      case key::escape: options_.what.text.clear(); return arrange();
      case key::letter: return take_letter(got.letter);
      default: return;
    }
  }

  void take_letter(char letter) {
    switch (letter) {
      case 'k': return select(-1);
      case 'j': return select(1);
      case 's': return change_order(1);
      case 'S': return change_order(-1);
      case '/': typing_ = true; return;
      case 'e': options_.what.ended = !options_.what.ended; return arrange();
      default: return;
    }
  }

  void change_order(int by) {
    const auto& all = orders();
    const auto at = std::ranges::find(all, options_.order) - all.begin();
    const auto size = static_cast<std::ptrdiff_t>(all.size());
    options_.order = all[static_cast<std::size_t>((at + by + size) % size)];
    arrange();
  }

  void scroll(std::ptrdiff_t by) {
    const auto wanted = static_cast<std::ptrdiff_t>(top_) + by;
    top_ = static_cast<std::size_t>(std::max<std::ptrdiff_t>(wanted, 0));  // `draw` limits it
  }

  void select(std::ptrdiff_t by) {
    const auto all = table_of(shown_, screen_.columns()).caches;
    if (all.empty()) return;
    const auto at = static_cast<std::ptrdiff_t>(selected_index(all)) + by;
    selected_ = all[static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(at, 0, std::ssize(all) - 1))].key;
  }

  // The selected cache may be gone, or filtered out: then the first one is selected.
  [[nodiscard]] std::size_t selected_index(const std::vector<cache_lines>& all) const {
    const auto at = std::ranges::find(all, selected_, &cache_lines::key);
    return at == all.end() ? 0 : static_cast<std::size_t>(at - all.begin());
  }

  void open() {
    const auto all = table_of(shown_, screen_.columns()).caches;
    if (all.empty()) return;
    opened_ = selected_ = all[selected_index(all)].key;
    top_ = 0;
    read_entries();
  }

  // --- the screen
  [[nodiscard]] std::size_t room() const { return screen_.lines() - std::min(screen_.lines(), reserved_); }

  void draw() {
    screen_.clear();
    screen_.put(0, headline(), style::bold);
    opened_ ? draw_detail() : draw_table();
    screen_.put(screen_.lines() - 1, footer(), style::title);
    screen_.show();
  }

  [[nodiscard]] std::string headline() const {
    if (!problem_.empty()) return problem_;
    auto text = headline_of(taken_) + fmt::format("; by {}", options_.order);
    if (paused_) text += "; paused";
    return options_.what.text.empty() || typing_ ? text : text + fmt::format("; /{}", options_.what.text);
  }

  [[nodiscard]] std::string footer() const {
    if (typing_) return fmt::format(" filter: {}_   Enter keeps it, Esc ends it", options_.what.text);
    return std::string(opened_ ? keys_of_detail : keys_of_table);
  }

  void draw_table() {
    const auto table = table_of(shown_, screen_.columns());
    lines_of_cache_ = table.lines_of_cache;
    for (std::size_t i = 0; i < table.titles.size(); ++i) screen_.put(1 + i, table.titles[i], style::title);
    reserved_ = 2 + table.titles.size();
    if (table.lines.empty()) return screen_.put(reserved_ - 1, nothing_text(from_, taken_, options_.what));
    const auto selected = table.caches.empty() ? SIZE_MAX : table.caches[selected_index(table.caches)].first;
    show_selected(selected, table);
    for (std::size_t i = 0; i < room() && table_top_ + i < table.lines.size(); ++i) {
      const auto at = table_top_ + i;
      auto line = table.lines[at];
      if (at == selected) line.front() = '>';
      const bool is_selected = selected <= at && at - selected < lines_of_cache_;
      screen_.put(reserved_ - 1 + i, line, is_selected ? style::selected : style::plain);
    }
  }

  // Moves the part that is shown as little as possible.
  void show_selected(std::size_t selected, const table_text& table) {
    const auto last = table.lines.size() - std::min(table.lines.size(), room());
    if (selected != SIZE_MAX) {
      const auto end = selected + lines_of_cache_;
      if (end > table_top_ + room()) table_top_ = end - std::min(end, room());
      const auto with_process = selected == table.caches.front().first ? 0 : selected;
      table_top_ = std::min(table_top_, with_process);
    }
    table_top_ = std::min(table_top_, last);
  }

  void draw_detail() {
    reserved_ = 2;
    const auto cache = found(*opened_);
    if (!cache) return screen_.put(1, "The cache, or its process, is gone. Esc goes back.", style::warning);
    const auto lines =
        detail_of(*cache->first, *cache->second, entries_, std::max<std::size_t>(screen_.columns(), least_width));
    top_ = std::min(top_, lines.size() - std::min(lines.size(), room()));
    for (std::size_t i = 0; i < room() && top_ + i < lines.size(); ++i) {
      const auto& line = lines[top_ + i];
      screen_.put(1 + i, line, line.starts_with(' ') ? style::plain : style::bold);
    }
  }

  sampler& from_;
  live_options options_;
  screen screen_;
  sample taken_;
  sample shown_;  // sorted, and without what the filter removes
  std::string problem_;
  clock::time_point next_{};
  bool paused_ = false;
  bool typing_ = false;  // the filter
  cache_key selected_;
  std::size_t lines_of_cache_ = 1;
  std::size_t reserved_ = 4;  // lines of the screen: headline, titles, keys
  std::size_t table_top_ = 0;
  std::optional<cache_key> opened_;
  std::size_t top_ = 0;  // of the opened cache
  cache_entries entries_;
  clock::time_point next_entries_{};
};

}  // namespace

int show_live(sampler& from, const live_options& options) { return live_table(from, options).run(); }

}  // namespace tool::top
