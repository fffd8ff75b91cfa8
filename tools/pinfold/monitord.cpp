// SPDX-License-Identifier: BSD-3-Clause
#include "cli/failure.hpp"
#include "cli/ignored_signal.hpp"
#include "cli/many_files.hpp"
#include "commands.hpp"

#include <pinfold/monitors/server.hpp>

#include <csignal>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <thread>

namespace tool {

namespace {

// SIGHUP, too, as when a terminal is closed: the socket must not stay. Under nohup it is ignored.
sigset_t ending_signals() {
  sigset_t all;
  ::sigemptyset(&all);
  ::sigaddset(&all, SIGINT);
  ::sigaddset(&all, SIGTERM);
  if (!is_ignored(SIGHUP)) ::sigaddset(&all, SIGHUP);
  return all;
}

int serve(const pinfold::monitor_server_options& options) {
  const auto ending = ending_signals();
  ::pthread_sigmask(SIG_BLOCK, &ending, nullptr);  // before there are threads: one thread waits for these signals
  allow_many_files();                              // two for each process that it serves
  auto server = need(pinfold::monitor_server::start(options), "cannot serve at " + options.socket);
  std::printf("serving at %s; SIGINT or SIGTERM ends it\n", options.socket.c_str());
  std::fflush(stdout);
  std::thread waiter([&] {
    int got = 0;
    ::sigwait(&ending, &got);
    server.stop();
  });
  server.run();
  waiter.join();
  return 0;
}

}  // namespace

void add_monitord(CLI::App& app, action& chosen) {
  auto options = std::make_shared<pinfold::monitor_server_options>();
  auto mode = std::make_shared<std::string>("0666");
  auto* own = app.add_subcommand("monitord", "Serves the bpf monitor to programs without privileges");
  own->add_option("--socket", options->socket, "path of the server's socket, to which caches connect")
      ->capture_default_str();
  own->add_option("--mode", *mode, "the socket's permissions, in octal")
      ->capture_default_str()
      ->check([](const std::string& text) {
        const bool octal = !text.empty() && text.size() <= 4 && text.find_first_not_of("01234567") == std::string::npos;
        return octal ? std::string() : std::string("permissions are up to four octal digits");
      });
  own->footer(
      "Needs CAP_BPF and CAP_PERFMON. Each process gets only what the kernel records about its own memory. While "
      "the server serves a process, every system call in the system takes about 24 ns longer.");
  own->callback([options, mode, &chosen] {
    options->mode = static_cast<unsigned>(std::stoul(*mode, nullptr, 8));
    chosen = [options] { return serve(*options); };
  });
}

}  // namespace tool
