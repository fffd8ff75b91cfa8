// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Text that a signal handler may format.
#pragma once

#include <algorithm>
#include <array>
#include <charconv>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace pinfold::inspection {

struct hex {
  std::uint64_t value;
};

/// A text of at most `N` bytes; the rest is cut off. Allocates nothing.
template <std::size_t N>
class text {
 public:
  text& operator<<(std::string_view more) noexcept {
    const auto kept = more.substr(0, N - used_);
    std::copy(kept.begin(), kept.end(), buffer_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ += kept.size();
    return *this;
  }
  template <std::integral T>
    requires(!std::same_as<T, char>)
  text& operator<<(T number) noexcept {
    return append(number, 10);
  }
  text& operator<<(hex number) noexcept { return (*this << "0x").append(number.value, 16); }
  text& operator<<(char one) noexcept { return *this << std::string_view(&one, 1); }

  [[nodiscard]] std::string_view view() const noexcept { return {buffer_.data(), used_}; }
  [[nodiscard]] const char* terminated() noexcept {
    buffer_[used_] = '\0';
    return buffer_.data();
  }
  [[nodiscard]] std::size_t room() const noexcept { return N - used_; }
  void clear() noexcept { used_ = 0; }

 private:
  template <class T>
  text& append(T number, int base) noexcept {
    std::array<char, 24> digits{};
    const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), number, base).ptr;
    return *this << std::string_view(digits.data(), static_cast<std::size_t>(end - digits.data()));
  }

  std::array<char, N + 1> buffer_{};
  std::size_t used_ = 0;
};

}  // namespace pinfold::inspection
