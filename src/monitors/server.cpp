// SPDX-License-Identifier: BSD-3-Clause
#include <pinfold/monitors/server.hpp>

#include "monitors/bpf/server.hpp"

namespace pinfold {

struct monitor_server::inside {
  std::unique_ptr<monitors::bpf_server> server;
};

result<monitor_server> monitor_server::start(const monitor_server_options& options) {
  monitors::bpf_server_options with;
  with.socket = options.socket;
  with.mode = static_cast<mode_t>(options.mode);
  auto made = monitors::bpf_server::start(with);
  if (!made) return tl::unexpected(made.error());
  return monitor_server(std::make_unique<inside>(inside{std::move(*made)}));
}

monitor_server::monitor_server(std::unique_ptr<inside> made) noexcept : inside_(std::move(made)) {}
monitor_server::monitor_server(monitor_server&&) noexcept = default;
monitor_server& monitor_server::operator=(monitor_server&&) noexcept = default;
monitor_server::~monitor_server() = default;

void monitor_server::run() {
  if (inside_) inside_->server->run();
}
void monitor_server::stop() noexcept {
  if (inside_) inside_->server->stop();
}

}  // namespace pinfold
