// SPDX-License-Identifier: BSD-3-Clause
// `pinfold info --handle`.
#include "support/processes/tool_run.hpp"

#include <pinfold/importers/memfd.hpp>

#include <cctype>
#include <cstring>

namespace pinfold::testing::cli_handle_test {
namespace {

std::string recorded(const std::string& file) { return PINFOLD_RECORDED_HANDLES "/" + file; }

json facts_of(const std::string& file_or_digits) {
  const auto seen = run("info --json --handle='" + file_or_digits + "'");
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  auto facts = json::parse(seen.out, nullptr, false);
  EXPECT_TRUE(facts.is_object()) << seen.out;
  return facts;
}

std::string digits_of(const std::string& bytes) {
  std::string digits;
  for (const char one : bytes) {
    const auto byte = static_cast<unsigned char>(one);
    digits += {"0123456789abcdef"[byte / 16], "0123456789abcdef"[byte % 16]};
  }
  return digits;
}

std::string bytes_of(const memfd_handle& handle) {
  std::string bytes(sizeof handle, '\0');
  std::memcpy(bytes.data(), &handle, sizeof handle);
  return bytes;
}

/// A file that ends with the test.
class file_of {
 public:
  explicit file_of(const std::string& bytes, const std::string& name = "pinfold_handle")
      : path_(::testing::TempDir() + name + "_" + std::to_string(::getpid())) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  file_of(const file_of&) = delete;
  file_of& operator=(const file_of&) = delete;
  ~file_of() { std::remove(path_.c_str()); }

  [[nodiscard]] const std::string& path() const noexcept { return path_; }

 private:
  std::string path_;
};

TEST(cli_handle, recorded_handles_of_each_version_and_kind_are_described) {
  for (const int version : {1, 2})
    for (const std::string kind : {"memfd", "cuda_ipc_allocation", "cuda_ipc_segments", "cuda_ipc_pool"}) {
      SCOPED_TRACE(kind + " of version " + std::to_string(version));
      const auto facts = facts_of(recorded("version-" + std::to_string(version) + "/" + kind + ".bin"));
      EXPECT_EQ(facts.at("kind"), kind == "memfd" ? "memfd" : "cuda_ipc");
      EXPECT_EQ(facts.at("version"), version);
      EXPECT_EQ(facts.at("base"), 0x7f00'0000'0000U);
      EXPECT_EQ(facts.at("bytes"), 0x20'0000);
      EXPECT_EQ(facts.at("pid"), 4321);
      EXPECT_EQ(facts.at("host"), version == 1 ? 0 : 0xbeef);
      EXPECT_EQ(facts.at("can_open"), false);
      EXPECT_NE(facts.at("why_not"), "");
    }
}

TEST(cli_handle, what_a_handle_needs_depends_on_its_kind) {
  const auto needs = [](const std::string& kind) {
    return facts_of(recorded("version-2/" + kind + ".bin")).at("needs");
  };
  const json memfd{"same_host", "exporter_runs", "same_user"};
  const json served{"same_host", "exporter_runs", "same_user", "exporter_serves", "cuda_driver", "device_access"};
  EXPECT_EQ(needs("memfd"), memfd);
  EXPECT_EQ(needs("cuda_ipc_allocation"), served);
  EXPECT_EQ(needs("cuda_ipc_segments"), served);
  EXPECT_EQ(needs("cuda_ipc_pool"), served);
}

TEST(cli_handle, digits_in_either_case_say_what_the_file_says) {
  const auto path = recorded("version-2/cuda_ipc_pool.bin");
  auto digits = digits_of(contents_of(path));
  EXPECT_EQ(facts_of(digits), facts_of(path));
  for (char& one : digits) one = static_cast<char>(std::toupper(static_cast<unsigned char>(one)));
  EXPECT_EQ(facts_of(digits), facts_of(path));
}

TEST(cli_handle, memory_of_a_running_exporter_can_be_opened) {
  auto exporter = memfd_exporter::create({.serve = true}).value();
  const auto buffer = exporter.allocate(4096).value();
  const auto facts = facts_of(digits_of(bytes_of(buffer.handle())));
  EXPECT_EQ(facts.at("pid"), ::getpid());
  EXPECT_EQ(facts.at("can_open"), true) << facts;
  EXPECT_EQ(facts.at("why_not"), "");
  const auto text = run("info --handle=" + digits_of(bytes_of(buffer.handle())));
  EXPECT_NE(text.out.find("memfd handle, version 2"), std::string::npos) << text.out;
  EXPECT_NE(text.out.find("can open  yes"), std::string::npos) << text.out;
}

TEST(cli_handle, a_damaged_handle_is_described_as_far_as_it_is_known) {
  auto bytes = contents_of(recorded("version-2/memfd.bin"));
  bytes[24] ^= 1;
  const file_of damaged(bytes);
  const auto facts = facts_of(damaged.path());
  EXPECT_EQ(facts.at("kind"), "memfd");
  EXPECT_EQ(facts.at("can_open"), false);
  EXPECT_FALSE(facts.contains("needs")) << facts;
  EXPECT_NE(facts.at("why_not").get<std::string>().find("invalid_handle"), std::string::npos) << facts;
  const auto text = run("info --handle=" + damaged.path());
  EXPECT_EQ(text.status, 0);
  EXPECT_NE(text.out.find("can open  no: "), std::string::npos) << text.out;
}

TEST(cli_handle, what_is_no_handle_is_wrong_usage) {
  const auto whole = contents_of(recorded("version-2/memfd.bin"));
  const file_of part(whole.substr(1));
  const file_of empty("", "pinfold_empty");
  expect_refused("info --handle=no-such-file", "neither a file nor");
  expect_refused("info --handle=" + digits_of(whole).substr(1), "neither a file nor");
  expect_refused("info --handle=" + digits_of(whole).replace(5, 1, "g"), "neither a file nor");
  expect_refused("info --handle=0123", "neither a file nor");
  expect_refused("info --handle=" + part.path(), part.path() + ": 71 bytes are no handle");
  expect_refused("info --handle=" + empty.path(), empty.path() + ": 0 bytes are no handle");
  expect_refused("info --handle=/dev/zero", "/dev/zero: 161 bytes and more are no handle");
  expect_refused("info --handle=/proc", "/proc: cannot read the file: Is a directory");
}

TEST(cli_handle, a_file_may_have_a_name_of_digits) {
  const auto seen = run("info --json --handle=0123", "cd '" + ::testing::TempDir() + "' && ln -sf '" +
                                                         recorded("version-2/memfd.bin") + "' 0123 &&");
  std::remove((::testing::TempDir() + "0123").c_str());
  EXPECT_EQ(seen.status, 0) << seen.complaints;
  EXPECT_NE(seen.out.find("\"memfd\""), std::string::npos) << seen.out;
}

TEST(cli_handle, excludes_the_other_questions) {
  expect_each_refused({{"info --handle=/dev/null --config", "--config"},
                       {"info --handle=/dev/null --node-budget=any", "--node-budget"}});
}

}  // namespace
}  // namespace pinfold::testing::cli_handle_test
