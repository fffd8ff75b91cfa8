// SPDX-License-Identifier: BSD-3-Clause
// The page of `pinfold report` in a browser: Chromium without a window, skipped where that is missing.
#include "support/processes/tool_run.hpp"
#include "support/processes/traces.hpp"

#include <cstdint>
#include <filesystem>
#include <png.h>
#include <set>
#include <string>
#include <vector>

namespace pinfold::testing::cli_report_page_test {
namespace {

namespace fs = std::filesystem;

/// A picture of a page, with 4 bytes for each pixel.
struct picture {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  std::vector<std::uint8_t> bytes;

  [[nodiscard]] std::uint32_t pixel(std::size_t number) const {
    return std::uint32_t{bytes[4 * number]} << 16U | std::uint32_t{bytes[4 * number + 1]} << 8U | bytes[4 * number + 2];
  }
  [[nodiscard]] std::size_t pixels() const { return bytes.size() / 4; }
  [[nodiscard]] std::set<std::uint32_t> colours() const {
    std::set<std::uint32_t> found;
    for (std::size_t i = 0; i < pixels(); ++i) found.insert(pixel(i));
    return found;
  }
  [[nodiscard]] double share_of(std::uint32_t colour) const {
    std::size_t number = 0;
    for (std::size_t i = 0; i < pixels(); ++i) number += pixel(i) == colour ? 1 : 0;
    return static_cast<double>(number) / static_cast<double>(pixels());
  }
};

picture read_picture(const std::string& path) {
  picture made;
  png_image image{};
  image.version = PNG_IMAGE_VERSION;
  if (png_image_begin_read_from_file(&image, path.c_str()) == 0) return made;
  image.format = PNG_FORMAT_RGBA;
  made.bytes.resize(PNG_IMAGE_SIZE(image));
  if (png_image_finish_read(&image, nullptr, made.bytes.data(), 0, nullptr) == 0) return {};
  made.width = image.width;
  made.height = image.height;
  return made;
}

class cli_report_page : public ::testing::Test {
 protected:
  void SetUp() override {
    if (std::system("chromium --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "chromium is not installed";
    fs::create_directories(folder_);
    std::ofstream(folder_ / "a.trace") << "# pinfold trace 1\n" << random_trace(1, 3000);
    ASSERT_EQ(run("report --budget 200K '" + (folder_ / "a.trace").string() + "'").status, 0);
  }
  void TearDown() override { fs::remove_all(folder_); }

  // Without its sandbox, which containers and root do not allow: the page is ours.
  std::string browse(const std::string& options) const {
    const auto command = "chromium --headless --no-sandbox --disable-gpu --user-data-dir='" + folder_.string() +
                         "/profile' " + options + " 'file://" + folder_.string() + "/a.trace.html' 2>/dev/null";
    std::string out;
    FILE* pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) return out;
    std::array<char, 4096> buffer{};
    for (std::size_t got = 0; (got = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) out.append(buffer.data(), got);
    EXPECT_EQ(pclose(pipe), 0) << command;
    return out;
  }
  picture photograph(const char* scheme) const {
    const auto path = (folder_ / (std::string(scheme) + ".png")).string();
    browse(std::string("--blink-settings=preferredColorScheme=") + scheme + " --window-size=1000,2400 --screenshot='" +
           path + "'");
    auto made = read_picture(path);
    EXPECT_EQ(made.width, 1000U);
    EXPECT_GE(made.height, 2000U);
    return made;
  }

  const fs::path folder_ = fs::canonical(::testing::TempDir()) / ("pinfold_report_page_" + std::to_string(getpid()));
};

constexpr std::uint32_t white = 0xFFFFFF;
constexpr std::uint32_t dark_paper = 0x14181E;

TEST_F(cli_report_page, light_page_has_charts) {
  const auto seen = photograph("1");
  EXPECT_GT(seen.share_of(white), 0.5);
  EXPECT_LT(seen.share_of(white), 0.97);
  EXPECT_EQ(seen.share_of(dark_paper), 0);
  EXPECT_GT(seen.colours().size(), 200U);
  EXPECT_GT(seen.share_of(0x3F9A6D), 0.002) << "the bars of repeated misses";
}

TEST_F(cli_report_page, dark_page_has_charts) {
  const auto seen = photograph("0");
  EXPECT_GT(seen.share_of(dark_paper), 0.5);
  EXPECT_LT(seen.share_of(dark_paper), 0.97);
  EXPECT_LT(seen.share_of(white), 0.001);
  EXPECT_GT(seen.colours().size(), 200U);
  EXPECT_GT(seen.share_of(0x64C294), 0.002) << "the bars of repeated misses";
}

TEST_F(cli_report_page, browser_understands_the_whole_page) {
  const auto page = browse("--dump-dom");
  for (const char* text : {"<h2>1.1 random</h2>", "Misses by kind", "How to read this page", "200 KiB (the cache's)"})
    EXPECT_NE(page.find(text), std::string::npos) << text;
  std::size_t open = 0;
  for (const char* tag : {"<section", "<table", "<svg", "<figure"}) {
    const auto written = contents_of((folder_ / "a.trace.html").string());
    const auto number_in = [tag](const std::string& text) {
      std::size_t number = 0;
      for (auto at = text.find(tag); at != std::string::npos; at = text.find(tag, at + 1)) ++number;
      return number;
    };
    EXPECT_EQ(number_in(page), number_in(written)) << tag;
    open += number_in(page);
  }
  EXPECT_GT(open, 10U);
}

}  // namespace
}  // namespace pinfold::testing::cli_report_page_test
