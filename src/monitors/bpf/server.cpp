// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/bpf/server.hpp"

#include "monitors/bpf/failure.hpp"
#include "os/check.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/file.h>
#include <thread>

namespace pinfold::monitors {

namespace {

constexpr int rest_ms = 100;
constexpr int accepts_a_round = 256;  // so that connections that are closed at once delay no client
constexpr std::int64_t linger_ms = 1000;
constexpr std::size_t most_clients = pinfold_slots;

std::int64_t now_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Returns whether this process is in the first PID namespace, whose process numbers the kernel programs report.
bool in_first_namespace() {
  constexpr ino_t first = 0xEFFFFFFC;  // PROC_PID_INIT_INO
  struct stat mine{};
  return ::stat("/proc/self/ns/pid", &mine) == 0 && mine.st_ino == first;
}

// Returns whether the other end is closed, and has said nothing.
bool has_left(const os::file& socket) {
  pollfd one{.fd = socket.number(), .events = POLLIN, .revents = 0};
  return ::poll(&one, 1, 0) > 0 && (one.revents & (POLLHUP | POLLERR)) != 0;
}

bool is_left_over(const bpf_server_options& options, const bpf_address& address) {
  struct stat found{};
  if (options.socket.front() == '@' || ::lstat(options.socket.c_str(), &found) != 0) return false;
  if (!S_ISSOCK(found.st_mode)) return false;
  const os::file probe(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* const name = reinterpret_cast<const sockaddr*>(&address.name);
  return ::connect(probe.number(), name, address.bytes) != 0 && errno == ECONNREFUSED;
}

// Locks the socket's folder until the file is closed: of two servers that start at once, each would otherwise take the
// other's socket, which does not listen yet, for one that a killed server left. A folder that another process keeps
// locked delays this one by a second.
os::file locked_folder_of(const std::string& socket) {
  constexpr auto pause = std::chrono::milliseconds{10};
  constexpr auto longest = std::chrono::seconds{1};
  if (socket.front() == '@') return {};
  const auto slash = socket.rfind('/');
  const auto folder = slash == std::string::npos ? "." : socket.substr(0, slash + 1);
  os::file made(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  const auto end = std::chrono::steady_clock::now() + longest;
  while (made && ::flock(made.number(), LOCK_EX | LOCK_NB) != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(pause);
  return made;
}

result<os::file> listen_at(const bpf_server_options& options) {
  const auto address = bpf_address::of(options.socket);
  if (!address) return tl::unexpected(address.error());
  constexpr mode_t any_user = 0666;
  if (options.socket.front() == '@' && options.mode != any_user)
    return fail(errc::invalid_argument, "any user may connect to a name without a file: it has no permissions");
  os::file made(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!made) return bpf_fail("cannot create a socket");
  os::refuse_descriptors(made);  // before it listens: connections have what the listener had when they were made
  const auto locked = locked_folder_of(options.socket);
  if (is_left_over(options, *address)) ::unlink(options.socket.c_str());
  const auto* const name = reinterpret_cast<const sockaddr*>(&address->name);
  if (::bind(made.number(), name, address->bytes) != 0)
    return fail_errno(errc::invalid_argument, errno, "cannot listen at this path");
  // Not the permissions of a link with which the owner of the folder may have replaced the socket.
  const bool opened = options.socket.front() == '@' ||
                      ::fchmodat(AT_FDCWD, options.socket.c_str(), options.mode, AT_SYMLINK_NOFOLLOW) == 0;
  if (!opened || ::listen(made.number(), accepts_a_round) != 0) return bpf_fail("cannot listen");
  return made;
}

}  // namespace

result<std::unique_ptr<bpf_server>> bpf_server::start(const bpf_server_options& options) {
  if (const auto tried = bpf_slots::load(); !tried) return tl::unexpected(tried.error());
  auto listener = listen_at(options);
  if (!listener) return tl::unexpected(listener.error());
  os::file wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake) return bpf_fail("cannot create an eventfd");
  os::file lent(::epoll_create1(EPOLL_CLOEXEC));
  if (!lent) return bpf_fail("cannot create an epoll");
  return std::unique_ptr<bpf_server>(new bpf_server(options, std::move(*listener), std::move(wake), std::move(lent)));
}

bpf_server::bpf_server(const bpf_server_options& options, os::file listener, os::file wake, os::file lent_rings)
    : options_(options),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      lent_rings_(std::move(lent_rings)),
      closer_(os::refuse_descriptors(listener_)) {
  static_cast<void>(::lstat(options_.socket.c_str(), &made_));  // an abstract name has no file
}

// Removes the socket's file, unless another server has the name by now.
bpf_server::~bpf_server() {
  struct stat there{};
  if (options_.socket.front() != '@' && ::lstat(options_.socket.c_str(), &there) == 0 && there.st_dev == made_.st_dev &&
      there.st_ino == made_.st_ino)
    ::unlink(options_.socket.c_str());
  for (client& one : clients_) closer_.close(std::move(one.socket));
  for (client& one : waiting_) closer_.close(std::move(one.socket));
  closer_.close(std::move(listener_));  // and the connections that it did not accept
}

void bpf_server::stop() noexcept {
  const std::uint64_t one = 1;
  static_cast<void>(::syscall(SYS_write, wake_.number(), &one, sizeof one));  // write is a cancellation point
}

void bpf_server::run() {
  while (wait()) {
    hear_all();
    if (!resting_ && (polled_[1].revents & POLLIN) != 0) accept_some();
    invite_some();
    client_count_.store(clients_.size() + waiting_.size(), std::memory_order_relaxed);
    let_go();
  }
}

// Drops the slots a while after the last client has left: if it dropped them at once, each of many short clients would
// wait for a load.
void bpf_server::let_go() {
  if (!may_drop()) idle_since_ = now_ms();
  if (now_ms() - idle_since_ < linger_ms) return;
  if (std::exchange(lent_, false)) ++dropped_;
  left_.clear();
  slots_.reset();
}

bool bpf_server::may_drop() const noexcept {
  return slots_ && clients_.empty() && (!lent_ || dropped_ < options_.most_dropped);
}

int bpf_server::poll_timeout() const {
  if (!waiting_.empty()) return 0;
  const bool waiting = std::any_of(clients_.begin(), clients_.end(), [](const auto& one) { return !one.served; });
  return resting_ || waiting || may_drop() ? rest_ms : -1;
}

bool bpf_server::wait() {
  polled_.clear();
  polled_.push_back({.fd = wake_.number(), .events = POLLIN, .revents = 0});
  polled_.push_back({.fd = resting_ ? -1 : listener_.number(), .events = POLLIN, .revents = 0});
  for (const auto& one : clients_) polled_.push_back({.fd = one.socket.number(), .events = POLLIN, .revents = 0});
  const int ready = ::poll(polled_.data(), polled_.size(), poll_timeout());
  resting_ = false;
  if (ready < 0 && errno != EINTR) return rest();
  return polled_[0].revents == 0;
}

// Rests after a failed poll: no memory, or a descriptor limit below the number of clients. Returns false if the server
// must stop.
bool bpf_server::rest() const noexcept {
  std::uint64_t count = 0;
  ::poll(nullptr, 0, rest_ms);
  return ::read(wake_.number(), &count, sizeof count) < 0 && errno == EAGAIN;
}

void bpf_server::hear_all() {
  const auto too_old = now_ms() - bpf_secret_timeout.count();
  std::erase_if(clients_, [&](client& one) {
    if (hear(one) && (one.served || one.since > too_old)) return false;
    release(one);
    closer_.close(std::move(one.socket));
    return true;
  });
}

void bpf_server::release(client& one) {
  PINFOLD_ASSERT(slots_ != nullptr, "the slots stay while there are clients");
  slots_->release(one.slot);
  forget_left();
  if (const auto owner = slots_->owner_of(one.slot.number); owner != 0)  // its address space may end at any time
    left_.push_back({one.slot.number, owner, one.credentials});
}

// Handles a client's message. Returns false if the client has left or sends an invalid message; a client with a ring
// has nothing more to send.
bool bpf_server::hear(client& from) {
  pollfd one{.fd = from.socket.number(), .events = POLLIN, .revents = 0};
  if (::poll(&one, 1, 0) <= 0) return true;
  if (os::next_has_descriptors(from.socket)) return false;
  const auto heard = bpf_receive(from.socket.number());
  return heard && !from.served && hand_out(from);
}

int bpf_server::refusal(const client& asker, const pinfold_invitation& invitation) const {
  if (invitation.answer == pinfold_second) return EEXIST;
  if (invitation.answer != pinfold_accepted) return EPROTO;
  static const bool comparable = in_first_namespace();
  return comparable && invitation.process != static_cast<std::uint32_t>(asker.credentials.pid) ? EPERM : 0;
}

// Returns whether the user has as many rings as it may have, or all users have as many as there are slots. A process
// may keep its ring after its slot is free, or pass it on; it keeps it uncounted where it may pin it (BPF_OBJ_PIN in a
// file system that it can write to; systemd mounts /sys/fs/bpf for root alone). The epoll reports each ring, since maps
// are always ready with an error, until the kernel has closed its file: after the last descriptor and the last mapping.
bool bpf_server::has_all_rings(uid_t user) const {
  if (user == 0) return false;
  std::array<epoll_event, most_clients> rings{};
  const int count = ::epoll_wait(lent_rings_.number(), rings.data(), most_clients, 0);
  if (count < 0 || count == most_clients) return true;
  const auto of_user = [&](const epoll_event& one) { return one.data.u32 == user; };
  const auto had = std::count_if(rings.begin(), rings.begin() + count, of_user);
  return static_cast<std::size_t>(had) >= options_.most_per_user;
}

// Notes that the client gets its ring. Returns why it must not, or 0.
int bpf_server::lend(const client& to) {
  if (to.credentials.uid == 0) return 0;
  if (has_all_rings(to.credentials.uid)) return ENOSPC;
  epoll_event ring{.events = 0, .data = {.u32 = to.credentials.uid}};
  return ::epoll_ctl(lent_rings_.number(), EPOLL_CTL_ADD, to.slot.ring.number(), &ring) == 0 ? 0 : errno;
}

bool bpf_server::hand_out(client& to) {
  PINFOLD_ASSERT(slots_ != nullptr && !to.served, "a client gets its ring once, while the slots are there");
  const auto invitation = slots_->answer(to.slot);
  bpf_message reply;
  reply.refused = invitation ? refusal(to, *invitation) : invitation.error().native;
  if (reply.refused == 0) reply.refused = lend(to);
  if (reply.refused != 0) {
    static_cast<void>(bpf_send(to.socket.number(), reply));
    return false;
  }
  reply.first_generation = to.slot.first_generation;
  bpf_passed descriptors{to.slot.ring.number()};
  for (std::size_t i = 0; i < bpf_link_count; ++i) descriptors[i + 1] = slots_->links()[i].number();
  to.served = bpf_send(to.socket.number(), reply, &descriptors);
  lent_ = lent_ || to.credentials.uid != 0;
  return to.served;
}

// Handles closed connections first, so that a client that closes a connection and opens another gives back its slot
// first. Connections that were closed meanwhile, or are refused, cost nothing more.
void bpf_server::accept_some() {
  std::vector<client> fresh;
  resting_ = !closer_.has_room();
  for (int i = 0; i < accepts_a_round && !resting_; ++i) {
    os::file socket(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket) {
      resting_ = errno != EAGAIN && errno != EINTR && errno != ECONNABORTED;
      break;
    }
    if (!has_left(socket)) {
      fresh.push_back({std::move(socket), {}, {}, false, 0});
      continue;
    }
    closer_.close(std::move(socket));
    resting_ = !closer_.has_room();
  }
  if (fresh.empty()) return;
  hear_all();
  if (slots_) forget_left();
  for (client& one : fresh)
    if (const int refused = why_not(one); refused != 0)
      greet(one, refused);
    else
      waiting_.push_back(std::move(one));
}

// Returns how many rings the asker's user has, without one that the asker itself has left: it loses that one when it
// takes another.
std::size_t bpf_server::rings_beside(const ucred& asker) const {
  const auto of_user = [&](const auto& one) { return one.credentials.uid == asker.uid; };
  const auto own = [&](const auto& one) { return asker.pid != 0 && one.credentials.pid == asker.pid && of_user(one); };
  const auto all = std::ranges::count_if(clients_, of_user) + std::ranges::count_if(left_, of_user) +
                   std::ranges::count_if(waiting_, of_user);
  return static_cast<std::size_t>(all) - (std::ranges::any_of(left_, own) ? 1 : 0);
}

void bpf_server::forget_left() {
  std::erase_if(left_, [&](const auto& one) { return slots_->owner_of(one.number) != one.owner; });
}

// Returns why the asker gets no slot, or 0.
int bpf_server::why_not(client& asker) {
  const auto credentials = os::other_end(asker.socket);
  if (!credentials) return credentials.error().native;
  asker.credentials = *credentials;
  if (asker.credentials.uid != 0 && rings_beside(asker.credentials) >= options_.most_per_user) return ENOSPC;
  if (has_all_rings(asker.credentials.uid)) return ENOSPC;
  return clients_.size() + waiting_.size() >= most_clients ? ENOSPC : 0;
}

// Takes the first connection of each user that waits, then the second of each, until there is no room in a batch: a
// user with many connections does not keep the others from their slots.
std::vector<bpf_server::client> bpf_server::next_batch() {
  std::vector<client> batch;
  batch.reserve(bpf_slots::most_at_once);
  for (std::ptrdiff_t share = 1; !waiting_.empty() && batch.size() < bpf_slots::most_at_once; ++share)
    std::erase_if(waiting_, [&](client& one) {
      const auto of_user = [&](const client& other) { return other.credentials.uid == one.credentials.uid; };
      if (batch.size() == bpf_slots::most_at_once || std::ranges::count_if(batch, of_user) >= share) return false;
      if (has_left(one.socket))
        closer_.close(std::move(one.socket));
      else
        batch.push_back(std::move(one));
      return true;
    });
  return batch;
}

// Reserves the slots together: each change of the kernel programs' rings takes milliseconds, however many it makes.
void bpf_server::invite_some() {
  auto fresh = next_batch();
  if (fresh.empty()) return;
  int native = 0;
  if (!slots_) {
    auto loaded = bpf_slots::load();
    if (loaded) slots_ = std::make_unique<bpf_slots>(std::move(*loaded));
    if (!loaded) native = loaded.error().native == 0 ? ENOSYS : loaded.error().native;
  }
  std::vector<result<bpf_slot>> made(fresh.size());
  if (slots_) slots_->reserve(made);
  for (std::size_t i = 0; i < fresh.size(); ++i) {
    if (slots_ && !made[i]) native = made[i].error().native == 0 ? ENOSPC : made[i].error().native;
    const bool has_slot = slots_ && made[i];
    if (has_slot) fresh[i].slot = std::move(*made[i]);
    greet(fresh[i], has_slot ? 0 : native);
  }
}

void bpf_server::greet(client& asker, int refused) {
  bpf_message greeting;
  greeting.refused = refused;
  greeting.secret = asker.slot.secret;
  const bool heard = bpf_send(asker.socket.number(), greeting);
  PINFOLD_ASSERT(refused != 0 || (slots_ != nullptr && clients_.size() < most_clients),
                 "a client that is invited has a slot");
  asker.since = now_ms();
  if (refused == 0 && heard) return clients_.push_back(std::move(asker));
  if (refused == 0) slots_->release(asker.slot);
  closer_.close(std::move(asker.socket));
}

}  // namespace pinfold::monitors
