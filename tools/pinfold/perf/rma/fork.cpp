// SPDX-License-Identifier: BSD-3-Clause
// Ranks on this host, forked before anything else happens.
#include "cli/failure.hpp"
#include "perf/rma/interrupts.hpp"
#include "perf/rma/options.hpp"
#include "perf/rma/star.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <system_error>
#include <thread>
#include <unistd.h>

namespace tool {
namespace {

// Rank 0's peers: no child is left when rank 0 ends.
class forked_peers : public star_peers {
 public:
  forked_peers(place where, std::vector<rma_link> links, std::vector<pid_t> children)
      : star_peers(std::move(where), std::move(links)), children_(std::move(children)) {}
  ~forked_peers() override {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(failed_ ? 1 : 10);
    for (const auto child : children_) reap(child, deadline);
  }
  void give_up(std::string_view why) noexcept override {
    failed_ = true;
    star_peers::give_up(why);
  }

 private:
  // A child in a driver call that does not return cannot be killed: it is left to init, with a message.
  static void reap(pid_t child, std::chrono::steady_clock::time_point deadline) {
    if (ends_by(child, deadline)) return;
    ::kill(child, SIGKILL);
    if (!ends_by(child, deadline + std::chrono::seconds(5)))
      fmt::print(stderr, "pinfold: process {} did not end and was killed\n", child);
  }

  static bool ends_by(pid_t child, std::chrono::steady_clock::time_point deadline) {
    for (;;) {
      const auto ended = ::waitpid(child, nullptr, WNOHANG);
      if (ended == child || (ended < 0 && errno != EINTR)) return true;
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  }

  std::vector<pid_t> children_;
  bool failed_ = false;
};

}  // namespace

std::unique_ptr<rma_peers> fork_peers(const rma_options& options) {
  std::vector<rma_link> links;
  std::vector<pid_t> children;
  const auto parent = ::getpid();
  for (std::size_t rank = 1; rank < options.ranks; ++rank) {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()) != 0)
      throw failure(fmt::format("cannot start rank {}: {}", rank, std::generic_category().message(errno)));
    rma_socket ours(ends[0]), theirs(ends[1]);
    const auto child = ::fork();
    if (child < 0) throw failure(fmt::format("cannot start rank {}: {}", rank, std::generic_category().message(errno)));
    if (child == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (::getppid() != parent) ::_exit(1);
      links.clear();  // or no rank would see the parent hang up
      ours = rma_socket();
      take_interrupts({});
      links.emplace_back(std::move(theirs));
      return std::make_unique<star_peers>(star_peers::place{rank, options.ranks, "", false}, std::move(links));
    }
    children.push_back(child);
    links.emplace_back(std::move(ours));
  }
  take_interrupts(children);
  return std::make_unique<forked_peers>(star_peers::place{0, options.ranks, "", true}, std::move(links),
                                        std::move(children));
}

}  // namespace tool
