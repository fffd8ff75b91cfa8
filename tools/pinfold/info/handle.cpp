// SPDX-License-Identifier: BSD-3-Clause
#include "info/handle.hpp"

#include "cli/failure.hpp"

#include <pinfold/handle.hpp>
#include <pinfold/importers/cuda_ipc.hpp>
#include <pinfold/importers/memfd.hpp>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <istream>
#include <utility>
#include <vector>

namespace tool {

namespace {

constexpr std::size_t memfd_bytes = sizeof(pinfold::memfd_handle);
constexpr std::size_t cuda_bytes = sizeof(pinfold::cuda_ipc_handle);

bool is_length(std::size_t bytes) { return bytes == memfd_bytes || bytes == cuda_bytes; }

/// Returns nothing where the text is not the digits of as many bytes as a handle has: it may be a file's name.
std::vector<char> bytes_of_digits(const std::string& text) {
  std::vector<char> bytes;
  if (text.size() % 2 != 0 || !is_length(text.size() / 2)) return bytes;
  for (std::size_t at = 0; at < text.size(); at += 2) {
    unsigned char byte = 0;
    const char* const end = text.data() + at + 2;
    if (std::from_chars(text.data() + at, end, byte, 16).ptr != end) return {};
    bytes.push_back(static_cast<char>(byte));
  }
  return bytes;
}

/// Reads at most one byte more than a handle has: the file may be a device without end.
std::vector<char> bytes_in(std::istream& source) {
  std::vector<char> bytes(cuda_bytes + 1);
  source.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  bytes.resize(static_cast<std::size_t>(source.gcount()));
  return bytes;
}

std::vector<char> bytes_of(const std::string& file_or_digits) {
  if (auto bytes = bytes_of_digits(file_or_digits); !bytes.empty()) return bytes;
  std::ifstream source(file_or_digits, std::ios::binary);
  if (!source)
    throw usage_failure("--handle: neither a file nor the hexadecimal digits of a handle: " + file_or_digits);
  auto bytes = bytes_in(source);
  if (source.bad())
    throw usage_failure(fmt::format("--handle {}: cannot read the file: {}", file_or_digits, strerrordesc_np(errno)));
  if (is_length(bytes.size())) return bytes;
  throw usage_failure(fmt::format("--handle {}: {} bytes{} are no handle: memfd handles have {}, cuda_ipc handles {}",
                                  file_or_digits, bytes.size(), bytes.size() > cuda_bytes ? " and more" : "",
                                  memfd_bytes, cuda_bytes));
}

json names_of(pinfold::handle_needs needs) {
  using enum pinfold::handle_needs;
  constexpr std::array names{
      std::pair{same_host, "same_host"},     std::pair{exporter_runs, "exporter_runs"},
      std::pair{same_user, "same_user"},     std::pair{exporter_serves, "exporter_serves"},
      std::pair{cuda_driver, "cuda_driver"}, std::pair{device_access, "device_access"},
      std::pair{fabric, "fabric"},
  };
  json all = json::array();
  for (const auto& [one, name] : names)
    if (contains_all(needs, one)) all.push_back(name);
  return all;
}

template <class Importer>
json facts_by(const std::vector<char>& bytes) {
  typename Importer::handle_type handle;
  std::memcpy(static_cast<void*>(&handle), bytes.data(), sizeof handle);
  const Importer importer;
  json facts{{"kind", Importer::name}, {"version", handle.magic & 0xffU}};
  const auto where = importer.check(handle);
  if (where) {
    facts["base"] = where->begin;
    facts["bytes"] = where->size();
    facts["pid"] = handle.pid;
    facts["host"] = handle.host;
    facts["needs"] = names_of(needs(handle));
  }
  const auto possible = importer.can_open(handle);
  facts["can_open"] = possible.has_value();
  facts["why_not"] = possible ? "" : pinfold::describe(possible.error());
  return facts;
}

}  // namespace

json handle_facts(const std::string& file_or_digits) {
  const auto bytes = bytes_of(file_or_digits);
  if (bytes.size() == memfd_bytes) return facts_by<pinfold::memfd_importer>(bytes);
  return facts_by<pinfold::cuda_ipc_importer>(bytes);
}

void print_handle(const json& facts) {
  fmt::print("{} handle, version {}\n", facts.at("kind").get<std::string>(), facts.at("version").get<unsigned>());
  if (facts.contains("needs")) {
    fmt::print("  memory    {} bytes at {:#x} of process {}\n", facts.at("bytes").get<std::uint64_t>(),
               facts.at("base").get<std::uint64_t>(), facts.at("pid").get<int>());
    fmt::print("  needs    ");
    for (const auto& one : facts.at("needs")) fmt::print(" {}", one.get<std::string>());
    fmt::print("\n");
  }
  const bool possible = facts.at("can_open").get<bool>();
  fmt::print("{}", paragraph("  can open  ", possible ? "yes" : "no: " + facts.at("why_not").get<std::string>()));
}

}  // namespace tool
