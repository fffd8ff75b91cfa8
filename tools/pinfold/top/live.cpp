// SPDX-License-Identifier: BSD-3-Clause
#include "top/live.hpp"

#include "cli/failure.hpp"
#include "top/detail.hpp"
#include "top/entries.hpp"
#include "top/headline.hpp"
#include "top/screen.hpp"
#include "top/table.hpp"
#include "top/table_view.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <fmt/format.h>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

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
    if (opened_ && clock::now() >= next_entries_) read_entries(*opened_);
  }

  void arrange() {
    auto shown = taken_;
    filter(shown, options_.what);
    sort(shown, options_.order);
    table_.set(std::move(shown));
  }

  [[nodiscard]] std::optional<std::pair<const process_sample*, const cache_sample*>> found(const cache_key& key) const {
    for (const auto& process : taken_.processes)
      for (const auto& cache : process.caches)
        if (cache_key{process.page.path, cache.page.number} == key) return std::pair(&process, &cache);
    return std::nullopt;
  }

  // A process with many entries must not be read all the time.
  void read_entries(const cache_key& of) {
    const auto cache = found(of);
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
        if (got.letter == 'd' && opened_) read_entries(*opened_);
        if (got.letter == 'k') scroll(-1);
        if (got.letter == 'j') scroll(1);
        if (got.letter == ' ') scroll(page);
        return;
      default: return;
    }
  }

  void take_in_table(const input& got) {
    const auto page = table_.page();
    switch (got.what) {
      case key::up: return table_.move(-1);
      case key::down: return table_.move(1);
      case key::page_up: return table_.move(-page);
      case key::page_down: return table_.move(page);
      case key::first: return table_.move(-PTRDIFF_MAX / 2);
      case key::last: return table_.move(PTRDIFF_MAX / 2);
      case key::enter: return open();
      case key::escape: options_.what.text.clear(); return arrange();
      case key::letter: return take_letter(got.letter);
      default: return;
    }
  }

  void take_letter(char letter) {
    switch (letter) {
      case 'k': return table_.move(-1);
      case 'j': return table_.move(1);
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
    constexpr std::ptrdiff_t most_lines = 100000;  // more than there are: `draw_detail` limits it
    top_ = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>(static_cast<std::ptrdiff_t>(top_) + by, 0, most_lines));
  }

  void open() {
    opened_ = table_.selected();
    entries_ = {};
    top_ = 0;
    if (opened_) read_entries(*opened_);
  }

  // --- the screen
  // Lines between the headline and the keys.
  [[nodiscard]] std::size_t room() const { return screen_.lines() - std::min<std::size_t>(screen_.lines(), 2); }

  void draw() {
    screen_.clear();
    screen_.put(0, headline(), problem_.empty() ? style::bold : style::warning);
    if (opened_)
      draw_detail(*opened_);
    else
      table_.draw(screen_, 1, screen_.lines() - 1, nothing_text(from_, taken_, options_.what));
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

  void draw_detail(const cache_key& of) {
    const auto cache = found(of);
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
  table_view table_;
  std::string problem_;
  clock::time_point next_{};
  bool paused_ = false;
  bool typing_ = false;  // the filter
  std::optional<cache_key> opened_;
  std::size_t top_ = 0;  // line of the opened cache
  cache_entries entries_;
  clock::time_point next_entries_{};
};

}  // namespace

int show_live(sampler& from, const live_options& options) { return live_table(from, options).run(); }

}  // namespace tool::top
