// SPDX-License-Identifier: BSD-3-Clause
#include "trace/report/chart.hpp"

#include "trace/report/html.hpp"
#include "trace/report/ticks.hpp"

#include <algorithm>
#include <array>
#include <fmt/format.h>
#include <string_view>
#include <utility>

namespace tool {
namespace {

using html::escaped;

constexpr double width = 880;
constexpr double left = 84;
constexpr double right = 24;
constexpr double top = 12;
constexpr double bottom = 48;
constexpr int ticks_along = 8;
constexpr int ticks_up = 4;

// Dashes and marks by style, so that lines differ without colour.
constexpr std::array dashes{"", "8 4", "2 4", "10 3 2 3", "5 5", "14 4"};

constexpr std::array marks{"M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
                           "M-4 -4h8v8h-8z",
                           "M0 -5l5 9h-10z",
                           "M0 -5l5 5l-5 5l-5 -5z",
                           "M0 5l5 -9h-10z",
                           "M-4 -4l8 8m0 -8l-8 8"};

/// The drawing of one chart.
class drawing {
 public:
  explicit drawing(const chart& of)
      : of_(of),
        along_(ticks_for(of.x.most, of.x.unit, ticks_along)),
        up_(ticks_for(of.y.most, of.y.unit, ticks_up)),
        across_most_(of.x.exact ? of.x.most : along_.back()) {}

  std::string svg() {
    text_ = fmt::format(
        "<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-labelledby=\"{}-t {}-d\">\n<title id=\"{}-t\">{}</title>\n"
        "<desc id=\"{}-d\">{}</desc>\n",
        width, of_.height, of_.id, of_.id, of_.id, escaped(of_.title), of_.id, escaped(of_.description));
    draw_grid();
    draw_bars();
    for (const auto& one : of_.lines) draw_line(one);
    draw_axes();
    return std::move(text_) + "</svg>\n";
  }

 private:
  [[nodiscard]] double floor() const noexcept { return of_.height - bottom; }
  [[nodiscard]] double x(double value) const noexcept {
    return left + (width - left - right) * (across_most_ > 0 ? value / across_most_ : 0);
  }
  [[nodiscard]] double y(double value) const noexcept { return floor() - (floor() - top) * value / up_.back(); }

  void draw_grid() {
    for (const double tick : up_) {
      text_ += fmt::format("<line class=\"grid\" x1=\"{}\" x2=\"{}\" y1=\"{:.1f}\" y2=\"{:.1f}\"/>", left,
                           width - right, y(tick), y(tick));
      text_ += fmt::format("<text class=\"tick\" x=\"{}\" y=\"{:.1f}\" text-anchor=\"end\">{}</text>\n", left - 8,
                           y(tick) + 4, tick_text(tick, of_.y.unit));
    }
  }

  // The bars' patterns keep their place on the page, so a bar of any height shows its own.
  void draw_bars() {
    const auto number = of_.bars.empty() ? 0 : of_.bars.front().values.size();
    const double each = (width - left - right) / static_cast<double>(std::max<std::size_t>(number, 1));
    const double gap = std::min(1.0, each / 4);
    for (std::size_t i = 0; i < number; ++i) {
      const double begin = left + each * static_cast<double>(i);
      double below = 0;
      text_ += "<g>";
      if (i < of_.tips.size()) text_ += fmt::format("<title>{}</title>", escaped(of_.tips[i]));
      text_ += fmt::format("<rect class=\"hover\" x=\"{:.2f}\" y=\"{}\" width=\"{:.2f}\" height=\"{:.1f}\"/>", begin,
                           top, each, floor() - top);
      for (const auto& one : of_.bars) {
        const double value = one.values[i];
        if (value > 0)
          text_ += fmt::format("<rect class=\"bar{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\"/>",
                               one.style, begin + gap / 2, y(below + value), each - gap, y(below) - y(below + value));
        below += value;
      }
      text_ += "</g>\n";
    }
  }

