// SPDX-License-Identifier: BSD-3-Clause
// Importers outside of the PID namespace of their exporter, to which they have no number (R66).
#include "fd_passing/client.hpp"
#include "release/endpoint.hpp"
#include "release/server.hpp"
#include "support/processes/pid_namespace.hpp"

#include <pinfold/importers/memfd.hpp>

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <optional>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace pinfold::release::release_pid_namespace_test {
namespace {

using testing::line;

int export_memory(line& parent) {
  auto exporter = memfd_exporter::create({.release = true}).value();
  const auto buffer = exporter.allocate(4096).value();
  return parent.send(buffer.handle()) && !parent.receive<int>() ? 0 : 1;
}

/// Exports memory in process 1 of a PID namespace, and makes process 1 of another one, which destroys its copies. Says
/// whether the exporter serves afterwards.
int export_and_make_another_process_1(line& parent) {
  std::optional exporter = memfd_exporter::create({.serve = true, .release = true}).value();
  std::optional buffer = exporter->allocate(4096).value();
  if (::unshare(CLONE_NEWPID) != 0) return 1;
  const pid_t child = ::fork();
  if (child == 0) {
    buffer.reset();
    exporter.reset();
    std::_Exit(::getpid() == 1 ? 0 : 2);
  }
  int status = 0;
  if (::waitpid(child, &status, 0) != child || status != 0) return 1;
  memfd_importer importer({.via = memfd_via::scm});
  return parent.send(importer.open(peer_id{1}, buffer->handle()).has_value()) ? 0 : 1;
}

}  // namespace

TEST(release_pid_namespace, a_child_with_the_number_of_its_parent_ends_no_exporter) {
  auto exporting = testing::in_pid_namespace(testing::proc_of::itself, export_and_make_another_process_1);
  const auto serves = exporting.talk().receive<bool>();
  if (!serves) GTEST_SKIP() << "no PID namespace may be made here";
  EXPECT_TRUE(*serves);
}

TEST(release_pid_namespace, R66_importers_without_a_number_do_not_count_as_one_process) {
  auto exporting = testing::in_pid_namespace(testing::proc_of::itself, export_memory);
  const auto handle = exporting.talk().receive<memfd_handle>();
  if (!handle) GTEST_SKIP() << "no PID namespace may be made here";
  if (::geteuid() == 65534)
    GTEST_SKIP() << "the exporter, in a user namespace, cannot distinguish this user from others";
  std::vector<endpoint> importers;
  for (auto i = 0; i <= server::most_of_a_process; ++i) {
    auto socket = fd_passing::connect_to({handle->exporter, 0, 0}, fd_passing::socket_purpose::release);
    ASSERT_TRUE(socket);
    importers.push_back(endpoint::of(std::move(*socket)));
    const auto opening = sealed({.exporter = handle->exporter, .serial = handle->serial, .tag = 1});
    ASSERT_EQ(importers.back().send(opening), endpoint::sent::done);
    ASSERT_TRUE(os::readable_within(importers.back().socket, std::chrono::seconds{60}));
    release_message said;
    ASSERT_EQ(importers.back().receive(said), endpoint::received::message) << i;
    EXPECT_EQ(said.kind, release_kind::admitted);
  }
}

}  // namespace pinfold::release::release_pid_namespace_test
