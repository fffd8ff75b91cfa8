// SPDX-License-Identifier: BSD-3-Clause
/// \file
/// Debian's Prometheus, in a folder of the test's.
#pragma once

#include "support/processes/child_process.hpp"
#include "support/processes/http_client.hpp"

#include <gtest/gtest.h>

#include <cctype>
#include <chrono>
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

  /// Starts it. The test has no other thread yet.
  prometheus_server(const std::string& folder, std::uint16_t scraped, const std::string& rules)
      : port_(free_port()), child_([&](line&) { return become(folder, scraped, rules); }) {}

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
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    auto found = query(expression);
    while (found.empty() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      found = query(expression);
    }
    return found;
  }

 private:
  static std::uint16_t free_port() {
    const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    static_cast<void>(::bind(probe, reinterpret_cast<const sockaddr*>(&at), size));
    static_cast<void>(::getsockname(probe, reinterpret_cast<sockaddr*>(&at), &size));
    ::close(probe);
    return ntohs(at.sin_port);
  }

  int become(const std::string& folder, std::uint16_t scraped, const std::string& rules) const {
    const auto config = folder + "/prometheus.yml";
    std::ofstream(config) << "global: {scrape_interval: 400ms, scrape_timeout: 400ms}\nrule_files: ['" << rules
                          << "']\nscrape_configs: [{job_name: pinfold, static_configs: [{targets: ['127.0.0.1:"
                          << scraped << "']}]}]\n";
    const int log = ::open((folder + "/prometheus.log").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    ::dup2(log, STDERR_FILENO);
    ::dup2(log, STDOUT_FILENO);
    const auto listen = "--web.listen-address=127.0.0.1:" + std::to_string(port_);
    ::execlp("prometheus", "prometheus", ("--config.file=" + config).c_str(), listen.c_str(),
             ("--storage.tsdb.path=" + folder + "/series").c_str(), nullptr);
    return 127;
  }

  std::uint16_t port_;
  child_process child_;
};

}  // namespace pinfold::testing
