// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Charts in SVG, readable without colour: lines differ in their dashes and marks, bars in their patterns.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace tool {

/// The unit of an axis.
enum class axis_unit { count, bytes, nanoseconds, percent };

struct chart_axis {
  std::string name;
  axis_unit unit = axis_unit::count;
  double most = 0;     ///< the axis begins at 0
  bool exact = false;  ///< the axis ends there, not at the next tick
};

/// A line through points. The style is a number, which the style sheet gives a colour, and this file dashes.
struct chart_line {
  std::string name;
  std::vector<std::pair<double, double>> points;
  std::size_t style = 0;
  bool steps = false;  ///< horizontal from each point to the next
  bool marks = false;  ///< a mark at each point
};

/// Values that are stacked above each other, one for each bar.
struct chart_bars {
  std::string name;
  std::vector<double> values;
  std::size_t style = 0;
};

/// A chart. Bars are equally wide and fill the axis. Names, titles and tips are text, not HTML.
struct chart {
  std::string id;           ///< of its elements, in the page
  std::string title;        ///< for readers of the screen, and above the chart
  std::string description;  ///< the content in words
  chart_axis x;
  chart_axis y;
  std::vector<chart_bars> bars;
  std::vector<std::string> tips;  ///< for each bar, shown under the pointer
  std::vector<chart_line> lines;
  int height = 250;
};

/// Returns the chart as a figure with its legend.
[[nodiscard]] std::string to_svg(const chart& shown);

/// Returns the patterns that all charts of a page use, once for each page.
[[nodiscard]] std::string chart_patterns();

}  // namespace tool
