// SPDX-License-Identifier: BSD-3-Clause
// `pinfold metrics`: its text, its file and its server.
#include "support/fixtures/forged_page.hpp"
#include "support/fixtures/local_fixture.hpp"
#include "support/fixtures/page_folder.hpp"
#include "support/host/settings.hpp"
#include "support/processes/child_process.hpp"
#include "support/processes/http_client.hpp"
#include "support/processes/metrics_server.hpp"
#include "support/processes/tool_run.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pinfold::testing::cli_metrics_test {
namespace {

/// A child with a cache that publishes: three acquires, one of which hits, and a lease.
int with_cache(line& talk) {
  local_fixture f({.name = "he said \"hi\"\\", .max_bytes = 1 << 20, .publish_statistics = true});
  f.touch(0x10000, 0x12000);
  f.touch(0x10000, 0x12000);
  const auto lease = f.acquire(0x20000, 0x21000);
  talk.send(lease.has_value());
  static_cast<void>(talk.receive<bool>());
  return 0;
}

/// Returns the value of the first sample that contains the text; nothing without one.
std::string value_of(const std::string& text, const std::string& sample) {
  const auto at = text.find("\n" + sample);
  if (at == std::string::npos) return {};
  const auto end = text.find('\n', at + 1);
  const auto whole = text.substr(at, end - at);
  return whole.substr(whole.rfind(' ') + 1);
}

/// Prints the pages until the child has published its three acquires.
std::string text_of(const child_process& child, const std::string& options = "") {
  outcome seen;
  for (int i = 0; i < 2000 && value_of(seen.out, "pinfold_acquires_total{") != "3"; ++i) {
    seen = run("metrics " + options + " " + std::to_string(child.pid()));
    EXPECT_EQ(seen.status, 0) << seen.complaints;
  }
  return seen.out;
}

/// Expects that promtool finds nothing to say. Returns false where it is not installed.
bool promtool_likes(const std::string& folder, const std::string& text) {
  if (std::system("command -v promtool >/dev/null") != 0) return false;
  const auto path = folder + "/checked";
  std::ofstream(path) << text;
  FILE* const pipe = ::popen(("promtool check metrics <'" + path + "' 2>&1").c_str(), "r");
  std::string said;
  for (int one = 0; (one = std::fgetc(pipe)) != EOF;) said += static_cast<char>(one);
  EXPECT_EQ(::pclose(pipe), 0) << said << text;
  EXPECT_EQ(said, "");
  return true;
}

class cli_metrics : public ::testing::Test {
 protected:
  page_folder folder;
};

TEST_F(cli_metrics, prints_what_a_running_process_counts) {
  child_process child(with_cache);
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto text = text_of(child);
  EXPECT_EQ(value_of(text, "pinfold_acquires_total{"), "3");
  EXPECT_EQ(value_of(text, "pinfold_hits_total{"), "1");
  EXPECT_EQ(value_of(text, "pinfold_used_bytes{"), "12288");
  EXPECT_EQ(value_of(text, "pinfold_limit_bytes{"), "1048576.0");
  EXPECT_EQ(value_of(text, "pinfold_open_seconds_count{"), "1");
  EXPECT_NE(text.find(R"(cache="he said \"hi\"\\",number="1",registrar="pretend")"), std::string::npos) << text;
  EXPECT_TRUE(text.ends_with("\n# EOF\n"));
  child.stop();
  const auto stopped = [] { return run("metrics").out.find(R"(state="stopped"} 1)") != std::string::npos; };
  bool seen = false;
  for (int i = 0; i < 2000 && !seen; ++i) seen = stopped();
  EXPECT_TRUE(seen);
  child.kill();
  EXPECT_EQ(run("metrics").out.find("pinfold_hits_total"), std::string::npos);
}

TEST_F(cli_metrics, prints_what_promtool_likes) {
  child_process child(with_cache);
  ASSERT_TRUE(child.talk().receive<bool>());
  if (!promtool_likes(folder.path(), text_of(child, "--format prometheus"))) GTEST_SKIP() << "promtool is not here";
}

TEST_F(cli_metrics, replaces_a_file_whole) {
  child_process child(with_cache);
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto path = folder.path() + "/pinfold.prom";
  ASSERT_EQ(run("metrics --output '" + path + "'").status, 0);
  const auto first = contents_of(path);
  EXPECT_NE(first.find("# TYPE pinfold_hits_total counter"), std::string::npos) << first;
  EXPECT_EQ(first.find("# EOF"), std::string::npos);
  std::filesystem::create_directory(folder.path() + "/taken");
  const auto refused = run("metrics --output '" + folder.path() + "/taken'");
  EXPECT_EQ(refused.status, 1);
  EXPECT_NE(refused.complaints.find("cannot write the file"), std::string::npos) << refused.complaints;
  for (const auto& one : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(one.path().string().find("taken."), std::string::npos) << "left over";
}

TEST_F(cli_metrics, writes_a_file_again_and_again) {
  const auto path = folder.path() + "/pinfold.prom";
  child_process writer([&](line&) {
    return ::execl(tool().c_str(), "pinfold", "metrics", "--output", path.c_str(), "--interval", "0.1", nullptr);
  });
  const auto awaits = [&](const std::string& wanted) {
    for (int i = 0; i < 6000 && value_of(contents_of(path), "pinfold_pages") != wanted; ++i) ::usleep(10'000);
    return value_of(contents_of(path), "pinfold_pages");
  };
  EXPECT_EQ(awaits("0"), "0");
  forged_page().write(folder.path());
  EXPECT_EQ(awaits("1"), "1");
}

TEST_F(cli_metrics, writes_a_file_again_once_there_is_room) {
  const auto path = folder.path() + "/pinfold.prom";
  const auto said = folder.path() + "/.said";
  child_process writer([&](line&) {
    std::freopen(said.c_str(), "w", stderr);
    return ::execl(tool().c_str(), "pinfold", "metrics", "--output", path.c_str(), "--interval", "0.1", nullptr);
  });
  const auto awaits = [](const auto& done) {
    for (int i = 0; i < 6000 && !done(); ++i) ::usleep(10'000);
    return done();
  };
  const auto shows = [&](const std::string& pages) { return value_of(contents_of(path), "pinfold_pages") == pages; };
  const auto says = [&](const std::string& words) { return contents_of(said).find(words) != std::string::npos; };
  ASSERT_TRUE(awaits([&] { return shows("0"); }));
  rlimit room{};
  ASSERT_EQ(::prlimit(writer.pid(), RLIMIT_FSIZE, nullptr, &room), 0);
  const rlimit none{200, room.rlim_max};  // enough for what it says
  ASSERT_EQ(::prlimit(writer.pid(), RLIMIT_FSIZE, &none, nullptr), 0);
  ASSERT_TRUE(awaits([&] { return says("cannot write the file: File too large"); })) << contents_of(said);
  forged_page().write(folder.path());
  ::usleep(500'000);
  EXPECT_TRUE(shows("0") && writer.runs());
  ASSERT_EQ(::prlimit(writer.pid(), RLIMIT_FSIZE, &room, nullptr), 0);
  EXPECT_TRUE(awaits([&] { return shows("1") && says("is written again"); }));
  ::kill(writer.pid(), SIGTERM);
  EXPECT_EQ(writer.reap(), 0);
  const auto text = contents_of(said);
  EXPECT_EQ(std::ranges::count(text, '\n'), 2) << text;
  for (const auto& one : std::filesystem::directory_iterator(folder.path()))
    EXPECT_EQ(one.path().string().find("prom."), std::string::npos) << "left over";
}

TEST_F(cli_metrics, says_what_it_cannot_do) {
  expect_each_refused({{"metrics 0", "0"},
                       {"metrics --interval 1s", "--output"},
                       {"metrics --format json", "json"},
                       {"metrics --output f --interval 0", "0"}});
  if (tool_serves())
    expect_each_refused({{"metrics --listen 9400", "9400"},
                         {"metrics --listen 0.0.0.0:9400", "127.0.0.1"},
                         {"metrics --listen 127.0.0.1:65536", "65536"},
                         {"metrics --listen 127.0.0.1:", "127.0.0.1:"}});
  const auto long_path = "--listen /" + std::string(107, 'p');
  if (tool_serves()) expect_refused("metrics " + long_path, long_path + ": the path of a socket");
  const auto none = run("metrics 1");
  EXPECT_EQ(none.status, 1);
  EXPECT_NE(none.complaints.find("no statistics page"), std::string::npos) << none.complaints;
}

TEST_F(cli_metrics, serves_the_format_that_a_client_accepts) {
  if (!tool_serves()) GTEST_SKIP() << "built without libmicrohttpd";
  child_process child(with_cache);
  ASSERT_TRUE(child.talk().receive<bool>());
  const auto path = folder.path() + "/socket";
  metrics_server at_path(path);
  metrics_server at_port("127.0.0.1:0");
  const std::string prometheus =
      "Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
      "text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\n";
  for (const auto& answer :
       {http_client(path).get("/metrics", prometheus), http_client(at_port.port()).get("/metrics", prometheus)}) {
    EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 ")) << answer;
    EXPECT_NE(answer.find("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
              std::string::npos)
        << answer;
    EXPECT_TRUE(answer.ends_with("# EOF\n")) << answer;
  }
  for (const char* accept : {"", "Accept: */*\r\n", "Accept: text/plain, application/openmetrics-text;q=0.5\r\n",
                             "Accept: application/openmetrics-text;q=0\r\n", "Accept: ;;,q=;version=,\r\n",
                             "Accept: application/openmetrics-text;version=2.0.0\r\n"}) {
    const auto answer = http_client(path).get("/metrics", accept);
    EXPECT_NE(answer.find("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"), std::string::npos) << answer;
    EXPECT_EQ(answer.find("# EOF"), std::string::npos);
  }
  EXPECT_EQ(at_path.end(), 0);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(cli_metrics, leaves_a_file_that_took_the_name_of_its_socket) {
  if (!tool_serves()) GTEST_SKIP() << "built without libmicrohttpd";
  const auto path = folder.path() + "/metrics";
  metrics_server first(path);
  std::filesystem::remove(path);
  metrics_server second(path);
  EXPECT_EQ(first.end(), 0);
  EXPECT_TRUE(std::filesystem::is_socket(path)) << "it is that of the second server";
  EXPECT_EQ(second.end(), 0);
  EXPECT_FALSE(std::filesystem::exists(path));
}

/// Returns the `errno` value of a connect, or 0.
int look_at(const std::string& path) {
  sockaddr_un at{.sun_family = AF_UNIX, .sun_path = {}};
  path.copy(at.sun_path, sizeof at.sun_path - 1);
  const int one = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  const int seen = ::connect(one, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0 ? 0 : errno;
  ::close(one);
  return seen;
}

TEST_F(cli_metrics, removes_the_name_of_its_socket_while_it_listens) {
  if (!tool_serves()) GTEST_SKIP() << "built without libmicrohttpd";
  const auto path = folder.path() + "/metrics";
  for (int round = 0; round < 20; ++round) {
    metrics_server server(path);
    const std::jthread ending([&] { EXPECT_EQ(server.end(), 0); });
    int seen = 0;
    while (seen != ENOENT && seen != ECONNREFUSED) seen = look_at(path);
    ASSERT_EQ(seen, ENOENT) << "another server would take the name just before it is removed";
  }
}

TEST_F(cli_metrics, waits_a_second_while_another_server_looks_for_a_left_over_socket) {
  if (!tool_serves()) GTEST_SKIP() << "built without libmicrohttpd";
  const int locked = ::open(folder.path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_EQ(::flock(locked, LOCK_EX | LOCK_NB), 0);
  const auto start = std::chrono::steady_clock::now();
  metrics_server server(folder.path() + "/metrics");
  EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::seconds{1});
  ::close(locked);
  EXPECT_EQ(server.end(), 0);
}

TEST_F(cli_metrics, refuses_what_is_no_get_of_metrics) {
  if (!tool_serves()) GTEST_SKIP() << "built without libmicrohttpd";
  metrics_server server("127.0.0.1:0");
  const auto status = [&](const std::string& request) {
    http_client client(server.port());
    client.send(request);
    const auto answer = client.rest();
    return answer.substr(0, answer.find("\r\n"));
  };
  const std::string host = "Host: x\r\n";
  EXPECT_EQ(status("GET / HTTP/1.1\r\n" + host + "\r\n"), "HTTP/1.1 404 Not Found");
  EXPECT_EQ(status("POST /metrics HTTP/1.1\r\n" + host + "Content-Length: 4\r\n\r\nabcd"),
            "HTTP/1.1 405 Method Not Allowed");
  EXPECT_EQ(status("GET /metrics HTTP/1.1\r\n\r\n"), "HTTP/1.1 400 Bad Request");
  const auto long_one = status("GET /metrics HTTP/1.1\r\n" + host + "X: " + std::string(1 << 20, 'x') + "\r\n\r\n");
  EXPECT_EQ(long_one.find("200"), std::string::npos) << long_one;
  http_client twice(server.port());
  twice.send("HEAD /metrics HTTP/1.1\r\n" + host + "\r\nGET /metrics HTTP/1.1\r\n" + host + "\r\n");
  const auto once = twice.rest();
  EXPECT_EQ(once.find("HTTP/1.1", 1), std::string::npos) << "two answers on one connection: " << once;
  EXPECT_EQ(server.end(), 0);
}

TEST_F(cli_metrics, does_not_wait_for_slow_clients) {
  if (!tool_serves()) GTEST_SKIP() << "built without libmicrohttpd";
  metrics_server server("127.0.0.1:0");
  std::vector<http_client> slow;
  for (int i = 0; i < 100; ++i) slow.emplace_back(server.port()).send("GET /metrics HTTP/1.1\r\nHo");
  EXPECT_TRUE(http_client(server.port()).get("/metrics").starts_with("HTTP/1.1 200 "));
  // The server drops a client that says nothing for ten seconds, for which this thread may get no processor.
  bool answered = false;
  for (int tries = 0; tries < 20 && !answered; ++tries) {
    http_client late(server.port());
    late.send("GET /metrics HTTP/1.1\r\nHo");
    EXPECT_TRUE(http_client(server.port()).get("/metrics").starts_with("HTTP/1.1 200 "));
    late.send("st: x\r\n\r\n");
    answered = late.rest().starts_with("HTTP/1.1 200 ");
  }
  EXPECT_TRUE(answered);
}

TEST_F(cli_metrics, reads_damaged_pages) {
  const auto seed = test_seed();
  std::mt19937_64 random(seed);
  const auto below = [&](std::size_t limit) {
    return std::uniform_int_distribution<std::size_t>(0, limit - 1)(random);
  };
  for (int round = 0; round < 5; ++round) {
    for (int copy = 0; copy < 30; ++copy) {
      forged_page page;
      set_text(page.cache.name, "\"\n\\} 1\n# TYPE evil counter\n");
      set_text(page.header.command, std::string(64, '\n'));
      const auto path = page.write(folder.path(), copy);
      auto bytes = page.bytes();
      const auto interesting = [&] { return below(2) == 0 ? below(512) : observation::caches_from + below(4096); };
      for (std::size_t i = below(64); i > 0; --i) bytes[interesting()] = static_cast<char>(below(256));
      if (below(4) == 0) bytes.resize(below(bytes.size()));
      std::ofstream(path, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    }
    const auto seen = run("metrics --format prometheus");
    ASSERT_TRUE(seen.status == 0 || seen.status == 1) << seen.status << seen.complaints;
    EXPECT_EQ(seen.out.find("\n# TYPE evil"), std::string::npos) << seen.out;
    EXPECT_FALSE(value_of("\n" + seen.out, "pinfold_pages").empty()) << seen.out;
    static_cast<void>(promtool_likes(folder.path(), seen.out));
  }
}

}  // namespace
}  // namespace pinfold::testing::cli_metrics_test
