// SPDX-License-Identifier: BSD-3-Clause
#include "metrics/server.hpp"

#include "cli/failure.hpp"
#include "metrics/accept.hpp"
#include "metrics/collection.hpp"
#include "metrics/connections.hpp"
#include "metrics/ending.hpp"
#include "metrics/listener.hpp"
#include "metrics/recent.hpp"

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <microhttpd.h>
#include <string_view>
#include <system_error>

namespace tool {
namespace {

constexpr unsigned most_clients = 256;
constexpr std::size_t most_kept_clients = 192;  // the others are being closed
constexpr std::size_t request_bytes = 16384;    // with the memory for the answer's head
constexpr unsigned longest_silence_s = 10;
constexpr std::chrono::seconds longest_connection{20};
constexpr std::chrono::milliseconds between_looks{500};
constexpr std::chrono::seconds between_readings{1};

struct stops {
  void operator()(MHD_Daemon* one) const noexcept { MHD_stop_daemon(one); }
};

using http_daemon = std::unique_ptr<MHD_Daemon, stops>;

struct destroys {
  void operator()(MHD_Response* one) const noexcept { MHD_destroy_response(one); }
};

using answer = std::unique_ptr<MHD_Response, destroys>;

// A slow client keeps the answer that it gets, so answers are made once a second and not once for each client.
struct server {
  std::vector<std::size_t> pids;
  connections clients{most_kept_clients};
  recent<answer> open_metrics{between_readings};
  recent<answer> prometheus{between_readings};

  [[nodiscard]] const answer& metrics(pinfold::observation::metrics_format as);
};

answer answer_with(std::string_view text, const char* type) {
  // libmicrohttpd copies the text, and takes it as a pointer to what it could change.
  answer made(MHD_create_response_from_buffer(text.size(), const_cast<char*>(text.data()), MHD_RESPMEM_MUST_COPY));
  if (!made) throw std::bad_alloc();
  MHD_add_response_header(made.get(), MHD_HTTP_HEADER_CONTENT_TYPE, type);
  MHD_add_response_header(made.get(), MHD_HTTP_HEADER_CONNECTION, "close");
  return made;
}

const answer& server::metrics(pinfold::observation::metrics_format as) {
  auto& kept = as == pinfold::observation::metrics_format::open_metrics ? open_metrics : prometheus;
  return kept.get([&] { return answer_with(collect(pids).text(as), pinfold::observation::media_type_of(as)); });
}

MHD_Result send(MHD_Connection* to, unsigned status, const answer& what) {
  return MHD_queue_response(to, status, what.get());
}

MHD_Result send_text(MHD_Connection* to, unsigned status, std::string_view text) {
  auto made = answer_with(text, "text/plain; charset=utf-8");
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED) MHD_add_response_header(made.get(), MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  return send(to, status, made);
}

MHD_Result send_metrics(MHD_Connection* to, server& from) {
  const char* const accept = MHD_lookup_connection_value(to, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
  const auto as = format_for(accept != nullptr ? accept : "");
  try {
    return send(to, MHD_HTTP_OK, from.metrics(as));
  } catch (const failure& problem) {
    return send_text(to, MHD_HTTP_INTERNAL_SERVER_ERROR, std::string(problem.what()) + "\n");
  }
}

MHD_Result respond(server& from, MHD_Connection* to, std::string_view path, std::string_view method) {
  if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD)
    return send_text(to, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET and HEAD are served\n");
  if (path != "/metrics") return send_text(to, MHD_HTTP_NOT_FOUND, "only /metrics is served\n");
  return send_metrics(to, from);
}

// Called when the request's head has arrived, and once more at its end. A body is not wanted: whatever is not a GET or
// HEAD is answered before it is read.
MHD_Result on_request(void* self, MHD_Connection* to, const char* path, const char* method, const char* /*version*/,
                      const char* /*body*/, std::size_t* body_bytes, void** seen) noexcept {
  static char mark = 0;
  const bool reads =
      std::string_view(method) == MHD_HTTP_METHOD_GET || std::string_view(method) == MHD_HTTP_METHOD_HEAD;
  if (*seen == nullptr && reads) return *seen = &mark, MHD_YES;
  if (*body_bytes != 0) return MHD_NO;
  try {
    return respond(*static_cast<server*>(self), to, path, method);
  } catch (const std::exception&) {  // no memory
    return MHD_NO;
  }
}

void on_connection(void* self, MHD_Connection* which, void** /*own*/, MHD_ConnectionNotificationCode what) noexcept {
  const auto* const info = MHD_get_connection_info(which, MHD_CONNECTION_INFO_CONNECTION_FD);
  if (info == nullptr) return;
  auto& clients = static_cast<server*>(self)->clients;
  what == MHD_CONNECTION_NOTIFY_STARTED ? clients.begun(info->connect_fd) : clients.ended(info->connect_fd);
}

http_daemon start(server& with, listener& at) {
  constexpr unsigned flags = MHD_USE_EPOLL_INTERNAL_THREAD;
  const int socket = at.hand_over();
  http_daemon made(MHD_start_daemon(
      flags, 0, nullptr, nullptr, on_request, &with, MHD_OPTION_LISTEN_SOCKET, socket, MHD_OPTION_CONNECTION_LIMIT,
      most_clients, MHD_OPTION_CONNECTION_MEMORY_LIMIT, request_bytes, MHD_OPTION_CONNECTION_TIMEOUT, longest_silence_s,
      MHD_OPTION_STRICT_FOR_CLIENT, 1, MHD_OPTION_NOTIFY_CONNECTION, on_connection, &with, MHD_OPTION_END));
  if (!made) throw failure("cannot serve: " + std::generic_category().message(errno));
  return made;
}

}  // namespace

void serve_metrics(const std::string& address, const std::vector<std::size_t>& pids) {
  const ending_signals ending;  // before the server's thread, which does not take them
  server with{.pids = pids};
  http_daemon running;
  listener at(address);  // ends first: once its socket is closed, another server may take the name
  const auto url = at.url();
  running = start(with, at);
  std::printf("serving: curl %s; SIGINT or SIGTERM ends it\n", url.c_str());
  std::fflush(stdout);
  while (!ending.arrived_within(between_looks)) with.clients.cut_older_than(longest_connection);
}

}  // namespace tool
