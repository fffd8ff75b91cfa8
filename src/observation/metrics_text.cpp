// SPDX-License-Identifier: BSD-3-Clause
#include "observation/metrics_text.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <utility>

namespace pinfold::observation {

namespace {

constexpr double ns_per_second = 1e9;

// Formats a number independently of the locale.
std::string number(double value) {
  if (std::isinf(value)) return "+Inf";
  std::array<char, 32> buffer{};
  const auto done = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  std::string text(buffer.data(), done.ptr);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

// Saturates: the counters of a page may have any value.
std::uint64_t sum_of(std::uint64_t one, std::uint64_t other) noexcept {
  return one > UINT64_MAX - other ? UINT64_MAX : one + other;
}

// Each count fills a bucket of its own, or shares one with all counts up to the next power of two.
double limit_of(std::size_t bucket, const bucket_choice& of) noexcept {
  const auto limit = static_cast<double>(limit_of_bucket(bucket));
  return of.counts ? limit / 128 - 1 : limit / ns_per_second;
}

const char* word_for(family_type type, metrics_format as) noexcept {
  switch (type) {
    case family_type::counter: return "counter";
    case family_type::histogram: return "histogram";
    case family_type::info: return as == metrics_format::open_metrics ? "info" : "gauge";
    case family_type::gauge: break;
  }
  return "gauge";
}

const char* suffix_of(family_type type) noexcept {
  if (type == family_type::counter) return "_total";
  return type == family_type::info ? "_info" : "";
}

}  // namespace

std::string label(std::string_view name, std::string_view value) {
  std::string text(name);
  text += "=\"";
  for (const char one : value) {
    if (one == '\n')
      text += "\\n";
    else if (one == '"' || one == '\\')
      (text += '\\') += one;
    else
      text += one < ' ' || one > '~' ? '?' : one;
  }
  return text += '"';
}

void metrics_text::begin(family next) {
  now_ = std::move(next);
  headed_ = false;
}

void metrics_text::head() {
  headed_ = true;
  const bool open = as_ == metrics_format::open_metrics;
  const auto name = now_.name + (open ? "" : suffix_of(now_.type));
  text_ += "# HELP " + name + " " + now_.help + ".\n";
  text_ += "# TYPE " + name + " " + word_for(now_.type, as_) + "\n";
  if (open && *now_.unit != '\0') text_ += "# UNIT " + name + " " + now_.unit + "\n";
}

void metrics_text::line(std::string_view suffix, std::string_view labels, std::string_view value) {
  if (!headed_) head();
  (text_ += now_.name) += suffix;
  if (!labels.empty()) ((text_ += '{') += labels) += '}';
  ((text_ += ' ') += value) += '\n';
}

void metrics_text::add(std::string_view labels, std::uint64_t value) {
  line(suffix_of(now_.type), labels, std::to_string(value));
}

void metrics_text::add(std::string_view labels, double value) { line(suffix_of(now_.type), labels, number(value)); }

void metrics_text::add(std::string_view labels, const histogram& values, const bucket_choice& buckets) {
  const std::string before = std::string(labels) + (labels.empty() ? "" : ",");
  std::uint64_t below = 0;
  for (std::size_t i = 0; i < values.counts.size(); ++i) {
    below = sum_of(below, values.counts[i]);
    if (i >= buckets.first && i <= buckets.last && (i - buckets.first) % buckets.step == 0)
      line("_bucket", before + label("le", number(limit_of(i, buckets))), std::to_string(below));
  }
  line("_bucket", before + label("le", "+Inf"), std::to_string(below));
  line("_sum", labels, number(static_cast<double>(values.sum) / (buckets.counts ? 128 : ns_per_second)));
  line("_count", labels, std::to_string(below));
}

std::string metrics_text::end() {
  if (as_ == metrics_format::open_metrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace pinfold::observation
