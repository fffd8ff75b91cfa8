// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Debian's Prometheus, in a folder of the test's.
#pragma once

#include "support/processes/child_process.hpp"
#include "support/processes/http_client.hpp"
#include "support/processes/tool_run.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <thread>
#include <unistd.h>

namespace pinfold::testing {

/// A server that scrapes one port every 0.4 s, and has loaded a file of rules.
class prometheus_server {
 public:
  static bool is_installed() { return std::system("command -v prometheus >/dev/null") == 0; }

  /// Starts it, and waits until it listens at a port that the kernel chose. The test has no other thread yet.
  prometheus_server(const std::string& folder, std::uint16_t scraped, const std::string& rules)
      : child_([&](line&) { return become(folder, scraped, rules); }), port_(port_in(log_in(folder))) {}

  /// Returns the data of an answer of its HTTP interface; null while there is none.
  [[nodiscard]] nlohmann::json data(const std::string& path) const {
    try {
      const http_client client(port_);
      client.send("GET " + path + " HTTP/1.0\r\n\r\n");  // an answer without chunks
      const auto answer = client.rest();
      const auto body = answer.find("\r\n\r\n");
      const auto parsed =
          nlohmann::json::parse(body == std::string::npos ? "" : answer.substr(body + 4), nullptr, false);
      if (parsed.is_object() && parsed.value("status", "") == "error") ADD_FAILURE() << parsed.dump();
      return parsed.is_object() ? parsed.value("data", nlohmann::json()) : nlohmann::json();
    } catch (const std::runtime_error&) {
      return {};
    }
  }

  /// Returns the samples of an expression at this moment: each has `metric` and `value`.
  [[nodiscard]] nlohmann::json query(const std::string& expression) const {
    std::string path = "/api/v1/query?query=";
    for (const char one : expression) {
      constexpr const char* digits = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(one);
      if (std::isalnum(byte) != 0)
        path += one;
      else
        ((path += '%') += digits[byte / 16]) += digits[byte % 16];
    }
    const auto found = data(path);
    return found.is_object() ? found.value("result", nlohmann::json::array()) : nlohmann::json::array();
  }

  /// Asks again until an answer has samples, or for a minute.
  [[nodiscard]] nlohmann::json await(const std::string& expression) const {
    return ask_until(expression, [](const nlohmann::json& found) { return !found.empty(); });
  }

  /// Asks again until an answer has so many samples, or for a minute.
  [[nodiscard]] nlohmann::json await(const std::string& expression, std::size_t count) const {
    return ask_until(expression, [count](const nlohmann::json& found) { return found.size() == count; });
  }

 private:
  template <typename Enough>
  [[nodiscard]] nlohmann::json ask_until(const std::string& expression, const Enough& enough) const {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    auto found = query(expression);
    while (!enough(found) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      found = query(expression);
    }
    return found;
  }

  static std::string log_in(const std::string& folder) { return folder + "/prometheus.log"; }

  /// Returns the port that the log names within a minute; 0 without one.
  [[nodiscard]] std::uint16_t port_in(const std::string& log) const {
    const std::string before = "msg=\"Listening on\" address=127.0.0.1:";
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (child_.runs() && std::chrono::steady_clock::now() < deadline) {
      const auto text = contents_of(log);
      const auto at = text.find(before);
      if (at != std::string::npos && text.find('\n', at) != std::string::npos)
        return static_cast<std::uint16_t>(std::stoul(text.substr(at + before.size())));
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return 0;
  }

  static int become(const std::string& folder, std::uint16_t scraped, const std::string& rules) {
    const auto config = folder + "/prometheus.yml";
    std::ofstream(config) << "global: {scrape_interval: 400ms, scrape_timeout: 400ms}\nrule_files: ['" << rules
                          << "']\nscrape_configs: [{job_name: pinfold, static_configs: [{targets: ['127.0.0.1:"
                          << scraped << "']}]}]\n";
    const int log = ::open(log_in(folder).c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(log, STDERR_FILENO);
    ::dup2(log, STDOUT_FILENO);
    ::execlp("prometheus", "prometheus", ("--config.file=" + config).c_str(), "--web.listen-address=127.0.0.1:0",
             ("--storage.tsdb.path=" + folder + "/series").c_str(), nullptr);
    return 127;
  }

  child_process child_;
  std::uint16_t port_;
};

}  // namespace pinfold::testing
