// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/accept.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <string>

namespace tool {
namespace {

// Returns the text before the mark without blanks, in small letters, and removes it with the mark.
std::string take(std::string_view& from, char mark) {
  const auto end = std::min(from.find(mark), from.size());
  std::string text;
  for (const char one : from.substr(0, end))
    if (one != ' ' && one != '\t' && one != '"')
      text += static_cast<char>(std::tolower(static_cast<unsigned char>(one)));
  from.remove_prefix(std::min(end + 1, from.size()));
  return text;
}

// A weight between 0 and 1; what is none is 0.
double weight(std::string_view text) {
  double value = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool good = error == std::errc{} && stop == text.data() + text.size() && value >= 0 && value <= 1;
  return good ? value : 0;
}

struct choice {
  std::string type;
  std::string version;
  double weight = 1;
};

choice next_choice(std::string_view& accept) {
  const auto whole = take(accept, ',');
  std::string_view rest = whole;
  choice made;
  made.type = take(rest, ';');
  while (!rest.empty()) {
    const auto parameter = take(rest, ';');
    if (parameter.starts_with("q=")) made.weight = weight(std::string_view(parameter).substr(2));
    if (parameter.starts_with("version=")) made.version = parameter.substr(8);
  }
  return made;
}

}  // namespace

pinfold::observation::metrics_format format_for(std::string_view accept) {
  double open = 0;
  double plain = 0;
  while (!accept.empty()) {
    const auto one = next_choice(accept);
    if (one.type == "application/openmetrics-text" && (one.version.empty() || one.version == "1.0.0"))
      open = std::max(open, one.weight);
    if (one.type == "text/plain") plain = std::max(plain, one.weight);
  }
  using enum pinfold::observation::metrics_format;
  return open > 0 && open >= plain ? open_metrics : prometheus;
}

}  // namespace tool
