// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Writes families of samples in OpenMetrics or in Prometheus's older format.
#pragma once

#include <pinfold/observation/layout.hpp>
#include <pinfold/observation/open_metrics.hpp>

#include <cstdint>
#include <string>
#include <string_view>

namespace pinfold::observation {

enum class family_type : std::uint8_t { counter, gauge, histogram, info };

/// The heading of the samples of one name.
struct family {
  std::string name;  ///< without `_total` and `_info`; ends with the unit
  family_type type;
  const char* unit;  ///< "" for none
  const char* help;
};

/// Maps the buckets of a histogram to limits.
struct bucket_choice {
  std::size_t first;  ///< bucket whose limit is the first `le`
  std::size_t last;
  std::size_t step;
  bool counts;  ///< the values are counts times 128, else nanoseconds
};

/// Returns `name="value"`, with the value escaped: no character of it ends the label or the line, and characters other
/// than printable ASCII become '?'.
[[nodiscard]] std::string label(std::string_view name, std::string_view value);

/// The text so far. Writes a family's heading with its first sample, so that no family is empty.
class metrics_text {
 public:
  explicit metrics_text(metrics_format as) : as_(as) {}

  /// Begins a family. All its samples must come before the next family.
  void begin(family next);
  void add(std::string_view labels, std::uint64_t value);
  void add(std::string_view labels, double value);
  /// Adds the samples of a distribution: cumulative buckets, sum and count.
  void add(std::string_view labels, const histogram& values, const bucket_choice& buckets);
  [[nodiscard]] std::string end();

 private:
  void head();
  void line(std::string_view suffix, std::string_view labels, std::string_view value);

  metrics_format as_;
  family now_{};
  bool headed_ = true;
  std::string text_;
};

}  // namespace pinfold::observation
