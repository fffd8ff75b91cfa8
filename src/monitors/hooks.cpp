// SPDX-License-Identifier: BSD-3-Clause
#include "monitors/hooks.hpp"

#include "monitors/hooks_events.hpp"
#include "monitors/hooks_find.hpp"
#include "monitors/hooks_guard.hpp"
#include "monitors/hooks_install.hpp"
#include "watch/wiped_pages.hpp"

#include <atomic>
#include <mutex>

namespace pinfold::monitors {

namespace {

/// How many monitors there are. On a page that is wiped in a child, where the lock must not stay held by a thread that
/// is not there, and where there are none: the code is changed still, but the next `install` finds that.
struct life {
  std::mutex mutex;
  unsigned monitors = 0;  // guarded by mutex
};
std::atomic<life*> the_life{nullptr};

life* life_here() noexcept {
  life* found = the_life.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  void* const page = watch::wiped_pages(sizeof(life));
  if (page == nullptr) return nullptr;
  auto* const made = new (page) life;
  if (the_life.compare_exchange_strong(found, made)) return made;
  ::munmap(page, sizeof(life));
  return found;
}

class hooks final : public watch::monitor {
 public:
  hooks(watch::board& board, const found_functions& found) noexcept
      : board_(board), found_(found), process_(board.process()) {}
  ~hooks() override {
    if (!counted_ || board_.process() != process_) return;
    const std::lock_guard locked(the_life.load()->mutex);
    if (--the_life.load()->monitors != 0) return;
    jumps::remove();
    events::post_to(nullptr, nullptr);
  }

  /// With the lock held.
  result<void> join(life& all) noexcept {
    if (all.monitors == 0 || !jumps::lead_to_us({&found_, 1}))
      if (auto done = jumps::install({&found_, 1}); !done) return done;
    ++all.monitors;
    counted_ = true;
    return {};
  }

  [[nodiscard]] const char* name() const noexcept override { return "hooks"; }
  [[nodiscard]] result<void> watch(const range& /*pages*/) noexcept override {
    return works() ? result<void>{} : regain();
  }
  [[nodiscard]] bool works() const noexcept override { return guard::intact() && !guard::writable(); }

 private:
  // Another library has changed what leads to us. What was kept until now is gone: what happened to it since was
  // perhaps not seen. What is kept from now on waits until all is in place again, on top of what was put over it.
  result<void> regain() noexcept {
    if (board_.process() != process_) return fail(errc::closed, "the hooks are the parent process's");
    const std::lock_guard locked(the_life.load()->mutex);
    if (works()) return {};
    board_.post_everything(watch::source::hooks);
    if (guard::writable()) return fail(errc::closed, "another library is changing the code of libc");
    if (jumps::lead_to_us({&found_, 1})) return {};  // through another copy of this library
    return jumps::install({&found_, 1});
  }

  watch::board& board_;
  const found_functions found_;
  std::uint64_t process_;
  bool counted_ = false;
};

}  // namespace

void prepare_hooks() {
  if (stay_loaded()) static_cast<void>(find_functions());  // what is not found now is told by `make_hooks`
}

result<std::unique_ptr<watch::monitor>> make_hooks(watch::board& board, watch::watched_memory& memory) {
  life* const all = life_here();
  if (all == nullptr) return fail(errc::out_of_resources, "no page that a child finds empty (needs Linux 4.14)");
  if (auto kept = stay_loaded(); !kept) return tl::unexpected(kept.error());
  const auto found = find_functions();  // before the lock: the linker's own is held by constructors, which come here
  if (!found) return tl::unexpected(found.error());
  auto made = std::make_unique<hooks>(board, *found);
  const std::lock_guard locked(all->mutex);
  if (auto done = made->join(*all); !done) return tl::unexpected(done.error());
  events::post_to(&board, &memory);
  return made;
}

}  // namespace pinfold::monitors