  void draw_line(const chart_line& line) {
    std::string path;
    double last = 0;
    for (const auto& [across, high] : line.points) {
      if (!path.empty() && line.steps) path += fmt::format("L{:.2f} {:.2f}", x(across), y(last));
      path += fmt::format("{}{:.2f} {:.2f}", path.empty() ? "M" : "L", x(across), y(high));
      last = high;
    }
    text_ += fmt::format("<path class=\"line{}\" stroke-dasharray=\"{}\" d=\"{}\"/>\n", line.style,
                         dashes.at(line.style % dashes.size()), path);
    if (!line.marks) return;
    for (const auto& [across, high] : line.points)
      text_ += mark(line.style, x(across), y(high),
                    fmt::format("{}: {} at {}", line.name, tick_text(high, of_.y.unit), tick_text(across, of_.x.unit)));
    text_ += "\n";
  }

  static std::string mark(std::size_t style, double at, double high, const std::string& tip) {
    return fmt::format("<g><title>{}</title><use href=\"#mark{}\" x=\"{:.2f}\" y=\"{:.2f}\"/></g>", escaped(tip), style,
                       at, high);
  }

  void draw_axes() {
    text_ += fmt::format("<line class=\"axis\" x1=\"{}\" x2=\"{}\" y1=\"{}\" y2=\"{}\"/>\n", left, width - right,
                         floor(), floor());
    for (const double tick : along_) {
      if (tick > across_most_) continue;
      text_ += fmt::format("<line class=\"axis\" x1=\"{:.1f}\" x2=\"{:.1f}\" y1=\"{}\" y2=\"{}\"/>", x(tick), x(tick),
                           floor(), floor() + 5);
      text_ += fmt::format("<text class=\"tick\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n", x(tick),
                           floor() + 19, tick_text(tick, of_.x.unit));
    }
    text_ += fmt::format("<text class=\"name\" x=\"{}\" y=\"{}\" text-anchor=\"middle\">{}</text>\n",
                         (left + width - right) / 2, of_.height - 8, escaped(of_.x.name));
    text_ += fmt::format(
        "<text class=\"name\" transform=\"translate(15 {:.1f}) rotate(-90)\" text-anchor=\"middle\">{}"
        "</text>\n",
        (top + floor()) / 2, escaped(of_.y.name));
  }

  const chart& of_;
  std::vector<double> along_;
  std::vector<double> up_;
  double across_most_;
  std::string text_;
};

std::string legend(const chart& of) {
  std::string text = "<ul class=\"legend\">";
  constexpr std::string_view sample = "<svg class=\"sample\" viewBox=\"0 0 34 14\" aria-hidden=\"true\">";
  for (const auto& one : of.bars)
    text += fmt::format("<li>{}<rect class=\"bar{}\" x=\"4\" width=\"26\" height=\"14\"/></svg>{}</li>", sample,
                        one.style, escaped(one.name));
  for (const auto& one : of.lines)
    text += fmt::format("<li>{}<path class=\"line{}\" stroke-dasharray=\"{}\" d=\"M0 7H34\"/>{}</svg>{}</li>", sample,
                        one.style, dashes.at(one.style % dashes.size()),
                        one.marks ? fmt::format("<use href=\"#mark{}\" x=\"17\" y=\"7\"/>", one.style) : "",
                        escaped(one.name));
  return text + "</ul>\n";
}

}  // namespace

std::string to_svg(const chart& shown) {
  return fmt::format("<figure>\n<figcaption>{}</figcaption>\n{}{}</figure>\n", escaped(shown.title), legend(shown),
                     drawing(shown).svg());
}

std::string chart_patterns() {
  constexpr std::array strokes{"", "M0 6L6 0M-1 1L1 -1M5 7L7 5", "M0 3H6", "M3 0V6", "M0 0L6 6M0 6L6 0", "M3 3h.01"};
  std::string text = "<svg class=\"patterns\" aria-hidden=\"true\"><defs>\n";
  for (std::size_t i = 0; i < strokes.size(); ++i)
    text += fmt::format(
        "<pattern id=\"pattern{}\" width=\"6\" height=\"6\" patternUnits=\"userSpaceOnUse\"><rect class=\"fill{}\" "
        "width=\"6\" height=\"6\"/><path class=\"hatch\" d=\"{}\"/></pattern>\n",
        i, i, strokes.at(i));
  for (std::size_t i = 0; i < marks.size(); ++i)
    text += fmt::format("<path id=\"mark{}\" class=\"mark{}\" d=\"{}\"/>\n", i, i, marks.at(i));
  return text + "</defs></svg>\n";
}

}  // namespace tool
