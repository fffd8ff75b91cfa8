// SPDX-License-Identifier: BSD-3-Clause
// An exporter that is short of resources: to close mappings here would give it none.
#include "fd_passing/wire.hpp"
#include "support/fixtures/memfd_test.hpp"

#include <pinfold/import_cache.hpp>
#include <pinfold/importers/memfd.hpp>
#include <pinfold/release/listener.hpp>
#include <pinfold/release/releasing_importer.hpp>

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <functional>
#include <stop_token>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>
#include <utility>
#include <vector>

namespace pinfold::testing::exporter_shortage_test {
namespace {

using fd_passing::reply;
using fd_passing::reply_state;
using fd_passing::socket_purpose;

constexpr std::size_t bytes = 4096;
constexpr int kept = 3;

/// An exporter of this process that gives `answer(request)` to every request of type `Request`.
template <class Request, class Answer>
class answering_exporter {
 public:
  using answer_call = std::function<Answer(const Request&)>;

  answering_exporter(socket_purpose purpose, answer_call answer)
      : id_(fd_passing::new_origin().value()),
        listener_(fd_passing::listen_at(id_.exporter, purpose).value()),
        thread_([this, answer = std::move(answer)](const std::stop_token& end) { serve(end, answer); }) {}

  [[nodiscard]] memfd_handle handle() const {
    auto made = handle_of(file_, bytes);
    made.exporter = id_.exporter;
    return memfd::completed(made);
  }

 private:
  void serve(const std::stop_token& end, const answer_call& answer) {
    os::file socket;
    while (!end.stop_requested()) {
      if (!socket) socket = os::file(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
      Request asked{};
      const auto got = socket ? ::recv(socket.number(), &asked, sizeof asked, 0) : -1;
      const auto said = answer(asked);
      if (got == sizeof asked) static_cast<void>(::send(socket.number(), &said, sizeof said, MSG_NOSIGNAL));
      if (got == 0) socket = os::file();
      if (got < 0) ::usleep(1000);
    }
  }

  os::file file_ = sealed_file(bytes, all_seals);
  fd_passing::exporter_id id_;
  os::file listener_;
  std::jthread thread_;
};

using descriptor_exporter = answering_exporter<fd_passing::request, reply>;

/// A cache with idle memory of another exporter.
template <class Importer>
struct filled_cache {
  explicit filled_cache(Importer importer) : cache(std::move(importer)) {
    for (int i = 0; i < kept; ++i) {
      const auto handle = other.allocate(bytes, 1);
      EXPECT_TRUE(cache.acquire({1}, handle, handle.base, bytes));
    }
  }

  void expect_refused(const memfd_handle& handle, int native) {
    const auto lease = cache.acquire({2}, handle, handle.base, bytes);
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error(), errc::driver_error) << describe(lease.error());
    EXPECT_EQ(lease.error().native, native) << describe(lease.error());
    EXPECT_EQ(cache.statistics().open, std::size_t{kept}) << "idle memory of another exporter was closed";
  }

  exporter_peer other{{.serve = true, .release = true}};
  import_cache<Importer> cache;
};

TEST(exporter_shortage, R7_evicts_nothing_where_the_exporter_passes_no_descriptor_on) {
  const std::vector<reply> replies{
      {.serial = 1, .state = reply_state::exhausted, .native = ETOOMANYREFS},
      {.serial = 1, .state = reply_state::failed, .code = errc::out_of_resources, .native = EMFILE},
      {.serial = 1, .state = reply_state::failed, .code = errc::already_mapped, .native = EBUSY}};
  filled_cache here(memfd_importer({.via = memfd_via::scm}));
  for (const auto& each : replies) {
    const descriptor_exporter exporter(socket_purpose::descriptors, [each](const auto&) { return each; });
    here.expect_refused(exporter.handle(), each.native);
  }
}

TEST(exporter_shortage, R7_evicts_nothing_where_the_exporter_has_no_memory_to_count_the_importer) {
  auto listener = release_listener::create().value();
  filled_cache here(releasing_importer<memfd_importer>(memfd_importer(), listener));
  const auto attached = listener.attach(here.cache).value();
  const answering_exporter<release_message, release_message> exporter(socket_purpose::release,
                                                                      [](release_message asked) {
                                                                        asked.kind = release_kind::refused;
                                                                        asked.state = release_state::unknown;
                                                                        return sealed(asked);
                                                                      });
  here.expect_refused(exporter.handle(), ENOMEM);
}

TEST(exporter_shortage, reply_without_its_descriptor_is_malformed) {
  const descriptor_exporter exporter(socket_purpose::descriptors,
                                     [](const auto&) { return reply{.serial = 1, .state = reply_state::granted}; });
  memfd_importer importer({.via = memfd_via::scm});
  const auto made = importer.open(any_peer, exporter.handle());
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error(), errc::unsupported) << describe(made.error());
}

}  // namespace
}  // namespace pinfold::testing::exporter_shortage_test
