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

/// What stands above the samples of one name.
struct family {
  std::string name;  ///< without `_total` and `_info`; ends with the unit
  family_type type;
  const char* unit;  ///< "" for none
  const char* help;
};

/// How the values of a histogram's buckets become limits.
struct bucket_choice {
  std::size_t first;  ///< bucket whose limit is the first `le`
  std::size_t last;
  std::size_t step;
  bool counts;  ///< the values are counts times 128, else nanoseconds
};

/// Returns `name="value"`, with the value escaped: nothing in it ends the label or the line, and what is not printable
/// ASCII becomes '?'.
[[nodiscard]] std::string label(std::string_view name, std::string_view value);

/// The text so far. A family's heading is written with its first sample, so that none is without samples.
class metrics_text {
 public:
  explicit metrics_text(metrics_format as) : as_(as) {}

  /// Begins a family. All its samples come before the next family.
  void begin(family next);
  /// Add a sample with these labels.
  void add(std::string_view labels, std::uint64_t value);
  void add(std::string_view labels, double value);
  /// Adds the samples of a distribution: cumulative buckets, sum and count.
  void add(std::string_view labels, const histogram& values, const bucket_choice& buckets);
  /// Ends the text, and returns it.
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
